# A path is served by an R of its own: started in the app's folder, so that its .Rprofile is read, with this session's
# libraries and rookery's httpuv in front of them.

# Runs the child and waits for it. Its stdout and stderr are this process's; SIGINT, SIGTERM and SIGHUP are passed on.
serve_in_child <- function(found, address, dots, log, settings = list(), admin = list(), open = FALSE) {
  told <- tempfile("rookery-address-")
  on.exit(unlink(told))
  command <- child_command(
    found, address, dots, log, settings,
    parent = Sys.getpid(), admin = admin, open = if (isFALSE(open)) FALSE else told
  )
  run_child(command, found$label, opener(open, told))
}

# Runs a program that serves what is called `label`, until it ends, and calls `look` meanwhile.
run_child <- function(command, label, look = function() NULL) {
  pid <- with_child_environment(command, .Call(ffi_child_start, command$program, command$arguments))
  if (is.character(pid)) {
    abort(paste0(basename(command$program), " could not be started (", command$program, "): ", pid), "rookery_exit")
  }
  status <- wait_for_child(pid, look)
  if (status$signal == 15L && interactive()) {
    quit(save = "no", status = status$code)
  }
  if (status$code != 0) {
    abort(
      paste0("The R that served ", label, " ended with status ", status$code, ": see its output above."),
      "rookery_exit",
      status = status$code
    )
  }
  NULL
}

child_command <- function(found, address, dots, log, settings, parent, admin = list(), open = FALSE) {
  if (inherits(address$tls, "rookery_tls") && any(is_pem(address$tls$key))) {
    # It would go through the environment, which whatever the child starts inherits.
    abort(
      "A key that is given as text, or with a password, cannot be handed to the R that serves a path: give the path of a file.",
      "rookery_bad_tls"
    )
  }
  home <- system.file(package = "rookery")
  spec <- list(
    library = dirname(home),
    found = unclass(found),
    address = address,
    dots = dots,
    log = log,
    parent = parent,
    settings = lapply(settings, unclass),
    admin = admin,
    open = open,
    options = session_options()
  )
  list(
    program = file.path(R.home("bin"), "R"),
    arguments = c("--no-echo", "--no-restore", "--no-save", paste0("--file=", file.path(home, "serve", "child.R"))),
    dir = found$dir,
    environment = c(
      ROOKERY_INTERNAL_CHILD_SPEC = child_spec_write(spec),
      R_LIBS = paste(unique(c(compat_library(), .libPaths())), collapse = .Platform$path.sep),
      # Set by R CMD check for its own R, and not to be had by others.
      R_TESTS = ""
    )
  )
}

# What the child is to do, as text for an environment variable; Linux takes 128 KiB in one.
child_spec_write <- function(spec) {
  text <- rawToChar(serialize(spec, NULL, ascii = TRUE))
  if (nchar(text, "bytes") > 100e3) {
    abort(
      "The arguments are too large to be passed to another R process: serve an object instead of a path.",
      "rookery_bad_target"
    )
  }
  text
}

child_spec_read <- function(text) {
  spec <- unserialize(charToRaw(text))
  class(spec$found) <- "rookery_target"
  spec
}

# Evaluates `body` with the child's working directory and environment: a process takes both from its parent.
with_child_environment <- function(command, body) {
  names <- names(command$environment)
  before <- Sys.getenv(names, unset = NA)
  dir <- setwd(command$dir)
  on.exit({
    setwd(dir)
    Sys.unsetenv(names[is.na(before)])
    if (!all(is.na(before))) {
      do.call(Sys.setenv, as.list(before[!is.na(before)]))
    }
  })
  do.call(Sys.setenv, as.list(command$environment))
  body
}

# list(code =, signal =): the exit status, as a shell counts it, and the last signal that was passed on, or 0.
wait_for_child <- function(pid, look) {
  on.exit(.Call(ffi_child_forget))
  repeat {
    look()
    status <- tryCatch(
      .Call(ffi_child_wait, pid, 0.2),
      # RStudio's stop sign interrupts R without a signal.
      interrupt = function(interrupt) {
        # As signals.c does for Ctrl-C: SIGINT would only end a Sys.sleep() in the child.
        .Call(ffi_child_signal, pid, 15L)
        NULL
      }
    )
    if (!is.null(status)) {
      return(list(code = status[[1]], signal = status[[2]]))
    }
  }
}

# What inst/serve/child.R calls.
child_main <- function(text) {
  spec <- child_spec_read(text)
  # A parent that is killed takes its child along.
  .Call(ffi_child_follow, spec$parent)
  options(spec$options)
  status <- tryCatch(
    {
      serve_here(spec$found, NULL, spec$address, spec$dots, spec$log, spec$settings, spec$admin, spec$open)
      0L
    },
    rookery_error = function(error) {
      cat("rookery: ", conditionMessage(error), "\n", sep = "", file = stderr())
      error$status %||% 1L
    }
  )
  quit(save = "no", status = status)
}
