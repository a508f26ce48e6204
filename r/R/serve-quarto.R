# Quarto documents with `server: shiny`. Quarto renders the page, and rmarkdown runs its R code, as
# in `quarto serve`. rookery runs rmarkdown itself, so that these documents have the same server,
# workers and limits as other apps.

run_quarto <- function(file, address, dots) {
  quarto_render(file)
  before <- Sys.getenv("RMARKDOWN_RUN_PRERENDER", NA)
  on.exit(
    if (is.na(before)) {
      Sys.unsetenv("RMARKDOWN_RUN_PRERENDER")
    } else {
      Sys.setenv(RMARKDOWN_RUN_PRERENDER = before)
    }
  )
  # Quarto has rendered the page, and rmarkdown must not render it again.
  Sys.setenv(RMARKDOWN_RUN_PRERENDER = "0")
  run_rmarkdown(file, address, dots)
}

# Returns the path of Quarto, found in the same way as by package quarto.
quarto_program <- function() {
  named <- Sys.getenv("QUARTO_PATH")
  unname(if (nzchar(named)) named else Sys.which("quarto"))
}

# Called before an R process is started for the document, if possible.
check_quarto <- function(file) {
  program <- quarto_program()
  if (!nzchar(program) || file.access(program, 1) != 0) {
    where <- if (nzchar(program)) {
      paste0("QUARTO_PATH names `", program, "`, which cannot be run")
    } else {
      "`quarto` is not on PATH"
    }
    abort(
      paste0(
        "`", file,
        "` is a Quarto document with `server: shiny`, which Quarto has to render, and ", where,
        ": install Quarto ",
        "(https://quarto.org/docs/get-started/), or name the program in QUARTO_PATH."
      ),
      "rookery_no_quarto"
    )
  }
  program
}

# Renders the page unless it is newer than all files beside it. If several workers start together,
# one of them renders it.
quarto_render <- function(file) {
  program <- check_quarto(file)
  lock <- file.path(dirname(file), paste0(".", basename(file), ".rendering"))
  while (!is_rendered(file)) {
    if (dir.create(lock, showWarnings = FALSE)) {
      on.exit(unlink(lock, recursive = TRUE))
      if (!is_rendered(file)) run_quarto_program(program, file)
      return(invisible())
    }
    if (!dir.exists(lock)) {
      # No lock can be created in this folder; Quarto itself reports whether it can write there.
      return(run_quarto_program(program, file))
    }
    if (isTRUE(Sys.time() - file.mtime(lock) > quarto_lock_timeout)) {
      # The process that held the lock was killed.
      unlink(lock, recursive = TRUE)
    }
    Sys.sleep(0.1)
  }
}

# The maximum time to wait for another process that renders the page.
quarto_lock_timeout <- as.difftime(10, units = "mins")

run_quarto_program <- function(program, file) {
  status <- system2(program, c("render", shQuote(file)), stdout = "", stderr = "")
  page <- quarto_page(file)
  if (status != 0 || !file.exists(page)) {
    what <- if (status != 0) {
      paste0("Quarto ended with status ", status)
    } else {
      paste0("Quarto has not created `", basename(page), "`")
    }
    abort(
      paste0("`", file, "` cannot be served: ", what, ", see its output above."),
      "rookery_no_quarto"
    )
  }
  # Makes the page newer than files that were copied beside it meanwhile.
  Sys.setFileTime(page, Sys.time())
  invisible()
}

quarto_page <- function(file) {
  paste0(sub("[.][^.]*$", "", file), ".html")
}

is_rendered <- function(file) {
  page <- quarto_page(file)
  beside <- setdiff(list.files(dirname(file), full.names = TRUE), page)
  beside <- beside[!dir.exists(beside)]
  file.exists(page) && all(file.mtime(page) >= file.mtime(c(beside, file)), na.rm = TRUE)
}
