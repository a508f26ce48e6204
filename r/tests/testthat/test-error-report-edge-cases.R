# Unusual errors: messages with any bytes or none, promises rejected with any value, and an onError
# that fails.

odd_condition <- function(message, ..., class = "odd") {
  structure(class = c(class, "error", "condition"), list(message = message, call = NULL, ...))
}

conditionMessage.fails <- function(c) stop("no message of mine")
registerS3method("conditionMessage", "fails", conditionMessage.fails, envir = asNamespace("base"))

marked <- function(text, encoding) {
  Encoding(text) <- encoding
  text
}

around_itself <- function() {
  # An environment, because a list cannot be its own parent.
  condition <- structure(new.env(), class = c("round", "error", "condition"))
  condition$message <- "round"
  condition$parent <- condition
  condition
}

# The expected texts.
odd <- list(
  list(odd_condition("\xff is no UTF-8"), "<odd> <ff> is no UTF-8"),
  list(odd_condition(marked("\xfe", "bytes")), "<odd> <fe>"),
  list(odd_condition(marked("caf\xe9", "latin1")), "<odd> caf\u00e9"),
  list(odd_condition("a \"quoted\" \\ and\n\ttabbed \u2028 line"), "<odd> a \"quoted\" \\ and"),
  list(
    structure(class = c("bare", "error", "condition"), list()), "<bare> an error without a message"
  ),
  list(odd_condition(NULL), "<odd> an error without a message"),
  list(odd_condition(""), "<odd> an error without a message"),
  list(odd_condition(NA_character_), "<odd> NA"),
  list(odd_condition(c("one", "two")), "<odd> one"),
  list(odd_condition(1:3), "<odd> 1"),
  list(odd_condition(quote(f(x))), "<odd> f"),
  list(odd_condition("mine", class = "fails"), "<fails> an error without a message"),
  list(odd_condition("traced", trace = structure(list(), class = "rlang_trace")), "<odd> traced"),
  list(
    odd_condition(
      "traced badly",
      trace = structure(list(call = list(NULL, 1, quote(x), "\xff")), class = "rlang_trace")
    ),
    "<odd> traced badly"
  ),
  list(odd_condition("parents", parent = odd_condition(marked("\xfe", "bytes"))), "<odd> parents"),
  list(around_itself(), "<round> round"),
  list(odd_condition(strrep("long ", 1e5)), "<odd> long long ")
)

test_that("for errors with any text or none, client and stderr get the same id", {
  app <- function(req) {
    at <- as.integer(sub("^/[a-z]*", "", req$PATH_INFO))
    condition <- odd[[at]][[1]]
    # stop() itself accepts no other messages.
    message <- tryCatch(conditionMessage(condition), error = function(error) NULL)
    can_stop <- is.character(message) && length(message) == 1 && Encoding(message) != "bytes"
    fail <- function() if (can_stop) stop(condition) else promises::promise_reject(condition)
    if (startsWith(req$PATH_INFO, "/s")) {
      list(status = 200L, headers = list(), body = fail)
    } else {
      fail()
    }
  }
  for (detail in c("none", "message", "full")) {
    withr::local_options(rookery.error_detail = detail)
    globals <- rookery:::.globals
    globals$error_reports <- NULL
    server <- local_server(list(call = app, onError = function(cond, req, info) NULL))
    for (at in seq_along(odd)) {
      text <- odd[[at]][[2]]
      for (kind in c("text", "json", "stream")) {
        path <- paste0(if (kind == "stream") "/s" else "/e", detail, at)
        client <- local_client(server)
        said <- stderr_of(
          answer <- get(
            client, path, if (kind == "json") "Accept: application/json" else character()
          )
        )
        about <- paste(detail, kind, at)
        expect_equal(answer$status, 500, info = about)
        expect_true(validUTF8(answer$text), info = about)
        expect_match(answer$text, "[0-9a-f]{32}", info = about)
        expect_equal(
          grepl(
            text, if (kind == "json") gsub("\\", "", answer$text, fixed = TRUE) else answer$text,
            fixed = TRUE
          ),
          detail != "none" && !(kind == "json" && grepl("quoted", text)), info = about)
        # The same for the text and for the problem document; an error is reported once in 10 s.
        if (kind != "json") {
          expect_match(said, text, fixed = TRUE, all = FALSE, info = about)
          expect_match(
            said, sub("^.*?([0-9a-f]{32}).*$", "\\1", answer$text), fixed = TRUE, all = FALSE,
            info = about
          )
        } else if (requireNamespace("jsonlite", quietly = TRUE)) {
          expect_equal(jsonlite::fromJSON(answer$text)$status, 500, info = about)
        }
        disconnect(client)
      }
    }
  }
  expect_true(all(nchar(vapply(globals$error_reports, `[[`, "", "text")) <= 1000))
})

test_that("a long route is truncated, also within a character", {
  withr::local_options(rookery.error_detail = "none")
  heard <- 0
  server <- local_server(list(
    call = function(req) stop("as such"), onError = function() heard <<- heard + 1
  ))
  said <- stderr_of(answer <- get(local_client(server), paste0("/a", strrep("\u00e9", 120))))
  expect_match(answer$text, "^500 Internal Server Error\nRequest [0-9a-f]{32}\n$")
  expect_match(
    said, "^rookery: GET /a\u00e9*<c3> \\(call\\): as such \\[[0-9a-f]{32}\\]$", all = FALSE
  )
  expect_equal(heard, 1)
})

test_that("a promise may be rejected with any value", {
  withr::local_options(rookery.error_detail = "message")
  reasons <- list(
    NULL, new.env(), function() 1, list(1), character(), "in words", 5, quote(f(x)),
    marked("\xfe", "bytes"), odd_condition("a condition")
  )
  told <- c(
    "rejected with NULL", "rejected with an environment", "rejected with a closure",
    "rejected with a list", "an error without a message", "in words",
    "5", "rejected with a language", "<fe>", "<odd> a condition"
  )
  heard <- list()
  server <- local_server(list(
    call = function(req) {
      reason <- reasons[[as.integer(substr(req$PATH_INFO, 2, 3))]]
      promises::promise(function(resolve, reject) later::later(function() reject(reason), 0.01))
    },
    onError = function(cond, req, info) heard[[length(heard) + 1]] <<- list(cond, info$stage)
  ))
  client <- local_client(server)
  for (at in seq_along(reasons)) {
    said <- stderr_of(answer <- get(client, paste0("/", at)))
    expect_equal(answer$status, 500, info = told[[at]])
    expect_match(answer$text, told[[at]], fixed = TRUE)
    expect_match(said, told[[at]], fixed = TRUE, all = FALSE)
    expect_length(heard, at)
    expect_s3_class(heard[[at]][[1]], "error")
    expect_equal(heard[[at]][[2]], "promise")
  }
})

test_that("a failing onError does not change the response, nor the next request", {
  withr::local_options(rookery.error_detail = "none")
  deep <- function(n) deep(n + 1)
  server <- NULL
  cases <- list(
    list(function(cond) stop(odd_condition(marked("\xfe", "bytes"))), "rookery: onError: "),
    list(function(cond) stop(odd_condition(NULL, class = "fails")), NULL),
    list(function(cond) deep(1), "onError"),
    list(function(cond) invokeRestart("abort"), NULL),
    list(
      function(cond) promises::promise_resolve(ok("late")),
      "onError: its response must not be a promise"
    ),
    list(
      function(cond) list(status = 200L, headers = list("X-Half" = "yes"), body = 1i),
      "the response of onError: "
    ),
    list(
      function(cond) list(status = 200L, headers = list("X-Half" = "a\nb"), body = ""),
      "the response of onError: "
    ),
    list(function(cond) list(status = NULL), NULL),
    list(function(cond) list(1, 2), NULL),
    list(function(cond) "text", NULL),
    list(function(cond) quote(x), NULL),
    list(function(cond) new.env(), NULL),
    list(function(cond, req, info, more) ok("never"), "onError"),
    list(function(cond, req, info) rm(list = ls(req), envir = req), NULL)
  )
  for (at in seq_along(cases)) {
    server <- local_server(list(
      call = function(req) if (req$PATH_INFO == "/fine") ok("fine") else stop("as such"),
      onError = cases[[at]][[1]]
    ))
    client <- local_client(server)
    said <- stderr_of(answer <- get(client, paste0("/odd", at)))
    if (at == 13) {
      # The fourth argument has no default and is not evaluated.
      expect_equal(answer$text, "never")
    } else {
      expect_equal(answer$status, 500, info = at)
      expect_match(answer$text, "^500 Internal Server Error\n", info = at)
      expect_false("x-half" %in% names(answer$headers), info = at)
      if (!is.null(cases[[at]][[2]])) {
        expect_match(said, cases[[at]][[2]], fixed = TRUE, all = FALSE, info = at)
      }
    }
    expect_equal(get(client, "/fine")$text, "fine", info = at)
    disconnect(client)
    server$stop()
  }
})

test_that("onError may call service(), stop its server, return a stream, or return invalid text", {
  withr::local_options(rookery.error_detail = "none")
  server <- NULL
  app <- function(on_error) list(
    call = function(req) {
      if (req$PATH_INFO == "/stream") {
        list(status = 200L, headers = list(), body = function() stop("x"))
      } else {
        stop("x")
      }
    },
    onError = on_error
  )
  server <- local_server(app(function(cond) {
    service(NA)
    list(status = 503L, headers = list(), body = chunks_of("in ", "chunks"))
  }))
  client <- local_client(server)
  send(client, request("/1"))
  said <- stderr_of(serve_until(function() {
    fill(client)
    find_raw(client$read, charToRaw("0\r\n\r\n")) > 0
  }))
  expect_match(rawToChar(client$read), "^HTTP/1.1 503 .*in .*chunks")
  server <- local_server(app(
    function(cond) list(status = 503L, headers = list(), body = marked("\xfe", "bytes"))
  ))
  for (path in c("/2", "/stream")) {
    client <- local_client(server)
    stderr_of({
      send(client, request(path))
      serve_until(function() {
        fill(client)
        as.raw(0xfe) %in% client$read
      })
    })
    expect_gt(find_raw(client$read, as.raw(0xfe)), 0)
  }
  server <- local_server(app(function(cond) server$stop()))
  client <- local_client(server)
  stderr_of({
    send(client, request("/3"))
    serve_until(function() !server$isRunning())
  })
  # The next request is handled as usual.
  server <- local_server(function(req) ok("after"))
  expect_equal(get(local_client(server))$text, "after")
})

test_that("errors of a WebSocket have the id of its request", {
  withr::local_options(rookery.error_detail = "none")
  ids <- list()
  server <- local_server(list(
    onWSOpen = function(ws) {
      ids$own <<- ws$request$REQUEST_ID
      ws$onMessage(function(binary, message) stop(odd_condition("\xfe")))
    },
    onError = function(cond, req, info) ids$told <<- info$request_id
  ))
  said <- stderr_of({
    client <- local_client(server)
    upgrade(client, "/ws")
    send(client, frame("x"))
    serve_until(function() length(ids) == 2)
  })
  expect_match(ids$own, "^[0-9a-f]{32}$")
  expect_equal(ids$told, ids$own)
  expect_match(
    said, paste0("a WebSocket's onMessage: <odd> <fe> [", ids$own, "]"), fixed = TRUE, all = FALSE
  )
})

test_that("a forked child has the same request id as its parent", {
  skip_on_os("windows")
  withr::local_options(rookery.error_detail = "none", rookery.request_id_header = TRUE)
  server <- local_server(function(req) {
    job <- parallel::mcparallel(paste0(req$REQUEST_ID))
    ok(parallel::mccollect(job)[[1]])
  })
  answer <- get(local_client(server), "/")
  expect_match(answer$text, "^[0-9a-f]{32}$")
  expect_equal(answer$text, answer$headers[["x-request-id"]])
})
