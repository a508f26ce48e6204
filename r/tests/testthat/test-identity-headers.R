# Returns the identity headers that the app sees.
identity_seen <- function(options) {
  withr::local_options(options)
  server <- local_server(function(req) {
    names <- grep("shiny", names(req$HEADERS), value = TRUE)
    ok(paste(
      c(req$HTTP_SHINY_SERVER_CREDENTIALS, req$HTTP_SHINY_SHARED_SECRET, names),
      collapse = " "
    ))
  })
  client <- local_client(server)
  headers <- c(
    "Shiny-Server-Credentials: {}", "shiny_server-credentials: {}", "SHINY_SHARED_SECRET: s"
  )
  rawToChar(get(client, headers = headers)$body)
}

test_that("identity headers of clients that are not trusted proxies are removed", {
  expect_equal(identity_seen(list()), "")
  expect_equal(identity_seen(list(rookery.trusted_proxies = "192.0.2.1")), "")
})

test_that("identity headers of trusted proxies, or of all clients if wanted, reach the app", {
  seen <- "{} shiny-server-credentials shiny_server-credentials shiny_shared_secret"
  expect_equal(identity_seen(list(rookery.trusted_proxies = "127.0.0.1")), seen)
  expect_equal(identity_seen(list(rookery.keep_identity_headers = TRUE)), seen)
})

test_that("serve() removes the identity headers of clients whatever the option says", {
  withr::local_options(rookery.keep_identity_headers = TRUE)
  globals <- rookery:::.globals
  expect_true(rookery:::keeps_identity_headers())
  withr::defer(globals$settings <- NULL)
  globals$settings <- list()
  expect_false(rookery:::keeps_identity_headers())
})
