# The command line: `rookery serve app/ --port 8000`. exec/rookery calls cli_main(), by inst/serve/cli.R.

cli_usage <- c(
  "Usage: rookery serve <target> [options]",
  "",
  "Serves a Shiny app, a plumber API, a folder with _server.yml, an R Markdown document with Shiny, or any R file",
  "that ends with an app. Ctrl-C and SIGTERM end it when what is in hand is finished, a second one at once.",
  "",
  "Options:",
  "  --host <address>       127.0.0.1 (this machine only, the default), 0.0.0.0 or :: (all), unix:/path/of/a/socket",
  "  --port <port>          8000 is the default; 0 lets the system choose",
  "  --tls-cert <file>      speaks HTTPS with this certificate, in PEM with its chain",
  "  --tls-key <file>       its private key; not needed when it is in the same file",
  "  --tls dev              speaks HTTPS with a certificate for localhost, made once and kept",
  "  --log <file>           where access-log lines go: - is stdout, the default",
  "  --no-log               no access log",
  "  --log-format <format>  common (the default) or json",
  "  --limit <name>=<value> a limit of the server, such as body_bytes=10MB or request_time=30s; once for each",
  "  --error-detail <what>  what clients are told of errors: none (the default), message or full",
  "  --help                 this text",
  "  --version              rookery's version",
  "",
  "Exit status: 0 after Ctrl-C or SIGTERM, 2 when the command line is wrong, otherwise that of the app."
)

# What follows an option; `is_flag`: nothing does.
cli_options <- list(
  "--host" = list(name = "host", is_flag = FALSE),
  "--port" = list(name = "port", is_flag = FALSE),
  "--tls" = list(name = "tls", is_flag = FALSE),
  "--tls-cert" = list(name = "tls_cert", is_flag = FALSE),
  "--tls-key" = list(name = "tls_key", is_flag = FALSE),
  "--log" = list(name = "log", is_flag = FALSE),
  "--log-format" = list(name = "log_format", is_flag = FALSE),
  "--limit" = list(name = "limit", is_flag = FALSE, is_many = TRUE),
  "--error-detail" = list(name = "error_detail", is_flag = FALSE),
  "--no-log" = list(name = "no_log", is_flag = TRUE)
)

# Does what the arguments say, and returns the exit status. Serving does not return: the process becomes the child.
cli_main <- function(arguments) {
  if (ignores_interrupt()) {
    .Call(ffi_signals_ignore_interrupt)
  }
  tryCatch(
    {
      asked <- cli_parse(arguments)
      switch(
        asked$command,
        # In one piece, for `rookery --help | head`.
        help = writeLines(paste(cli_usage, collapse = "\n")),
        version = cat("rookery ", as.character(utils::packageVersion("rookery")), "\n", sep = ""),
        serve = cli_serve(asked)
      )
      0L
    },
    rookery_usage = function(error) {
      cat("rookery: ", conditionMessage(error), "\nTry `rookery --help`.\n", sep = "", file = stderr())
      2L
    },
    rookery_error = function(error) {
      cat("rookery: ", conditionMessage(error), "\n", sep = "", file = stderr())
      error$status %||% 1L
    }
  )
}

cli_serve <- function(asked) {
  log <- if (asked$no_log) FALSE else if (asked$log == "-") TRUE else asked$log
  address <- serve_address(asked$host, asked$port, cli_tls(asked))
  target <- log_target(log, asked$log_format)
  serve_as_child(detect_target(asked$target), address, list(), target, list(cli = cli_settings(asked)))
}

# The limits and other settings of the command line, checked before R is started for them.
cli_settings <- function(asked) {
  settings <- as.list(if (!is.null(asked$error_detail)) c(error_detail = asked$error_detail))
  for (limit in asked$limit) {
    parts <- regmatches(limit, regexec("^([a-z_]+)=(.+)$", limit))[[1]]
    if (length(parts) == 0) {
      abort_usage(paste0("`--limit` needs a name and a value, such as body_bytes=10MB, not `", limit, "`."))
    }
    settings[[parts[[2]]]] <- parts[[3]]
  }
  names <- limit_table()$name
  for (name in setdiff(names(settings), "error_detail")) {
    if (!name %in% names) {
      abort_usage(paste0("`", name, "` is no limit.", did_you_mean(name, names)))
    }
    tryCatch(
      limit_value(settings[[name]], name, paste0("`--limit ", name, "`")),
      rookery_bad_limit = function(error) abort_usage(conditionMessage(error))
    )
  }
  if (!is.null(settings$error_detail) && !settings$error_detail %in% error_details) {
    abort_usage(paste0("`--error-detail` must be none, message or full, not `", settings$error_detail, "`."))
  }
  settings
}

cli_tls <- function(asked) {
  if (is.null(asked$tls_cert)) asked$tls else tls_config(asked$tls_cert, asked$tls_key %||% asked$tls_cert)
}

# list(command =, ...): see cli_usage. `--port=1` is `--port 1`; what follows `--` is no option.
cli_parse <- function(arguments) {
  asked <- list(
    command = "serve",
    target = NULL,
    host = "127.0.0.1",
    port = 8000,
    tls = NULL,
    tls_cert = NULL,
    tls_key = NULL,
    log = "-",
    log_format = "common",
    limit = NULL,
    error_detail = NULL,
    no_log = FALSE
  )
  words <- character()
  is_literal <- FALSE
  at <- 1
  while (at <= length(arguments)) {
    word <- arguments[[at]]
    at <- at + 1
    if (is_literal || !startsWith(word, "-") || word == "-") {
      words <- c(words, word)
    } else if (word == "--") {
      is_literal <- TRUE
    } else if (word %in% c("--help", "-h")) {
      return(list(command = "help"))
    } else if (word %in% c("--version", "-v")) {
      return(list(command = "version"))
    } else {
      name <- sub("=.*$", "", word)
      option <- cli_options[[name]]
      if (is.null(option)) {
        abort_usage(paste0("`", name, "` is no option.", did_you_mean(name, names(cli_options))))
      }
      if (option$is_flag) {
        if (grepl("=", word, fixed = TRUE)) {
          abort_usage(paste0("`", name, "` takes no value."))
        }
        asked[[option$name]] <- TRUE
      } else if (grepl("=", word, fixed = TRUE)) {
        asked <- cli_take(asked, option, sub("^[^=]*=", "", word))
      } else if (at > length(arguments)) {
        abort_usage(paste0("`", name, "` needs a value."))
      } else {
        asked <- cli_take(asked, option, arguments[[at]])
        at <- at + 1
      }
    }
  }
  cli_check(asked, words)
}

cli_take <- function(asked, option, value) {
  asked[[option$name]] <- c(if (isTRUE(option$is_many)) asked[[option$name]], value)
  asked
}

cli_check <- function(asked, words) {
  if (length(words) == 0) {
    abort_usage("No command given.")
  }
  if (words[[1]] %in% c("help", "version")) {
    return(list(command = words[[1]]))
  }
  if (words[[1]] != "serve") {
    hint <- if (file.exists(words[[1]])) paste0(" Did you mean `rookery serve ", words[[1]], "`?")
    abort_usage(paste0("`", words[[1]], "` is no command.", hint %||% did_you_mean(words[[1]], "serve")))
  }
  if (length(words) != 2) {
    what <- if (length(words) == 1) "nothing was given" else paste0("not ", length(words) - 1, " of them")
    abort_usage(paste0("`rookery serve` takes one folder or file; ", what, "."))
  }
  if (!grepl("^[0-9]{1,5}$", as.character(asked$port))) {
    abort_usage(paste0("`--port` must be a number from 0 to 65535, not `", asked$port, "`."))
  }
  if (!is.null(asked$tls) && asked$tls != "dev") {
    abort_usage(paste0("`--tls` must be dev, not `", asked$tls, "`: for a certificate of your own there is `--tls-cert`."))
  }
  if (!is.null(asked$tls) && !is.null(asked$tls_cert)) {
    abort_usage("`--tls dev` and `--tls-cert` exclude one another.")
  }
  if (!is.null(asked$tls_key) && is.null(asked$tls_cert)) {
    abort_usage("`--tls-key` needs `--tls-cert`.")
  }
  if (!asked$log_format %in% log_formats) {
    abort_usage(paste0("`--log-format` must be ", paste(log_formats, collapse = " or "), ", not `", asked$log_format, "`."))
  }
  asked$port <- as.numeric(asked$port)
  asked$target <- words[[2]]
  asked
}

did_you_mean <- function(name, candidates) {
  near <- close_names(name, candidates)
  if (length(near) > 0) paste0(" Did you mean ", quote_names(near), "?") else ""
}

abort_usage <- function(message) {
  abort_serve(message, "rookery_usage")
}

#' Put `rookery` on PATH
#'
#' Makes a command `rookery` that serves an app from a shell: `rookery serve app/ --port 8000`, see
#' `rookery --help`. It is a link to a script in the package, so it is up to date after the package has been.
#'
#' @param dir The folder for the command, made when it does not exist.
#' @param overwrite Whether to replace a file of that name that is not a link to this script.
#' @return The path of the command, invisibly.
#' @examples
#' \dontrun{
#' rookery::install_cli()
#' }
#' @export
install_cli <- function(dir = "~/.local/bin", overwrite = FALSE) {
  check_string(dir, "dir")
  check_flag(overwrite, "overwrite")
  script <- system.file("exec", "rookery", package = "rookery", mustWork = TRUE)
  dir <- path.expand(dir)
  dir.create(dir, recursive = TRUE, showWarnings = FALSE)
  if (file.access(dir, 2) != 0) {
    abort_serve(paste0("`", dir, "` cannot be written: choose another folder with `dir =`."), "rookery_no_cli")
  }
  command <- file.path(normalizePath(dir, winslash = "/"), "rookery")
  # NA for what is not there; a link whose package has gone is there, though file.exists() says no.
  link <- Sys.readlink(command)
  is_there <- file.exists(command) || (!is.na(link) && nzchar(link))
  is_ours <- grepl("/rookery/exec/rookery$", link)
  if (is_there && !is_ours && !overwrite) {
    abort_serve(paste0("`", command, "` exists already and is not rookery's: see `overwrite`."), "rookery_no_cli")
  }
  unlink(command)
  if (!file.symlink(script, command)) {
    abort_serve(paste0("`", command, "` cannot be made."), "rookery_no_cli")
  }
  on_path <- normalizePath(strsplit(Sys.getenv("PATH"), .Platform$path.sep)[[1]], winslash = "/", mustWork = FALSE)
  if (dirname(command) %in% on_path) {
    message("Installed ", command, ": try `rookery --help`.")
  } else {
    message(
      "Installed ", command, ". Its folder is not on PATH; for a shell: export PATH=\"", dirname(command), ":$PATH\""
    )
  }
  invisible(command)
}
