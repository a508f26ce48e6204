# The program exec/rookery, which loads the library of the package (src/launcher.c).

program <- function() system.file("exec", "rookery", package = "rookery", mustWork = TRUE)

# Runs a command of bash, in which $program is the program. Returns the lines of its output.
bash <- function(command, path = program()) {
  suppressWarnings(system2(
    "bash", c("-c", shQuote(command)),
    stdout = TRUE, stderr = TRUE, env = paste0("program=", shQuote(path))
  ))
}

test_that("the program has the version of the package", {
  version <- as.character(utils::packageVersion("rookery"))
  expect_equal(bash("\"$program\" --version"), paste("rookery", version))
})

test_that("the core is installed only once", {
  libs <- system.file("libs", package = "rookery", mustWork = TRUE)
  shared_objects <- list.files(libs, recursive = TRUE, full.names = TRUE)
  is_core <- grepl("^librookery-[0-9.]+[.]so$", basename(shared_objects))
  expect_equal(sum(is_core), 1)
  others <- c(shared_objects[!is_core], program())
  expect_lt(sum(file.size(others)), 1e6)
})

test_that("rookery.so refuses the library of another version", {
  skip_on_os(c("windows", "mac", "solaris"))
  skip_if(Sys.which("cc") == "", "a C compiler")
  libs <- system.file("libs", package = "rookery", mustWork = TRUE)
  # The name contains the version, so that the library of another one is not used in its place.
  name <- sprintf("librookery-%s.so", utils::packageVersion("rookery"))
  expect_equal(list.files(file.path(libs, "core")), name)
  folder <- withr::local_tempdir()
  writeLines(
    c(
      "__attribute__((visibility(\"default\")))",
      "const char* rk_version(void) { return \"0.0.1\"; }"
    ),
    file.path(folder, "a.c")
  )
  made <- system2("cc", c(
    "-shared", "-fpic", paste0("-Wl,-soname,", name), "-o", shQuote(file.path(folder, name)),
    shQuote(file.path(folder, "a.c"))
  ))
  expect_equal(made, 0)
  it <- local_r(c(
    sprintf("invisible(dyn.load('%s', local = FALSE))", file.path(folder, name)),
    sprintf("dyn.load('%s', now = FALSE)", file.path(libs, "rookery.so"))
  ))
  expect_gt(exit_of(it), 0)
  expect_match(it$tell(), "has found the library of rookery 0.0.1 in its place: restart R")
})

test_that("a program without its library says what to do", {
  folder <- withr::local_tempdir()
  dir.create(file.path(folder, "exec"))
  copy <- file.path(folder, "exec", "rookery")
  file.copy(program(), copy)
  output <- bash("\"$program\" --version; echo status $?", copy)
  expect_match(output, "librookery-[0-9.]+[.]so", all = FALSE)
  expect_match(output, "rookery::install_cli()", fixed = TRUE, all = FALSE)
  expect_match(output, "status 1", all = FALSE)
})

test_that("a link to the program works, also one with a relative path", {
  folder <- withr::local_tempdir()
  file.symlink(program(), file.path(folder, "rookery"))
  output <- bash(sprintf("cd %s && ./rookery --version", shQuote(folder)))
  expect_match(output, "^rookery [0-9.]+$")
})

test_that("the program fails in order without a reader and without open streams", {
  # A program that SIGPIPE ends has the status 141.
  output <- bash("{ sleep 0.2; \"$program\" man; echo status $? >&2; } | true")
  expect_equal(output, "status 0")
  # Otherwise a socket could get the number of a standard stream.
  output <- bash("\"$program\" --version <&- >&- 2>/dev/null; echo status $?")
  expect_equal(output, "status 0")
})
