# Quarto documents with `server: shiny`: Quarto makes the page, and rmarkdown runs what is in it for R, as `quarto serve` has it. Here so that
# their R is ours: with the server, the workers and the limits that all others have.

run_quarto <- function(file, address, dots) {
  quarto_render(file)
  before <- Sys.getenv("RMARKDOWN_RUN_PRERENDER", NA)
  on.exit(if (is.na(before)) Sys.unsetenv("RMARKDOWN_RUN_PRERENDER") else Sys.setenv(RMARKDOWN_RUN_PRERENDER = before))
  # The page is there: rmarkdown would make another one.
  Sys.setenv(RMARKDOWN_RUN_PRERENDER = "0")
  run_rmarkdown(file, address, dots)
}

# The program: where package quarto looks for it as well.
quarto_program <- function() {
  named <- Sys.getenv("QUARTO_PATH")
  unname(if (nzchar(named)) named else Sys.which("quarto"))
}

# Said before an R is started for it, where that can be.
check_quarto <- function(file) {
  program <- quarto_program()
  if (!nzchar(program) || file.access(program, 1) != 0) {
    where <- if (nzchar(program)) paste0("QUARTO_PATH names `", program, "`, which cannot be run") else "`quarto` is not on PATH"
    abort(
      paste0(
        "`", file, "` is a Quarto document with `server: shiny`, of which Quarto makes the page, and ", where, ": install Quarto ",
        "(https://quarto.org/docs/get-started/), or name the program in QUARTO_PATH."
      ),
      "rookery_no_quarto"
    )
  }
  program
}

# Has the page made, unless it is newer than all that lies beside it. Workers start together, and one of them does it.
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
      # Nobody can make it here: whether Quarto can is Quarto's to say.
      return(run_quarto_program(program, file))
    }
    if (isTRUE(Sys.time() - file.mtime(lock) > quarto_lock_timeout)) {
      # Whoever has made it was killed.
      unlink(lock, recursive = TRUE)
    }
    Sys.sleep(0.1)
  }
}

# Longer than any page takes that is waited for.
quarto_lock_timeout <- as.difftime(10, units = "mins")

run_quarto_program <- function(program, file) {
  status <- system2(program, c("render", shQuote(file)), stdout = "", stderr = "")
  page <- quarto_page(file)
  if (status != 0 || !file.exists(page)) {
    what <- if (status != 0) paste0("Quarto ended with status ", status) else paste0("Quarto has not made `", basename(page), "`")
    abort(paste0("`", file, "` cannot be served: ", what, ", see its output above."), "rookery_no_quarto")
  }
  # So that it counts as newer, whatever was copied beside it meanwhile.
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
