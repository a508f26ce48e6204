# The installation of rookery's httpuv (R/install-compat.R) and of the files of the package
# (src/install.libs.R).

# Writes the source of a package with the name and version, and returns its folder.
compat_source <- function(version, code = "f <- function() 1", env = parent.frame()) {
  source <- file.path(withr::local_tempdir(.local_envir = env), "httpuv")
  dir.create(file.path(source, "R"), recursive = TRUE)
  writeLines(
    c(
      "Package: httpuv", paste("Version:", version), "Title: A Package", "License: MIT",
      "Description: A package.", "Author: A", "Maintainer: A <a@example.com>",
      "Imports: rookery, stats"
    ),
    file.path(source, "DESCRIPTION")
  )
  writeLines(c("import(rookery)", "export(f)"), file.path(source, "NAMESPACE"))
  writeLines(code, file.path(source, "R", "f.R"))
  source
}

test_that("another version of httpuv takes the place of the former one, which a failure keeps", {
  library <- file.path(withr::local_tempdir(), "compat")
  for (version in c("1.0", "1.1", "1.1", "1.0")) {
    expect_null(build_compat(compat_source(version), library))
    expect_equal(version_of(file.path(library, "httpuv")), version)
  }
  expect_match(build_compat(compat_source("2.0", "f <- function("), library), "not be installed")
  expect_equal(version_of(file.path(library, "httpuv")), "1.0")
  expect_equal(list.files(library), "httpuv")
  expect_equal(list.files(dirname(library)), "compat")
})

test_that("an installation replaces the files of running processes and does not overwrite them", {
  script <- test_path("..", "..", "src", "install.libs.R")
  skip_if_not(file.exists(script), "the source of the package")
  script <- normalizePath(script)
  package <- withr::local_tempdir()
  withr::local_envvar(ROOKERY_COMPAT = "no")
  install <- function(text) {
    withr::local_dir(withr::local_tempdir())
    dir.create("core")
    for (file in c("rookery.so", "core/librookery-1.0.so", "rookery")) writeLines(text, file)
    scope <- list2env(list(
      R_PACKAGE_DIR = package, R_ARCH = "", SHLIB_EXT = ".so", WINDOWS = FALSE,
      R_PACKAGE_SOURCE = "."
    ))
    suppressMessages(sys.source(script, scope))
  }
  files <- file.path(package, c("libs/rookery.so", "libs/core/librookery-1.0.so", "exec/rookery"))
  install("former")
  # A connection stands for a process that has the file in its memory.
  opened <- lapply(files, file, open = "r")
  install("new")
  expect_equal(vapply(opened, readLines, ""), rep("former", 3))
  expect_equal(vapply(files, readLines, "", USE.NAMES = FALSE), rep("new", 3))
  for (connection in opened) close(connection)
})
