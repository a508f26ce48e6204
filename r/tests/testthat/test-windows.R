# What is different on Windows, on other systems.

# Makes the package believe that it runs on Windows until the calling test ends.
local_windows <- function(test = parent.frame()) {
  space <- asNamespace("rookery")
  bind <- function(value) {
    unlockBinding("is_windows", space)
    assign("is_windows", value, envir = space)
    lockBinding("is_windows", space)
  }
  before <- space$is_windows
  bind(function() TRUE)
  withr::defer(bind(before), envir = test)
}

test_that("what Windows does not have is refused with a remedy", {
  local_windows()
  expect_error(
    serve(local_app("app.R" = "1"), workers = 2), "needs Linux: one R process",
    class = "rookery_unsupported"
  )
  expect_error(
    serve(local_app("app.R" = "1"), log = print), "needs Linux or macOS: use the path of a file",
    class = "rookery_unsupported"
  )
  expect_error(
    rookery:::serve_address("unix:/tmp/s", 8000, NULL), "give the IP address",
    class = "rookery_unsupported"
  )
  expect_error(
    rookery:::check_admin("unix:/tmp/s"), "127.0.0.1:9100", class = "rookery_unsupported"
  )
  expect_error(install_cli(tempdir()), "folder of the program to PATH", class = "rookery_unsupported")
})

test_that("a path is served by a program that is waited for", {
  local_windows()
  file <- withr::local_tempfile()
  command <- function(script) {
    list(
      program = "/bin/sh", arguments = c("-c", script), input = c("a=1", "b=2"),
      environment = c(ROOKERY_TEST_VALUE = "1 2")
    )
  }
  expect_null(rookery:::run_program(command(paste0("cat > ", file)), "app"))
  expect_identical(readLines(file), c("a=1", "b=2"))
  expect_error(
    rookery:::run_program(command("test \"$ROOKERY_TEST_VALUE\" = \"1 2\" && exit 7"), "app"),
    "status 7", class = "rookery_exit"
  )
})
