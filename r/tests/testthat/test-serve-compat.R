test_that("the compat package is in rookery's folder and not on the default library path", {
  expect_equal(compat_library(), system.file("compat", package = "rookery"))
  expect_true(is_compat(file.path(compat_library(), "httpuv")))
  expect_false(normalizePath(compat_library()) %in% normalizePath(.Library))
})

run_r <- function(text, ...) {
  file <- withr::local_tempfile(lines = text, fileext = ".R")
  libraries <- setdiff(.libPaths(), compat_library())
  processx::run(
    file.path(R.home("bin"), "Rscript"), c("--vanilla", file),
    error_on_status = FALSE, stderr_to_stdout = TRUE,
    env = c("current", R_LIBS = paste(libraries, collapse = .Platform$path.sep), R_TESTS = "", ...)
  )
}

test_that("use_compat() loads rookery's httpuv and changes no library", {
  skip_if_not_installed("processx")
  did <- run_r(c(
    "before <- list(.libPaths(), installed.packages()[, c('LibPath', 'Version')])",
    "found <- rookery::which_httpuv()",
    "library <- rookery::use_compat()",
    "after <- rookery::which_httpuv()",
    "stopifnot(found$kind != 'rookery', after$kind == 'rookery', after$loaded)",
    "stopifnot(after$path == file.path(library, 'httpuv'), as.character(after$version) >= '1.6.17')",
    "stopifnot(identical(httpuv::startServer, rookery::startServer))",
    "stopifnot(identical(httpuv:::unsafe_ports, rookery:::unsafe_ports))",
    "rookery::use_compat(quiet = TRUE)",
    "stopifnot(identical(list(.libPaths(), installed.packages()[, c('LibPath', 'Version')]), before))",
    # As if the httpuv of the libraries was loaded, for tools that record versions.
    "if (found$kind == 'httpuv') {",
    "  stopifnot(packageVersion('httpuv') == found$version, find.package('httpuv') == found$path)",
    "  suppressPackageStartupMessages(library(httpuv))",
    "  stopifnot(sessionInfo()$otherPkgs$httpuv$Version == found$version)",
    "  stopifnot(identical(startServer, rookery::startServer))",
    "}",
    "print(rookery::which_httpuv())"
  ))
  expect_equal(did$status, 0, info = did$stdout)
  expect_match(did$stdout, "put this line into .Rprofile: rookery::use_compat\\(quiet = TRUE\\)")
  expect_match(did$stdout, "This session uses rookery's httpuv 1\\.6\\.")
})

test_that("tools for deployment record the httpuv of the libraries", {
  skip_if_not_installed("processx")
  skip_if_not_installed("rsconnect")
  skip_if_not_installed("shiny")
  dir <- local_app(app.R = "shiny::shinyApp(shiny::fluidPage(), function(input, output) NULL)")
  did <- run_r(c(
    "found <- packageVersion('httpuv')",
    "rookery::use_compat(quiet = TRUE)",
    "loadNamespace('shiny')",
    sprintf("apps <- rsconnect::appDependencies('%s')", dir),
    "# Newer versions of rsconnect begin the names of the columns with capitals.",
    "names(apps) <- tolower(names(apps))",
    "cat('version', apps[apps$package == 'httpuv', 'version'] == found)"
  ))
  expect_match(did$stdout, "version TRUE")
})

test_that("serve() evaluates a Shiny app object with rookery's httpuv", {
  skip_if_not_installed("processx")
  skip_if_not_installed("shiny")
  call <- "rookery::serve(shiny::shinyApp(shiny::fluidPage('an object'), function(input, output) NULL), port = 0, log = FALSE)"
  # Without the libraries that this test has added.
  libraries <- setdiff(.libPaths(), rookery:::compat_library())
  it <- local_r(call, environment = c(R_LIBS = paste(libraries, collapse = .Platform$path.sep)))
  expect_match(fetch(expect_serving(it))$text, "an object")
})

test_that("serve() of an app that needs no httpuv leaves the session as it was", {
  skip_if_not_installed("processx")
  did <- run_r(c(
    "before <- list(.libPaths(), rookery::which_httpuv())",
    "app <- rookery:::with_compat(function(req) NULL)",
    "stopifnot(identical(list(.libPaths(), rookery::which_httpuv()), before))",
    "app <- rookery:::with_compat({ library(httpuv); list() })",
    "stopifnot(identical(.libPaths(), before[[1]]), identical(startServer, rookery::startServer))"
  ))
  expect_equal(did$status, 0, info = did$stdout)
})

test_that("use_compat() fails if another httpuv is loaded, and names the package that loaded it", {
  skip_if_not_installed("processx")
  skip_if_not_installed("shiny")
  own <- run_r("cat(length(find.package('httpuv', quiet = TRUE)))")
  skip_if(own$stdout == "0", "httpuv itself is not installed")
  did <- run_r(c("suppressMessages(library(shiny))", "rookery::use_compat()"))
  expect_equal(did$status, 1)
  expect_match(did$stdout, "httpuv [0-9.]+ from `[^`]+` is loaded already")
  expect_match(did$stdout, "used by .*shiny")
  expect_match(did$stdout, "Error: Start a new R session and call `rookery::use_compat\\(\\)` before")
  did <- run_r(c("loadNamespace('httpuv')", "rookery::use_compat()"))
  expect_equal(did$status, 1)
  expect_match(did$stdout, "loaded explicitly in this session")
  did <- run_r(c(
    "library(shiny)", "rookery::serve(shinyApp(1, function(input, output) 1), port = 0)"
  ))
  expect_equal(did$status, 1)
  # The message begins with what to write.
  expect_match(
    did$stdout,
    "Error: Start a new R session and call `rookery::use_compat\\(\\)` before .*`library\\(shiny\\)`"
  )
  expect_match(did$stdout, "give rookery::serve\\(\\) the path of the app")
})

# Runs R with a text as its .Rprofile, and then evaluates `text`.
run_with_profile <- function(profile, text, ...) {
  file <- withr::local_tempfile(lines = text, fileext = ".R")
  libraries <- setdiff(.libPaths(), compat_library())
  processx::run(
    file.path(R.home("bin"), "Rscript"), c("--no-environ", "--no-site-file", file),
    error_on_status = FALSE, stderr_to_stdout = TRUE,
    env = c(
      "current",
      R_PROFILE_USER = withr::local_tempfile(lines = profile),
      R_LIBS = paste(libraries, collapse = .Platform$path.sep), R_TESTS = "", ...
    )
  )
}

test_that("in .Rprofile, use_compat() loads rookery without the parts for servers", {
  skip_if_not_installed("processx")
  skip_if_not_installed("rlang")
  did <- run_with_profile(
    c(
      "before <- list(loadedNamespaces(), names(getLoadedDLLs()))",
      "rookery::use_compat(quiet = TRUE)",
      "cat('more:', setdiff(loadedNamespaces(), before[[1]]), '\\n')",
      "cat('shared:', setdiff(names(getLoadedDLLs()), before[[2]]), '\\n')"
    ),
    c(
      # Unused objects were not read from the package's database; R6's generators would be half of
      # it.
      "ns <- asNamespace('rookery')",
      "unread <- function(names) unname(rlang::env_binding_are_lazy(ns, names))",
      "classes <- c('WebSocket', 'WebServer', 'Server', 'AppWrapper', 'nullInputStream', 'stdErrStream', 'input_methods')",
      "stopifnot(unread(classes), !unread('compat_library'))",
      "stopifnot(rookery::which_httpuv()$kind == 'rookery', !'later' %in% loadedNamespaces())"
    )
  )
  expect_equal(did$status, 0, info = did$stdout)
  told <- function(what) {
    strsplit(trimws(sub(paste0("^.*", what, ":([^\n]*)\n.*$"), "\\1", did$stdout)), " +")[[1]]
  }
  expect_equal(told("more"), c("rookery", "httpuv"))
  expect_equal(told("shared"), "rookery")
})

test_that("in .Rprofile, use_compat() reads few files", {
  skip_if_not_installed("processx")
  skip_if(Sys.which("strace") == "", "strace is not installed")
  trace <- withr::local_tempfile()
  profile <- withr::local_tempfile(
    lines = c("cat('begins\\n')", "rookery::use_compat(quiet = TRUE)", "cat('ends\\n')")
  )
  libraries <- setdiff(.libPaths(), compat_library())
  did <- processx::run(
    "strace",
    c(
      "-f", "-o", trace, "-e", "trace=openat,write", file.path(R.home("bin"), "R"), "--no-environ",
      "--no-site-file", "-s", "-e", "1"
    ),
    error_on_status = FALSE,
    env = c(
      "current", R_PROFILE_USER = profile, R_LIBS = paste(libraries, collapse = .Platform$path.sep),
      R_TESTS = ""
    )
  )
  skip_if(did$status != 0, "strace may not trace here")
  lines <- readLines(trace, warn = FALSE)
  lines <- lines[seq(grep("begins", lines)[[1]], tail(grep("ends", lines), 1))]
  opened <- sub('^[^"]*"([^"]*)".*$', "\\1", grep("openat.*= [0-9]+$", lines, value = TRUE))
  packages <- opened[basename(dirname(dirname(opened))) != "base"]
  packages <- packages[grepl("/(Meta|R|libs)/[^/]*$", packages) & !startsWith(packages, R.home())]
  expect_gt(length(packages), 0)
  # The version of the installed httpuv is read as well.
  is_ours <- startsWith(packages, system.file(package = "rookery"))
  expect_true(all(is_ours | grepl("/httpuv/Meta/package[.]rds$", packages)), info = packages)
  expect_lt(length(packages), 40)
})

test_that("in .Rprofile, a use_compat() that is too late warns, and the rest is evaluated", {
  skip_if_not_installed("processx")
  own <- run_r("cat(length(find.package('httpuv', quiet = TRUE)))")
  skip_if(own$stdout == "0", "httpuv itself is not installed")
  late <- c("loadNamespace('httpuv')", "rookery::use_compat(quiet = TRUE)", "cat('the rest\\n')")
  did <- run_with_profile(late, "stopifnot(rookery::which_httpuv()$kind == 'httpuv')")
  expect_equal(did$status, 0, info = did$stdout)
  expect_match(did$stdout, "Warning.*httpuv [0-9.]+ from `[^`]+` is loaded already")
  expect_match(did$stdout, "the rest")
})

test_that("a project library with httpuv stays first, and packages use rookery's", {
  skip_if_not_installed("processx")
  # The project library comes first, as with renv, which is not needed here.
  project <- withr::local_tempdir()
  dir.create(file.path(project, "httpuv"))
  writeLines(c("Package: httpuv", "Version: 1.6.5"), file.path(project, "httpuv", "DESCRIPTION"))
  activate <- sprintf(".libPaths(c('%s', .libPaths()))", project)
  found <- "f <- rookery::which_httpuv(); cat('found', f$kind, as.character(f$version), '\\n')"
  expect_match(run_with_profile(activate, found)$stdout, "found httpuv 1.6.5")
  with_line <- run_with_profile(
    c(activate, "rookery::use_compat(quiet = TRUE)"),
    c(found, "httpuv::service(NA)", "cat('first', .libPaths()[[1]])")
  )
  expect_match(with_line$stdout, "found rookery 1.6.17")
  expect_match(with_line$stdout, paste("first", normalizePath(project)), fixed = TRUE)
  expect_equal(with_line$status, 0, info = with_line$stdout)
  # The package of renv.lock is unchanged, in case that the line is removed.
  expect_equal(list.files(file.path(project, "httpuv")), "DESCRIPTION")
  expect_match(run_with_profile(activate, found)$stdout, "found httpuv 1.6.5")
})

# Copies the installed rookery, without its httpuv, to a new library, and returns the library.
local_rookery <- function(env = parent.frame()) {
  home <- withr::local_tempdir(.local_envir = env)
  file.copy(system.file(package = "rookery"), home, recursive = TRUE)
  unlink(file.path(home, "rookery", "compat"), recursive = TRUE)
  normalizePath(home)
}

test_that("in .Rprofile, use_compat() starts no R process if rookery's httpuv is missing", {
  skip_if_not_installed("processx")
  home <- local_rookery()
  count <- withr::local_tempfile(lines = character())
  did <- run_with_profile(
    c(
      # Ends the recursion of the former version, in which each R process started the next one.
      sprintf("cat('x\\n', file = '%s', append = TRUE)", count),
      sprintf("if (length(readLines('%s')) > 3) quit('no', 1)", count),
      sprintf(".libPaths(c('%s', .libPaths()))", home), "rookery::use_compat(quiet = TRUE)"
    ),
    "cat('kind', rookery::which_httpuv()$kind)",
    R_USER_CACHE_DIR = withr::local_tempdir()
  )
  expect_equal(readLines(count), "x")
  expect_equal(did$status, 0, info = did$stdout)
  expect_match(did$stdout, "Warning.*rookery::install_compat\\(\\) installs it")
  expect_match(did$stdout, "kind (httpuv|none)$")
})

test_that("another httpuv in rookery's folder is not taken for rookery's", {
  skip_if_not_installed("processx")
  home <- local_rookery()
  inside <- file.path(home, "rookery", "compat")
  local_package("httpuv", "f <- function() 1", "f", imports = character())
  dir.create(inside)
  file.copy(file.path(.libPaths()[[1]], "httpuv"), inside, recursive = TRUE)
  load <- sprintf("invisible(loadNamespace('rookery', lib.loc = '%s'))", home)
  did <- run_r(
    c(load, "rookery::use_compat(quiet = TRUE)"), R_USER_CACHE_DIR = withr::local_tempdir()
  )
  expect_equal(did$status, 1)
  expect_match(did$stdout, "rookery::install_compat\\(\\) installs it")
  # Nor is one that was loaded from there, as by a library path of an earlier version.
  did <- run_r(c(
    load, sprintf("invisible(loadNamespace('httpuv', lib.loc = '%s'))", inside),
    "cat('kind', rookery::which_httpuv()$kind)"
  ))
  expect_match(did$stdout, "kind httpuv$")
})

test_that("R CMD INSTALL of a package named httpuv works with use_compat() in .Rprofile", {
  skip_if_not_installed("processx")
  source <- local_app(
    DESCRIPTION = c(
      "Package: httpuv", "Version: 2.0", "Title: T", "Description: D.", "License: MIT",
      "Author: A", "Maintainer: A <a@example.org>"
    ),
    NAMESPACE = "export(f)", "R/f.R" = "f <- function() 1"
  )
  library <- withr::local_tempdir()
  did <- processx::run(
    file.path(R.home("bin"), "R"),
    c("CMD", "INSTALL", "--no-test-load", "--no-docs", "-l", library, source),
    error_on_status = FALSE, stderr_to_stdout = TRUE,
    env = c(
      "current", R_TESTS = "",
      R_PROFILE_USER = withr::local_tempfile(lines = c(
        # R CMD INSTALL leaves out libraries of R_LIBS.
        sprintf(
          ".libPaths(c(%s, .libPaths()))",
          paste0("'", setdiff(.libPaths(), compat_library()), "'", collapse = ", ")
        ),
        "rookery::use_compat(quiet = TRUE)"
      ))
    )
  )
  expect_equal(did$status, 0, info = did$stdout)
  expect_equal(version_of(file.path(library, "httpuv")), "2.0")
})

test_that("install_compat() without a file installs the httpuv that rookery contains", {
  skip_if_not_installed("processx")
  skip_if_not(
    dir.exists(system.file("compat-src", package = "rookery")), "rookery's httpuv is not installed"
  )
  home <- local_rookery()
  did <- run_r(c(
    sprintf(".libPaths(c('%s', .libPaths()))", home), "cat(rookery::install_compat(), '\\n')",
    "rookery::use_compat(quiet = TRUE)", "cat(rookery::which_httpuv()$kind)"
  ), R_PROFILE_USER = withr::local_tempfile(lines = "stop('a profile')"))
  expect_match(did$stdout, paste0(home, "/rookery/compat"), fixed = TRUE)
  expect_match(did$stdout, "rookery$")
})

# An app that responds with what an R process of its own, and its R processes, use.
libraries_app <- c(
  "child <- callr::r(function() list(.libPaths(), requireNamespace('later', quietly = TRUE)))",
  "own <- rookery::which_httpuv()$kind",
  "function(req) {",
  "  lines <- c(own, child[[2]], .libPaths(), '--', child[[1]])",
  "  list(status = 200L, headers = list(), body = paste(lines, collapse = '\\n'))",
  "}"
)

test_that("the R process of a path uses rookery's httpuv and the libraries of the app", {
  skip_if_not_installed("processx")
  skip_if_not_installed("callr")
  project <- normalizePath(withr::local_tempdir())
  dir <- local_app(
    app.R = libraries_app, .Rprofile = sprintf(".libPaths(c('%s', .libPaths()))", project)
  )
  libraries <- c(R_LIBS = paste(setdiff(.libPaths(), compat_library()), collapse = .Platform$path.sep))
  from_r <- sprintf("rookery::serve('%s', port = 0, log = FALSE)", dir)
  for (it in list(
    local_r(from_r, environment = libraries),
    local_cli("serve", dir, "--port", "0", "--log", "none", environment = libraries)
  )) {
    lines <- strsplit(fetch(expect_serving(it))$text, "\n")[[1]]
    expect_equal(lines[1:3], c("rookery", "TRUE", project))
    both <- split(lines[-(1:2)], cumsum(lines[-(1:2)] == "--"))
    expect_equal(setdiff(both[[2]], "--"), both[[1]])
    expect_false(any(grepl("/compat$", lines)))
  }
})

test_that("an app whose .Rprofile loads another httpuv gets an error that names the line", {
  skip_if_not_installed("processx")
  skip_if_not_installed("shiny")
  own <- run_r("cat(length(find.package('httpuv', quiet = TRUE)))")
  skip_if(own$stdout == "0", "httpuv itself is not installed")
  dir <- local_app(
    app.R = "shiny::shinyApp(1, function(input, output) 1)", .Rprofile = "loadNamespace('httpuv')"
  )
  libraries <- c(R_LIBS = paste(setdiff(.libPaths(), compat_library()), collapse = .Platform$path.sep))
  it <- local_cli("serve", dir, "--port", "0", "--restart", "never", environment = libraries)
  expect_gt(exit_of(it), 0)
  expect_match(it$tell(), "Put `rookery::use_compat\\(quiet = TRUE\\)` into .Rprofile before the line")
})

test_that("a build without httpuv says how to install it, and install_compat() does so", {
  skip_if_not_installed("processx")
  skip_if_not(
    dir.exists(system.file("compat-src", package = "rookery")), "rookery's httpuv is not installed"
  )
  home <- local_rookery()
  copy <- file.path(home, "rookery")
  source <- withr::local_tempdir()
  file.copy(file.path(copy, "compat-src", "httpuv"), source, recursive = TRUE)
  unlink(file.path(copy, "compat-src"), recursive = TRUE)
  withr::with_dir(source, {
    utils::tar("rookerys.tar.gz", "httpuv", compression = "gzip")
    description <- file.path("httpuv", "DESCRIPTION")
    lines <- readLines(description)
    writeLines(lines[!grepl("^Config/rookery", lines)], description)
    utils::tar("another.tar.gz", "httpuv", compression = "gzip")
  })
  run_without <- function(...) {
    run_r(c(
      sprintf(".libPaths(c('%s', .libPaths()))", home),
      sprintf("invisible(loadNamespace('rookery', lib.loc = '%s'))", home), ...
    ))
  }
  did <- run_without("rookery::use_compat(quiet = TRUE)")
  expect_equal(did$status, 1)
  expect_match(did$stdout, "from the files of rookery's release [0-9.]+, and install it with")
  expect_match(did$stdout, "rookery::install_compat\\(\"httpuv_1[.]6[.]17[.]1[.]tar[.]gz\"\\)")
  another <- file.path(source, "another.tar.gz")
  did <- run_without(sprintf("rookery::install_compat('%s')", another))
  expect_equal(did$status, 1)
  expect_match(did$stdout, "is not the source package of rookery's httpuv")
  did <- run_without(
    sprintf("rookery::install_compat('file://%s')", file.path(source, "rookerys.tar.gz")),
    "rookery::use_compat(quiet = TRUE)",
    "cat(rookery::which_httpuv()$kind, is.function(httpuv::startServer))"
  )
  expect_equal(did$status, 0, info = did$stdout)
  expect_match(did$stdout, "rookery TRUE")
  expect_true(is_compat(file.path(copy, "compat", "httpuv")))
})

test_that("a session without httpuv is reported as such", {
  text <- format(new_which("none", NA, NA, FALSE))
  expect_match(text, "No httpuv is installed")
})
