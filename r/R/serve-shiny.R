# Running Shiny apps and documents that use Shiny, and adding a script to their pages.

run_shiny <- function(app, address, dots) {
  if (is_loading()) app <- without_on_start(app)
  defaults <- list(
    appDir = pin_shiny(app), launch.browser = FALSE, quiet = TRUE, workerId = worker_id()
  )
  where <- if (is.null(address$socket)) {
    list(host = address$host, port = address$port)
  } else {
    # The form in which Shiny accepts a socket: the path with the umask as an attribute.
    list(port = structure(address$socket, mask = as.integer(Sys.umask(NA))))
  }
  with_shiny_errors(
    with_page_script(run_by(shiny::runApp, "shiny::runApp", dots, c(defaults, where))), app
  )
}

run_rmarkdown <- function(file, address, dots) {
  # A worker listens on its supervisor's address and not on this one.
  if (!is.null(address$socket) && !is_worker()) {
    abort("An R Markdown document can only be served on a port.", "rookery_bad_address")
  }
  shiny_args <- with_defaults(
    as.list(dots[["shiny_args"]]),
    list(
      host = address$host %||% "127.0.0.1", port = address$port %||% 0L, launch.browser = FALSE,
      quiet = TRUE,
      workerId = worker_id()
    )
  )
  dots[["shiny_args"]] <- NULL
  if (is_worker()) {
    # A document is rendered for each session, so open sessions get changes after a reload, see
    # R/serve-shiny-pin.R.
    dots <- with_defaults(dots, list(auto_reload = FALSE))
  }
  defaults <- list(file = file, shiny_args = shiny_args)
  with_shiny_errors(with_page_script(run_by(rmarkdown::run, "rmarkdown::run", dots, defaults)))
}

# Returns the worker id, which Shiny adds to the URLs of its sessions as `w=`. The supervisor finds
# the worker of a session by it. Empty in a process that is not a worker.
worker_id <- function() {
  if (is_worker()) Sys.getenv("ROOKERY_INTERNAL_WORKER_ID") else ""
}

# Evaluates `body`, which runs Shiny, with rookery's script in Shiny's pages
# (inst/shiny/rookery-shiny.js).
with_page_script <- function(body) {
  prefix <- paste0("rookery-", utils::packageVersion("rookery"))
  shiny::addResourcePath(prefix, system.file("shiny", package = "rookery", mustWork = TRUE))
  tag <- page_script(prefix, setting_of("reconnect")$value, worker_id())
  before <- getOption("shiny.http.response.filter")
  old <- options(shiny.http.response.filter = function(req, response) {
    add_page_script(if (is.function(before)) before(req, response) else response, tag)
  })
  on.exit(options(old))
  body
}

# Returns the tag of the script, which is a separate file because a Content-Security-Policy may
# forbid inline scripts. All values in the tag are rookery's own.
page_script <- function(prefix, reconnect, worker) {
  paste0(
    "<script src=\"", prefix, "/rookery-shiny.js\" data-reconnect=\"", reconnect, "\"",
    if (nzchar(worker)) paste0(" data-worker=\"", worker, "\""), "></script>"
  )
}

# Adds `tag` at the end of the head of a response of Shiny, if the response is a page that loads
# Shiny's client.
add_page_script <- function(response, tag) {
  content <- response$content
  is_text <- is.raw(content) || (is.character(content) && length(content) == 1 && !is.na(content))
  is_page <- is_text && isTRUE(response$status == 200) &&
    isTRUE(grepl("^text/html", response$content_type))
  if (!is_page) {
    return(response)
  }
  bytes <- if (is.raw(content)) content else charToRaw(content)
  end <- grepRaw("</head>", bytes, fixed = TRUE)
  has_client <- length(end) > 0 && length(grepRaw("/shiny(\\.min)?\\.js", bytes[seq_len(end)])) > 0
  if (!has_client) {
    return(response)
  }
  bytes <- append(bytes, charToRaw(tag), after = end - 1L)
  response$content <- if (is.raw(content)) {
    bytes
  } else {
    `Encoding<-`(rawToChar(bytes), Encoding(content))
  }
  response
}
