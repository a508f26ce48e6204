# The R process that serves a path. It starts in the app's folder, so that R reads the app's
# .Rprofile, and has this session's library paths.

# Runs the child process and waits for it. The child writes to this process's stdout and stderr.
# SIGINT, SIGTERM and SIGHUP are forwarded to it.
serve_in_child <- function(
  found, address, dots, log, settings = list(), admin = list(), open = FALSE
) {
  address_file <- tempfile("rookery-address-")
  on.exit(unlink(address_file))
  command <- child_command(
    found, address, dots, log, settings,
    parent = Sys.getpid(), admin = admin, open = if (isFALSE(open)) FALSE else address_file
  )
  run_child(command, found$label, opener(open, address_file))
}

# Runs a program that serves `label` until it ends, and calls `look` meanwhile.
run_child <- function(command, label, look = function() NULL) {
  if (is_windows()) {
    return(run_windows_child(command, label))
  }
  pid <- with_child_environment(command, .Call(ffi_child_start, command$program, command$arguments))
  if (is.character(pid)) {
    abort(
      paste0(basename(command$program), " could not be started (", command$program, "): ", pid),
      "rookery_exit"
    )
  }
  status <- wait_for_child(pid, look)
  if (status$signal == 15L && interactive()) {
    quit(save = "no", status = status$code)
  }
  if (status$code != 0) {
    abort(
      paste0(
        "The R process that served ", label, " ended with status ", status$code,
        ": see its output above."
      ),
      "rookery_exit",
      status = status$code
    )
  }
  NULL
}

child_command <- function(
  found, address, dots, log, settings, parent, admin = list(), open = FALSE
) {
  if (inherits(address$tls, "rookery_tls") && any(is_pem(address$tls$key))) {
    # The password would be passed in the environment, which all processes started by the child
    # inherit.
    abort(
      paste(
        "A key that is given as text, or with a password, cannot be passed to the R process that",
        "serves a path: give the path of a file."
      ),
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
    program = file.path(R.home("bin"), if (is_windows()) "Rterm.exe" else "R"),
    arguments = c(
      "--no-echo", "--no-restore", "--no-save",
      paste0("--file=", file.path(home, "serve", "child.R"))
    ),
    dir = found$dir,
    environment = c(
      ROOKERY_INTERNAL_CHILD_SPEC = child_spec_write(spec),
      R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep),
      # R CMD check sets it for its own R process, and other processes must not have it.
      R_TESTS = ""
    )
  )
}

# Serializes the specification of the child to text for an environment variable, which Linux limits
# to 128 KiB.
child_spec_write <- function(spec) {
  text <- rawToChar(serialize(spec, NULL, ascii = TRUE))
  if (nchar(text, "bytes") > 100e3) {
    abort(
      paste(
        "The arguments are too large to be passed to another R process: serve an object instead of",
        "a path."
      ),
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

# Evaluates `body` with the child's working directory and environment, because a process inherits
# both from its parent.
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

# Returns list(code =, signal =): the exit status as in a shell, and the last signal that was
# forwarded, or 0.
wait_for_child <- function(pid, look) {
  on.exit(.Call(ffi_child_forget))
  repeat {
    look()
    status <- tryCatch(
      .Call(ffi_child_wait, pid, 0.2),
      # The stop button of RStudio interrupts R without a signal.
      interrupt = function(interrupt) {
        # SIGTERM, as in signals.c for Ctrl-C, because SIGINT would only interrupt a Sys.sleep() in
        # the child.
        .Call(ffi_child_signal, pid, 15L)
        NULL
      }
    )
    if (!is.null(status)) {
      return(list(code = status[[1]], signal = status[[2]]))
    }
  }
}

# Called by inst/serve/child.R.
child_main <- function(text) {
  spec <- child_spec_read(text)
  # Ends this process if its parent is killed.
  .Call(ffi_child_follow, spec$parent)
  begin_app_process()
  options(spec$options)
  status <- tryCatch(
    {
      serve_here(
        spec$found, NULL, spec$address, spec$dots, spec$log, spec$settings, spec$admin, spec$open
      )
      0L
    },
    rookery_error = function(error) {
      cat("rookery: ", conditionMessage(error), "\n", sep = "", file = stderr())
      error$status %||% 1L
    }
  )
  quit(save = "no", status = status)
}
