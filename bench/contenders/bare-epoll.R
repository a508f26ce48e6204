# The upper bound: bare-epoll/*.c on R's own thread. ROOKERY_BENCH_OUT has the compiled object.
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
source(file.path(here, "handlers.R"))
library <- dyn.load(file.path(Sys.getenv("ROOKERY_BENCH_OUT"), "bare_epoll.so"))

null_input <- list(
  read = function(l = -1L) raw(0),
  read_lines = function(n = -1L) character(),
  rewind = function() invisible(),
  close = function() invisible()
)
errors <- list(
  cat = function(..., sep = " ", fill = FALSE, labels = NULL) base::cat(..., sep = sep,
    file = stderr()),
  flush = function() base::flush(stderr())
)
input_of <- function(body) {
  at <- 0L
  list(
    read = function(l = -1L) {
      if (l < 0L) l <- length(body)
      end <- min(length(body), at + l)
      piece <- if (at == 0L &&
        end == length(body)) body else if (end > at) body[(at + 1L):end] else raw(0)
      at <<- end
      piece
    },
    read_lines = function(n = -1L) readLines(rawConnection(body), n, warn = FALSE),
    rewind = function() at <<- 0L
  )
}
# How the handler is called, in a fourth argument for the r-call group.
shape_name <- if (length(args) > 3L) args[[4]] else "trampoline"
shape <- match(shape_name, c("trampoline", "evalq", "try_catch", "unwind")) - 1L
constants <- list(null_input, errors, package_version("1.6.9"), input_of)
.Call(getNativeSymbolInfo("bare_serve", library), port, rook_app(identity)$call, constants, shape)
