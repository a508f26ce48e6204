#' Certificates from an authority
#'
#' Makes [tls_config()] obtain and renew its certificate from a certificate
#' authority that speaks ACME (RFC 8555) while the server runs. The default
#' authority is Let's Encrypt. Nobody has to copy files or to remember expiry
#' dates.
#'
#' ```r
#' tls <- tls_config(acme = acme("app.example.org", agree_tos = TRUE), redirect_from = 80)
#' serve("app/", host = "0.0.0.0", port = 443, tls = tls)
#' ```
#'
#' From a shell, `rookery serve app/ --domain app.example.org --agree-tos` does
#' the same. Try Let's Encrypt's staging environment first, `directory =
#' "https://acme-staging-v02.api.letsencrypt.org/directory"`: errors of DNS or
#' of a firewall then do not count against Let's Encrypt's rate limits, but
#' browsers do not trust the certificate.
#'
#' @section Lifecycle:
#' Experimental: arguments and behaviour may change in any release.
#'
#' @section Proving control of a name:
#' The certificate authority checks that the host name leads to this server. It
#' sends a request to port 80 (challenge `http-01`) or to port 443 (challenge
#' `tls-alpn-01`). For port 80, set `redirect_from = 80` in [tls_config()]. One
#' of the two ports must be reachable from the internet. If one challenge fails,
#' the other one is tried. Wildcard certificates are not available with these
#' challenges.
#'
#' @section Before the first certificate:
#' The server usually gets its first certificate within seconds. Until then, it
#' listens but refuses TLS handshakes. Lines on stderr report each step, each
#' error and the time of the next attempt. After a failed attempt, the server
#' waits 1 minute, then 2, 5, 10, 20 and 30 minutes, and then up to 6 hours. If
#' the authority asks for a longer delay, the server waits that long. A restart
#' of the server does not shorten these delays. A stored certificate that is
#' still valid is used at once, even if the authority cannot be reached.
#'
#' @section Renewal:
#' A certificate is renewed when the authority suggests it (RFC 9773), or when a
#' third of its validity period remains. New connections use the new
#' certificate, and open connections continue.
#'
#' @section Stored files:
#' The folder `dir` contains the key of the ACME account, the certificate with
#' its key, and the results of earlier attempts. Only the user who runs the
#' server can read these files. If several servers use the same `dir`, one of
#' them orders the certificate and all of them use it.
#'
#' @param domain The host names for which the certificate is issued. IP
#'   addresses are also possible; Let's Encrypt then requires `profile =
#'   "shortlived"`.
#' @param ... Must be empty. The arguments that follow `...` must be given by
#'   name.
#' @param email One or more e-mail addresses at which the certificate authority
#'   can reach the operator of the server, or `NULL`.
#' @param agree_tos Must be `TRUE`, which means that you agree to the terms of
#'   service of the certificate authority. The terms of Let's Encrypt are at
#'   <https://letsencrypt.org/repository/>.
#' @param directory The URL of the ACME directory of a certificate authority
#'   other than Let's Encrypt, or of its staging environment.
#' @param profile The name of the kind of certificate to order, such as
#'   `"tlsserver"` or `"shortlived"`, if the authority offers several kinds.
#'   With `NULL`, the authority chooses its default kind.
#' @param ca The root certificate that verifies the authority's own HTTPS
#'   server, as PEM text or the path of a PEM file. By default, the system's
#'   root certificates verify it.
#' @param dir The folder in which the ACME account and the certificates are
#'   stored. `NULL` means a folder below [tools::R_user_dir()].
#' @return An object of class `rookery_acme`, for the argument `acme` of
#'   [tls_config()].
#' @examples
#' tls_config(acme = acme("app.example.org", agree_tos = TRUE, dir = tempdir()), redirect_from = 80)
#' @export
acme <- function(
  domain = NULL,
  ...,
  email = NULL,
  agree_tos = FALSE,
  directory = NULL,
  profile = NULL,
  ca = NULL,
  dir = NULL
) {
  fields <- mget(setdiff(names(formals(acme)), "..."))
  arguments_of("acme()", "rookery_bad_tls", {
    if (...length() > 0) abort_dots(c(...names(), "")[[1]], names(fields)[-1])
    fields <- checked_arguments("acme", fields)
  })
  dir <- dir %||% file.path(tools::R_user_dir("rookery", "data"), "acme")
  fields[c("ca", "dir")] <- list(if (!is.null(ca)) normalize_pem(ca), normalize_pem(dir))
  made <- structure(fields, class = "rookery_acme")
  check_order(tls_lines(list(acme = made)), "acme()", "domain")
  made
}

# Checks the settings of an order without contacting the authority. Errors name the function `of`.
check_order <- function(lines, of, argument) {
  problem <- text_of("problem of an order", paste(encode_lines(lines), collapse = "\n"))
  if (nzchar(problem)) {
    abort(
      paste0(of, ": ", problem, "."), c("rookery_bad_tls", "rookery_bad_argument"),
      argument = if (grepl("`agree_tos", problem, fixed = TRUE)) "agree_tos" else argument
    )
  }
}

#' @export
format.rookery_acme <- function(x, ...) {
  from <- x$directory %||% "Let's Encrypt"
  details <- c(
    if (!is.null(x$email)) paste("contact", paste(x$email, collapse = ", ")),
    if (!is.null(x$profile)) paste("profile", x$profile)
  )
  c(
    paste0("  ", paste(x$domain, collapse = ", "), ", from ", from),
    if (length(details) > 0) paste0("  ", paste(details, collapse = ", ")),
    paste0("  kept in ", x$dir)
  )
}

#' @export
print.rookery_acme <- function(x, ...) {
  cat("<certificate from an authority>", format(x), sep = "\n")
  invisible(x)
}
