# The order in which setting_of() searches the sources of a setting.

settings <- list(
  # A setting of each kind that R reads, and two values in the form of environment variables.
  error_detail = c("full", "message"), request_id_header = c("on", "off"),
  max_connections = c("11", "12"),
  max_body_size = c("11 MB", "12 MB"), idle_timeout = c("11 s", "12 s"),
  trusted_proxies = c("10.0.0.1", "unix"), spool_dir = c("/usr", "/var"),
  ws_compression = c("level=3", "level=4")
)

places <- c("command line", "argument", "environment", "_server.yml", "option")

# Evaluates code while a setting is given in some sources; `values` has the values by source.
with_given <- function(name, values, code) {
  fields <- c(argument = "argument", "command line" = "cli", "_server.yml" = "file")
  serving <- list()
  for (place in intersect(names(fields), names(values))) {
    serving[[fields[[place]]]] <- stats::setNames(list(values[[place]]), name)
  }
  old <- rookery:::.globals$settings
  assign("settings", serving, envir = rookery:::.globals)
  on.exit(assign("settings", old, envir = rookery:::.globals))
  variable <- if ("environment" %in% names(values)) values[["environment"]] else NA
  option <- if ("option" %in% names(values)) values[["option"]]
  withr::with_envvar(
    stats::setNames(variable, paste0("ROOKERY_", toupper(name))),
    withr::with_options(stats::setNames(list(option), paste0("rookery.", name)), code)
  )
}

test_that("of each pair of sources, the one with precedence is used", {
  for (name in names(settings)) {
    one <- settings[[name]][[1]]
    other <- settings[[name]][[2]]
    alone <- with_given(name, c(argument = one), rookery:::setting_of(name))
    for (pair in utils::combn(places, 2, simplify = FALSE)) {
      found <- with_given(name, stats::setNames(c(one, other), pair), rookery:::setting_of(name))
      expect_identical(found$origin, pair[[1]], info = paste(name, paste(pair, collapse = ", ")))
      expect_equal(found$value, alone$value, info = paste(name, paste(pair, collapse = ", ")))
    }
    for (place in places) {
      found <- with_given(name, stats::setNames(other, place), rookery:::setting_of(name))
      expect_identical(found$origin, place, info = paste(name, place))
      expect_false(identical(found$value, alone$value), info = paste(name, place))
    }
    expect_identical(
      with_given(name, character(), rookery:::setting_of(name))$origin, "default", info = name
    )
  }
})

test_that("a mistyped environment variable is a warning, once, with the nearest name", {
  globals <- rookery:::.globals
  before <- globals$unknown_settings
  withr::defer(globals$unknown_settings <- before)
  withr::local_envvar(ROOKERY_MAX_BODYSIZE = "10 MB", ROOKERY_WORKER_COUNT = "1")
  expect_warning(
    rookery:::warn_unknown_settings(),
    "ROOKERY_MAX_BODYSIZE does not belong to a setting .* Did you mean ROOKERY_MAX_BODY_SIZE\\?",
    class = "rookery_unknown_variable"
  )
  expect_silent(rookery:::warn_unknown_settings())
  globals$unknown_settings <- NULL
  expect_warning(
    startServer("127.0.0.1", 0, list())$stop(), class = "rookery_unknown_variable"
  )
})

test_that("a mistyped option is a warning, once, with the nearest name", {
  globals <- rookery:::.globals
  before <- globals$unknown_settings
  withr::defer(globals$unknown_settings <- before)
  withr::local_options(rookery.max_bodysize = "10 MB")
  expect_warning(
    startServer("127.0.0.1", 0, list())$stop(),
    "rookery.max_bodysize does not belong to a setting .* Did you mean rookery.max_body_size\\?",
    class = "rookery_unknown_option"
  )
  expect_silent(startServer("127.0.0.1", 0, list())$stop())
  withr::local_options(rookery.prot = 1)
  expect_warning(
    rookery:::warn_unknown_settings(has_program = TRUE), "rookery.prot",
    class = "rookery_unknown_option"
  )
})
