test_that("dev() serves in the background until stop_dev()", {
  skip_on_os("windows")
  site <- local_app("index.html" = "<!doctype html><head></head><h1>one</h1>")
  opened <- NULL
  suppressMessages(
    address <- dev(site, open = function(url) opened <<- url)
  )
  on.exit(stop_dev())
  expect_match(address, "^http://127[.]0[.]0[.]1:[0-9]+$")
  expect_identical(opened, address)
  expect_match(fetch(address)$text, "<h1>one</h1>")
  # Another call takes the place of the first one.
  suppressMessages(again <- dev(site, open = FALSE))
  expect_match(fetch(again)$text, "<h1>one</h1>")
  expect_true(stop_dev())
  expect_error(fetch(again))
  expect_false(stop_dev())
})

test_that("dev() can wait for the program, and shows its output", {
  skip_if_not_installed("processx")
  site <- local_app("index.html" = "<!doctype html><head></head><h1>one</h1>")
  job <- local_r(paste0("rookery::dev(", deparse(site), ", wait = TRUE)"))
  url <- expect_serving(job)
  expect_match(fetch(url)$text, "<h1>one</h1>")
  # The program may not watch the files yet.
  is_shown <- wait_until(function() {
    write(format(Sys.time(), "<p>%OS6"), file.path(site, "index.html"), append = TRUE)
    grepl("`index.html` has changed", job$tell(), fixed = TRUE)
  })
  expect_true(is_shown, info = job$tell())
  job$signal(2)
  exit_of(job)
  # The program has ended as well.
  expect_true(wait_until(function() inherits(try(fetch(url), silent = TRUE), "try-error")))
})

test_that("dev() reports why the program has ended", {
  skip_on_os("windows")
  expect_error(dev(file.path(tempdir(), "none")), "does not exist", class = "rookery_error")
  expect_false(stop_dev())
  expect_error(dev(1), "must be a string", class = "rookery_bad_argument")
})
