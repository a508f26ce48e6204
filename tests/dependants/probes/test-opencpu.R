test_that("its single-user server answers calls, files and errors", {
  dir <- withr::local_tempdir()
  it <- in_background(function(port, dir) {
    Sys.setenv(R_USER_CONFIG_DIR = dir)
    opencpu::ocpu_start_server(port = port, root = "/ocpu", workers = 1, no_cache = TRUE)
  }, dir)
  expect_match(fetch(paste0(it$url, "/ocpu/library/stats/R/rnorm/print"))$text, "function")
  posted <- fetch(
    paste0(it$url, "/ocpu/library/base/R/sum/json"), postfields = "{\"a\":1,\"b\":2}",
    httpheader = "Content-Type: application/json"
  )
  expect_true(posted$status_code %in% c(200L, 201L))
  expect_match(posted$text, "3")
  expect_equal(fetch(paste0(it$url, "/ocpu/library/nosuchpackage/"))$status_code, 400)
})
