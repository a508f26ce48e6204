# The routes of plumber, by which requests are counted.

# Makes each endpoint of a router set `req$ROUTE` to its path, such as `/users/<id>`, with the path
# that the router is mounted at. Endpoints that are added later are counted by the first segment of
# the request's path.
report_plumber_routes <- function(router, prefix = "", depth = 0) {
  for (endpoint in unlist(router$endpoints, recursive = FALSE)) {
    if (inherits(endpoint, "PlumberStep") && is.null(attr(endpoint, "rookery_route"))) {
      route <- paste0(prefix, endpoint$path)
      endpoint$registerHook("preexec", route_hook(route))
      attr(endpoint, "rookery_route") <- route
    }
  }
  for (path in names(router$mounts)) {
    mount <- router$mounts[[path]]
    # A mounted folder of files has no endpoints. The depth limit also ends the recursion for a
    # router that is mounted below itself.
    if (inherits(mount, "Plumber") && depth < 20) {
      report_plumber_routes(mount, paste0(prefix, sub("/$", "", path)), depth + 1)
    }
  }
}

route_hook <- function(route) {
  force(route)
  function(req) {
    assign("ROUTE", route, envir = req)
  }
}
