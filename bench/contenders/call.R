# Measures one call of a handler from C, and counts the R frames in between, for each way of
# bare-epoll.
#
#     Rscript --vanilla call.R <way> <calls>      prints one JSON object
args <- commandArgs(trailingOnly = TRUE)
ways <- c(unprotected = -1L, trampoline = 0L, evalq = 1L, try_catch = 2L, unwind = 3L)
way <- ways[[args[[1]]]]
calls <- as.integer(args[[2]])
library <- dyn.load(file.path(Sys.getenv("ROOKERY_BENCH_OUT"), "bare_epoll.so"))
time_calls <- getNativeSymbolInfo("bare_time", library)

frames <- NA_integer_
count_frames <- function(req) {
  frames <<- sys.nframe()
  NULL
}
invisible(.Call(time_calls, way, count_frames, NULL, 1L))

handler <- function(req) NULL
req <- new.env(parent = emptyenv())
invisible(.Call(time_calls, way, handler, req, 2000L)) # the closure is compiled by now
seconds <- .Call(time_calls, way, handler, req, calls)
# The time of the handler itself in the same process, by a bare Rf_eval().
bare <- .Call(time_calls, ways[["unprotected"]], handler, req, calls)
cat(sprintf(
  '{"microseconds_per_call": %.6f, "microseconds_added": %.6f, "frames": %d}\n',
  seconds / calls * 1e6, (seconds - bare) / calls * 1e6, frames - 1L
))
