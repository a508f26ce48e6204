# The table of settings (crates/settings) matches R's handwritten arguments, options and defaults.

table <- rookery:::setting_table()
arguments <- function(of) {
  rows <- table[startsWith(table$argument, paste0(of, "(")), ]
  sub("\\)$", "", sub("^.*\\(", "", rows$argument))
}
own <- function(of, without) setdiff(names(formals(of)), c("...", without))

test_that("the arguments of functions match the table", {
  limits <- table[table$is_limit, ]
  expect_setequal(own(server_limits, character()), limits$name)
  expect_setequal(arguments("server_limits"), limits$name)
  expect_setequal(own(workers_config, "workers"), arguments("workers_config"))
  expect_setequal(own(tls_config, c("acme", "password")), arguments("tls_config"))
  expect_setequal(own(acme, character()), arguments("acme"))
  expect_setequal(own(serve, c("target", "limits")), arguments("serve"))
})

test_that("every argument in the table exists in its function", {
  given <- unique(sub("\\(.*", "", table$argument[nzchar(table$argument)]))
  expect_setequal(
    given,
    c(
      "server_limits", "workers_config", "tls_config", "acme", "serve", "app$wsOrigins",
      "app$wsCompression"
    )
  )
})

# Returns a default of the table as an R value.
read_default <- function(row) rookery:::setting_value(row$default, row$name, "the default")

test_that("defaults of arguments match the table", {
  # NULL leaves the default to the table. The log of `serve()` is TRUE for stdout, and
  # workers_config() is for several workers.
  different <- c("key", "log", "workers")
  compared <- character()
  for (of in c("server_limits", "workers_config", "tls_config", "acme", "serve")) {
    formal <- formals(getExportedValue("rookery", of))
    for (argument in setdiff(arguments(of), different)) {
      row <- table[table$argument == paste0(of, "(", argument, ")"), ]
      # The first of several choices is the default.
      default <- eval(formal[[argument]])[1]
      if (is.null(default)) next
      compared <- c(compared, argument)
      if (row$is_literal) {
        expect_equal(default, read_default(row), info = paste(of, argument))
      } else {
        # A default that depends on other settings begins with the usual value.
        expect_equal(as.character(default), sub(";.*", "", row$default), info = paste(of, argument))
      }
    }
  }
  expect_setequal(
    compared,
    c(
      "host", "port", "open", "log_format", "client_auth", "min_version", "http2",
      "hsts", "agree_tos"
    )
  )
})

test_that("options match the table", {
  expect_setequal(rookery:::setting_names(), c(
    "error_detail", "request_id_header", "server_timing", "interrupt_requests", "spool_dir", "trusted_proxies",
    "proxy_protocol", "proxy_protocol_from", "keep_identity_headers", "ws_origins",
    "ws_compression", "reconnect"
  ))
  expect_setequal(table$name[table$is_option & table$is_limit], table$name[table$is_limit])
  expect_setequal(rookery_options()$name, table$name[table$is_option])
})
