#' Certificates from an authority
#'
#' Has [tls_config()] take its certificate from an authority that speaks ACME (RFC 8555), Let's Encrypt unless another one is named, while the server
#' runs: nobody has to copy files, or to remember when they expire.
#'
#' ```r
#' tls <- tls_config(acme = acme("app.example.org", agree_tos = TRUE), redirect_from = 80)
#' serve("app/", host = "0.0.0.0", port = 443, tls = tls)
#' ```
#'
#' From a shell, `rookery serve app/ --domain app.example.org --agree-tos` does the same. Try it with `staging = TRUE` first: what is wrong with DNS or a
#' firewall does not count against Let's Encrypt's limits there, and no browser trusts the certificate.
#'
#' @section Lifecycle:
#' Experimental: arguments and behaviour may change in any release.
#'
#' @section What the authority asks for:
#' It looks whether the name leads to this server, by a request to port 80 of it (`http-01`, answered where `redirect_from` listens) or by TLS to
#' port 443 (`tls-alpn-01`, answered by the server itself). One of the two has to reach the server from the internet; if one fails the other is
#' tried next. Names below a wildcard cannot be had this way.
#'
#' @section While there is no certificate:
#' The server listens, and refuses TLS until the certificate is there, which takes seconds; a line on stderr says what is done, what is wrong and when it
#' is tried again: after 1, 2, 5, 10, 20 and 30 minutes, and up to 6 hours, or when the authority says. That holds across restarts, so a
#' server that starts again and again orders no more often. A certificate that is kept and still valid is used at once, also when the authority cannot be
#' reached.
#'
#' @section Renewal:
#' When the authority wants it (RFC 9773), or else when a third of the certificate's time is left. New connections are given the new
#' certificate, open ones go on.
#'
#' @section What is kept:
#' The account's key, the certificate with its key, and how the attempts went, in `dir`, which only the user who runs the server may read. Of
#' several servers that use the same `dir` one orders, and all use what it gets.
#'
#' @param domain The names of hosts that the certificate is for, or their addresses, which Let's Encrypt takes with `profile = "shortlived"` alone.
#' @param ... Must be empty: what follows is given by name. The former name `domains` of `domain` is deprecated.
#' @param email Where the authority reaches whoever runs the server: one address, several, or `NULL`.
#' @param agree_tos Whether the authority's terms of service are agreed to, Let's Encrypt's being at <https://letsencrypt.org/repository/>. It has to be `TRUE`.
#' @param staging Whether the certificate comes from Let's Encrypt's staging environment.
#' @param directory The URL of another authority's directory.
#' @param profile The kind of certificate, where an authority has several: `"tlsserver"` or `"shortlived"`.
#' @param challenge `"http-01"` or `"tls-alpn-01"` to have no other tried.
#' @param ca Who signs the authority's own certificate, when that is not whom the system trusts: PEM as text, or the path of a file.
#' @param dir The folder where account and certificates are kept. `NULL` is one in that of [tools::R_user_dir()].
#' @return An object of class `rookery_acme`.
#' @examples
#' tls_config(acme = acme("app.example.org", agree_tos = TRUE, dir = tempdir()), redirect_from = 80)
#' @export
acme <- function(
  domain = NULL,
  ...,
  email = NULL,
  agree_tos = FALSE,
  staging = FALSE,
  directory = NULL,
  profile = NULL,
  challenge = NULL,
  ca = NULL,
  dir = NULL
) {
  arguments_of("acme()", "rookery_bad_tls", {
    others <- c("email", "agree_tos", "staging", "directory", "profile", "challenge", "ca", "dir")
    domain <- take_deprecated(list(domain = domain), list(...), c(domains = "domain"), "acme()", known = others)$domain
    check_texts(domain, "domain", "names of hosts, such as \"app.example.org\"")
    if (!is.null(email)) {
      check_texts(email, "email", "addresses of mail")
    }
    check_flag(agree_tos, "agree_tos")
    check_flag(staging, "staging")
    if (!is.null(directory)) {
      check_string(directory, "directory")
      if (staging) {
        abort_argument("`staging` is Let's Encrypt's, and `directory` names another authority: give one of them.")
      }
    }
    if (!is.null(profile)) {
      check_string(profile, "profile")
    }
    if (!is.null(challenge)) {
      challenge <- check_choice(challenge, c("http-01", "tls-alpn-01"), "challenge")
    }
    if (!is.null(ca)) {
      check_pem(ca, "ca")
      check_string(ca, "ca")
    }
    if (!is.null(dir)) {
      check_string(dir, "dir")
    }
    if (!agree_tos) {
      whose <- if (is.null(directory)) {
        "Let's Encrypt, whose terms of service are at https://letsencrypt.org/repository/"
      } else {
        paste0("the authority at ", directory, ", which names its terms of service there")
      }
      abort_argument(
        "Certificates come from ", whose, ": they have to be agreed to, with `agree_tos = TRUE`.",
        argument = "agree_tos"
      )
    }
  })
  dir <- dir %||% file.path(tools::R_user_dir("rookery", "data"), "acme")
  made <- structure(
    list(
      domain = domain,
      email = email,
      agree_tos = agree_tos,
      staging = staging,
      directory = directory,
      profile = profile,
      challenge = challenge,
      ca = if (!is.null(ca)) normalize_pem(ca),
      dir = normalize_pem(dir)
    ),
    class = "rookery_acme"
  )
  problem <- .Call(ffi_acme_check, acme_options(made))
  if (is.character(problem)) abort(paste0("acme(): ", problem, "."), c("rookery_bad_tls", "rookery_bad_argument"), argument = "domain")
  made
}

#' @export
format.rookery_acme <- function(x, ...) {
  from <- x$directory %||% if (x$staging) "Let's Encrypt (staging)" else "Let's Encrypt"
  wishes <- c(
    if (!is.null(x$email)) paste("contact", paste(x$email, collapse = ", ")),
    if (!is.null(x$profile)) paste("profile", x$profile),
    if (!is.null(x$challenge)) paste("by", x$challenge, "alone")
  )
  c(
    paste0("  ", paste(x$domain, collapse = ", "), ", from ", from),
    if (length(wishes) > 0) paste0("  ", paste(wishes, collapse = ", ")),
    paste0("  kept in ", x$dir)
  )
}

#' @export
print.rookery_acme <- function(x, ...) {
  cat("<certificate from an authority>", format(x), sep = "\n")
  invisible(x)
}

check_texts <- function(texts, name, what) {
  if (!is.character(texts) || length(texts) == 0 || anyNA(texts) || !all(nzchar(texts))) {
    abort_argument("`", name, "` must be ", what, ", not ", describe(texts), ".")
  }
}

# For C: names and values in turn.
acme_options <- function(acme) {
  if (is.null(acme)) {
    return(character())
  }
  one <- function(name, values) rbind(rep(name, length(values)), values)
  as.character(c(
    one("domain", acme$domain),
    one("email", acme$email),
    one("agree_tos", if (acme$agree_tos) "TRUE"),
    one("staging", if (acme$staging) "TRUE"),
    one("directory", acme$directory),
    one("profile", acme$profile),
    one("challenge", acme$challenge),
    one("ca", acme$ca),
    one("dir", acme$dir)
  ))
}
