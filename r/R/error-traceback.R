# Tracebacks of errors: made while the stack still exists, called from src/guarded_call.c.

# The maximum number of frames in a traceback, and of characters of each frame. A recursion has
# thousands of frames, and do.call() puts whole data frames into a call.
frame_count <- 50L
frame_width <- 60L

# Returns the calls that led to an error as text, so that no objects of these calls are kept.
# Returns NULL if the calls are not available. Never raises an error, because a handler of the app
# may still handle the one in `condition`.
trace_of <- function(condition) {
  depth <- sys.nframe()
  tryCatch(
    {
      calls <- sys.calls()
      # Leaves out the frames of this function and of its handler.
      last <- depth - 2L
      if (inherits(condition$trace, "rlang_trace")) last <- converted_at(calls[seq_len(last)])
      if (is.null(last)) {
        frames_of_rlang(condition$trace)
      } else {
        while (last > 0L && is_signalling(calls[[last]])) last <- last - 1L
        functions <- lapply(seq_len(last), sys.function)
        # Leaves out the frames that called the app.
        first <- max(0L, which(vapply(functions, is_loop, NA))) + 1L
        at <- if (first > last) integer() else seq(first, last)
        if (first > 1 && is_plumber_hook(functions[[first - 1]])) {
          at <- at[cumsum(!vapply(functions[at], package_of, "") %in% c("plumber", "base")) > 0]
        }
        if (length(at) == 0) {
          frames_of_calls(list(), list(), list())
        } else {
          failed <- failed_call(condition, calls[[last + 1L]])
          placed <- with_places(c(calls[at], list(failed)), functions[at], condition)
          count <- seq_along(at)
          frames_of_calls(
            placed$calls[count], functions[at], placed$calls[count + 1L], placed$top[count]
          )
        }
      }
    },
    error = function(error) NULL
  )
}

# Returns the number of calls that had led to an error of R when rlang converted it to one of its
# own, which knitr asks for. Returns NULL if the error was raised by rlang.
converted_at <- function(calls) {
  at <- utils::tail(which(vapply(calls, is_signalling, NA)), 1)
  is_conversion <- function(call) identical(call[[1]], quote(rlang::entrace))
  if (length(at) == 1 && any(vapply(calls[-seq_len(at)], is_conversion, NA))) at - 1L
}

# Returns the call in which C code raised an error. Such a call has no frame, so its place is taken
# from `signalled`, R's own call of the condition's handlers.
failed_call <- function(condition, signalled) {
  call <- conditionCall(condition)
  if (!is.call(call) || !is_signalling(signalled)) {
    return(signalled)
  }
  attr(call, "srcref") <- attr(signalled, "srcref")
  call
}

# Returns whether a function is one that calls apps: service(), our hook in plumber, or the function
# of package later that runs callbacks.
is_loop <- function(func) {
  identical(func, service) || is_plumber_hook(func) ||
    (identical(package_of(func), "later") && "loop_id" %in% names(formals(args(func))))
}

# Returns whether a call is R's own call between an error in C code and its handlers.
is_signalling <- function(call) {
  head <- call[[1]]
  identical(head, quote(.handleSimpleError)) || identical(head, quote(base::.handleSimpleError))
}

# Chooses the outermost frames, which show where a call came from, the innermost, which show what
# happened, and between them the innermost of the app.
chosen_frames <- function(count, is_own = logical(count)) {
  if (count <= frame_count) {
    return(seq_len(count))
  }
  first <- count - frame_count + 11L
  own <- utils::tail(setdiff(which(is_own), c(1:10, seq(first, count))), 10)
  c(1:10, own, seq(first + length(own), count))
}

# Describes frames. `following` has the call that each frame was evaluating, whose position says
# which line of the function was reached. R's own call of a condition handler is among these calls
# and gives the line of an error in C code. `top` has the name of the file whose top level a frame
# evaluates, or "".
frames_of_calls <- function(calls, functions, following, top = character(length(calls))) {
  packages <- vapply(functions, package_of, "")
  packages[nzchar(top)] <- NA
  has_place <- !vapply(calls, function(call) is.null(attr(call, "srcref")), NA)
  at <- chosen_frames(length(calls), is.na(packages) | has_place)
  # Without source references of its own, a function has called from a line of another function.
  following[!vapply(functions, has_source, NA) & !nzchar(top)] <- list(NULL)
  trace <- c(
    describe_frames(calls[at], following[at]),
    list(package = packages[at], left_out = length(calls) - length(at))
  )
  is_top <- nzchar(top[at])
  trace$call[is_top] <- paste("the top level of", top[at][is_top])
  trace
}

frames_of_rlang <- function(trace) {
  count <- length(trace$call)
  at <- chosen_frames(count)
  package <- trace$namespace %||% NA_character_
  parents <- trace$parent %||% (seq_len(count) - 1L)
  following <- lapply(at, function(frame) {
    child <- which(parents == frame)
    if (length(child) > 0) trace$call[[child[[1]]]]
  })
  c(
    describe_frames(trace$call[at], following),
    list(package = rep_len(as.character(package), count)[at], left_out = count - length(at))
  )
}

# Describes calls. `file`, `line` and `source` say where each call is written; `at_file`, `at_line`
# and `at_source` say which line was being evaluated.
describe_frames <- function(calls, following) {
  written <- lapply(calls, place_of)
  at <- lapply(following, place_of)
  list(
    call = vapply(calls, one_line, ""),
    file = vapply(written, `[[`, "", "file"),
    line = vapply(written, `[[`, 0L, "line"),
    source = lapply(written, `[[`, "source"),
    at_file = vapply(at, `[[`, "", "file"),
    at_line = vapply(at, `[[`, 0L, "line"),
    at_source = lapply(at, `[[`, "source")
  )
}

has_source <- function(func) {
  !is.null(attr(func, "srcref"))
}

one_line <- function(call) {
  attributes(call) <- NULL
  text <- deparse(call, width.cutoff = frame_width, nlines = 1L)[[1]]
  text <- trimws(readable(text), "right")
  if (nchar(text) > frame_width) paste0(substr(text, 1, frame_width - 3L), "...") else text
}

# Returns the file, the line and the source object of a call, from which the error page shows lines.
# They are NA and NULL if R has no source reference of the call.
place_of <- function(call) {
  srcref <- attr(call, "srcref")
  if (is.null(srcref)) {
    return(list(file = NA_character_, line = NA_integer_, source = NULL))
  }
  source <- without_lines_before(attr(srcref, "srcfile"), srcref)
  file <- basename(as.character(source$filename %||% ""))
  # Code that was typed in, or passed as text, has lines but no file.
  list(
    file = if (nzchar(file)) file else NA_character_, line = line_of(call, srcref), source = source
  )
}

# Returns the source without lines that its reader has put before those of the file, which a `#line`
# directive says. Newer versions of Shiny do so.
without_lines_before <- function(source, srcref) {
  added <- as.integer(srcref)[[7]] - as.integer(srcref)[[1]]
  if (added <= 0L || length(source$lines) < added) {
    return(source)
  }
  srcfilecopy(source$filename, source$lines[-seq_len(added)], source$timestamp, isFile = TRUE)
}

# Longer statements are not searched for the call, because that takes as long as parsing them.
statement_lines <- 200L

# Returns the line of a call. R knows only the line of the statement that contains the call, so a
# statement of several lines is searched for the call.
line_of <- function(call, srcref) {
  first <- as.integer(srcref)[[1]]
  lines <- as.integer(srcref)[[3]] - first + 1L
  if (lines == 1L || lines > statement_lines) {
    return(first)
  }
  tryCatch(
    first + line_in(call, as.character(srcref)) - 1L, error = function(error) first,
    warning = function(warning) first
  )
}

line_in <- function(call, text) {
  name <- paste(deparse(call[[1]], nlines = 1L), collapse = "")
  is_named <- grepl("^[A-Za-z.]", name)
  # Usually the name of the function occurs in only one line of the statement, which then need not
  # be parsed.
  named <- if (is_named) grep(paste0(name, "("), text, fixed = TRUE)
  if (length(named) == 1) {
    return(named)
  }
  tokens <- utils::getParseData(
    parse(text = text, keep.source = TRUE, encoding = "UTF-8"), includeText = TRUE
  )
  calls <- tokens[tokens$token == "expr" & tokens$line1 <= tokens$line2, ]
  call <- utils::removeSource(`attr<-`(call, "srcref", NULL))
  # An expression's text begins with the function's name, unless it is an operator.
  is_candidate <- if (is_named) startsWith(calls$text, name) else TRUE
  for (at in which(is_candidate & nzchar(calls$text))) {
    if (identical(str2lang(calls$text[[at]]), call)) {
      return(calls$line1[[at]])
    }
  }
  1L
}

package_of <- function(func) {
  if (is.primitive(func)) {
    return("base")
  }
  name <- environmentName(topenv(environment(func)))
  if (name %in% c("", "R_GlobalEnv")) NA_character_ else name
}
