# What a worker of `rookery dev` does besides serving the app: it reports why the app could not be
# started, loads packages in advance, and shows details of errors in responses. The supervisor reads
# the files that are written here (crates/supervisor/src/supervise/worker/worker_process.rs).

# Begins development. `arguments` are those of the program, see cli_read().
dev_begin <- function(arguments) {
  # The app may set another folder for its temporary files.
  .globals$dev <- list(folder = Sys.getenv("TMPDIR"), editor = arguments[["editor"]])
}

is_dev <- function() {
  !is.null(.globals$dev)
}

# Writes a file for the supervisor, which never sees a part of it.
dev_write <- function(name, text) {
  path <- file.path(.globals$dev$folder, name)
  con <- file(paste0(path, ".new"), "wb")
  on.exit(close(con))
  writeBin(charToRaw(enc2utf8(text)), con)
  close(con)
  on.exit()
  file.rename(paste0(path, ".new"), path)
}

# ---- the start of the app ----

# Describes, for the supervisor, why the app could not be started: as text and as a page.
dev_write_start_error <- function(error, trace, text) {
  if (!is_dev()) {
    return(invisible())
  }
  report <- list(
    condition = error, trace = trace, req = NULL, request_id = "", route = "",
    label = "The app could not be started", stage = "start"
  )
  tryCatch(
    {
      dev_write("rookery-start-error.html", error_html(report))
      dev_write("rookery-start-error.txt", text)
    },
    # The supervisor then shows a page of its own.
    error = function(error) NULL
  )
  invisible()
}

# ---- errors of Shiny's sessions ----

# Describes an error for the page of its session, which shows it in a frame. The beginning of the
# session's id is the first line. The supervisor reads the file once the report of the error arrives.
dev_write_session_error <- function(report) {
  if (!is_dev() || report$detail != "full" || !nzchar(report$session %||% "")) {
    return(invisible())
  }
  number <- (.globals$dev$errors %||% 0L) + 1L
  tryCatch(
    {
      policy <- paste0(
        "<head><meta http-equiv=Content-Security-Policy content=\"", framed_page_policy, "\">"
      )
      page <- sub("<head>", policy, error_html(report), fixed = TRUE)
      dev_write(paste0("rookery-error-", number, ".html"), paste0(report$session, "\n", page))
      .globals$dev$errors <- number
    },
    # The terminal shows the error.
    error = function(error) NULL
  )
  invisible()
}

# Returns the place that the message of an error in R's parser names: list(file =, line =), or NULL.
dev_parse_place <- function(message) {
  part <- function(pattern) regmatches(message, regexec(pattern, message))[[1]][-1]
  place <- part("(^|[\n ])([^\n:<>]+):([0-9]+):[0-9]+: ")
  if (length(place) == 0) {
    return(NULL)
  }
  # rookery's own message has the path of the file in its first line.
  path <- part("^`([^`\n]*)` is not valid R")
  file <- if (length(path) > 0 && basename(path) == place[2]) path else place[2]
  if (!file.exists(file)) {
    return(NULL)
  }
  list(file = file, line = as.integer(place[[3]]))
}

# ---- packages that a preloaded worker loads in advance ----

# The seconds after which the list of packages is written again. The first page has been rendered
# by then, which loads more packages.
dev_packages_delay <- 2

# The exit status of a preloaded worker whose packages have changed (crates/supervisor, slot.rs).
dev_stale_status <- 79L

# Called once the app is served.
dev_on_listen <- function() {
  if (is_dev()) {
    dev_write_packages()
    if (isNamespaceLoaded("later")) {
      later::later(dev_write_packages, dev_packages_delay, loop = later::global_loop())
    }
  }
}

# Writes the names of the packages that the app has loaded. Packages that are being developed are
# left out, because they are part of what changes.
dev_write_packages <- function() {
  app <- paste0(normalizePath(getwd(), mustWork = FALSE), "/")
  is_fixed <- function(name) {
    space <- asNamespace(name)
    path <- paste0(normalizePath(getNamespaceInfo(space, "path"), mustWork = FALSE), "/")
    !startsWith(path, app) && !startsWith(app, path) &&
      !exists(".__DEVTOOLS__", envir = space, inherits = FALSE)
  }
  names <- setdiff(loadedNamespaces(), c("base", "rookery"))
  names <- Filter(function(name) tryCatch(is_fixed(name), error = function(error) FALSE), names)
  tryCatch(
    dev_write("rookery-packages", paste(names, collapse = " ")), error = function(error) NULL
  )
  invisible()
}

# In a preloaded worker, loads packages and waits until the supervisor lets it read the app.
dev_wait_at_gate <- function() {
  gate <- Sys.getenv("ROOKERY_INTERNAL_GATE_FD")
  packages <- strsplit(Sys.getenv("ROOKERY_INTERNAL_PRELOAD"), " ", fixed = TRUE)[[1]]
  # Processes that the app starts must not inherit them.
  Sys.unsetenv(c("ROOKERY_INTERNAL_GATE_FD", "ROOKERY_INTERNAL_PRELOAD"))
  if (!nzchar(gate)) {
    return(invisible())
  }
  if ("httpuv" %in% packages) try(use_compat(quiet = TRUE), silent = TRUE)
  for (name in setdiff(packages, loadedNamespaces())) {
    # The app reports a package that cannot be loaded, if it still needs the package.
    tryCatch(
      suppressMessages(suppressWarnings(loadNamespace(name))), error = function(error) NULL
    )
  }
  loaded <- intersect(packages, loadedNamespaces())
  files <- file.path(vapply(loaded, getNamespaceInfo, "", "path"), "DESCRIPTION")
  before <- file.mtime(files)
  if (!.Call(ffi_worker_gate, as.integer(gate))) {
    quit(save = "no", status = 0L)
  }
  if (!identical(file.mtime(files), before)) {
    quit(save = "no", status = dev_stale_status)
  }
  invisible()
}

# ---- responses ----

# Completes the report of an error: the supervisor, and not this process, decides whether a client
# may see details.
dev_error_report <- function(report) {
  if (is_dev() && identical(report$detail, "full")) {
    # The response to a failed stream is only a text, which cannot be marked as one with details.
    if (identical(report$stage, "stream")) report$detail <- "none"
    accept <- tryCatch(report$req$HTTP_ACCEPT, error = function(error) NULL)
    is_html <- is.character(accept) && any(grepl("(^|,) *text/html *(;|,|$)", accept))
    if (is_html) report$format <- "page"
  }
  report
}

# Marks a response with details of an error (crates/development/src/application.rs). The policy of a
# page additionally allows the script that reloads it.
dev_error_response <- function(response) {
  if (is_dev()) {
    response$headers[["X-Rookery-Error-Details"]] <- "1"
    if (!is.null(response$headers[["Content-Security-Policy"]])) {
      response$headers[["Content-Security-Policy"]] <- dev_page_policy
    }
  }
  response
}

# Returns the link that opens a line of a source in the developer's editor, or NULL.
dev_editor_link <- function(source, line) {
  editor <- .globals$dev$editor
  path <- tryCatch(
    {
      name <- source$filename
      is_absolute <- grepl("^(/|~)", name)
      normalizePath(if (is_absolute) name else file.path(source$wd %||% ".", name), mustWork = TRUE)
    },
    error = function(error) NULL, warning = function(warning) NULL
  )
  if (is.null(editor) || is.null(path) || is.na(line)) {
    return(NULL)
  }
  url <- gsub("{file}", utils::URLencode(path), editor, fixed = TRUE)
  gsub("{line}", line, url, fixed = TRUE)
}
