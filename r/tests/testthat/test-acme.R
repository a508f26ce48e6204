# Certificates from an authority: arguments, and stored certificates. crates/acme/tests has the
# orders.

app <- list(call = function(req) list(status = 200L, headers = list(), body = req$rook.url_scheme))

# An authority that does not exist: no process listens on port 1.
nobody <- "http://127.0.0.1:1/dir"

test_that("errors of acme() name the argument and the remedy", {
  expect_error(acme(NA), "`domain` must be host names")
  expect_error(acme("a.org", agree_tos = NA), "`agree_tos` must be TRUE or FALSE")
  expect_error(acme("a.org"), "Let's Encrypt, whose terms .* agree to .* with `agree_tos = TRUE`")
  expect_error(
    acme("a.org", directory = "https://ca/"), "the authority at https://ca/, .* `agree_tos = TRUE`"
  )
  expect_error(acme("a.org", email = "", agree_tos = TRUE), "`email` must be e-mail addresses")
  wish <- acme("a.org", agree_tos = TRUE, dir = "kept")
  expect_equal(wish$dir, file.path(getwd(), "kept"))
  expect_error(tls_config(acme = "a.org"), "`acme` must be made by acme\\(\\)")
  expect_error(tls_config("cert.pem", acme = wish), "`cert` and `domain` cannot be used together")
  expect_error(tls_config(acme = wish, client_ca = "ca.pem"), "`domain` needs `redirect_from`")
  expect_s3_class(
    tls_config(acme = wish, client_ca = "ca.pem", client_auth = "optional"), "rookery_tls"
  )
  expect_output(
    print(tls_config(acme = wish)), "a.org, from Let's Encrypt\n  kept in /", fixed = FALSE
  )
  all <- acme(
    c("a.org", "b.org"), email = "me@a.org", agree_tos = TRUE, profile = "shortlived",
    dir = "/d"
  )
  expect_equal(
    format(all),
    c(
      "  a.org, b.org, from Let's Encrypt",
      "  contact me@a.org, profile shortlived", "  kept in /d"
    )
  )
})

test_that("orders that an authority cannot fulfil are refused before it is contacted", {
  start <- function(...) {
    startServer(
      "127.0.0.1", 0, app,
      tls = tls_config(acme = acme(..., agree_tos = TRUE, dir = tempfile()), redirect_from = NULL)
    )
  }
  expect_error(start("*.a.org"), "no certificate can be ordered for `\\*.a.org`")
  expect_error(start("localhost"), "only for public names")
  expect_error(start("a.org", email = "me"), "`me` is not an e-mail address")
  expect_error(start("a.org", directory = "http://ca.example/"), "it must be an https:// URL")
  expect_error(start("a.org", ca = "/nowhere.pem"), "/nowhere.pem cannot be read")
  file <- withr::local_tempfile(lines = "")
  expect_error(
    startServer(
      "127.0.0.1", 0, app, tls = tls_config(acme = acme("a.org", agree_tos = TRUE, dir = file))
    ),
    "certificates cannot be stored in"
  )
})

test_that("a stored certificate is served, and without one TLS handshakes are refused", {
  skip_if_not_installed("curl")
  dir <- withr::local_tempdir()
  pair <- make_pair(withr::local_tempdir(), "kept")
  tls <- tls_config(acme = acme("localhost", agree_tos = TRUE, directory = nobody, dir = dir))
  start <- function() {
    server <- startServer("127.0.0.1", 0, app, tls = tls)
    withr::defer(server$stop(), envir = parent.frame())
    server
  }
  server <- start()
  url <- paste0("https://localhost:", server$getPort(), "/")
  expect_type(fetch_here(url, cainfo = pair$cert), "character")
  server$stop()
  place <- file.path(dir, "127.0.0.1_1_dir", "localhost")
  expect_equal(as.character(file.info(c(dirname(place), place))$mode), c("700", "700"))
  # The files that an order would have stored, with a certificate that is valid for a year.
  kept <- file.path(place, "certificate.pem")
  writeLines(c(readLines(pair$cert), readLines(pair$key)), kept)
  Sys.chmod(kept, "600")
  server <- start()
  url <- paste0("https://localhost:", server$getPort(), "/")
  expect_equal(fetch_here(url, cainfo = pair$cert)$text, "https")
  server$stop()
  # The second start shows that the thread of the first server has released the folder.
  server <- start()
  expect_true(server$reload_tls())
})

test_that("_server.yml and the command line accept the options of acme()", {
  dir <- withr::local_tempdir()
  tls_of <- function(...) {
    file <- file.path(dir, "_server.yml")
    writeLines(
      c("engine: rookery", "app: app.R", "options:", "  tls:", paste0("    ", c(...))), file
    )
    rookery:::tls_of_settings(rookery:::own_file(file)$values)
  }
  tls <- tls_of("acme: {domain: [a.org, b.org], agree_tos: true, dir: kept}", "redirect_from: 80")
  expect_equal(tls$acme$domain, c("a.org", "b.org"))
  expect_equal(tls$acme$dir, file.path(dir, "kept"))
  expect_equal(tls$redirect_from, 80L)
  expect_error(tls_of("acme: {email: me@a.org}"), "`tls.acme.email:` needs `tls.acme.domain:`")
  expect_error(
    tls_of("acme: {domain: a.org, nonsense: 1}"), "`nonsense:` is not a setting under `acme:`"
  )
  expect_error(tls_of("acme: {domain: a.org}"), "agree to", class = "rookery_bad_tls")
  asked <- rookery:::cli_read(paste0(
    "host=::\nport=443\n",
    paste0("tls:text:", c(
      "tls_min_version=1.2", "domain=a.org", "domain=b.org", "email=me@a.org",
      "acme_directory=https://ca/dir", "acme_profile=shortlived", "acme_dir=/d"
    ), "\n", collapse = ""),
    "tls:flag:agree_tos=TRUE\ntls:number:redirect_from=80\n"
  ))
  wish <- acme(
    c("a.org", "b.org"),
    email = "me@a.org", agree_tos = TRUE,
    directory = "https://ca/dir", profile = "shortlived", dir = "/d"
  )
  expect_equal(rookery:::cli_address(asked)$tls, tls_config(acme = wish, redirect_from = 80))
  # `acme_dir` must not be taken for a prefix of `acme_directory`.
  asked <- rookery:::cli_read(
    "host=::\nport=443\ntls:text:domain=a.org\ntls:flag:agree_tos=TRUE\ntls:text:acme_directory=https://ca/dir\ntls:word:redirect_from=none\n"
  )
  wish <- acme("a.org", agree_tos = TRUE, directory = "https://ca/dir")
  expect_equal(rookery:::cli_address(asked)$tls, tls_config(acme = wish))
  expect_match(wish$dir, "/R/rookery/acme$")
})
