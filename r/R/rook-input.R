# The Rook objects of a request: `rook.input`, from which an app reads the body, and `rook.errors`,
# to which it writes messages.

# `InputStream$new(conn, length)` creates a Rook input over `length` bytes. `conn` is a connection,
# or a function of an offset and a number of bytes.
#
# The objects look like those of an R6 class but are made without R6: `$new()` of a class takes 29
# us and this function 3 us, and every request with a body needs an object.
InputStream <- list(
  classname = "InputStream",
  new = function(conn, length) {
    read_at <- if (is.function(conn)) conn else connection_reader(conn)
    size <- length
    offset <- 0
    self <- new.env(parent = emptyenv())
    # Returns the next `l` bytes, or all remaining ones if there are fewer or if `l` is negative.
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
    # Returns the next `n` lines without their line ends ("\n", "\r\n" or "\r"); all lines if `n` is
    # negative.
    self$read_lines <- function(n = -1L) {
      bytes <- find_lines(read_at, offset, size, check_count(n, "n"))
      lines <- split_lines(if (offset == 0) strip_mark(bytes) else bytes)
      offset <<- offset + length(bytes)
      lines
    }
    # Moves to the start of the body, and returns the previous position.
    self$rewind <- function() {
      was <- offset
      offset <<- 0
      was
    }
    as_input(self)
  }
)

# ---- the body of a request in the server's memory or in its file; `ticket` names the body to C
# (src/rook_input.c) ----

input_read <- local({
  .ticket <- NULL
  read <- function(l = -1L) .Call(ffi_input_read, .ticket, l)
  # The default is a number instead of a call of `-`, whose evaluation takes a quarter of the time
  # that `read()` takes for a small body. The function is made here, during installation, so that it
  # is byte-compiled.
  formals(read)$l <- -1L
  read
})

# The methods of a request's `rook.input`. Their environment is the object itself, with `.ticket`. C
# copies them into each object (object_template.c).
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

# Returns the body as a connection, the value of `req$.bodyData`; NULL after the response.
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
    if (length(bytes) == 0) {
      abort("the body of this request cannot be read", "rookery_body_unreadable")
    }
    writeBin(bytes, con)
    offset <- offset + length(bytes)
  }
  flush(con)
  is_whole <- TRUE
  con
}

copy_block <- 1024^2

# Returns the call by which C binds `.bodyData`, because only R can make a promise. The call is the
# body of delayedAssign() with values in place of its arguments; C sets what is quoted and the last
# one. A call of delayedAssign() would take twice as long.
assign_body <- function() {
  call <- body(delayedAssign)
  call[[2]][2:5] <- list(".bodyData", call("quote", NULL), baseenv(), emptyenv())
  call
}

# Closes the connection to a body after the response. `opened` is a list of the connection and its
# request.
close_body <- function(opened) {
  try(close(opened[[1]]), silent = TRUE)
  assign(".bodyData", NULL, envir = opened[[2]])
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

# The number of bytes that are searched first when only some lines are requested. It is doubled
# until they are found.
line_block <- 8192

# Returns the bytes of the next `n` lines.
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

# Returns the positions at which lines end. A "\r" at the end of `bytes` ends a line only if no "\n"
# can follow.
line_ends <- function(bytes, is_rest) {
  is_lf <- bytes == 0x0a
  is_cr <- bytes == 0x0d
  which(is_lf | (is_cr & !c(is_lf[-1], !is_rest)))
}

# Removes a UTF-8 byte order mark, which is not part of the first line.
strip_mark <- function(bytes) {
  if (length(bytes) >= 3 && identical(bytes[1:3], as.raw(c(0xef, 0xbb, 0xbf)))) {
    bytes[-(1:3)]
  } else {
    bytes
  }
}

# Splits bytes into lines, which are marked as UTF-8 if they are valid. A line with a NUL, which R's
# strings cannot hold, ends before the NUL.
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

# The `rook.input` of a request without a body.
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

# The class of `req$rook.errors`.
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
