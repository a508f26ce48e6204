# Calls an app's function for a request that R code has made, without a server. The server itself
# calls apps in C (src/invocation.c).
#
# `data` is a connection with the request's body, and `dataLength` its length in bytes. Returns the
# response with headers as strings, and with `bodyFile` and `bodyFileOwned` for a body that is a
# file; NULL if the function returned nothing; or a promise of one of these. An error becomes a
# response with status 500.
rookCall <- function(func, req, data = NULL, dataLength = -1) {
  req$rook.input <- if (is.null(data)) nullInputStream else InputStream$new(data, dataLength)
  req$rook.errors <- stdErrStream
  req$httpuv.version <- httpuv_version()
  for (name in c("CONTENT_TYPE", "CONTENT_LENGTH")) {
    # The request may lack the header.
    value <- req[[paste0("HTTP_", name)]]
    if (!is.null(value)) {
      assign(name, value, envir = req)
    }
  }
  tryCatch(
    {
      value <- func(req)
      promise <- as_promise(value)
      if (!is.null(promise)) {
        promises::then(promise, rook_response, rook_error)
      } else {
        rook_response(value)
      }
    },
    error = rook_error
  )
}

rook_response <- function(value) {
  if (length(value) == 0) {
    return(NULL)
  }
  if (!is.list(value)) {
    abort_argument("A response must be a list, not ", class(value)[[1]], ".", argument = "func")
  }
  value$headers <- lapply(as.list(value$headers), sent_text)
  if (length(value$headers) == 0) {
    value["headers"] <- list(structure(list(), names = character(0)))
  }
  file <- body_file(value$body)
  if (!is.null(file)) {
    value$body <- NULL
    value$bodyFile <- file$path
    value$bodyFileOwned <- file$is_owned
  }
  value
}

body_file <- function(body) {
  if (is.list(body) && !is.null(body$file)) {
    return(list(path = body$file, is_owned = isTRUE(body$owned)))
  }
  if (is.character(body) && "file" %in% names(body)) {
    return(list(path = body[["file"]], is_owned = FALSE))
  }
  NULL
}

rook_error <- function(error) {
  list(
    status = 500L,
    headers = list("Content-Type" = "text/plain; charset=UTF-8"),
    body = charToRaw(error_page(error))
  )
}
