# HTTPS: certificates, requests, reloads, serve() and the command line.

skip_if_not_installed("curl")

# The response of a plaintext server.
reply_of_plain <- function() {
  server <- startServer("127.0.0.1", 0, function(req) {
    list(status = 200L, headers = list(), body = req$rook.url_scheme)
  })
  on.exit(server$stop())
  expect_false(server$reload_tls())
  fetch_here(paste0("http://127.0.0.1:", server$getPort()))$text
}

test_that("a server uses HTTPS, and the request says so", {
  pair <- make_pair(withr::local_tempdir(), "own")
  server <- local_tls_server(tls_config(pair$cert, pair$key))
  answer <- fetch_here(secure_url(server), cainfo = pair$cert)
  expect_equal(answer$status_code, 200L)
  expect_equal(answer$text, "https")
  # Clients that do not have the certificate do not trust the server.
  expect_match(fetch_here(secure_url(server)), "certificate")
  plain <- fetch_here(paste0("http://localhost:", server$getPort(), "/a?b"))
  expect_equal(plain$status_code, 400L)
  expect_match(
    plain$text, paste0("this port speaks HTTPS: https://localhost:", server$getPort(), "/a?b"),
    fixed = TRUE
  )
  expect_equal(reply_of_plain(), "http")
})

test_that("`hsts` adds Strict-Transport-Security", {
  pair <- make_pair(withr::local_tempdir(), "own")
  app <- function(req) {
    own <- if (req$PATH_INFO == "/own") {
      list("Strict-Transport-Security" = "max-age=7; includeSubDomains")
    } else {
      list()
    }
    list(status = 200L, headers = own, body = "a")
  }
  told <- function(path, ..., version = 4L) {
    server <- local_tls_server(tls_config(pair$cert, pair$key, ...), app)
    answer <- fetch_here(secure_url(server, path), cainfo = pair$cert, http_version = version)
    curl::parse_headers_list(answer$headers)[["strict-transport-security"]]
  }
  expect_null(told("/"))
  expect_null(told("/", hsts = FALSE))
  for (version in c(2L, 4L)) {
    expect_equal(told("/", hsts = 31536000, version = version), "max-age=31536000")
    expect_equal(told("/own", hsts = 0, version = version), "max-age=7; includeSubDomains")
  }
  expect_equal(told("/", hsts = 0), "max-age=0")
  expect_equal(
    told("/", hsts = list(max_age = 60, include_subdomains = TRUE)), "max-age=60; includeSubDomains"
  )
  all <- list(max_age = 31536000, include_subdomains = TRUE, preload = TRUE)
  expect_equal(told("/", hsts = all), "max-age=31536000; includeSubDomains; preload")
  for (wrong in list(
    TRUE, -1, NA, 1.5, c(1, 2), Inf, list(), list(60), list(age = 1),
    list(max_age = 1, include_subdomains = "a")
  )) {
    expect_error(
      tls_config(pair$cert, pair$key, hsts = wrong), "`hsts` must be off, or a number of seconds"
    )
  }
  for (wrong in list(list(max_age = 60, include_subdomains = TRUE), list(max_age = 31536000))) {
    expect_error(
      tls_config(pair$cert, pair$key, hsts = c(wrong, preload = TRUE)),
      "`hsts`: preload needs subdomains and at least a year", fixed = TRUE
    )
  }
})

test_that("redirect_from redirects to HTTPS", {
  pair <- make_pair(withr::local_tempdir(), "own")
  from <- free_port()
  server <- startServer(
    "127.0.0.1", 0, function(req) stop("R is not asked"),
    tls = tls_config(pair$cert, pair$key, redirect_from = from)
  )
  withr::defer(server$stop())
  sent_to <- function(host, path) {
    answer <- fetch_here(
      paste0("http://127.0.0.1:", from, path), httpheader = paste("Host:", host),
      followlocation = FALSE
    )
    c(answer$status_code, curl::parse_headers_list(answer$headers)[["location"]])
  }
  expect_equal(
    sent_to("localhost", "/a?b=c"),
    c("308", paste0("https://localhost:", server$getPort(), "/a?b=c"))
  )
  expect_equal(sent_to("evil.example", "/"), 421)
  # The port is in use, so the server does not start, and nothing is left.
  other <- free_port()
  expect_error(
    capture.output(
      startServer(
        "127.0.0.1", other, list(), tls = tls_config(pair$cert, pair$key, redirect_from = from)
      ),
      type = "message"
    ),
    "Failed to create server"
  )
  startServer("127.0.0.1", other, list())$stop()
  server$stop()
  # Both ports are free again.
  startServer("127.0.0.1", from, list())$stop()
  for (wrong in list(0, 65536, "http", 1.5, NA, TRUE, c(80, 81))) {
    expect_error(
      tls_config(pair$cert, redirect_from = wrong),
      "`redirect_from` must be none, or a whole number from 1 to 65535"
    )
  }
  socket <- withr::local_tempfile()
  expect_error(
    startPipeServer(
      socket, NULL, list(), tls = tls_config(pair$cert, pair$key, redirect_from = from)
    ),
    "Unix socket"
  )
})

test_that("certificate and key may be text, or in one file", {
  pair <- make_pair(withr::local_tempdir(), "own")
  text <- lapply(pair, function(path) paste(readLines(path), collapse = "\n"))
  server <- local_tls_server(tls_config(text$cert, text$key))
  expect_equal(fetch_here(secure_url(server), cainfo = pair$cert)$text, "https")
  both <- withr::local_tempfile(lines = unlist(text))
  Sys.chmod(both, "600")
  server <- local_tls_server(tls_config(both))
  expect_equal(fetch_here(secure_url(server), cainfo = pair$cert)$text, "https")
  printed <- paste(format(tls_config(text$cert, text$key)), collapse = "\n")
  expect_no_match(printed, "BEGIN")
})

test_that("the certificate of a client is in the request", {
  dir <- withr::local_tempdir()
  ca <- make_pair(dir, "ca", "/CN=An authority")
  own <- make_pair(dir, "own")
  ada <- make_pair(dir, "ada", "/O=Engines/CN=Ada", signed_by = ca)
  app <- function(req) {
    who <- c(req$TLS_CLIENT_SUBJECT, req$TLS_CLIENT_FINGERPRINT)
    list(
      status = 200L, headers = list(),
      body = if (is.null(who)) "nobody" else paste(who, collapse = " ")
    )
  }
  server <- local_tls_server(
    tls_config(own$cert, own$key, client_ca = ca$cert, client_auth = "optional"), app
  )
  answer <- fetch_here(secure_url(server), cainfo = own$cert, sslcert = ada$cert, sslkey = ada$key)
  fields <- strsplit(answer$text, " ")[[1]]
  expect_equal(fields[[1]], "CN=Ada,O=Engines")
  told <- system2(
    "openssl", c("x509", "-noout", "-fingerprint", "-sha256", "-in", ada$cert), stdout = TRUE
  )
  expect_equal(fields[[2]], tolower(gsub(":", "", sub("^.*=", "", told))))
  # A header of the client cannot claim a certificate.
  expect_equal(
    fetch_here(
      secure_url(server), cainfo = own$cert,
      httpheader = c("TLS-Client-Subject: CN=Eve", "TLS_CLIENT_SUBJECT: CN=Eve")
    )$text,
    "nobody"
  )
  server <- local_tls_server(tls_config(own$cert, own$key, client_ca = ca$cert), app)
  expect_type(fetch_here(secure_url(server), cainfo = own$cert), "character")
  answer <- fetch_here(secure_url(server), cainfo = own$cert, sslcert = ada$cert, sslkey = ada$key)
  expect_match(answer$text, "CN=Ada")
})

test_that("WebSockets open over HTTPS", {
  skip_if_not_installed("processx")
  pair <- make_pair(withr::local_tempdir(), "own")
  opened <- NULL
  server <- local_tls_server(
    tls_config(pair$cert, pair$key),
    list(onWSOpen = function(ws) {
      opened <<- ws$request$rook.url_scheme
      ws$close()
    })
  )
  client <- processx::process$new(
    "openssl", c("s_client", "-quiet", "-connect", paste0("127.0.0.1:", server$getPort())),
    stdin = "|", stdout = "|", stderr = NULL
  )
  withr::defer(client$kill())
  client$write_input(
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
  )
  said <- ""
  serve_until(function() {
    said <<- paste0(said, client$read_output())
    grepl("101 Switching Protocols", said) && !is.null(opened)
  })
  expect_equal(opened, "https")
})

test_that("reload_tls() uses the new certificate for new connections, unless it is invalid", {
  dir <- withr::local_tempdir()
  one <- make_pair(dir, "one")
  two <- make_pair(dir, "two")
  live <- list(cert = file.path(dir, "live.pem"), key = file.path(dir, "live.key"))
  become <- function(pair) {
    file.copy(pair$cert, live$cert, overwrite = TRUE)
    file.copy(pair$key, live$key, overwrite = TRUE)
    Sys.chmod(live$key, "600")
  }
  become(one)
  server <- local_tls_server(tls_config(live$cert, live$key))
  shows <- function(pair) is.list(fetch_here(secure_url(server), cainfo = pair$cert))
  expect_true(shows(one))
  become(two)
  expect_true(server$reload_tls())
  expect_true(shows(two) && !shows(one))
  file.copy(one$cert, live$cert, overwrite = TRUE)
  expect_error(
    server$reload_tls(),
    "is not that of the certificate in .*live.pem: has only one of the two been renewed"
  )
  expect_true(shows(two))
  server$stop()
  expect_false(server$reload_tls())
})

test_that("errors name the file and the remedy", {
  dir <- withr::local_tempdir()
  pair <- make_pair(dir, "own")
  start <- function(...) startServer("127.0.0.1", 0, list(), quiet = TRUE, tls = tls_config(...))
  expect_error(
    start(file.path(dir, "none.pem"), pair$key),
    "the certificate cannot be read: there is no file .*none.pem"
  )
  expect_error(
    start(pair$key, pair$cert),
    "contains no certificate, but: PRIVATE KEY; have certificate and key been swapped"
  )
  expect_error(start(dir, pair$key), "is a folder")
  expect_error(
    tls_config(c("a", "b"), "c"), "`key` must be given once for each `cert`: 2 times, not 1"
  )
  expect_error(tls_config(1), "`cert` must be the path of a PEM file or its text")
  expect_error(tls_config("a", client_auth = "perhaps"), "`client_auth` must be")
  expect_error(
    startServer("127.0.0.1", 0, list(), tls = "yes"), "`tls` must be made by tls_config()",
    fixed = TRUE
  )
  expect_length(listServers(), 0)
})

test_that("the text of a key is not taken for a path", {
  pair <- make_pair(withr::local_tempdir(), "text")
  read <- function(path) paste(readLines(path), collapse = "\n")
  for (before in c("Bag Attributes\n    localKeyID: 01\n", "\ufeff", "\n")) {
    tls <- tls_config(paste0(before, read(pair$cert)), paste0(before, read(pair$key)))
    said <- capture.output(print(tls))
    expect_match(said, "text, key: text", all = FALSE)
    expect_false(any(grepl(readLines(pair$key)[[2]], said, fixed = TRUE)))
  }
})

test_that("tls_config() raises an error for an unusable certificate, key or authority", {
  pem <- local_pem()
  expect_wrong <- function(code, text) {
    error <- expect_error(code, text, fixed = TRUE, class = "rookery_bad_tls")
    expect_s3_class(error, "rookery_error")
    expect_equal(error$reason, conditionMessage(error))
  }
  expect_wrong(tls_config("/nowhere/cert.pem"), "there is no file /nowhere/cert.pem")
  expect_wrong(tls_config(pem, "/nowhere/key.pem"), "there is no file /nowhere/key.pem")
  expect_wrong(tls_config(pem, client_ca = "/nowhere/ca.pem"), "there is no file /nowhere/ca.pem")
  expect_wrong(tls_config(pem, local_pem()), "key")
  expect_wrong(tls_config(withr::local_tempfile(lines = "no certificate")), "certificate")
})

test_that("tls_config() prints all values that are not defaults", {
  pem <- local_pem()
  tls <- tls_config(
    pem,
    min_version = "1.3", client_ca = pem, client_auth = "optional", http2 = FALSE,
    hsts = list(max_age = 60, include_subdomains = TRUE), redirect_from = 80
  )
  expect_equal(format(tls), c(
    "<certificates for HTTPS, TLS 1.3 and later>", paste0("  ", pem, ", key: ", pem),
    paste0("  clients: optional, signed by ", pem), "  off: HTTP/2",
    "  hsts: 60 s, subdomains",
    "  redirects from port 80"
  ))
  expect_length(format(tls_config(pem)), 2)
})

test_that("errors for an invalid choice name the argument", {
  pem <- local_pem()
  expect_error(
    tls_config("c", min_version = "1.1"), "`min_version` must be 1.2 or 1.3, not \"1.1\".",
    fixed = TRUE
  )
  expect_error(
    tls_config("c", client_auth = NA), "`client_auth` must be required or optional, not NA.",
    fixed = TRUE
  )
  expect_equal(tls_config(pem, min_version = "1.3")$min_version, "1.3")
  expect_error(tls_config("c", http2 = "perhaps"), "`http2` must be TRUE or FALSE", fixed = TRUE)
  expect_equal(tls_config(pem)$client_auth, "required")
})

test_that("a key is decrypted with its password", {
  skip_if_not_installed("openssl")
  dir <- withr::local_tempdir()
  pair <- make_pair(dir, "own")
  locked <- file.path(dir, "locked.key")
  system2(
    "openssl", c("pkey", "-in", pair$key, "-aes256", "-passout", "pass:secret", "-out", locked)
  )
  expect_error(
    startServer("127.0.0.1", 0, list(), quiet = TRUE, tls = tls_config(pair$cert, locked)),
    "locked.key is encrypted; give its password"
  )
  expect_error(
    tls_config(pair$cert, locked, password = "wrong"), "cannot be opened with this password"
  )
  server <- local_tls_server(tls_config(pair$cert, locked, password = function() "secret"))
  expect_equal(fetch_here(secure_url(server), cainfo = pair$cert)$text, "https")
})

test_that("X-Forwarded-For of a trusted proxy names the client", {
  app <- function(req) ok(paste(req$REMOTE_ADDR, req$REMOTE_PORT))
  client <- function(...) {
    withr::local_options(...)
    server <- local_server(app)
    fetch_here(
      paste0("http://127.0.0.1:", server$getPort()),
      httpheader = c("X-Forwarded-For: 9.9.9.9, 192.0.2.7", "Forwarded: for=9.9.9.9")
    )$text
  }
  expect_match(client(list()), "^127.0.0.1 ")
  expect_equal(client(list(rookery.trusted_proxies = "127.0.0.1")), "192.0.2.7 0")
})

test_that("trusted proxies behind the PROXY protocol need a list of load balancers", {
  withr::local_options(rookery.proxy_protocol = TRUE, rookery.trusted_proxies = "192.0.2.7")
  app <- function(req) ok(req$REMOTE_ADDR)
  expect_error(
    startServer("127.0.0.1", 0, app), "need `proxy_protocol_from`", class = "rookery_bad_setting"
  )
  withr::local_options(rookery.proxy_protocol_from = "127.0.0.1")
  client <- local_client(local_server(app))
  send(client, "PROXY TCP4 192.0.2.7 127.0.0.1 4000 80\r\n")
  expect_equal(rawToChar(get(client, headers = "X-Forwarded-For: 203.0.113.5")$body), "203.0.113.5")
})

test_that("a list of load balancers needs the PROXY protocol, which warns without the list", {
  app <- function(req) ok()
  withr::local_options(rookery.proxy_protocol_from = "127.0.0.1")
  expect_error(
    startServer("127.0.0.1", 0, app), "needs `proxy_protocol`: set it to TRUE",
    class = "rookery_bad_setting"
  )
  withr::local_options(rookery.proxy_protocol = TRUE, rookery.proxy_protocol_from = NULL)
  expect_warning(
    server <- startServer("127.0.0.1", 0, app), "lets any client claim any address",
    class = "rookery_any_proxy"
  )
  server$stop()
})

test_that("forwarding headers of a trusted proxy are used", {
  app <- function(req) list(status = 200L, headers = list(), body = req$rook.url_scheme)
  scheme <- function() {
    server <- startServer("127.0.0.1", 0, app)
    on.exit(server$stop())
    fetch_here(
      paste0("http://127.0.0.1:", server$getPort()), httpheader = "X-Forwarded-Proto: https"
    )$text
  }
  expect_equal(scheme(), "http")
  withr::with_options(
    list(rookery.trusted_proxies = c("192.0.2.1", "127.0.0.0/8")), expect_equal(scheme(), "https")
  )
  withr::with_options(list(rookery.trusted_proxies = "192.0.2.1"), expect_equal(scheme(), "http"))
  withr::with_options(list(rookery.trusted_proxies = "localhost"), {
    expect_error(
      startServer("127.0.0.1", 0, app), "must be addresses such as .*, not \"localhost\""
    )
  })
  withr::with_options(
    list(rookery.trusted_proxies = 1),
    expect_error(startServer("127.0.0.1", 0, app), "must be addresses")
  )
})

test_that("the PROXY protocol is used with the option", {
  app <- function(req) {
    list(status = 200L, headers = list(), body = paste(req$REMOTE_ADDR, req$REMOTE_PORT))
  }
  ask <- function(...) {
    server <- startServer("127.0.0.1", 0, app)
    on.exit(server$stop())
    client <- local_client(server)
    send(client, ..., "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    reply(client)$text
  }
  withr::local_options(rookery.proxy_protocol = TRUE, rookery.proxy_protocol_from = "127.0.0.1")
  expect_equal(ask("PROXY TCP4 192.0.2.7 198.51.100.1 12345 443\r\n"), "192.0.2.7 12345")
  withr::local_options(rookery.proxy_protocol = "perhaps")
  expect_error(startServer("127.0.0.1", 0, app), "must be TRUE or FALSE, not \"perhaps\"")
})

test_that("the development certificate is created once, and its fingerprint is printed", {
  withr::local_envvar(R_USER_DATA_DIR = withr::local_tempdir())
  app <- function(req) list(status = 200L, headers = list(), body = req$rook.url_scheme)
  expect_message(
    server <- startServer("127.0.0.1", 0, app, tls = "dev"),
    "SHA-256 fingerprint.*([0-9A-F]{2}:){31}[0-9A-F]{2}"
  )
  withr::defer(server$stop())
  file <- file.path(tools::R_user_dir("rookery", "data"), "tls", "localhost.pem")
  expect_equal(file.mode(file), as.octmode("600"))
  expect_equal(fetch_here(secure_url(server), cainfo = file)$text, "https")
  made <- readLines(file)
  expect_no_message(other <- startServer("127.0.0.1", 0, app, tls = "dev"))
  other$stop()
  expect_equal(readLines(file), made)
})

# ---- serve() and the command line ----

test_that("rookery serve --tls-cert uses HTTPS, and SIGHUP reloads the certificates", {
  skip_if_not_installed("processx")
  dir <- withr::local_tempdir()
  one <- make_pair(dir, "one")
  two <- make_pair(dir, "two")
  live <- file.path(dir, "live.pem")
  become <- function(pair) {
    writeLines(c(readLines(pair$cert), readLines(pair$key)), live)
    Sys.chmod(live, "600")
  }
  become(one)
  app <- local_app(
    "app.R" = "function(req) list(status = 200L, headers = list(), body = req$rook.url_scheme)"
  )
  it <- local_cli("serve", file.path(app, "app.R"), "--port", "0", "--tls-cert", live, "--log=none")
  url <- expect_serving(it)
  expect_match(url, "^https://127.0.0.1:")
  expect_equal(fetch(url, cainfo = one$cert)$text, "https")
  become(two)
  it$signal(1)
  expect_true(wait_until(function() grepl("the certificates have been read again", it$tell())))
  # The worker that accepts connections keeps its certificates until another worker has replaced it.
  expect_true(wait_until(function() grepl("reloaded: all workers are of generation 1", it$tell())))
  expect_equal(fetch(url, cainfo = two$cert)$text, "https")
  writeLines("rubbish", live)
  it$signal(1)
  expect_true(wait_until(
    function() grepl("New connections keep using the previous certificate", it$tell())
  ))
  expect_equal(fetch(url, cainfo = two$cert)$text, "https")
  it$signal(15)
  expect_equal(exit_of(it), 0)
})

test_that("a SIGHUP without HTTPS ends serve() in R, as before", {
  skip_if_not_installed("processx")
  app <- local_app("app.R" = "function(req) list(status = 200L, headers = list(), body = 'a')")
  it <- local_r(paste0("rookery::serve('", file.path(app, "app.R"), "', port = 0)"))
  expect_serving(it)
  it$signal(1)
  expect_equal(exit_of(it), 0)
})

test_that("a Shiny app is served over HTTPS, and _server.yml names certificates", {
  skip_if_not_installed("processx")
  dir <- withr::local_tempdir()
  pair <- make_pair(dir, "own")
  skip_if_not_installed("shiny")
  app <- local_app(
    "app.R" = "library(shiny)\nshinyApp(fluidPage('hello over TLS'), function(input, output) NULL)"
  )
  it <- local_cli(
    "serve", app, "--port", "0", "--tls-cert", pair$cert, "--tls-key", pair$key, "--log=none"
  )
  expect_match(fetch(expect_serving(it), cainfo = pair$cert)$text, "hello over TLS")
  skip_if_not_installed("yaml")
  from <- free_port()
  app <- local_app(
    "app.R" = "function(req) list(status = 200L, headers = list(), body = req$rook.url_scheme)",
    "_server.yml" = c(
      "engine: rookery", "app: app.R", "options:", "  port: 0", "  tls:", "    cert: own.pem",
      "    key: own.key",
      "    http2: false", "    hsts:", "      max_age: 60",
      "      include_subdomains: true",
      paste("    redirect_from:", from)
    )
  )
  file.copy(c(pair$cert, pair$key), app)
  it <- local_cli("serve", app, "--port", "0", "--log=none")
  # By host name, because the header is not sent for addresses.
  url <- sub("127.0.0.1", "localhost", expect_serving(it), fixed = TRUE)
  answer <- fetch(url, cainfo = pair$cert, http_version = 4L)
  expect_equal(answer$text, "https")
  expect_match(rawToChar(answer$headers), "^HTTP/1.1 200")
  expect_match(
    rawToChar(answer$headers), "Strict-Transport-Security: max-age=60; includeSubDomains\r\n",
    fixed = TRUE
  )
  sent_on <- fetch(paste0("http://localhost:", from, "/a"), followlocation = FALSE)
  expect_equal(sent_on$status_code, 308)
  expect_match(rawToChar(sent_on$headers), "Location: https://localhost:[0-9]+/a\r\n")
})

test_that("an invalid certificate ends serve() with the reason", {
  skip_if_not_installed("processx")
  app <- local_app("app.R" = "function(req) NULL")
  it <- local_cli(
    "serve", file.path(app, "app.R"), "--port", "0", "--tls-cert", "/nowhere/cert.pem"
  )
  expect_equal(exit_of(it), 1)
  expect_match(it$tell(), "there is no file /nowhere/cert.pem")
  expect_error(serve(app, tls = "yes"), "must be made by tls_config", class = "rookery_bad_tls")
})

test_that("a key with a password, and a certificate as text, reach the program of a path unseen", {
  skip_if_not_installed("processx")
  skip_if_not_installed("openssl")
  dir <- withr::local_tempdir()
  pair <- make_pair(dir, "own")
  locked <- file.path(dir, "locked.key")
  openssl::write_pem(openssl::read_key(pair$key), locked, password = "secret")
  app <- local_app("app.R" = "function(req) list(status = 200L, headers = list(), body = req$rook.url_scheme)")
  it <- local_r(c(
    sprintf("text <- paste(readLines('%s'), collapse = '\\n')", pair$cert),
    sprintf("tls <- rookery::tls_config(text, '%s', password = 'secret')", locked),
    sprintf("rookery::serve('%s', port = 0, log = FALSE, tls = tls)", app)
  ))
  url <- sub("127.0.0.1", "localhost", expect_serving(it), fixed = TRUE)
  expect_equal(fetch(url, cainfo = pair$cert)$text, "https")
  skip_if(!file.exists("/proc/self/environ"), "environments are read from /proc")
  for (pid in list.files("/proc", "^[0-9]+$")) {
    bytes <- suppressWarnings(tryCatch(
      readBin(file.path("/proc", pid, "environ"), "raw", 1e6), error = function(error) raw()
    ))
    expect_length(grepRaw("PRIVATE KEY", bytes, fixed = TRUE), 0)
  }
})

test_that("--tls dev prints the fingerprint", {
  skip_if_not_installed("processx")
  data <- withr::local_tempdir()
  app <- local_app(
    "app.R" = "function(req) list(status = 200L, headers = list(), body = req$rook.url_scheme)"
  )
  it <- local_cli(
    "serve", file.path(app, "app.R"), "--port", "0", "--tls", "dev", "--log=none",
    environment = c(R_USER_DATA_DIR = data)
  )
  url <- expect_serving(it)
  expect_match(
    it$tell(), "SHA-256 fingerprint, as the browser shows it: ([0-9A-F]{2}:){31}[0-9A-F]{2}"
  )
  expect_equal(
    fetch(url, cainfo = file.path(data, "R", "rookery", "tls", "localhost.pem"))$text, "https"
  )
})
