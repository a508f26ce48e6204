# Profiles that `rookery profile` and the live page request. C calls these functions where R checks
# for interrupts, see src/profile.c.

# Begins a profile. Returns the number of its progress (enum rk_profile_progress). Tests pass another
# profiler.
start_profile <- function(path, interval, profiler = utils::Rprof) {
  running <- 1L
  unsupported <- 3L
  failed <- 5L
  if (!file.create(path, showWarnings = FALSE)) {
    return(failed)
  }
  tryCatch(
    {
      profiler(
        path, interval = interval, gc.profiling = TRUE, line.profiling = TRUE, numfiles = 500L,
        bufsize = 100000L
      )
      running
    },
    # The file can be written, so what is missing is the profiler.
    error = function(error) unsupported
  )
}

stop_profile <- function() {
  # A warning says that some of the names of files did not fit.
  suppressWarnings(utils::Rprof(NULL))
}
