# Promises as responses and as chunks: the use of packages promises and later.

# Starts a server that returns `make()` and sends it one request; returns the promise and the
# waiting client.
asked <- function(make, env = parent.frame()) {
  promise <- NULL
  server <- local_server(function(req) promise <<- make(), env)
  client <- local_client(server, env)
  # Runs callbacks that earlier tests have left.
  serve_until(later::loop_empty)
  send(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
  serve_until(function() !is.null(promise))
  list(client = client, promise = promise)
}

pending <- function() {
  promises::promise(function(resolve, reject) settle <<- list(resolve = resolve, reject = reject))
}
settle <- NULL

test_that("a promised response costs one callback of package later", {
  case <- asked(pending)
  settle$resolve(ok("late"))
  later::run_now(all = FALSE)
  # `then()` would create another promise, which is fulfilled in a callback of its own.
  expect_true(later::loop_empty())
  expect_identical(reply(case$client)$text, "late")
})

test_that("callbacks of then() run in order, before and after the response", {
  order <- c()
  note <- function(what) function(value) order <<- c(order, paste(what, value$body))
  case <- asked(function() {
    promise <- pending()
    promises::then(promise, note("before"))
    promise
  })
  promises::then(case$promise, note("after"))
  settle$resolve(ok("it"))
  expect_identical(reply(case$client)$text, "it")
  serve_until(later::loop_empty)
  expect_identical(order, c("before it", "after it"))
})

test_that("a rejection results in a response, and is not reported as unhandled", {
  case <- asked(pending)
  said <- stderr_of({
    settle$reject("no")
    expect_identical(reply(case$client)$text, "ERROR: no")
    serve_until(later::loop_empty)
  })
  expect_match(said, "GET / (a promise): no", fixed = TRUE, all = FALSE)
  expect_no_match(said, "Unhandled")
})

test_that("an active promise domain wraps the callbacks of a response", {
  wrapped <- 0
  domain <- promises::new_promise_domain(
    wrapOnFulfilled = function(func) {
      wrapped <<- wrapped + 1
      func
    },
    wrapOnRejected = identity
  )
  promises::with_promise_domain(domain, case <- asked(pending))
  expect_identical(wrapped, 1)
  settle$resolve(ok("seen"))
  expect_identical(reply(case$client)$text, "seen")
})

test_that("a promise with its own then() is used through it", {
  for (make in list(pending, function() promises::promise_resolve(ok("not this")))) {
    case <- asked(function() {
      promise <- make()
      promise$then <- function(onFulfilled, onRejected) {
        onFulfilled(ok("its own"))
        promises::promise_resolve(NULL)
      }
      promise
    })
    expect_identical(reply(case$client)$text, "its own")
  }
})

test_that("a promised chunk costs one callback of package later", {
  settle <<- NULL
  case <- asked(function() {
    list(status = 200L, headers = list("Content-Length" = "3"), body = pending)
  })
  serve_until(function() !is.null(settle))
  settle$resolve("abc")
  later::run_now(all = FALSE)
  expect_true(later::loop_empty())
  expect_identical(reply(case$client)$text, "abc")
})

# Returns the median time in milliseconds from a promise to the callback of package later that
# fulfils it, for a client in another process. `respond` makes a response of a function that makes
# such promises.
callback_delay <- function(respond) {
  skip_if_not_installed("callr")
  delays <- numeric()
  soon <- function(value) {
    promises::promise(function(resolve, reject) {
      began <- Sys.time()
      later::later(function() {
        delays <<- c(delays, as.numeric(Sys.time() - began, units = "secs") * 1000)
        resolve(value)
      })
    })
  }
  server <- local_server(list(call = function(req) respond(soon)))
  client <- callr::r_bg(
    function(port) for (i in 1:31) readLines(sprintf("http://127.0.0.1:%d/", port), warn = FALSE),
    list(port = server$getPort())
  )
  serve_until(function() !client$is_alive())
  expect_identical(client$get_exit_status(), 0L)
  stats::median(delays)
}

test_that("service() does not wait before a due callback that fulfils a promise", {
  # After another response, service() waits for a millisecond before it runs the callback. On a busy
  # machine, both may take longer in an attempt.
  is_prompt <- function(respond) {
    for (attempt in 1:5) {
      waited <- callback_delay(function(soon) {
        soon(NULL)
        ok()
      })
      if (callback_delay(respond) < 0.7 * waited) return(TRUE)
    }
    FALSE
  }
  expect_true(is_prompt(function(soon) soon(ok())))
  expect_true(is_prompt(function(soon) {
    left <- 5
    list(status = 200L, headers = list("Content-Length" = "25"), body = function() {
      left <<- left - 1
      if (left >= 0) soon("chunk")
    })
  }))
})

# Returns an object that package promises accepts as a promise, although it is none: a future, or an
# object of a class of its own. Older versions of package promises accept only futures.
promising <- function(value, env = parent.frame()) {
  if (requireNamespace("future", quietly = TRUE)) {
    return(future::future(value))
  }
  structure(list(value = value), class = c("test_promising", "Future"))
}
registerS3method(
  "as.promise", "test_promising",
  function(x) {
    if (is.function(x$value)) {
      promises::promise(function(resolve, reject) later::later(function() x$value(resolve, reject)))
    } else {
      promises::promise_resolve(x$value)
    }
  },
  envir = asNamespace("promises")
)

test_that("what package promises accepts as a promise is one, as a response and as a chunk", {
  expect_true(promises::is.promising(promising(1)))
  left <- 0
  server <- local_server(list(
    onHeaders = function(req) {
      switch(req$PATH_INFO,
        "/early" = promising(ok("early")),
        "/received" = receive_body(function(bytes) promising(NULL), function() promising(ok("end")))
      )
    },
    call = function(req) {
      switch(req$PATH_INFO,
        "/resolved" = promising(ok("resolved")),
        "/chunks" = {
          left <- 3
          list(status = 200L, headers = list("Content-Length" = "15"), body = function() {
            left <<- left - 1
            if (left >= 0) promising("chunk")
          })
        }
      )
    }
  ))
  client <- local_client(server)
  expect_identical(get(client, "/resolved")$text, "resolved")
  expect_identical(get(client, "/early")$text, "early")
  expect_identical(get(client, "/chunks")$text, "chunkchunkchunk")
  expect_identical(post(client, "/received", "body")$text, "end")
})

test_that("an object that becomes a promise later may be fulfilled and rejected", {
  later_promise <- function(settle) {
    structure(list(value = settle), class = c("test_promising", "Future"))
  }
  server <- local_server(function(req) {
    later_promise(function(resolve, reject) {
      if (req$PATH_INFO == "/good") resolve(ok("late")) else reject("no")
    })
  })
  client <- local_client(server)
  expect_identical(get(client, "/good")$text, "late")
  expect_match(stderr_of(bad <- get(client, "/bad")), "a promise): no", fixed = TRUE, all = FALSE)
  expect_identical(bad$status, 500L)
  expect_identical(get(client, "/good")$text, "late")
  value <- NULL
  promises::then(
    rookCall(function(req) later_promise(function(resolve, reject) resolve(ok("call"))), new.env()),
    function(response) value <<- response
  )
  serve_until(function() !is.null(value))
  expect_identical(value$body, "call")
})
