#' Certificates for HTTPS
#'
#' What [startServer()] and [serve()] speak HTTPS with: `tls = tls_config("cert.pem", "key.pem")`. To develop,
#' `tls = "dev"` is enough: a certificate for `localhost`, `127.0.0.1` and `::1` that is made once, kept in the folder that
#' [tools::R_user_dir()] gives, and made anew a month before it expires. Its fingerprint is printed, to be compared with what the
#' browser shows.
#'
#' TLS 1.2 and 1.3 are spoken, and over them HTTP/2 and HTTP/1.1, as a client likes, WebSockets included. A request in the clear on a port that speaks
#' HTTPS is answered with status 400 and the URL that was meant. In the request, `rook.url_scheme` is `"https"`; a client that has shown a certificate is in `TLS_CLIENT_SUBJECT` (as RFC
#' 4514 writes it: `CN=Ada,O=Engines`) and `TLS_CLIENT_FINGERPRINT` (the SHA-256 in hexadecimal).
#'
#' @section Renewed certificates:
#' The server reads the files every ten seconds and uses changed certificates for new connections.
#' `server$reload_tls()` does so at once, and so does SIGHUP while [serve()] runs. Open connections
#' keep the certificate that they began with. Files that do not belong together, or cannot be read,
#' change nothing: a line on stderr says why, and the server tries again until they can be used. A
#' key that was given as text, or
#' with a password, stays as it is.
#'
#' With [acme()] in place of `cert` an authority issues the certificate, and renews it, while the server runs.
#'
#' @section Behind a proxy:
#' A proxy that speaks HTTPS to clients and HTTP to the server tells in `X-Forwarded-Proto` how a client came. That is believed of
#' the proxies that the option `rookery.trusted_proxies` names when the server is started, and of nobody by default: addresses
#' (`"192.0.2.1"`), networks (`"10.0.0.0/8"`), or `"unix"` for all that comes over a Unix socket.
#'
#' A proxy that passes on what it is sent without reading it (HAProxy, a cloud's load balancer) tells by the PROXY protocol whose it
#' is. With `options(rookery.proxy_protocol = TRUE)` when the server is started, each connection has to begin with its header, of
#' version 1 or 2, and `REMOTE_ADDR` is the client's. Name the proxies by `rookery.trusted_proxies` as well: otherwise whoever reaches
#' the server can claim to be anybody.
#'
#' @param cert The certificate with those between it and a root behind it, in PEM: the path of a file, or the text itself. Several
#'   are chosen by the name that a client asks for; the first is for those who ask for none of them.
#' @param key Its private key, likewise; as many as there are certificates. The default is for files with both.
#' @param ... Must be empty: what follows is given by name.
#' @param password What opens a key that is encrypted: a string, or a function without arguments that returns it. Needs
#'   package openssl.
#' @param client_ca Certificates that sign those of clients, in PEM, which are then asked for one. `NULL` asks for none.
#' @param client_auth Whether a client has to have one.
#' @param min_version The oldest version that is spoken, `"1.2"` or `"1.3"`.
#' @param http2 Whether HTTP/2 is offered to clients; those that do not know it get HTTP/1.1. To R, requests look the same.
#' @param http2_websockets Whether clients are told that WebSockets may be opened over HTTP/2 (RFC 8441), within the connection that a page came by:
#'   Chromium and Firefox do that then. To R it looks like a handshake over HTTP/1.1, `HTTP_UPGRADE` and all, without
#'   `HTTP_SEC_WEBSOCKET_KEY`. With `FALSE` each opens a connection of its own.
#' @param hsts Whether browsers are told to come by HTTPS alone from now on (`Strict-Transport-Security`): `FALSE`; for how many seconds, a
#'   year being 31536000; or a list of `max_age`, the seconds, and perhaps of `include_subdomains` and `preload`, both `FALSE` unless given. Browsers hold on to
#'   it until then, also when HTTPS is gone: begin with minutes. 0 has them forget it. It is in every reply over TLS to a request for a name
#'   (never for an address), static files and refusals included; an app that sends the header itself is left alone.
#' @param redirect_from A port of the same address, 80 as a rule, on which requests in the clear are sent on to HTTPS: with status 308, path and
#'   query, to the host that they are for, if there is a certificate for it or it is the address that was reached (else status 421).
#'   They take part in all limits of the server, and R hears nothing of them. `NULL` listens on no other port.
#' @param acme An authority that issues the certificate, by [acme()], in place of `cert`. Experimental.
#' @return An object of class `rookery_tls`.
#' @examples
#' \dontrun{
#' server <- startServer("0.0.0.0", 8443, app, tls = tls_config("cert.pem", "key.pem"))
#' server$reload_tls()
#' serve("app/", tls = "dev")
#' }
#' @export
tls_config <- function(
  cert = NULL,
  key = cert,
  ...,
  password = NULL,
  client_ca = NULL,
  client_auth = c("required", "optional"),
  min_version = c("1.2", "1.3"),
  http2 = TRUE,
  http2_websockets = TRUE,
  hsts = FALSE,
  redirect_from = NULL,
  acme = NULL
) {
  arguments_of("tls_config()", "rookery_bad_tls", {
    take_deprecated(list(), list(...), character(), "tls_config()", known = setdiff(names(formals(tls_config)), c("cert", "key", "...")))
    if (is.null(acme)) {
      check_pem(cert, "cert")
      check_pem(key, "key")
    } else if (!inherits(acme, "rookery_acme")) {
      abort_argument("`acme` must be made by acme(), not ", describe(acme), ".")
    } else if (!is.null(cert) || !is.null(key)) {
      abort_argument("`cert` and `acme` exclude one another: a certificate is there, or an authority issues it.")
    }
    if (length(cert) != length(key)) {
      abort_argument("`key` must have one key for each certificate: ", length(cert), ", not ", length(key), ".")
    }
    if (!is.null(client_ca)) {
      check_pem(client_ca, "client_ca")
      check_string(client_ca, "client_ca")
    }
    if (!is.null(password) && !is.function(password)) {
      check_string(password, "password")
    }
    client_auth <- check_choice(client_auth, c("required", "optional"), "client_auth")
    min_version <- check_choice(min_version, c("1.2", "1.3"), "min_version")
    check_flag(http2, "http2")
    check_flag(http2_websockets, "http2_websockets")
    hsts <- check_hsts(hsts)
    is_port <- is.numeric(redirect_from) && length(redirect_from) == 1 && redirect_from %in% 1:65535
    if (!is.null(redirect_from) && !is_port) {
      abort_argument("`redirect_from` must be a port from 1 to 65535, or NULL, not ", describe(redirect_from), ".")
    }
    if (!is.null(acme) && !is.null(client_ca) && client_auth == "required" && is.null(redirect_from)) {
      abort_argument(
        "`acme` needs `redirect_from`, port 80 as a rule, where clients need a certificate: the authority has none."
      )
    }
  })
  key <- if (!is.null(key)) normalize_pem(key)
  if (!is.null(password) && !is.null(key)) {
    key <- vapply(key, open_key, character(1), password, USE.NAMES = FALSE)
  }
  config <- structure(
    list(
      cert = if (!is.null(cert)) normalize_pem(cert),
      key = key,
      client_ca = if (!is.null(client_ca)) normalize_pem(client_ca),
      client_auth = client_auth,
      min_version = min_version,
      http2 = http2,
      http2_websockets = http2_websockets,
      hsts = hsts,
      redirect_from = if (!is.null(redirect_from)) as.integer(redirect_from),
      acme = acme
    ),
    class = "rookery_tls"
  )
  # acme() has checked its own arguments, and preparing an order would write to its folder.
  if (is.null(acme)) tls_new(config)
  config
}

#' @export
format.rookery_tls <- function(x, ...) {
  place <- function(pems) ifelse(is_pem(pems), "text", pems)
  lines <- if (is.null(x$acme)) paste0("  ", place(x$cert), ", key: ", place(x$key)) else format(x$acme)
  if (!is.null(x$client_ca)) {
    lines <- c(lines, paste0("  clients: ", x$client_auth, ", signed by ", place(x$client_ca)))
  }
  off <- c(if (!x$http2) "HTTP/2", if (!x$http2_websockets) "WebSockets over HTTP/2")
  flags <- c("subdomains", "preload")[c(isTRUE(x$hsts$include_subdomains), isTRUE(x$hsts$preload))]
  lines <- c(
    lines,
    if (length(off) > 0) paste0("  off: ", paste(off, collapse = ", ")),
    if (!is.null(x$hsts)) paste0("  hsts: ", paste(c(paste(x$hsts$max_age, "s"), flags), collapse = ", ")),
    if (!is.null(x$redirect_from)) paste0("  redirects from port ", x$redirect_from)
  )
  c(paste0("<certificates for HTTPS, TLS ", x$min_version, " and later>"), lines)
}

#' @export
print.rookery_tls <- function(x, ...) {
  # Not the text of a key.
  cat(format(x), sep = "\n")
  invisible(x)
}

check_pem <- function(pem, name) {
  if (!is.character(pem) || length(pem) == 0 || anyNA(pem) || !all(nzchar(pem))) {
    abort_argument("`", name, "` must be the path of a PEM file or its text, as a string, not ", describe(pem), ".")
  }
}

# Whatever is before it: openssl pkcs12 writes lines. As a path, a key would be in messages.
is_pem <- function(text) {
  grepl("-----BEGIN ", text, fixed = TRUE)
}

# NULL, or list(max_age =, include_subdomains =, preload =).
check_hsts <- function(hsts) {
  if (isFALSE(hsts)) {
    return(NULL)
  }
  fields <- if (is.list(hsts)) hsts else list(max_age = hsts)
  given <- names(fields)
  age <- fields[["max_age"]]
  is_age <- is.numeric(age) && length(age) == 1 && !is.na(age) && age >= 0 && age <= .Machine$integer.max && age %% 1 == 0
  if (!is_age || is.null(given) || anyDuplicated(given) || !all(given %in% c("max_age", "include_subdomains", "preload"))) {
    abort_argument(
      "`hsts` must be FALSE, a number of seconds, or a list of `max_age` in seconds and perhaps `include_subdomains` and `preload`, not ",
      describe(hsts), "."
    )
  }
  subdomains <- fields$include_subdomains %||% FALSE
  preload <- fields$preload %||% FALSE
  check_flag(subdomains, "hsts$include_subdomains")
  check_flag(preload, "hsts$preload")
  if (preload && (!subdomains || age < 31536000)) {
    abort_argument(
      "`hsts$preload` needs `include_subdomains = TRUE` and a `max_age` of a year, 31536000, or more: browsers take no others."
    )
  }
  list(max_age = as.integer(age), include_subdomains = subdomains, preload = preload)
}

# One of two; both are the default, the first.
check_choice <- function(value, choices, name) {
  if (identical(value, choices)) {
    return(choices[[1]])
  }
  if (!is.character(value) || length(value) != 1 || !value %in% choices) {
    abort_argument(
      "`", name, "` must be ", paste0("\"", choices, "\"", collapse = " or "), ", not ", describe(value), "."
    )
  }
  value
}

redirect_needs_port <- "`redirect_from` is a port beside that of the server: a server on a Unix socket has none."

# Paths that mean the same wherever this R, or one that it starts, goes.
normalize_pem <- function(pem) {
  is_path <- !is_pem(pem)
  path <- path.expand(pem[is_path])
  relative <- !startsWith(path, "/")
  path[relative] <- file.path(getwd(), path[relative])
  pem[is_path] <- path
  pem
}

# The text of a key without its password; a key that has none stays as it is.
open_key <- function(key, password) {
  lines <- if (is_pem(key)) key else tryCatch(readLines(key, warn = FALSE), error = function(error) "", warning = function(warning) "")
  if (!any(grepl("ENCRYPTED", lines, fixed = TRUE))) {
    return(key)
  }
  if (!requireNamespace("openssl", quietly = TRUE)) {
    abort(
      paste0(
        "To open a key with its password, package openssl has to be installed; or write the key without one: ",
        "openssl pkey -in key.pem -out open.pem"
      ),
      "rookery_no_package"
    )
  }
  text <- paste(lines, collapse = "\n")
  opened <- tryCatch(
    openssl::read_key(text, password = if (is.function(password)) password() else password),
    error = function(error) {
      place <- if (is_pem(key)) "the text that was given" else key
      abort(paste0("The key in ", place, " cannot be opened with this password: ", conditionMessage(error)), "rookery_bad_tls", argument = "password")
    }
  )
  openssl::write_pem(opened)
}

# `tls` of startServer(): NULL, "dev", or of tls_config(). For C, NULL or an external pointer.
tls_open <- function(tls) {
  if (typeof(tls) == "externalptr") {
    return(tls)
  }
  tls <- tls_resolve(tls)
  if (!is.null(tls)) tls_new(tls)
}

# Returns an external pointer for an object of tls_config(). Reads the certificates and keys, and
# raises an error if they cannot be used.
tls_new <- function(tls) {
  opened <- .Call(
    ffi_tls_new,
    as.character(rbind(tls$cert, tls$key)),
    as.character(tls$client_ca),
    identical(tls$client_auth, "optional"),
    identical(tls$min_version, "1.3"),
    !tls$http2,
    !tls$http2_websockets,
    if (is.null(tls$hsts)) integer() else as.integer(unlist(tls$hsts)),
    tls$redirect_from %||% 0L,
    acme_options(tls$acme)
  )
  if (is.character(opened)) {
    abort(opened, "rookery_bad_tls", reason = opened)
  }
  opened
}

tls_resolve <- function(tls) {
  if (identical(tls, "dev")) {
    return(tls_development())
  }
  if (!is.null(tls) && !inherits(tls, "rookery_tls")) {
    abort_argument("`tls` must be made by tls_config(), or be \"dev\", not ", describe(tls), ".")
  }
  tls
}

# The certificate to develop with; its fingerprint is `$fingerprint`.
tls_development <- function() {
  folder <- file.path(tools::R_user_dir("rookery", "data"), "tls")
  made <- .Call(ffi_tls_development_certificate, path.expand(folder))
  if (is.character(made)) {
    abort(made, "rookery_bad_tls")
  }
  tls <- tls_config(made[[1]])
  tls$fingerprint <- made[[2]]
  if (made[[3]] || !isTRUE(.globals$development_is_told)) {
    .globals$development_is_told <- TRUE
    message(
      if (made[[3]]) "Made a certificate for localhost: " else "The certificate for localhost: ", made[[1]],
      "\nIts SHA-256 fingerprint, as the browser shows it: ", format_fingerprint(made[[2]]),
      "\nA browser warns once: compare the fingerprint and accept; for curl: --cacert ", made[[1]]
    )
  }
  tls
}

format_fingerprint <- function(text) {
  paste(substring(toupper(text), seq(1, nchar(text), 2), seq(2, nchar(text), 2)), collapse = ":")
}

# Whose X-Forwarded-Proto and X-Request-Id are believed.
trusted_proxies <- function() {
  setting_of("trusted_proxies")$value
}

# Whether connections begin with the header of the PROXY protocol: the option, when a server is started.
has_proxy_header <- function() {
  setting_of("proxy_protocol")$value
}

# What serve() speaks HTTPS with, for the server on its own port or socket: the app's framework starts it, and knows nothing
# of certificates.
tls_of_serve <- function(port = NULL, socket = NULL) {
  serving <- .globals$tls
  is_it <- if (is.null(socket)) identical(as.numeric(serving$port), as.numeric(port)) else identical(serving$socket, socket)
  if (!is.null(serving) && is_it) serving$tls
}

# What SIGHUP asks for.
reload_all_tls <- function() {
  for (server in .globals$servers) {
    tryCatch(
      {
        if (server$reload_tls()) {
          cat("rookery: TLS: the certificates have been read anew\n", file = stderr())
        }
      },
      error = function(error) {
        cat(
          "rookery: TLS: ", conditionMessage(error), ". New connections keep using the previous certificate\n",
          sep = "", file = stderr()
        )
      }
    )
  }
}
