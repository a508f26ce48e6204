# The places of the app's calls that R evaluates without source references, because a package has
# read the file. Shiny 1.7 evaluates a file as one block, knitr evaluates the statements of a
# document one by one, and plumber hides the calls that have led to an error. The places are only
# looked for after an error.

# The maximum number of files that are searched, and the maximum size of each in bytes.
place_files <- 200L
place_bytes <- 1e6

# Adds source references to the calls of a traceback. `functions` are those of the calls, except of
# the last call, which has failed or signalled the error in `condition`. Returns
# list(calls =, top =): the calls, and for each but the last the file whose top level it evaluates,
# or "".
with_places <- function(calls, functions, condition) {
  placed <- list(calls = calls, top = rep("", length(functions)))
  packages <- vapply(functions, package_of, "")
  for (at in which(packages %in% "shiny")) {
    block <- block_of(calls[[at]])
    if (!is.null(block)) placed <- with_block(placed, at, block, condition)
  }
  is_eval <- vapply(functions, is_eval, NA)
  for (at in which(is_eval & !c(is_eval[-1], FALSE))) {
    caller <- at - 1L
    while (caller > 0L && is_evaluating(functions[[caller]])) caller <- caller - 1L
    if (caller > 0L) {
      if (packages[[caller]] %in% "evaluate") {
        placed <- with_document(placed, at, condition)
      } else if (is_source(functions[[caller]])) {
        placed$top[[at]] <- file_of(placed$calls[[at + 1L]])
      }
    }
  }
  placed$calls <- with_name_line(placed$calls, condition)
  placed
}

# R knows only the line of a statement. If the statement of the innermost place has several lines,
# and the error names a variable, the place is the line of that variable.
with_name_line <- function(calls, condition) {
  has_place <- !vapply(calls, function(call) is.null(attr(call, "srcref")), NA)
  at <- utils::tail(which(has_place), 1)
  if (length(at) == 0) {
    return(calls)
  }
  reference <- attr(calls[[at]], "srcref")
  lines <- as.integer(reference)[c(1, 3)]
  if (lines[[1]] < lines[[2]] && diff(lines) < statement_lines) {
    code <- parse(text = as.character(reference), keep.source = TRUE, encoding = "UTF-8")
    found <- name_lines(code, condition) + lines[[1]] - 1L
    found <- found[found >= line_of(calls[[at]], reference)]
    if (length(found) > 0) {
      source <- without_lines_before(attr(reference, "srcfile"), reference)
      attr(calls[[at]], "srcref") <- line_reference(source, min(found))
    }
  }
  calls
}

# Returns whether a function is eval(), which has two frames: one of the function, and one of its C
# code.
is_eval <- function(func) {
  identical(func, base::eval) || is.primitive(func)
}

# Returns whether a function is one of those by which a package evaluates a statement.
is_evaluating <- function(func) {
  is_eval(func) || identical(func, base::withVisible) ||
    identical(func, base::withCallingHandlers)
}

is_source <- function(func) {
  identical(func, base::source) || identical(func, base::sys.source)
}

# Returns the name of the file in which a call is written, or "".
file_of <- function(call) {
  file <- place_of(call)$file
  if (is.na(file)) "" else file
}

# Adds the places of the calls that the block of a file has made, see with_places(). `at` is the
# number of the call that evaluates the block.
with_block <- function(placed, at, block, condition) {
  if (!is.null(attr(block, "srcref"))) {
    placed$top[[at]] <- file_of(placed$calls[[at + 1L]])
    return(placed)
  }
  unit <- unit_of_block(block)
  if (is.null(unit)) {
    return(placed)
  }
  last <- length(placed$calls)
  rest <- seq(at + 1L, last)
  placed$calls[rest] <- with_references(placed$calls[rest], addresses_of(block), unit)
  # R has no call for a variable that does not exist: the failed call is that of the block.
  if (at == last - 1L && is.null(attr(placed$calls[[last]], "srcref"))) {
    attr(placed$calls[[last]], "srcref") <- reference_to_name(unit, condition)
  }
  placed$top[[at]] <- unit$file
  placed
}

# Adds the place of the call that the statement of a document has made.
with_document <- function(placed, at, condition) {
  call <- placed$calls[[at + 1L]]
  for (unit in document_units()) {
    statement <- equal_statement(call, unit)
    reference <- if (!is.null(statement)) {
      unit$references[[statement]]
    } else if (at == length(placed$calls) - 1L) {
      reference_to_name(unit, condition)
    }
    if (!is.null(reference)) {
      attr(placed$calls[[at + 1L]], "srcref") <- reference
      placed$top[[at]] <- unit$file
      break
    }
  }
  placed
}

# Returns the argument of a call that is a block of statements, or NULL.
block_of <- function(call) {
  for (argument in as.list(call)[-1]) {
    is_block <- is.call(argument) && identical(argument[[1]], quote(`{`))
    if (is_block && length(argument) > 1) {
      return(argument)
    }
  }
}

# Returns a table with the addresses of the arguments of all calls in a block, and the number of the
# statement that contains them. R copies a call when it returns its stack, but not its arguments.
addresses_of <- function(block) {
  table <- utils::hashtab("address")
  add <- function(code, statement) {
    for (part in as.list(code)) {
      if (!missing(part) && has_own_address(part)) {
        utils::sethash(table, part, statement)
        if (is.call(part)) add(part, statement)
      }
    }
  }
  for (at in seq_along(block)[-1]) if (is.call(block[[at]])) add(block[[at]], at - 1L)
  table
}

# R's parser creates such an object for each place in the code.
has_own_address <- function(code) {
  is.call(code) || is.character(code) || is.double(code)
}

# Adds the source references of the statements of a unit that contain the calls. A call that has no
# arguments with addresses of their own, as `library(shiny)`, or that a package has copied, is
# compared with those in the statement of the previous call, or in all statements.
with_references <- function(calls, addresses, unit) {
  statement <- NULL
  for (at in seq_along(calls)) {
    call <- calls[[at]]
    if (is.call(call) && is.null(attr(call, "srcref"))) {
      found <- statement_of(call, addresses) %||%
        equal_statement(call, unit, statement %||% seq_along(unit$code))
      if (!is.null(found)) {
        attr(calls[[at]], "srcref") <- unit$references[[found]]
        statement <- found
      }
    }
  }
  calls
}

statement_of <- function(call, addresses) {
  for (part in as.list(call)) {
    found <- if (!missing(part) && has_own_address(part)) utils::gethash(addresses, part)
    if (!is.null(found)) {
      return(found)
    }
  }
}

# Returns the number of the first of some statements that contains an equal call, or NULL.
equal_statement <- function(call, unit, statements = seq_along(unit$code)) {
  if (any(c("...", "X[[i]]") %in% vapply(as.list(call), one_text, ""))) {
    return(NULL)
  }
  call <- utils::removeSource(`attr<-`(call, "srcref", NULL))
  contains <- function(code) {
    is.call(code) && (identical(code, call) ||
      any(vapply(as.list(code), function(part) !missing(part) && contains(part), NA)))
  }
  for (at in statements) {
    code <- unit$code[[at]]
    if (is.call(code) && contains(utils::removeSource(code))) {
      return(at)
    }
  }
}

one_text <- function(code) {
  if (missing(code)) "" else paste(deparse(code, nlines = 1L), collapse = "")
}

# ---- the files of the app ----

# Returns a file as list(file =, code =, references =): its name, its statements, and their source
# references. In a document, only the lines in chunks of R code count. Returns NULL for a file that
# cannot be read or is not valid R.
file_unit <- function(path) {
  tryCatch(
    {
      lines <- readLines(path, warn = FALSE, encoding = "UTF-8")
      source <- srcfilecopy(normalizePath(path), lines, file.mtime(path), isFile = TRUE)
      if (!grepl("[.][Rr]$", path)) lines <- chunk_lines(lines)
      code <- parse(text = lines, keep.source = TRUE, srcfile = source, encoding = "UTF-8")
      list(file = basename(path), code = code, references = attr(code, "srcref"))
    },
    error = function(error) NULL
  )
}

# Returns the lines of a document, of which those outside of chunks of R code are empty.
chunk_lines <- function(lines) {
  opens <- grepl("^[\t >]*```+\\s*\\{[rR]\\b", lines)
  closes <- grepl("^[\t >]*```+\\s*$", lines)
  is_code <- FALSE
  for (at in seq_along(lines)) {
    was_code <- is_code
    is_code <- if (is_code) !closes[[at]] else opens[[at]]
    if (!is_code || !was_code) lines[[at]] <- ""
  }
  lines
}

small_files <- function(...) {
  files <- c(...)
  files <- files[file.size(files) < place_bytes]
  utils::head(files[!is.na(files)], place_files)
}

# Returns the files of R code in the app's folder, and in its folder of modules and helpers.
code_files <- function() {
  small_files(list.files(c(".", "R"), "[.][Rr]$", full.names = TRUE))
}

# Returns the file of the app that consists of the statements in a block, or NULL.
unit_of_block <- function(block) {
  plain <- function(code) if (is.call(code)) utils::removeSource(code) else code
  statements <- NULL
  for (path in code_files()) {
    unit <- file_unit(path)
    if (length(unit$code) == length(block) - 1L) {
      statements <- statements %||% lapply(as.list(block)[-1], plain)
      if (identical(lapply(as.list(unit$code), plain), statements)) {
        return(unit)
      }
    }
  }
}

document_units <- function() {
  files <- small_files(list.files(".", "[.]([Rr]md|qmd)$", full.names = TRUE))
  Filter(Negate(is.null), lapply(files, file_unit))
}

# Returns the source reference of the first use of a name that the message of an error has in
# quotes, such as a variable that does not exist, or NULL.
reference_to_name <- function(unit, condition) {
  lines <- name_lines(unit$code, condition)
  if (length(lines) > 0) line_reference(attr(unit$code, "srcfile"), min(lines))
}

# Returns the lines in which code uses a name that the message of an error has in quotes.
name_lines <- function(code, condition) {
  message <- paste(conditionMessage(condition), collapse = "\n")
  pattern <- "['\u2018\"]([^'\u2018\u2019\"]+)['\u2019\"]"
  quoted <- regmatches(message, gregexpr(pattern, message))[[1]]
  names <- substr(quoted, 2L, nchar(quoted) - 1L)
  tokens <- utils::getParseData(code)
  is_name <- tokens$token %in% c("SYMBOL", "SYMBOL_FUNCTION_CALL") & tokens$text %in% names
  tokens$line1[is_name]
}

# Returns a source reference of a line.
line_reference <- function(source, line) {
  srcref(source, c(line, 1L, line, 1L))
}

# ---- plumber ----

# Returns the traceback of an error that plumber has raised in place of one in a file, with the
# statement as the innermost frame. The message names the line before the statement.
with_plumber_place <- function(trace, condition) {
  message <- paste(conditionMessage(condition), collapse = "\n")
  pattern <- "^Error on line #([0-9]+): '(.*?)' - (?:Error(?: in (.*?))? ?: )?"
  part <- regmatches(message, regexec(pattern, message, perl = TRUE))[[1]]
  if (length(part) == 0) {
    return(trace)
  }
  line <- as.integer(part[[2]]) + 1L
  for (path in small_files(list.files(".", "[.][Rr]$", full.names = TRUE))) {
    unit <- file_unit(path)
    begins <- vapply(unit$references, function(reference) as.integer(reference)[[1]], 0L)
    at <- which(begins == line)
    is_named <- length(at) > 0 &&
      identical(c("", attr(unit$code, "srcfile")$lines)[[line]], part[[3]])
    if (is_named) {
      # The failed call is one of the statement, or of a function that the statement has called.
      call <- tryCatch(str2lang(part[[4]]), error = function(error) NULL)
      call <- if (is.call(call)) call else unit$code[[at[[1]]]]
      if (!is.call(call)) call <- call("(", call)
      attr(call, "srcref") <- unit$references[[at[[1]]]]
      return(with_top_frame(trace, call, unit$file))
    }
  }
  trace
}

# Adds the top level of a file, which has made a call, to a traceback as the innermost frame.
with_top_frame <- function(trace, call, file) {
  added <- frames_of_calls(list(call("plumb")), list(plumber_errors), list(call), file)
  fields <- setdiff(names(added), "left_out")
  trace[fields] <- lapply(fields, function(field) c(trace[[field]], added[[field]]))
  trace
}
