# An MCP server over streamable HTTP (https://modelcontextprotocol.io, revision 2025-11-25): tools
# in R that a language model can call.
#
#   Rscript examples/mcp.R          then give http://127.0.0.1:8000/mcp to an MCP client
#   rookery serve examples/mcp.R    the same with an access log
#
# The response to a long tool call is an event stream: progress while the call runs, and its result
# at the end. A client that loses its connection reconnects with the id of the last event that it
# received, and gets the remaining events, because the call continues meanwhile. This example needs
# the package jsonlite.

library(rookery)

port <- as.integer(Sys.getenv("PORT", "8000"))

# How many events of a stream are kept for clients that reconnect, and how many sessions. Past that
# the oldest is dropped.
kept_events <- 200L
most_sessions <- 100L
revisions <- c("2025-11-25", "2025-06-18", "2025-03-26")

# ---- tools: each gets its arguments and a progress function, and returns text or a promise ----

# Returns a list that becomes `{}` in JSON also if it is empty.
object <- function(...) if (...length() == 0) structure(list(), names = character()) else list(...)

tools <- list(
  summarise = list(
    description = "Summarises a column of a data set that comes with R.",
    inputSchema = object(
      type = "object",
      properties = object(
        data = object(type = "string", enum = list("mtcars", "iris", "airquality")),
        column = object(type = "string")
      ),
      required = list("data", "column")
    ),
    call = function(arguments, progress) {
      data <- switch(
        as.character(arguments$data),
        mtcars = mtcars, iris = iris, airquality = airquality, stop("there is no such data set")
      )
      column <- as.character(arguments$column)
      if (!isTRUE(column %in% names(data))) stop("there is no such column: ", toString(names(data)))
      paste(utils::capture.output(summary(data[[column]])), collapse = "\n")
    }
  ),
  estimate_pi = list(
    description = "Estimates pi by random points, and tells how far it is.",
    inputSchema = object(
      type = "object",
      properties = object(slices = object(type = "integer", minimum = 1L, maximum = 1000L)),
      required = list("slices")
    ),
    # The work is done in slices, between which R serves requests. Run work that cannot be divided
    # in another process, and return its promise.
    call = function(arguments, progress) {
      slices <- as.integer(arguments$slices)
      if (length(slices) != 1 || is.na(slices) || slices < 1 || slices > 1000) {
        stop("`slices` must be from 1 to 1000")
      }
      done <- 0L
      inside <- 0
      promises::promise(function(resolve, reject) {
        slice <- function() {
          inside <<- inside + sum(runif(20000)^2 + runif(20000)^2 < 1)
          done <<- done + 1L
          # FALSE means that the client has cancelled the call.
          if (!progress(done, slices)) return(reject("cancelled"))
          if (done < slices) {
            later::later(slice, 0.01)
          } else {
            resolve(format(4 * inside / (20000 * slices)))
          }
        }
        later::later(slice)
      })
    }
  )
)

# ---- sessions: an id, and event streams that can be resumed ----

sessions <- list()

new_session <- function() {
  session <- new.env()
  # Random, so that no client can guess it.
  session$id <- paste(readBin("/dev/urandom", "raw", 16), collapse = "")
  session$streams <- list()
  session$calls <- list()
  sessions[[session$id]] <<- session
  while (length(sessions) > most_sessions) end_session(sessions[[1]])
  # The stream for GET, with the messages that belong to no call.
  new_stream(session, "news")
  session
}

end_session <- function(session) {
  for (stream in session$streams) if (!is.null(stream$to)) stream$to$close()
  # Calls that still run find that they are cancelled.
  session$calls <- list()
  sessions[[session$id]] <<- NULL
}

new_stream <- function(session, name) {
  stream <- new.env()
  stream$name <- name
  stream$number <- 0L
  stream$events <- list()
  # The number of the last event that was sent, and the current receiver of events.
  stream$sent <- 0L
  stream$to <- NULL
  stream$is_over <- FALSE
  session$streams[[name]] <- stream
  stream
}

emit <- function(stream, text, is_last = FALSE) {
  stream$number <- stream$number + 1L
  event <- list(id = paste0(stream$name, "/", stream$number), number = stream$number, text = text)
  stream$events <- utils::tail(c(stream$events, list(event)), kept_events)
  stream$is_over <- is_last
  if (!is.null(stream$to)) {
    pass_on(stream, stream$to, event)
    if (is_last) stream$to$close()
  }
}

pass_on <- function(stream, to, event) {
  to$send(event$text, id = event$id)
  stream$sent <- event$number
}

# Sends the events after `number` to the client that requests the stream. A stream has one client at
# a time.
attach <- function(stream, number) {
  if (!is.null(stream$to)) stream$to$close()
  to <- sse_response()
  for (event in stream$events) if (event$number > number) pass_on(stream, to, event)
  if (stream$is_over) {
    to$close()
  } else {
    stream$to <- to
    to$on_close(function(reason) if (identical(stream$to, to)) stream$to <- NULL)
  }
  to
}

# ---- JSON-RPC ----

json <- function(value) {
  as.character(jsonlite::toJSON(value, auto_unbox = TRUE, null = "null", digits = NA))
}
result_of <- function(id, result) list(jsonrpc = "2.0", id = id, result = result)
error_of <- function(id, code, message) {
  list(jsonrpc = "2.0", id = id, error = list(code = code, message = message))
}
text_result <- function(text, is_error = FALSE) {
  list(content = list(list(type = "text", text = text)), isError = is_error)
}

answer <- function(status, value = NULL, headers = list()) {
  type <- if (!is.null(value)) list("Content-Type" = "application/json")
  list(status = status, headers = c(type, headers), body = if (is.null(value)) "" else json(value))
}

initialize <- function(message) {
  asked <- message$params$protocolVersion
  session <- new_session()
  result <- list(
    protocolVersion = if (isTRUE(asked %in% revisions)) asked else revisions[[1]],
    capabilities = object(tools = object(), logging = object()),
    serverInfo = list(name = "rookery-example", version = "1.0.0")
  )
  answer(200L, result_of(message$id, result), list("MCP-Session-Id" = session$id))
}

call_tool <- function(session, message) {
  tool <- tools[[as.character(message$params$name)]]
  if (is.null(tool)) {
    return(answer(200L, error_of(message$id, -32602L, "there is no such tool")))
  }
  key <- json(message$id)
  session$calls[[key]] <- TRUE
  token <- message$params[["_meta"]]$progressToken
  stream <- NULL
  progress <- function(done, total) {
    is_wanted <- !is.null(session$calls[[key]])
    if (is_wanted && !is.null(token)) {
      params <- list(progressToken = token, progress = done, total = total)
      emit(stream, json(list(jsonrpc = "2.0", method = "notifications/progress", params = params)))
    }
    is_wanted
  }
  value <- tryCatch(
    tool$call(message$params$arguments, progress),
    error = function(condition) condition
  )
  if (!inherits(value, "promise")) {
    session$calls[[key]] <- NULL
    failed <- inherits(value, "error")
    text <- if (failed) conditionMessage(value) else value
    return(answer(200L, result_of(message$id, text_result(text, failed))))
  }
  # For a long call, an event stream. Its first event has an id and no data, so that the client can
  # resume from the beginning.
  session$made <- (if (is.null(session$made)) 0L else session$made) + 1L
  stream <- new_stream(session, paste0("call-", session$made))
  emit(stream, "")
  end <- function(result) {
    # A cancelled call gets no response.
    if (is.null(session$calls[[key]])) {
      if (!is.null(stream$to)) stream$to$close()
      session$streams[[stream$name]] <- NULL
    } else {
      session$calls[[key]] <- NULL
      emit(stream, json(result_of(message$id, result)), is_last = TRUE)
      # The stream is kept for a while, for a client that loses its connection just before the end.
      later::later(function() session$streams[[stream$name]] <- NULL, 60)
    }
  }
  promises::then(
    value,
    function(text) end(text_result(text)),
    function(reason) {
      text <- if (inherits(reason, "condition")) conditionMessage(reason) else as.character(reason)
      end(text_result(text, TRUE))
    }
  )
  attach(stream, 0L)
}

post <- function(req, session) {
  text <- rawToChar(req$rook.input$read())
  message <- tryCatch(
    jsonlite::fromJSON(text, simplifyVector = FALSE),
    error = function(condition) NULL
  )
  if (!is.list(message) || !identical(message$jsonrpc, "2.0")) {
    return(answer(400L, error_of(NULL, -32700L, "this is no JSON-RPC message")))
  }
  if (identical(message$method, "initialize")) {
    return(initialize(message))
  }
  if (is.function(session)) {
    return(session())
  }
  if (is.null(message$id) || is.null(message$method)) {
    if (identical(message$method, "notifications/cancelled")) {
      session$calls[[json(message$params$requestId)]] <- NULL
    }
    if (identical(message$method, "notifications/initialized")) {
      params <- list(level = "info", data = paste("R", getRversion(), "is at your service"))
      notice <- list(jsonrpc = "2.0", method = "notifications/message", params = params)
      emit(session$streams$news, json(notice))
    }
    return(answer(202L))
  }
  switch(message$method,
    "ping" = answer(200L, result_of(message$id, object())),
    "tools/list" = {
      listed <- lapply(names(tools), function(name) {
        c(list(name = name), tools[[name]][c("description", "inputSchema")])
      })
      answer(200L, result_of(message$id, list(tools = listed)))
    },
    "tools/call" = call_tool(session, message),
    "logging/setLevel" = answer(200L, result_of(message$id, object())),
    answer(200L, error_of(message$id, -32601L, paste("there is no method", message$method)))
  )
}

# Responds with the stream of a session's messages, or with the rest of a stream that was
# interrupted.
listen <- function(req, session) {
  if (!grepl("text/event-stream", req$HTTP_ACCEPT %||% "", fixed = TRUE)) {
    return(answer(406L))
  }
  seen <- req$HTTP_LAST_EVENT_ID
  if (is.null(seen)) {
    return(attach(session$streams$news, session$streams$news$sent))
  }
  # The value comes from the client, so it may be anything.
  parts <- regmatches(seen, regexec("^([a-z]+(?:-[0-9]{1,9})?)/([0-9]{1,9})$", seen))[[1]]
  stream <- if (length(parts) == 3) session$streams[[parts[[2]]]]
  if (is.null(stream)) answer(404L) else attach(stream, as.integer(parts[[3]]))
}

`%||%` <- function(x, y) if (is.null(x)) y else x

# Returns whether a request comes from a page of this machine, or from no page. A page of any site
# can send requests to this machine, and the browser then names the page's origin. (A server for
# others also requires a token, and uses TLS.)
is_of_this_machine <- function(origin) {
  is.null(origin) || grepl("^https?://(localhost|127[.]0[.]0[.]1|\\[::1\\])(:[0-9]+)?$", origin)
}

app <- function(req) {
  if (!is_of_this_machine(req$HTTP_ORIGIN)) {
    return(answer(403L))
  }
  if (req$PATH_INFO != "/mcp") {
    return(answer(404L))
  }
  if (!req$REQUEST_METHOD %in% c("POST", "GET", "DELETE")) {
    return(answer(405L, headers = list(Allow = "POST, GET, DELETE")))
  }
  if (!is.null(req$HTTP_MCP_PROTOCOL_VERSION) && !req$HTTP_MCP_PROTOCOL_VERSION %in% revisions) {
    problem <- "this revision of the protocol is not spoken here"
    return(answer(400L, error_of(NULL, -32600L, problem)))
  }
  # 404 makes a client start a new session. This is a function because `initialize` needs no
  # session.
  id <- req$HTTP_MCP_SESSION_ID
  session <- if (is.null(id)) {
    function() answer(400L, error_of(NULL, -32600L, "there is no MCP-Session-Id"))
  } else if (is.null(sessions[[id]])) {
    function() answer(404L, error_of(NULL, -32600L, "this session is over"))
  } else {
    sessions[[id]]
  }
  if (req$REQUEST_METHOD == "POST") {
    return(post(req, session))
  }
  if (is.function(session)) {
    return(session())
  }
  if (req$REQUEST_METHOD == "DELETE") {
    end_session(session)
    return(answer(204L))
  }
  listen(req, session)
}

# The same as runServer(), in three lines, so that the address is printed once the server listens.
server <- startServer("127.0.0.1", port, app)
cat("http://127.0.0.1:", server$getPort(), " (Ctrl-C stops)\n", sep = "")
tryCatch(service(0), finally = server$stop())
