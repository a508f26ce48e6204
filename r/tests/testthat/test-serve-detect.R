kind_of <- function(...) detect_target(local_app(...))$kind

test_that("folders are detected by their files", {
  expect_equal(kind_of(app.R = "library(shiny)\nshinyApp(ui, server)"), "shiny")
  expect_equal(kind_of(server.R = "function(input, output) NULL", ui.R = "fluidPage()"), "shiny")
  expect_equal(kind_of(plumber.R = "#* @get /\nfunction() 1"), "plumber")
  expect_equal(kind_of(entrypoint.R = "plumber::pr()", plumber.R = "#* @get /"), "plumber")
  expect_equal(
    detect_target(local_app(entrypoint.R = "1", plumber.R = "1"))$label,
    "plumber API (entrypoint.R)"
  )
  expect_equal(
    kind_of(index.Rmd = c("---", "title: x", "runtime: shiny", "---", "text")), "rmarkdown"
  )
  expect_equal(kind_of(app.R = "function(req) list(status = 200L)"), "script")
})

test_that("_server.yml takes precedence, and names an engine", {
  found <- detect_target(local_app(
    "_server.yml" = c("engine: plumber2", "routes: api"), app.R = "shinyApp()"
  ))
  expect_equal(found$kind, "engine")
  expect_equal(found$engine, "plumber2")
  expect_equal(
    detect_target(local_app("_server.yml" = "engine: 'fiery' # a package"))$engine, "fiery"
  )
  expect_error(
    detect_target(local_app("_server.yml" = "routes: api")), "there is no `engine:`",
    class = "rookery_bad_setting"
  )
  expect_error(
    detect_target(local_app("_server.yml" = "engine: a; b")), class = "rookery_bad_setting"
  )
})

test_that("files are detected by their contents", {
  dir <- local_app(
    "api.R" = c("# an API", "#* @apiTitle x", "", "#* @post /a", "function() 1"),
    "old.R" = "#' @get /\nfunction() 1",
    "my.R" = "ui <- 1\nshiny::shinyApp(ui, function(input, output) 1)",
    "any.R" = "list(call = function(req) NULL)",
    "quoted.R" = "x <- '#* @get is not an annotation'\nfunction(req) x",
    "doc.Rmd" = c("---", "output: html_document", "runtime: shiny_prerendered", "---")
  )
  kind <- function(name) detect_target(file.path(dir, name))$kind
  expect_equal(kind("api.R"), "plumber")
  expect_equal(kind("old.R"), "plumber")
  expect_equal(kind("my.R"), "shiny")
  expect_equal(kind("any.R"), "script")
  expect_equal(kind("quoted.R"), "script")
  expect_equal(kind("doc.Rmd"), "rmarkdown")
  expect_equal(detect_target(file.path(dir, "my.R"))$dir, dir)
})

test_that("the error for an unknown kind lists what was searched", {
  dir <- local_app(
    "notes.txt" = "hello", "plain.Rmd" = c("---", "title: x", "---"), "empty.R" = "# nothing"
  )
  expect_error(
    detect_target(dir), "it has no file that can be served.*app\\.R.*plumber\\.R",
    class = "rookery_bad_target"
  )
  expect_error(
    detect_target(file.path(dir, "notes.txt")), "extension .txt are not", class = "rookery_bad_target"
  )
  expect_error(
    detect_target(file.path(dir, "plain.Rmd")), "no `runtime: shiny`", class = "rookery_bad_target"
  )
  expect_error(
    detect_target(file.path(dir, "empty.R")), "has no code", class = "rookery_bad_target"
  )
  expect_error(
    detect_target(withr::local_tempdir()), "the folder is empty", class = "rookery_bad_target"
  )
  writeLines("x <- (", file.path(dir, "broken.R"))
  expect_error(
    detect_target(file.path(dir, "broken.R")), "is not valid R:\nbroken\\.R:2:0: ",
    class = "rookery_bad_target"
  )
  writeBin(as.raw(c(0x31, 0x0A, 0x22, 0xE9, 0x22, 0x0A)), file.path(dir, "latin1.R"))
  expect_error(
    detect_target(file.path(dir, "latin1.R")),
    "is not in UTF-8, see line 2\\. Save it .* `iconv -f LATIN1 -t UTF-8 latin1\\.R > new\\.R`",
    class = "rookery_bad_target"
  )
  shiny <- c("---", "runtime: shiny", "---")
  expect_error(
    detect_target(local_app("a.Rmd" = shiny, "b.Rmd" = shiny)),
    "several documents.*a\\.Rmd.*b\\.Rmd",
    class = "rookery_bad_target"
  )
  expect_equal(
    basename(detect_target(local_app("a.Rmd" = shiny, "index.Rmd" = shiny))$path), "index.Rmd"
  )
})

test_that("the error for a symbolic link that leads nowhere names its destination", {
  skip_on_os("windows")
  dir <- withr::local_tempdir()
  link <- file.path(dir, "current")
  file.symlink("releases/7", link)
  for (path in c(link, file.path(link, "app.R"))) {
    expect_error(
      detect_target(path),
      paste0("`", link, "` is a symbolic link to `releases/7` (", dir, "/releases/7), where there"),
      fixed = TRUE, class = "rookery_no_target"
    )
  }
})

test_that("the error for a missing path names the folder and similar names", {
  dir <- local_app("shiny-app/app.R" = "shinyApp()")
  withr::local_dir(dir)
  expect_error(
    detect_target("shinyapp"), "does not exist \\(looked in .*Did you mean `shiny-app`",
    class = "rookery_no_target"
  )
  expect_error(
    detect_target(file.path(dir, "shiny-ap")), paste0("Did you mean `", dir, "/shiny-app`"),
    class = "rookery_no_target"
  )
  error <- tryCatch(detect_target("something/else"), error = identity)
  expect_s3_class(error, "rookery_no_target")
  expect_no_match(conditionMessage(error), "Did you mean")
  expect_error(detect_target(c("a", "b")), "as one string", class = "rookery_bad_target")
  expect_error(detect_target(NA_character_), "as one string", class = "rookery_bad_target")
})

test_that("objects are detected by their class", {
  expect_equal(detect_object(function(req) 1)$kind, "app")
  expect_equal(detect_object(list(call = function(req) 1))$kind, "app")
  expect_equal(detect_object(list2env(list(call = function(req) 1)))$kind, "app")
  expect_equal(detect_object(list(onWSOpen = function(ws) 1))$kind, "app")
  expect_equal(
    detect_object(R6::R6Class("App", public = list(call = function(req) 1))$new())$kind, "app"
  )
  expect_equal(detect_object(structure(list(), class = "shiny.appobj"))$kind, "shiny")
  expect_equal(detect_object(structure(list(), class = c("Plumber", "R6")))$kind, "plumber")
  expect_null(detect_object(1))
  expect_null(detect_object(list(call = "no function")))
  expect_null(detect_object(list(callback = function(req) 1)))
  expect_null(detect_object(NULL))
  expect_error(
    serve(42, port = 0), "class numeric cannot be served.*These can be served",
    class = "rookery_bad_target"
  )
})

test_that("YAML is parsed, and settings of other programs are ignored", {
  skip_if_not_installed("yaml")
  engine <- function(...) detect_target(local_app("_server.yml" = c(...)))$engine
  expect_equal(engine("{engine: rookery, app: app.R}"), "rookery")
  expect_equal(engine("database:", "  engine: postgres", "engine: plumber2"), "plumber2")
  expect_equal(engine("note: |", "  engine: postgres", "engine:", "  plumber2"), "plumber2")
  expect_error(
    engine("database: x", "engine: rookery"), "`database:` is not a key",
    class = "rookery_bad_setting"
  )
  expect_error(
    engine("database:", "  engine: postgres"), "there is no `engine:`",
    class = "rookery_bad_setting"
  )
  # Names are not matched partially.
  expect_error(engine("engines: rookery"), "there is no `engine:`", class = "rookery_bad_setting")
  expect_error(engine("a: [1"), "is not valid YAML", class = "rookery_bad_setting")
  # The file is not evaluated.
  expect_error(
    engine("engine: !expr stop('evaluated')"), "is not supported", class = "rookery_bad_setting"
  )
  document <- function(...) {
    is_shiny_document(file.path(local_app(a.Rmd = c("---", ..., "---", "text")), "a.Rmd"))
  }
  expect_true(document("title: x", "runtime: 'shiny'"))
  expect_true(document("server: shiny"))
  expect_true(document("server:", "  type: shiny"))
  expect_false(document("output:", "  runtime: shiny"))
  expect_false(document("title: runtime with shiny"))
  expect_false(document("title: x"))
})

test_that("launch_server() uses host and port of `options:`, and arguments take precedence", {
  skip_if_not_installed("yaml")
  launch <- function(..., host = NULL, port = NULL) {
    dir <- local_app(
      "_server.yml" = c("engine: rookery", ...), "app.R" = "list(call = function(req) NULL)"
    )
    asked <- settings_read(file.path(dir, "_server.yml"), list(host = host, port = port))
    c(asked$address$host, asked$address$port, basename(asked$found$path))
  }
  expect_equal(launch("app: app.R"), c("127.0.0.1", "8000", "app.R"))
  expect_equal(
    launch("app: app.R", "options:", "  port: 8123", "  host: 0.0.0.0"),
    c("0.0.0.0", "8123", "app.R")
  )
  expect_equal(
    launch("app: 'app.R' # ours", "options: {host: '::1', port: 8124}"), c("::1", "8124", "app.R")
  )
  expect_equal(
    launch("app: app.R", "options: {port: 8123}", port = 9000), c("127.0.0.1", "9000", "app.R")
  )
  expect_error(
    launch("app: app.R", "options: {host: db.example.org}"),
    "`host` must be \"localhost\" or an IP address"
  )
  expect_error(
    launch("app: app.R", "options: {port: many}"),
    "`port:` must be a whole number from 0 to 65535, not `many`"
  )
  expect_error(launch("app: app.R", "options: 8000"), "`options:` must have fields")
  expect_error(launch("app: [a, b]"), "`app:` must be the path of a file or folder")
})
