# As httpuv 1.6.17 has them: those of 1.6.9, and as.staticPath and runStaticServer.
exported <- c(
  "WebSocket", "as.staticPath", "decodeURI", "decodeURIComponent", "encodeURI", "encodeURIComponent",
  "excludeStaticPath", "getRNGState", "interrupt", "ipFamily", "listServers", "randomPort", "rawToBase64", "runServer",
  "runStaticServer", "service", "startDaemonizedServer", "startPipeServer", "startServer", "staticPath",
  "staticPathOptions", "stopAllServers", "stopDaemonizedServer", "stopServer"
)

test_that("the exports are those of httpuv, and are rookery's objects", {
  expect_setequal(getNamespaceExports("httpuv"), exported)
  for (name in exported) {
    expect_identical(getExportedValue("httpuv", name), getExportedValue("rookery", name))
  }
})

test_that("internal names can be used with `:::`, and are rookery's objects", {
  for (name in c(httpuv:::internal_names, exported)) {
    expect_identical(
      get(name, envir = asNamespace("httpuv"), inherits = FALSE),
      get(name, envir = asNamespace("rookery"), inherits = FALSE)
    )
  }
  expect_identical(httpuv:::.globals, asNamespace("rookery")$.globals)
  expect_type(asNamespace("httpuv")[["unsafe_ports"]], "double")
})

test_that("the version is that of the replaced httpuv, also in requests", {
  expect_identical(httpuv:::httpuv_version(), packageVersion("httpuv"))
})

test_that("classes can be inherited from", {
  # As package livecode does.
  Live <- R6::R6Class(
    "Live",
    inherit = httpuv:::WebServer,
    public = list(
      initialize = function(host, port) {
        super$initialize(host, port, list(call = function(req) NULL))
      },
      connections = function() {
        names(private$appWrapper$.__enclos_env__$private$wsconns)
      }
    )
  )
  live <- Live$new("127.0.0.1", 0)
  expect_identical(class(live), c("Live", "WebServer", "Server", "R6"))
  expect_true(live$isRunning())
  expect_identical(live$connections(), character(0))
  expect_identical(httpuv::listServers(), list(live))
  live$stop()
  expect_identical(httpuv::listServers(), list())
})

test_that("running servers are registered in rookery", {
  server <- httpuv::startServer("127.0.0.1", 0, list())
  expect_identical(rookery::listServers(), list(server))
  expect_identical(httpuv:::.globals$servers, list(server))
  httpuv::stopAllServers()
  expect_false(server$isRunning())
})

test_that("rookCall() calls an app without a server", {
  req <- list2env(list(REQUEST_METHOD = "GET"), parent = emptyenv())
  response <- httpuv:::rookCall(function(req) list(status = 200L, headers = list(), body = "ok"), req)
  expect_identical(response$body, "ok")
})

test_that("methods are found for static paths", {
  path <- httpuv::as.staticPath(tempdir())
  expect_s3_class(path, "staticPath")
  expect_match(format(path), "<staticPath>", fixed = TRUE)
  expect_match(format(httpuv::staticPathOptions()), "<staticPathOptions>", fixed = TRUE)
})

test_that("the example site exists", {
  site <- system.file("example-static-site", package = "httpuv")
  expect_true(all(file.exists(file.path(site, c("index.html", "office.html")))))
})
