# The R process of one side. It serves, and between the turns of `service()` it does what run.py asks for over a socket:
#
#   Rscript --vanilla driver.R <port of run.py> <folder of this process> <folder of static files>
#
# A command is eight digits, which are its length, and R code; the answer to it is eight digits and the text that the
# code returned. The apps of the probes are run here, and tell by `note()` what was called and what they were given.

arguments <- commandArgs(trailingOnly = TRUE)
options(warn = 1, useFancyQuotes = FALSE, digits = 15)
library(httpuv)
TMP <- arguments[[2]]
DIR <- arguments[[3]]

# ---- What an object is, in text that is the same in both processes when the objects are ----

# Text up to a length, past that its beginning and a sum over all bytes.
abridged <- function(text, bytes = charToRaw(text)) {
  if (length(bytes) <= 400) {
    return(text)
  }
  sum <- sum(as.integer(bytes) * (seq_along(bytes) %% 251 + 1))
  paste0(substr(text, 1, 60), "... (", length(bytes), " bytes, sum ", format(sum, scientific = FALSE), ")")
}

one_string <- function(string) {
  if (is.na(string)) {
    return("NA")
  }
  bytes <- charToRaw(string)
  text <- if (all(bytes >= 0x20 & bytes < 0x7f)) {
    paste0("\"", gsub("([\"\\\\])", "\\\\\\1", string, useBytes = TRUE), "\"")
  } else {
    shown <- ifelse(bytes >= 0x20 & bytes < 0x7f, rawToChar(bytes, multiple = TRUE), paste0("<", bytes, ">"))
    paste0("\"", paste(shown, collapse = ""), "\"", if (any(bytes > 0x7f)) paste0(" (", Encoding(string), ")"))
  }
  abridged(text, bytes)
}

describe <- function(x, depth = 0) {
  if (is.null(x)) {
    return("NULL")
  }
  if (depth > 6) {
    return("...")
  }
  if (inherits(x, "package_version")) {
    return("<package_version>")
  }
  if (inherits(x, "connection")) {
    return("<connection>")
  }
  if (is.environment(x)) {
    return(paste0("<environment: ", paste(class(x), collapse = ", "), ">"))
  }
  if (is.function(x)) {
    return(paste0("function(", paste(sub(" = $", "", paste(names(formals(x)), "=", vapply(formals(x), deparse1, ""))),
      collapse = ", "), ")"))
  }
  kept <- attributes(x)
  kept <- kept[setdiff(sort(names(kept)), c("names", "srcref"))]
  extra <- if (length(kept) > 0) {
    paste0(" {", paste0(names(kept), ": ", vapply(kept, describe, "", depth + 1), collapse = "; "), "}")
  }
  named <- function(values) {
    if (!is.null(names(x))) paste0("[", vapply(names(x), one_string, ""), "] ", values) else values
  }
  if (inherits(x, "staticPathOptions")) {
    # In which order they are is a question of its own.
    x <- structure(unclass(x)[sort(names(x), method = "radix")], class = "staticPathOptions")
  }
  body <- if (is.list(x)) {
    paste0("list(", paste(named(vapply(unclass(x), describe, "", depth + 1)), collapse = ", "), ")")
  } else if (is.character(x)) {
    paste0("chr ", paste(named(vapply(unclass(x), one_string, "")), collapse = ", "), if (length(x) == 0) "(0)")
  } else if (is.raw(x)) {
    paste0("raw ", abridged(paste(x, collapse = ""), x), if (length(x) == 0) "(0)")
  } else if (is.atomic(x)) {
    paste0(typeof(x), " ", paste(named(format(unclass(as.vector(x)), digits = 15, trim = TRUE)), collapse = ", "),
      if (length(x) == 0) "(0)")
  } else if (is.language(x)) {
    paste0(typeof(x), " ", deparse1(x))
  } else {
    paste0("<", typeof(x), ">")
  }
  paste0(body, extra)
}

# ---- What the apps say ----

events <- character()
note <- function(...) {
  events <<- c(events, paste(..., collapse = " "))
}

is_ours <- function(req) {
  startsWith(req$PATH_INFO, "/@")
}

# All that a request holds, one binding a line.
dump <- function(req) {
  names <- sort(ls(req, all.names = TRUE), method = "radix")
  lines <- vapply(names, function(name) paste0("req ", one_string(name), ": ", describe(get(name, req))), "")
  unname(lines)
}

dump_body <- function(req) {
  stream <- req[["rook.input"]]
  read <- stream$read()
  stream$rewind()
  paste0("body: ", describe(read))
}

# What a list or an environment holds, one element a line.
holds <- function(x) {
  x <- as.list(x, all.names = TRUE)
  for (name in sort(names(x), method = "radix")) note("holds", name, describe(x[[name]]))
}

ok <- function(body = "ok") {
  list(status = 200L, headers = list("Content-Type" = "text/plain"), body = body)
}

# An app whose functions are noted when they are called. An answer in `call` may be a function of the request.
logged <- function(call = function(req) ok(), onHeaders = NULL, onWSOpen = NULL, ...) {
  app <- list(...)
  app$call <- function(req) {
    if (is_ours(req)) {
      return(ok())
    }
    note("call")
    call(req)
  }
  if (!is.null(onHeaders)) {
    app$onHeaders <- function(req) {
      if (is_ours(req)) {
        return(NULL)
      }
      note("onHeaders")
      onHeaders(req)
    }
  }
  if (!is.null(onWSOpen)) {
    app$onWSOpen <- function(ws) {
      note("onWSOpen")
      onWSOpen(ws)
    }
  }
  app
}

# An app that notes what each request holds.
dumping <- function(...) {
  logged(call = function(req) {
    events <<- c(events, dump(req), dump_body(req))
    ok()
  }, ...)
}

# A WebSocket app that sends back what it gets.
echo <- function(...) {
  logged(onWSOpen = function(ws) {
    ws$onMessage(function(binary, message) {
      note("message", describe(binary), describe(message))
      ws$send(message)
    })
    ws$onClose(function(...) note("onClose with", ...length(), "arguments"))
  }, ...)
}

# ---- What run.py asks for ----

servers <- list()

start <- function(port, app, host = "127.0.0.1") {
  server <- startServer(host, port, app)
  servers[[as.character(port)]] <<- server
  "started"
}

start_pipe <- function(name, app) {
  servers[[name]] <<- startPipeServer(name, NULL, app)
  "started"
}

# Serves until an event has been noted, or there is nothing left to do.
settle <- function(event = NULL, seconds = 5) {
  until <- Sys.time() + seconds
  repeat {
    turn(10)
    noted <- is.null(event) || any(startsWith(events, event))
    if ((noted && later::loop_empty()) || Sys.time() > until) {
      break
    }
  }
}

# What was noted since the last time.
collect <- function(event = NULL) {
  settle(event)
  taken <- events
  events <<- character()
  paste(taken, collapse = "\n")
}

# An error that ends `service()` would end the app: it is noted instead.
turn <- function(milliseconds) {
  tryCatch(
    httpuv::service(milliseconds),
    error = function(error) note("service() ended:", class(error)[[1]], conditionMessage(error)),
    interrupt = function(interrupt) note("interrupted")
  )
}

# The value of an expression, what it printed and the conditions it raised.
measure <- function(code) {
  scope <- new.env(parent = globalenv())
  conditions <- character()
  messages <- character()
  keep <- function(condition, kind) {
    # Classes of Rookery's own stand before those that httpuv's conditions have.
    classes <- grep("^rookery_", class(condition), value = TRUE, invert = TRUE)
    conditions <<- c(conditions, paste(kind, paste(classes, collapse = " ")))
    messages <<- c(messages, paste0(kind, ": ", conditionMessage(condition)))
  }
  set.seed(1)
  result <- NULL
  printed <- utils::capture.output(result <- tryCatch(
    withCallingHandlers(
      withVisible(eval(parse(text = code, keep.source = FALSE, encoding = "UTF-8"), scope)),
      warning = function(condition) {
        keep(condition, "warning")
        invokeRestart("muffleWarning")
      },
      message = function(condition) {
        keep(condition, "message")
        invokeRestart("muffleMessage")
      }
    ),
    error = function(condition) {
      keep(condition, "error")
      NULL
    }
  ))
  shown <- if (!is.null(result) && !inherits(result$value, c("Server", "WebSocket", "R6"))) {
    tryCatch(utils::capture.output(print(result$value)), error = conditionMessage)
  }
  aspects <- list(
    value = if (is.null(result)) "none" else describe(result$value),
    visible = if (is.null(result)) "none" else as.character(result$visible),
    conditions = conditions,
    messages = messages,
    printed = printed,
    shown = shown
  )
  paste0(names(aspects), "\x1f", vapply(aspects, paste, "", collapse = "\n"), collapse = "\x1e")
}

control <- socketConnection("127.0.0.1", as.integer(arguments[[1]]), open = "r+b", blocking = TRUE, timeout = 600)

answer <- function(text) {
  bytes <- charToRaw(enc2utf8(text))
  writeBin(c(charToRaw(sprintf("%08d", length(bytes))), bytes), control)
}

obey <- function() {
  head <- readBin(control, "raw", 8)
  if (length(head) < 8) {
    quit(status = 0)
  }
  code <- readBin(control, "raw", as.integer(rawToChar(head)))
  code <- rawToChar(code)
  Encoding(code) <- "UTF-8"
  answer(tryCatch(
    eval(parse(text = code, keep.source = FALSE, encoding = "UTF-8"), new.env(parent = globalenv())),
    error = function(error) paste0("driver: ", conditionMessage(error))
  ))
}

# A signal may be noticed anywhere.
repeat {
  tryCatch(
    {
      turn(5)
      if (socketSelect(list(control), FALSE, 0)) obey()
    },
    interrupt = function(interrupt) note("interrupted")
  )
}
