# What an app reads a request's body from, and writes its errors to.

# `InputStream$new(conn, length)`: a stream over the `length` bytes that `conn` gives, which is a connection or a
# function of an offset and a number of bytes.
#
# Its streams look like objects of an R6 class and are none: `$new()` of a class takes 29 us, this takes 3, and every
# request with a body needs one.
InputStream <- list(
  classname = "InputStream",
  new = function(conn, length) {
    read_at <- if (is.function(conn)) conn else connection_reader(conn)
    size <- length
    offset <- 0
    self <- new.env(parent = emptyenv())
    # The next `l` bytes, or those that are left: all of them when `l` is negative.
    self$read <- function(l = -1L) {
      rest <- size - offset
      n <- check_count(l, "l")
      if (n < 0 || n > rest) {
        n <- rest
      }
      if (n <= 0) {
        return(raw())
      }
      bytes <- read_at(offset, n)
      offset <<- offset + length(bytes)
      bytes
    }
    # The next `n` lines, without what ends them ("\n", "\r\n" or "\r"); all of them when `n` is negative.
    self$read_lines <- function(n = -1L) {
      bytes <- find_lines(read_at, offset, size, check_count(n, "n"))
      lines <- split_lines(if (offset == 0) strip_mark(bytes) else bytes)
      offset <<- offset + length(bytes)
      lines
    }
    # Back to the start; returns where it was.
    self$rewind <- function() {
      was <- offset
      offset <<- 0
      was
    }
    as_input(self)
  }
)

# ---- the body of a request, read from the server's memory or its file: `ticket` names it to C (src/rook_input.c) ----

# A function whose call gives, as the environment of the function that it returns, a new request with its two bindings,
# the second not yet looked at. What it calls is no name: the environment around it is empty, as httpuv's requests have it.
request_frame <- function() {
  frame <- function(rook.input, .bodyData) NULL
  body(frame) <- as.call(list(`function`, NULL, NULL))
  environment(frame) <- emptyenv()
  frame
}

input_read <- local({
  .ticket <- NULL
  read <- function(l = -1L) .Call(ffi_input_read, .ticket, l)
  # A number instead of the call of `-`, whose evaluation is a quarter of what `read()` of a small body costs. Here, because
  # what is made when the package is installed is compiled.
  formals(read)$l <- -1L
  read
})

# The methods of a body's stream, whose environment is the stream and has `.ticket`: C makes them, see object_template.c.
input_methods <- function() {
  .ticket <- NULL
  list(
    read = input_read,
    read_lines = function(n = -1L) body_lines(.ticket, n),
    rewind = function() .Call(ffi_input_seek, .ticket, 0)
  )
}

input_classes <- c("InputStream", "R6")

as_input <- function(self) {
  lockEnvironment(self, bindings = TRUE)
  class(self) <- input_classes
  self
}

body_lines <- function(ticket, n) {
  count <- check_count(n, "n")
  offset <- .Call(ffi_input_tell, ticket)
  read_at <- function(offset, n) .Call(ffi_body_read, ticket, offset, n)
  bytes <- find_lines(read_at, offset, ticket[[3]], count)
  .Call(ffi_input_seek, ticket, offset + length(bytes))
  split_lines(if (offset == 0) strip_mark(bytes) else bytes)
}

# The body as a connection, for those who read `req$.bodyData`; NULL when the request has been answered.
open_body <- function(ticket, req) {
  where <- .Call(ffi_body_open, ticket)
  if (is.null(where)) {
    return(NULL)
  }
  connection <- if (where[[2]] >= 0) {
    open_spooled(ticket, where[[1]], where[[2]])
  } else {
    rawConnection(.Call(ffi_body_read, ticket, 0, where[[1]]), open = "rb")
  }
  .Call(ffi_body_opened, ticket, list(connection, req))
  connection
}

# The file of a spooled body has been unlinked. Its descriptor can be opened by name in these
# folders, if they are mounted; if they are not, the body is copied to a file.
open_spooled <- function(ticket, size, descriptor, folders = c("/proc/self/fd", "/dev/fd")) {
  paths <- file.path(folders, descriptor)
  named <- paths[file.exists(paths)]
  if (length(named) > 0) {
    return(file(named[[1]], open = "rb"))
  }
  path <- tempfile("body", spool_dir())
  con <- file(path, open = "w+b")
  is_whole <- FALSE
  # R has the file open, so its name is not needed any more.
  on.exit({
    unlink(path)
    if (!is_whole) close(con)
  })
  offset <- 0
  while (offset < size) {
    bytes <- .Call(ffi_body_read, ticket, offset, min(copy_block, size - offset))
    if (length(bytes) == 0) abort("the body of this request cannot be read", "rookery_body_unreadable")
    writeBin(bytes, con)
    offset <- offset + length(bytes)
  }
  flush(con)
  is_whole <- TRUE
  con
}

copy_block <- 1024^2

# The request has been answered: the connection of `opened`, a list of it and its request, is gone.
close_body <- function(opened) {
  try(close(opened[[1]]), silent = TRUE)
  assign(".bodyData", NULL, envir = opened[[2]])
}

# Binds the connection in a request that was made before it had a body.
bind_body <- function(ticket, req) {
  force(ticket)
  delayedAssign(".bodyData", open_body(ticket, req), assign.env = req)
}

# ---- lines ----

check_count <- function(n, name) {
  if (!(is.numeric(n) || is.logical(n)) || length(n) != 1 || is.na(n)) {
    abort_argument("`", name, "` must be one number.")
  }
  trunc(n)
}

connection_reader <- function(conn) {
  force(conn)
  function(offset, n) {
    seek(conn, offset)
    readBin(conn, raw(), n)
  }
}

# How much of a body is looked at when not all of its lines are asked for; doubled until they are found.
line_block <- 8192

# The bytes of the next `n` lines.
find_lines <- function(read_at, offset, size, n) {
  rest <- size - offset
  if (n == 0 || rest <= 0) {
    return(raw())
  }
  block <- if (n < 0) rest else min(line_block, rest)
  repeat {
    bytes <- read_at(offset, block)
    is_rest <- length(bytes) < block || block == rest
    if (n > 0) {
      ends <- line_ends(bytes, is_rest)
      if (length(ends) >= n) {
        return(bytes[seq_len(ends[[n]])])
      }
    }
    if (is_rest) {
      return(bytes)
    }
    block <- min(2 * block, rest)
  }
}

# Where the lines in `bytes` end. A "\r" in last place ends one only if no "\n" can follow.
line_ends <- function(bytes, is_rest) {
  is_lf <- bytes == 0x0a
  is_cr <- bytes == 0x0d
  which(is_lf | (is_cr & !c(is_lf[-1], !is_rest)))
}

# UTF-8's byte order mark, which a body may start with, is not part of its first line.
strip_mark <- function(bytes) {
  if (length(bytes) >= 3 && identical(bytes[1:3], as.raw(c(0xef, 0xbb, 0xbf)))) bytes[-(1:3)] else bytes
}

# Lines are UTF-8 when their bytes are. Those with a NUL, which R's strings cannot hold, end before it.
split_lines <- function(bytes) {
  if (length(bytes) == 0) {
    return(character(0))
  }
  is_cr <- bytes == 0x0d
  if (any(is_cr)) {
    is_pair <- is_cr & c(bytes[-1] == 0x0a, FALSE)
    bytes[is_cr] <- as.raw(0x0a)
    bytes <- bytes[!is_pair]
  }
  if (any(bytes == 0)) {
    text <- rawConnection(bytes)
    on.exit(close(text))
    lines <- readLines(text, warn = FALSE)
  } else {
    lines <- strsplit(rawToChar(bytes), "\n", fixed = TRUE, useBytes = TRUE)[[1]]
  }
  Encoding(lines)[validUTF8(lines)] <- "UTF-8"
  lines
}

# The body of a request that has none.
NullInputStream <- R6::R6Class(
  "NullInputStream",
  cloneable = FALSE,
  public = list(
    read_lines = function(n = -1L) {
      character(0)
    },
    read = function(l = -1L) {
      raw()
    },
    rewind = function() {
      invisible()
    },
    close = function() {
      invisible()
    }
  )
)

nullInputStream <- NullInputStream$new()

# `req$rook.errors`
ErrorStream <- R6::R6Class(
  "ErrorStream",
  cloneable = FALSE,
  public = list(
    cat = function(..., sep = " ", fill = FALSE, labels = NULL) {
      base::cat(..., sep = sep, fill = fill, labels = labels, file = stderr())
    },
    flush = function() {
      base::flush(stderr())
    }
  )
)

stdErrStream <- ErrorStream$new()
