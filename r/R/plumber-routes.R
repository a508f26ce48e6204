# The routes of plumber and plumber2, by which requests are counted.

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

# ---- plumber2 ----

# Makes each handler of a plumber2 API set `req$ROUTE` to its path, such as `/users/<id>`. Only the
# public functions of package routr are used, on which plumber2 is based.
report_plumber2_routes <- function(api) {
  router <- api$request_router
  for (name in router$routes) {
    wrap_handlers(router$get_route(name))
  }
}

# Replaces the handlers of a route by ones that set `req$ROUTE`.
wrap_handlers <- function(route) {
  # In some versions of routr, the root is a regular expression.
  prefix <- sub("/$", "", sub("^[\\^]", "", paste0(route$root)))
  route$remap_handlers(function(method, path, handler) {
    pattern <- plumber2_pattern(paste0(prefix, path))
    # A handler that is not added again is lost.
    tryCatch(
      route$add_handler(method, path, with_route(handler, pattern)),
      error = function(error) route$add_handler(method, path, handler)
    )
  })
}

# Returns a path of routr in the form of plumber, such as `/users/<id>` for `/users/:id`.
plumber2_pattern <- function(path) {
  gsub("/:([^/]+)", "/<\\1>", path)
}

with_route <- function(handler, route) {
  if (!is.null(attr(handler, "rookery_route"))) {
    return(handler)
  }
  wrapped <- function(request, response, keys, ...) {
    origin <- request$origin
    # A path that matches everything belongs to a filter, or comes after the handler of the request.
    if (is.environment(origin) && (route != "/*" || !exists("ROUTE", origin, inherits = FALSE))) {
      assign("ROUTE", route, envir = origin)
    }
    handler(request, response, keys, ...)
  }
  attributes(wrapped) <- attributes(handler)
  attr(wrapped, "rookery_route") <- route
  wrapped
}
