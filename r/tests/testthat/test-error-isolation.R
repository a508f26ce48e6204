# Guarded calls: nothing that an app does ends the event loop, and errors are reported on stderr.

failing <- function(handler) {
  list(call = function(req) if (req$PATH_INFO == "/ok") ok() else handler(req))
}

expect_failure <- function(handler, body, log, path = "/fails") {
  server <- local_server(failing(handler))
  client <- local_client(server)
  answer <- NULL
  lines <- stderr_of(answer <- get(client, path))
  expect_identical(answer$status, 500L)
  expect_identical(answer$text, body)
  expect_identical(answer$headers[["content-type"]], "text/plain; charset=UTF-8")
  expect_match(lines, log, fixed = TRUE, all = FALSE)
  # The loop continues, and so does the connection.
  expect_identical(get(client, "/ok")$text, "ok")
}

test_that("an error results in status 500 with its message and a line with route, stage and class", {
  expect_failure(function(req) stop("b\u00f6"), "ERROR: b\u00f6", "GET /fails (call): b\u00f6")
  expect_failure(
    function(req) {
      stop(structure(
        class = c("my_error", "error", "condition"), list(message = "mine", call = NULL)
      ))
    },
    "ERROR: mine", "GET /fails (call): <my_error> mine"
  )
  expect_failure(
    function(req) undefined_thing(), "ERROR: could not find function \"undefined_thing\"",
    "undefined_thing"
  )
  expect_failure(function(req) log(-1:"a"), "ERROR: NA/NaN argument", "NA/NaN")
  expect_failure(
    function(req) base::get("nowhere", mode = "function"),
    "ERROR: object 'nowhere' of mode 'function' was not found", "nowhere"
  )
})

test_that("conditions that are not errors, and restarts, result in status 500", {
  odd <- structure(class = c("odd", "condition"), list(message = "odd", call = NULL))
  expect_failure(function(req) stop(odd), "An exception occurred.", "GET /fails (call)")
  expect_failure(
    function(req) invokeRestart("abort"), "An exception occurred.", "GET /fails (call)"
  )
})

test_that("an invalid response results in status 500 with an explanation", {
  bad <- list(
    NULL, list(), list(headers = list()), list(status = "200"), list(status = NA_integer_),
    list(status = 99999),
    list(status = 200L, headers = list("A" = c("1", "2"))),
    list(status = 200L, headers = list("x")),
    list(status = 200L, body = list(1)), list(status = 200L, body = quote(x)),
    list(status = 200L, headers = list("X-Split" = "a\r\nSet-Cookie: b")),
    list(status = 200L, headers = list("A B" = "x"))
  )
  for (value in bad) {
    expect_failure(function(req) value, "An exception occurred.", "GET /fails (the response)")
  }
  expect_failure(function(req) "abc", "An exception occurred.", "GET /fails (the response)")
})

test_that("special case 1: options(error=) is not evaluated, and is restored", {
  ran <- 0
  # A function, because an expression would be evaluated where `ran` does not exist.
  before <- options(error = function() ran <<- ran + 1)
  withr::defer(options(before))
  set <- getOption("error")
  server <- local_server(failing(function(req) stop("no")))
  client <- local_client(server)
  stderr_of(answer <- get(client, "/fails"))
  expect_identical(answer$text, "ERROR: no")
  expect_identical(ran, 0)
  expect_identical(getOption("error"), set)
})

test_that("special case 1 in the response of a promise", {
  ran <- 0
  before <- options(error = function() ran <<- ran + 1)
  withr::defer(options(before))
  registerS3method("as.character", "untold", function(x, ...) stop("no"), envir = baseenv())
  server <- local_server(function(req) {
    response <- list(
      status = 200L, headers = list("X-Value" = structure(list(1), class = "untold")), body = ""
    )
    promises::promise(function(resolve, reject) later::later(function() resolve(response), 0.01))
  })
  client <- local_client(server)
  stderr_of(expect_equal(get(client)$status, 500))
  expect_identical(ran, 0)
})

test_that("a request is handled at R's maximum nesting depth, and the next one is guarded", {
  ran <- 0
  before <- options(error = quote(ran <<- ran + 1), expressions = 200)
  withr::defer(options(before))
  server <- local_server(failing(function(req) stop("no")))
  client <- local_client(server)
  at_depth <- function(n) if (n == 0) .Call(rookery:::ffi_service, NA) else at_depth(n - 1)
  depth <- 20
  has_failed <- FALSE
  stderr_of({
    # Nested until service() itself cannot be called any more.
    while (!has_failed && depth < 200) {
      send(client, request("/ok"))
      socketSelect(list(client$socket), timeout = 0.05)
      has_failed <- inherits(try(at_depth(depth), silent = TRUE), "try-error")
      expect_true(reply(client)$status %in% c(200L, 500L))
      depth <- depth + 1
    }
    ran <- 0
    answer <- get(client, "/fails")
  })
  expect_true(has_failed)
  expect_identical(answer$text, "ERROR: no")
  expect_identical(ran, 0)
  expect_identical(getOption("error"), quote(ran <<- ran + 1))
})

test_that("special case 2: a stack overflow is reported as an error", {
  deep <- function(n) deep(n + 1)
  server <- local_server(failing(function(req) deep(0)))
  client <- local_client(server)
  lines <- stderr_of(answer <- get(client, "/fails"))
  expect_identical(answer$status, 500L)
  expect_match(answer$text, "nested too deeply|stack usage|stack overflow")
  expect_match(lines, "tackOverflowError", all = FALSE)
  expect_identical(get(client, "/ok")$text, "ok")
})

test_that("special case 3: an interrupt in a handler results in status 500 and ends the loop", {
  server <- local_server(failing(function(req) {
    tools::pskill(Sys.getpid(), tools::SIGINT)
    Sys.sleep(60)
  }))
  client <- local_client(server)
  send(client, request("/fails"))
  interrupted <- 0
  lines <- stderr_of(tryCatch(
    serve_until(function() FALSE), interrupt = function(e) interrupted <<- interrupted + 1
  ))
  expect_identical(interrupted, 1)
  expect_match(lines, "GET /fails (call): interrupted", fixed = TRUE, all = FALSE)
  expect_identical(reply(client)$status, 500L)
  expect_identical(get(client, "/ok")$text, "ok")
})

test_that("calling handlers around service() do not see a handler's conditions", {
  server <- local_server(list(call = function(req) {
    message("inside")
    warning("inside")
    ok(as.character(sys.nframe()))
  }))
  client <- local_client(server)
  seen <- character(0)
  send(client, request())
  answer <- NULL
  lines <- stderr_of(withCallingHandlers(
    answer <- reply(client),
    message = function(m) seen <<- c(seen, "message"),
    warning = function(w) seen <<- c(seen, "warning")
  ))
  expect_identical(answer$status, 200L)
  expect_identical(seen, character(0))
})

test_that("there is no frame between service() and the app", {
  frames <- NULL
  server <- local_server(list(call = function(req) {
    frames <<- sys.calls()
    ok()
  }))
  client <- local_client(server)
  send(client, request())
  Sys.sleep(0.2)
  depth <- sys.nframe()
  service(60000)
  expect_false(is.null(frames))
  expect_identical(length(frames), depth + 2L)
  expect_identical(as.character(frames[[depth + 1L]][[1]]), "service")
})

test_that("errors in onHeaders result in status 500", {
  server <- local_server(list(
    call = function(req) ok(),
    onHeaders = function(req) {
      switch(
        req$PATH_INFO,
        "/error" = stop("early"), "/odd" = list(a = 1),
        "/promise" = promises::promise_resolve(ok("promised")), NULL
      )
    }
  ))
  client <- local_client(server)
  lines <- stderr_of({
    answers <- list(
      get(client, "/error"), get(client, "/odd"), get(client, "/promise"), get(client, "/")
    )
    upload <- post(client, "/error", body = "abc")
  })
  expect_identical(
    vapply(answers, `[[`, "", "text"), c("ERROR: early", "An exception occurred.", "promised", "ok")
  )
  expect_identical(upload$status, 500L)
  expect_match(lines, "GET /error (onHeaders): early", fixed = TRUE, all = FALSE)
  expect_match(lines, "GET /odd (the response)", fixed = TRUE, all = FALSE)
})

test_that("promises: fulfilled, rejected, and resolved with an invalid response", {
  promise <- function(path) {
    promises::promise(function(resolve, reject) {
      later::later(function() {
        switch(
          path, "/good" = resolve(ok("late")), "/bad" = reject("nope"), "/null" = resolve(NULL),
          resolve("x")
        )
      }, 0.01)
    })
  }
  server <- local_server(list(call = function(req) promise(req$PATH_INFO)))
  client <- local_client(server)
  lines <- stderr_of(
    answers <- lapply(c("/good", "/bad", "/null", "/text"), function(path) get(client, path))
  )
  expect_identical(
    vapply(answers, `[[`, "", "text"),
    c("late", "ERROR: nope", "An exception occurred.", "An exception occurred.")
  )
  expect_match(lines, "GET /bad (a promise): nope", fixed = TRUE, all = FALSE)
  expect_match(lines, "GET /null (the response of a promise)", fixed = TRUE, all = FALSE)
})

test_that("a fulfilled promise is used without a callback of package later", {
  waits <- NULL
  server <- local_server(list(call = function(req) {
    # `then()` would create a promise and a callback.
    switch(req$PATH_INFO,
      "/good" = promises::promise_resolve(ok("now")),
      "/chained" = promises::then(promises::promise_resolve(1), function(one) ok("chained")),
      "/null" = promises::promise_resolve(NULL),
      "/bad" = promises::promise_reject("no"),
      "/promise" = structure(list(), class = "promise")
    )
  }))
  client <- local_client(server)
  # Earlier tests may have left callbacks, so the third count is used.
  for (attempt in 1:3) {
    serve_until(later::loop_empty)
    waits <- NULL
    send(client, request("/good"))
    serve_until(function() {
      waits <<- c(waits, !later::loop_empty())
      fill(client)
      length(client$read) > 0
    })
    expect_identical(reply(client)$text, "now")
    if (!any(waits)) break
  }
  expect_false(any(waits))
  lines <- stderr_of(
    answers <- lapply(c("/chained", "/null", "/bad", "/promise"), function(path) get(client, path))
  )
  expect_identical(vapply(answers, `[[`, 1L, "status"), c(200L, 500L, 500L, 500L))
  expect_identical(answers[[1]]$text, "chained")
  expect_match(lines, "GET /null (the response of a promise)", fixed = TRUE, all = FALSE)
  expect_match(lines, "GET /bad (a promise): no", fixed = TRUE, all = FALSE)
})

test_that("errors in WebSocket callbacks close only that WebSocket", {
  closed <- character(0)
  server <- local_server(list(
    call = function(req) ok(),
    onWSOpen = function(ws) {
      if (ws$request$PATH_INFO == "/open") stop("at open")
      ws$onMessage(function(binary, message) {
        if (message == "fail") stop("at message") else ws$send(message)
      })
      ws$onMessage(function(binary, message) {
        if (message == "fail") closed <<- c(closed, "second handler ran")
      })
      ws$onClose(function() closed <<- c(closed, ws$request$PATH_INFO))
      ws$onClose(function() stop("at close"))
    }
  ))
  lines <- stderr_of({
    client <- local_client(server)
    expect_identical(upgrade(client, "/open")$status, 101L)
    at_open <- next_frame(client)
    other <- local_client(server)
    upgrade(other, "/message")
    send(other, frame("hello"))
    echoed <- next_frame(other)
    send(other, frame("fail"))
    at_message <- next_frame(other)
    send(other, frame(at_message$payload, 8))
    serve_until(function() length(closed) > 0)
    for (i in 1:5) service(5)
  })
  expect_identical(at_open$payload, c(as.raw(c(0x03, 0xF3)), charToRaw("Error in onWSOpen")))
  expect_identical(rawToChar(echoed$payload), "hello")
  expect_identical(
    at_message$payload, c(as.raw(c(0x03, 0xF3)), charToRaw("Error executing onWSMessage"))
  )
  expect_identical(closed, "/message")
  expect_match(lines, "at open", all = FALSE)
  expect_match(lines, "at message", all = FALSE)
  expect_match(lines, "at close", all = FALSE)
  expect_identical(get(local_client(server))$text, "ok")
})

test_that("an app may be a function, list, environment, R6 object or reference class object", {
  Ref <- setRefClass(
    "BoundaryRefApp", fields = list(answer = "list"), methods = list(call = function(req) answer),
    where = globalenv()
  )
  Six <- R6::R6Class("SixApp", public = list(call = function(req) ok("six")))
  environment_app <- new.env()
  environment_app$call <- function(req) ok("env")
  apps <- list(
    function(req) ok("function"), list(call = function(req) ok("list")), environment_app, Six$new(),
    Ref$new(answer = ok("ref"))
  )
  texts <- vapply(apps, function(app) get(local_client(local_server(app)))$text, "")
  expect_identical(texts, c("function", "list", "env", "six", "ref"))
  expect_identical(get(local_client(local_server(list())))$text, "404 Not Found\n")
})

test_that("an interrupt in a WebSocket callback closes the connection and ends the loop", {
  closed <- 0
  server <- local_server(list(onWSOpen = function(ws) {
    ws$onMessage(function(binary, message) {
      tools::pskill(Sys.getpid(), tools::SIGINT)
      Sys.sleep(60)
    })
    ws$onClose(function() closed <<- closed + 1)
  }))
  client <- local_client(server)
  upgrade(client)
  send(client, frame("x"))
  interrupted <- 0
  lines <- stderr_of(tryCatch(
    serve_until(function() closed > 0), interrupt = function(e) interrupted <<- interrupted + 1
  ))
  expect_identical(interrupted, 1)
  expect_match(lines, "a WebSocket's onMessage: interrupted", fixed = TRUE, all = FALSE)
  serve_until(function() closed > 0)
  expect_identical(closed, 1)
})

test_that("the request of onHeaders is released if the client disconnects before the body", {
  seen <- 0
  gone <- 0
  server <- local_server(list(
    onHeaders = function(req) {
      seen <<- seen + 1
      reg.finalizer(req, function(req) gone <<- gone + 1)
      NULL
    },
    call = function(req) ok()
  ))
  for (i in 1:20) {
    client <- local_client(server)
    send(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
    serve_until(function() seen == i)
    disconnect(client)
  }
  serve_until(function() {
    # Returned memory is released with the next event.
    get(local_client(server))
    gc()
    gone >= 20
  })
  expect_gte(gone, 20)
})

test_that("names that differ in `_` and `-` are separate in HEADERS", {
  seen <- list()
  server <- local_server(function(req) {
    seen[[length(seen) + 1]] <<- req$HEADERS
    ok()
  })
  client <- local_client(server)
  get(client, headers = "X-Audit-Score: v")
  get(client, headers = "X-Audit_Score: v")
  get(client, headers = c("X-Audit_Score: u", "X-Audit-Score: d"))
  expect_identical(lapply(seen, function(headers) headers[startsWith(names(headers), "x-audit")]), list(
    c("x-audit-score" = "v"), c("x-audit_score" = "v"),
    c("x-audit-score" = "d", "x-audit_score" = "u")
  ))
})

test_that("a response may be an environment, R6 or reference class object, or a promise of one", {
  answer <- function(body) list(status = 202L, headers = list("X-A" = "1"), body = body)
  Six <- R6::R6Class("SixAnswer", public = answer("six"))
  Active <- R6::R6Class(
    "ActiveAnswer",
    public = list(headers = list("X-A" = "1")),
    active = list(status = function() 202L, body = function() strrep("a", 1e5))
  )
  Ref <- methods::setRefClass(
    "RefAnswer", fields = list(status = "integer", headers = "list", body = "character")
  )
  answers <- list(
    env = list2env(answer("env")), six = Six$new(), active = Active$new(),
    ref = do.call(Ref$new, answer("ref")), pairlist = as.pairlist(answer("pairlist")),
    promise = promises::promise_resolve(list2env(answer("promise")))
  )
  client <- local_client(local_server(list(
    onHeaders = function(req) if (req$REQUEST_METHOD == "PUT") answers$env,
    call = function(req) answers[[substring(req$PATH_INFO, 2)]]
  )))
  for (name in names(answers)) {
    got <- get(client, paste0("/", name))
    expect_identical(got$status, 202L, info = name)
    expect_identical(got$headers[["x-a"]], "1", info = name)
    expect_identical(got$text, if (name == "active") strrep("a", 1e5) else name)
  }
  expect_identical(ask(client, "/", "PUT")$text, "env")
})

test_that("an environment with unreadable or inherited elements results in status 500", {
  broken <- list2env(list(status = 200L))
  makeActiveBinding("body", function() stop("no body today"), broken)
  expect_failure(function(req) broken, "An exception occurred.", "no body today")
  expect_failure(
    function(req) new.env(parent = list2env(list(status = 200L))), "An exception occurred.",
    "`status` must be a number"
  )
})

test_that("header values are converted as by paste(), and latin1 is sent as UTF-8", {
  latin1 <- iconv("\u00e9", "UTF-8", "latin1")
  headers <- list(
    list(
      one = list("1"), two = list(1.5), three = as.raw(10), four = quote(symbol),
      five = factor("level"), six = latin1
    ),
    c(six = latin1), list2env(list(one = "1", two = 2)), c(one = 1, two = 2),
    pairlist(one = "1", two = "2")
  )
  client <- local_client(local_server(list(
    call = function(req) {
      list(status = 200L, headers = headers[[as.integer(substring(req$PATH_INFO, 2))]], body = "")
    }
  )))
  got <- get(client, "/1")$headers
  expect_identical(
    unname(got[c("one", "two", "three", "four", "five", "six")]),
    c("1", "1.5", "0a", "symbol", "level", "\u00e9")
  )
  expect_identical(get(client, "/2")$headers[["six"]], "\u00e9")
  for (path in c("/3", "/4", "/5")) {
    expect_identical(unname(get(client, path)$headers[c("one", "two")]), c("1", "2"), info = path)
  }
})

test_that("the request of a WebSocket has the client's values, even if onHeaders changed them", {
  seen <- NULL
  server <- local_server(list(
    onHeaders = function(req) {
      before <- as.list(req)
      for (name in ls(req)) assign(name, "changed", envir = req)
      rm("QUERY_STRING", envir = req)
      req$mine <- before
      # Meanwhile the memory of the event is overwritten.
      service(1)
      NULL
    },
    onWSOpen = function(ws) seen <<- as.list(ws$request)
  ))
  client <- local_client(server)
  expect_identical(upgrade(client, "/path?query")$status, 101L)
  serve_until(function() !is.null(seen))
  before <- seen$mine
  # Bindings for the body are not reset, as in httpuv.
  kept <- c("rook.input", "rook.errors", "httpuv.version")
  expect_setequal(names(seen), c(names(before), "mine"))
  expect_identical(unname(seen[kept]), as.list(rep("changed", 3)))
  rest <- setdiff(names(before), kept)
  expect_identical(seen[rest], before[rest])
  expect_identical(seen$QUERY_STRING, "?query")
})
