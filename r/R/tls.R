#' Certificates for HTTPS
#'
#' Creates the TLS configuration for [startServer()] and [serve()]:
#' `tls = tls_config("cert.pem", "key.pem")`. For development, use
#' `tls = "dev"`: a self-signed certificate for `localhost`, `127.0.0.1` and
#' `::1`. It is created once, kept in the folder of [tools::R_user_dir()], and
#' replaced a month before it expires. Its fingerprint is printed, so that you
#' can compare it with the one that the browser shows.
#'
#' The server supports TLS 1.2 and 1.3, and over TLS both HTTP/2 and HTTP/1.1,
#' WebSockets included. A plaintext HTTP request to an HTTPS port gets status
#' 400 and the https URL. In the request, `rook.url_scheme` is `"https"`. If the
#' client has a certificate, `TLS_CLIENT_SUBJECT` is its subject in the format
#' of RFC 4514 (`CN=Ada,O=Engines`) and `TLS_CLIENT_FINGERPRINT` its SHA-256
#' fingerprint in hexadecimal.
#'
#' @section Renewed certificates:
#' The server checks the certificate files every ten seconds and uses changed
#' certificates for new connections. `server$reload_tls()` makes it read the
#' files at once, and so does SIGHUP while [serve()] of an object runs. Open
#' connections keep their certificate. If a certificate and its key do not match or cannot be
#' read, the previous certificate stays in use. A line on stderr says why, and
#' the server tries again until the files can be used. A key that was given as
#' text, or with a password, is not read again.
#'
#' With [acme()] instead of `cert`, an authority issues and renews the
#' certificate while the server runs.
#'
#' @section Behind a proxy:
#' A reverse proxy that terminates TLS says in the header `X-Forwarded-Proto`
#' whether the client used HTTPS, and in `X-Forwarded-For` or `Forwarded` which
#' address the client has. The server uses these headers only if they come from
#' a proxy that the option `rookery.trusted_proxies` lists when the server is
#' started. The option contains addresses (`"192.0.2.1"`), networks
#' (`"10.0.0.0/8"`), or `"unix"` for all connections to a Unix socket. By
#' default, no proxy is trusted. `REMOTE_ADDR` is the last address in
#' `X-Forwarded-For` that is not itself a trusted proxy.
#'
#' The headers `Shiny-Server-Credentials` and `Shiny-Shared-Secret`, from which
#' Shiny takes the user of a session, are removed from the requests of clients
#' that are not trusted proxies. With
#' `options(rookery.keep_identity_headers = TRUE)`, servers that [startServer()]
#' and [runServer()] start pass them on from all clients.
#'
#' A proxy that forwards connections without reading them, such as HAProxy or a
#' cloud load balancer, can send the client's address by the PROXY protocol.
#' With `options(rookery.proxy_protocol = TRUE)` when the server is started,
#' each connection must begin with a header of that protocol, version 1 or 2,
#' and `REMOTE_ADDR` is the client's address. List the load balancers in
#' `rookery.proxy_protocol_from` as well. Otherwise any client that can reach
#' the server can claim any address.
#'
#' @param cert The certificate chain in PEM: the path of a file, or the text
#'   itself. The server's own certificate comes first, followed by the
#'   intermediate certificates. For several certificates, give a vector of
#'   chains. The server then chooses a chain by the host name that the client
#'   requests, and uses the first one if none is valid for that name.
#' @param key The private key in PEM: the path of a file, or the text itself. If
#'   `cert` has several chains, give a vector with one key for each, in the same
#'   order. By default, the key is expected in the file or text of the chain.
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @param password The password of an encrypted private key: a string, or a
#'   function without arguments that returns the password. Needs package
#'   openssl.
#' @param client_ca The certificates of certificate authorities in PEM. The
#'   server then asks each client for a certificate that one of these
#'   authorities has issued. With `NULL`, it does not ask for client
#'   certificates.
#' @param client_auth Whether clients must present a certificate: `"required"`
#'   or `"optional"`.
#' @param min_version The oldest TLS version that clients may use, `"1.2"` or
#'   `"1.3"`.
#' @param http2 Whether to offer HTTP/2. Clients that do not support HTTP/2 use
#'   HTTP/1.1. An app gets the same request objects with either version.
#' @param hsts Whether to send `Strict-Transport-Security`, which makes browsers
#'   use only HTTPS for this host: `FALSE`, a number of seconds (a year is
#'   31536000), or a list of `max_age`, the seconds, and optionally
#'   `include_subdomains` and `preload`. Browsers obey the header for that time,
#'   even if HTTPS is no longer available, so begin with a few minutes. A time
#'   of 0 makes browsers forget the header. The header is added to every
#'   response over TLS, unless the request names an IP address or the app sets
#'   the header itself.
#' @param redirect_from A second port on the same address, usually 80, whose
#'   plaintext HTTP requests are redirected to HTTPS with status 308 and the
#'   same path and query. A request is redirected only if it names a host with a
#'   certificate, or the address that the client connected to. Otherwise the
#'   response has status 421. With `NULL`, the server has no second port.
#' @param acme The value of [acme()], if a certificate authority issues the
#'   certificate while the server runs. It replaces `cert`. Experimental.
#' @return An object of class `rookery_tls`, for the argument `tls` of [serve()]
#'   or [startServer()].
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
  client_auth = "required",
  min_version = "1.2",
  http2 = TRUE,
  hsts = FALSE,
  redirect_from = NULL,
  acme = NULL
) {
  arguments_of("tls_config()", "rookery_bad_tls", {
    if (...length() > 0) {
      abort_dots(
        c(...names(), "")[[1]], setdiff(names(formals(tls_config)), c("cert", "key", "..."))
      )
    }
    if (is.null(acme)) {
      check_pem(cert, "cert")
      check_pem(key, "key")
    } else if (!inherits(acme, "rookery_acme")) {
      abort_argument("`acme` must be made by acme(), not ", describe(acme), ".")
    }
    if (!is.null(client_ca)) check_pem(client_ca, "client_ca")
    if (!is.null(password) && !is.function(password)) check_string(password, "password")
    others <- checked_arguments("tls_config", list(
      client_auth = client_auth, min_version = min_version, http2 = http2, hsts = hsts,
      redirect_from = redirect_from
    ))
  })
  if (isFALSE(others$hsts)) others$hsts <- NULL
  if (identical(others$redirect_from, "none")) others$redirect_from <- NULL
  key <- if (!is.null(key)) normalize_pem(key)
  if (!is.null(password) && !is.null(key)) {
    key <- vapply(key, open_key, character(1), password, USE.NAMES = FALSE)
  }
  files <- list(
    cert = if (!is.null(cert)) normalize_pem(cert), key = key,
    client_ca = if (!is.null(client_ca)) normalize_pem(client_ca), acme = acme
  )
  config <- structure(Filter(Negate(is.null), c(files, others)), class = "rookery_tls")
  # Opening the configuration of an order would write to its folder.
  if (is.null(acme)) tls_new(config) else check_order(own_tls_lines(config), "tls_config()", "acme")
  config
}

#' @export
format.rookery_tls <- function(x, ...) {
  place <- function(pems) ifelse(is_pem(pems), "text", pems)
  lines <- if (is.null(x$acme)) {
    paste0("  ", place(x$cert), ", key: ", place(x$key))
  } else {
    format(x$acme)
  }
  if (!is.null(x$client_ca)) {
    lines <- c(lines, paste0("  clients: ", x$client_auth, ", signed by ", place(x$client_ca)))
  }
  flags <- c("subdomains", "preload")[c(isTRUE(x$hsts$include_subdomains), isTRUE(x$hsts$preload))]
  lines <- c(
    lines,
    if (!x$http2) "  off: HTTP/2",
    if (!is.null(x$hsts)) {
      paste0("  hsts: ", paste(c(paste(x$hsts$max_age, "s"), flags), collapse = ", "))
    },
    if (!is.null(x$redirect_from)) paste0("  redirects from port ", x$redirect_from)
  )
  c(paste0("<certificates for HTTPS, TLS ", x$min_version, " and later>"), lines)
}

check_pem <- function(pem, name) {
  if (!is.character(pem) || length(pem) == 0 || anyNA(pem) || !all(nzchar(pem))) {
    abort_argument(
      "`", name, "` must be the path of a PEM file or its text, as a string, not ", describe(pem),
      "."
    )
  }
}

# Returns whether text is PEM and not a path. Other lines may precede the PEM block, as openssl
# pkcs12 writes them. Mistaking a key for a path would print the key in messages.
is_pem <- function(text) {
  grepl("-----BEGIN ", text, fixed = TRUE)
}

redirect_needs_port <- "`redirect_from` needs a server on a port, not on a Unix socket."

# Makes paths absolute, because a child process starts in another folder.
normalize_pem <- function(pem) {
  is_path <- !is_pem(pem)
  path <- path.expand(pem[is_path])
  relative <- !startsWith(path, "/")
  path[relative] <- file.path(getwd(), path[relative])
  pem[is_path] <- path
  pem
}

# Decrypts a key; a key without a password is returned unchanged.
open_key <- function(key, password) {
  lines <- if (is_pem(key)) {
    key
  } else {
    tryCatch(
      read_utf8_lines(key), error = function(error) "", warning = function(warning) ""
    )
  }
  if (!any(grepl("ENCRYPTED", lines, fixed = TRUE))) {
    return(key)
  }
  if (!requireNamespace("openssl", quietly = TRUE)) {
    abort(
      paste0(
        "Decrypting a key needs package openssl: install it, or decrypt the key in a shell: ",
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
      abort(
        paste0(
          "The key in ", place, " cannot be opened with this password: ", conditionMessage(error)
        ),
        "rookery_bad_tls", argument = "password"
      )
    }
  )
  openssl::write_pem(opened)
}

# Converts `tls` of startServer() (NULL, "dev", or the value of tls_config()) to NULL or an external
# pointer for C.
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
  opened <- .Call(ffi_tls_new, paste(encode_lines(own_tls_lines(tls)), collapse = "\n"))
  if (is.character(opened)) {
    abort(opened, "rookery_bad_tls", reason = opened)
  }
  opened
}

# Formats an object of tls_config() as settings for a server in this R process, which has no second
# port by default.
own_tls_lines <- function(tls) {
  c(tls_lines(tls), if (is.null(tls$redirect_from)) "redirect_from=none")
}

# Formats an object of tls_config() as settings, for Rust.
tls_lines <- function(tls) {
  settings <- c(settings_of_arguments("tls_config", tls), settings_of_arguments("acme", tls$acme))
  if (is.null(tls$client_ca)) settings$tls_client_auth <- NULL
  # Omitted, because an argument takes precedence over the environment and the file, even if it is a
  # default.
  if (isTRUE(settings$http2)) settings$http2 <- NULL
  lines_of(settings)
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

# Returns the development certificate; `$fingerprint` is its fingerprint.
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
      if (made[[3]]) "Created a certificate for localhost: " else "The certificate for localhost: ",
      made[[1]],
      "\nIts SHA-256 fingerprint, as the browser shows it: ", format_fingerprint(made[[2]]),
      "\nBrowsers show a warning: compare the fingerprint and accept. For curl: --cacert ",
      made[[1]]
    )
  }
  tls
}

format_fingerprint <- function(text) {
  paste(substring(ascii_upper(text), seq(1, nchar(text), 2), seq(2, nchar(text), 2)), collapse = ":")
}

# Returns the load balancers that may send a PROXY protocol header. Returns an empty vector if any
# client may send it. A client that may send the header can claim the address of a trusted proxy.
proxy_senders <- function(has_header, trusted) {
  senders <- setting_of("proxy_protocol_from")$value
  if (!has_header && length(senders) > 0) {
    abort(
      paste(
        "`proxy_protocol_from` needs `proxy_protocol`: set it to TRUE, or leave",
        "`proxy_protocol_from` out."
      ),
      "rookery_bad_setting", argument = "proxy_protocol_from"
    )
  }
  if (has_header && length(trusted) > 0 && length(senders) == 0) {
    abort(
      paste(
        "`proxy_protocol` and `trusted_proxies` need `proxy_protocol_from`, the load balancers that",
        "may send a PROXY header: otherwise any client can claim the address of a trusted proxy."
      ),
      "rookery_bad_setting", argument = "proxy_protocol_from"
    )
  }
  senders
}

warn_without_senders <- function(senders) {
  if (length(senders) == 0) {
    warn(
      paste(
        "`proxy_protocol` without `proxy_protocol_from` lets any client claim any address. List the",
        "load balancers that may send a PROXY header in `proxy_protocol_from`."
      ),
      "rookery_any_proxy"
    )
  }
}

# Returns whether the app also gets the identity headers of clients that are not trusted proxies.
# serve() and the program never pass them on.
keeps_identity_headers <- function() {
  is.null(.globals$settings) && setting_of("keep_identity_headers")$value
}

# Returns the TLS configuration of serve() for the server on serve()'s own port or socket. The app's
# framework starts that server and knows nothing of TLS.
tls_of_serve <- function(port = NULL, socket = NULL) {
  serving <- .globals$tls
  is_it <- if (is.null(socket)) {
    identical(as.numeric(serving$port), as.numeric(port))
  } else {
    identical(serving$socket, socket)
  }
  if (!is.null(serving) && is_it) serving$tls
}

# Reloads the certificates of all servers, after SIGHUP.
reload_all_tls <- function() {
  for (server in .globals$servers) {
    tryCatch(
      {
        if (server$reload_tls()) {
          cat("rookery: TLS: the certificates have been read again\n", file = stderr())
        }
      },
      error = function(error) {
        cat(
          "rookery: TLS: ", conditionMessage(error),
          ". New connections keep using the previous certificate\n",
          sep = "", file = stderr()
        )
      }
    )
  }
}
