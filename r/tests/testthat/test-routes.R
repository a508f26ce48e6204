# Requests are counted by the route that the app sets as `req$ROUTE`.

skip_if_not_installed("processx")
skip_if_not_installed("curl")
skip_if_not_installed("jsonlite")
skip_on_os(c("mac", "solaris"))

routes_app <- c(
  "reply <- function(status = 200L) list(status = status, headers = list(), body = 'x')",
  "list(call = function(req) {",
  "  switch(req$PATH_INFO,",
  "    '/set' = { req$ROUTE <- '/<set>?token=1'; reply() },",
  "    '/fails' = { req$ROUTE <- '/<fails>'; stop('no') },",
  "    '/async' = {",
  "      req$ROUTE <- '/<async>'",
  "      promises::promise(function(resolve, reject) later::later(function() resolve(reply()), 0.05))",
  "    },",
  "    '/number' = { req$ROUTE <- 1; reply() },",
  "    '/missing' = { req$ROUTE <- NA_character_; reply() },",
  "    '/active' = { makeActiveBinding('ROUTE', function() stop('active'), req); reply() },",
  "    '/bytes' = { r <- '/\\xff'; Encoding(r) <- 'bytes'; req$ROUTE <- r; reply() },",
  "    '/long' = { req$ROUTE <- paste0('/', strrep('x', 300)); reply() },",
  "    reply()",
  "  )",
  "},",
  "onHeaders = function(req) {",
  "  if (req$PATH_INFO != '/upload') return(NULL)",
  "  req$ROUTE <- '/<upload>'",
  "  rookery::receive_body(function(bytes) NULL, function() reply())",
  "})"
)

# Returns the requests and errors of each route, once `count` requests are counted.
routes_of <- function(admin, count) {
  routes <- NULL
  wait_until(function() {
    status <- jsonlite::fromJSON(rawToChar(admin()$content), simplifyVector = FALSE)
    routes <<- vapply(
      status$routes, function(it) paste(it$route, it$requests, it$errors), ""
    )
    sum(vapply(status$routes, function(it) it$requests, 0)) == count
  })
  routes
}

test_that("an app sets the route of a request", {
  dir <- local_app("app.R" = routes_app)
  socket <- withr::local_tempfile(pattern = "a", tmpdir = "/tmp")
  it <- local_r(
    sprintf("rookery::serve('%s', port = 0, log = FALSE, admin = 'unix:%s')", dir, socket)
  )
  url <- sub(" .*", "", expect_serving(it))
  paths <- c(
    "/set", "/set?x=1", "/fails", "/async", "/number", "/missing", "/bytes", "/long", "/users/1",
    "/users/2", "/upload"
  )
  for (path in paths) fetch(paste0(url, path))
  # With a body, which R receives in chunks.
  expect_equal(fetch(paste0(url, "/upload"), postfields = "body")$status_code, 200L)
  admin <- function() fetch("http://localhost/status", path = socket)
  expect_setequal(routes_of(admin, length(paths) + 1), c(
    "/<set> 2 0", "/<fails> 1 1", "/<async> 1 0", "/number 1 0", "/missing 1 0",
    "/bytes 1 0", paste0("/", strrep("x", 119), " 1 0"), "/users 2 0", "/<upload> 2 0"
  ))
  # An active binding that fails is an error of the app.
  expect_equal(fetch(paste0(url, "/active"))$status_code, 500L)
  expect_equal(fetch(paste0(url, "/"))$status_code, 200L)
})

test_that("serve() knows the routes of plumber, also behind a supervisor", {
  skip_if_not_installed("plumber")
  api <- c(
    "#* @get /users/<id:int>",
    "function(id) id",
    "#* @get /fails",
    "function() stop('no')",
    "#* @plumber",
    "function(pr) {",
    "  below <- plumber::pr_get(plumber::pr(), '/inner/<x>', function(x) x)",
    "  plumber::pr_mount(pr, '/below', below)",
    "}"
  )
  for (workers in c("1", "2")) {
    socket <- withr::local_tempfile(pattern = "a", tmpdir = "/tmp")
    it <- local_cli(
      "serve", local_app("plumber.R" = api), "--port", "0", "--workers", workers, "--admin",
      paste0("unix:", socket)
    )
    url <- expect_serving(it)
    for (path in c("/users/1", "/users/2", "/fails", "/below/inner/1", "/none")) {
      fetch(paste0(url, path))
    }
    admin <- function() fetch("http://localhost/status", path = socket)
    expect_setequal(
      routes_of(admin, 5),
      c("/users/<id:int> 2 0", "/fails 1 1", "/below/inner/<x> 1 0", "other 1 0")
    )
  }
})

test_that("a plumber router that is mounted twice has no routes of its own", {
  skip_if_not_installed("plumber")
  once <- plumber::pr_get(plumber::pr(), "/x", function() 1)
  twice <- plumber::pr_get(plumber::pr(), "/y/<id>", function(id) 1)
  router <- plumber::pr_get(plumber::pr(), "/", function() 1)
  plumber::pr_mount(router, "/once", once)
  for (path in c("/v1", "/v2")) plumber::pr_mount(router, path, twice)
  for (round in 1:2) report_plumber_routes(router)
  route_of <- function(router) attr(router$endpoints[[1]][[1]], "rookery_route")
  expect_equal(route_of(router), "/")
  expect_equal(route_of(once), "/once/x")
  expect_null(route_of(twice))
  req <- new.env()
  once$endpoints[[1]][[1]]$exec(req, list())
  expect_equal(req$ROUTE, "/once/x")
})

# A double of a plumber2 API with the public functions of package routr: one route with handlers
# by method and path. `refuses` is a path whose handler cannot be replaced.
double_api <- function(handlers, root = "", refuses = "") {
  route <- new.env()
  route$root <- root
  route$handlers <- handlers
  route$add_handler <- function(method, path, handler, reject_missing_methods = FALSE) {
    if (path == refuses && !is.null(attr(handler, "rookery_route"))) stop("refused")
    stopifnot(all(c("request", "response", "keys", "...") %in% names(formals(handler))))
    route$handlers[[method]][[path]] <- handler
  }
  route$remap_handlers <- function(.f) {
    old <- route$handlers
    route$handlers <- list()
    for (method in names(old)) {
      for (path in names(old[[method]])) {
        .f(method = method, path = path, handler = old[[method]][[path]])
      }
    }
  }
  router <- list(routes = "default", get_route = function(name) route)
  structure(list(request_router = router, route = route), class = c("Plumber2", "Fire"))
}

test_that("the handlers of a plumber2 API set the route of a request", {
  handler <- structure(
    function(request, response, keys, ...) list(keys, ...), doc = "documented"
  )
  api <- double_api(
    list(get = list("/users/:id/x" = handler, "/*" = handler), all = list("/fixed" = handler)),
    root = "^/v1", refuses = "/fixed"
  )
  for (round in 1:2) report_plumber2_routes(api)
  handlers <- api$route$handlers
  call <- function(handler, origin = new.env()) {
    expect_equal(handler(list(origin = origin), NULL, "key", server = 1), list("key", server = 1))
    origin$ROUTE
  }
  expect_equal(call(handlers$get[["/users/:id/x"]]), "/v1/users/<id>/x")
  expect_equal(attr(handlers$get[["/users/:id/x"]], "doc"), "documented")
  # A handler that cannot be replaced stays.
  expect_identical(handlers$all[["/fixed"]], handler)
  api <- double_api(list(all = list("/*" = handler)))
  report_plumber2_routes(api)
  origin <- new.env()
  expect_equal(call(api$route$handlers$all[["/*"]], origin), "/*")
  origin$ROUTE <- "/users/<id>"
  expect_equal(call(api$route$handlers$all[["/*"]], origin), "/users/<id>")
  expect_equal(handler(list(origin = NULL), NULL, 1), list(1))
})

test_that("Server-Timing has the times in R if it is turned on", {
  withr::local_options(rookery.server_timing = TRUE)
  server <- local_server(function(req) {
    Sys.sleep(0.02)
    ok("hello")
  })
  client <- local_client(server)
  headers <- get(client, "/")$headers
  timing <- unlist(headers[names(headers) == "server-timing"])
  expect_match(timing, "^render;dur=[0-9.]+$", all = FALSE)
  expect_match(timing, "^queue;dur=[0-9.]+, r;dur=[0-9.]+$", all = FALSE)
  expect_gte(as.numeric(sub(".*r;dur=", "", timing[[length(timing)]])), 20)
})
