# The routes of plumber, by which requests are counted.

# Makes each endpoint of a router set `req$ROUTE` to its path, such as `/users/<id>`, with the path
# that the router is mounted at. Endpoints that are added later are counted by the first segment of
# the request's path. So are those of a router that is mounted at several paths, because plumber does
# not tell an endpoint which of them a request has.
report_plumber_routes <- function(router) {
  found <- plumber_routes(router)
  endpoints <- lapply(found, `[[`, "endpoint")
  for (endpoint in unique(endpoints)) {
    is_same <- vapply(endpoints, identical, NA, endpoint)
    routes <- unique(vapply(found[is_same], `[[`, "", "route"))
    if (length(routes) == 1 && is.null(attr(endpoint, "rookery_route"))) {
      endpoint$registerHook("preexec", route_hook(routes))
      attr(endpoint, "rookery_route") <- routes
    }
  }
}

# Returns the endpoints of a router and of those that are mounted in it, each with its route.
plumber_routes <- function(router, prefix = "", depth = 0) {
  found <- list()
  for (endpoint in unlist(router$endpoints, recursive = FALSE)) {
    if (inherits(endpoint, "PlumberStep")) {
      route <- paste0(prefix, endpoint$path)
      found <- c(found, list(list(endpoint = endpoint, route = route)))
    }
  }
  for (path in names(router$mounts)) {
    mount <- router$mounts[[path]]
    # A mounted folder of files has no endpoints. The depth limit also ends the recursion for a
    # router that is mounted below itself.
    if (inherits(mount, "Plumber") && depth < 20) {
      found <- c(found, plumber_routes(mount, paste0(prefix, sub("/$", "", path)), depth + 1))
    }
  }
  found
}

route_hook <- function(route) {
  force(route)
  function(req) {
    assign("ROUTE", route, envir = req)
  }
}
