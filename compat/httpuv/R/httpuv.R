# The names that other packages reach with `httpuv:::`. plumber looks up `unsafe_ports`; others inherit from
# `WebServer`, look into an `AppWrapper`, call `rookCall` or set the `logLevel`.
internal_names <- c(
  ".globals", "AppWrapper", "ErrorStream", "InputStream", "NullInputStream", "PipeServer", "Server", "WebServer",
  "deregisterServer", "error_unavailable_port", "httpuv_version", "is_port_available", "logLevel", "log_level",
  "normalizeStaticPathOptions", "normalizeStaticPaths", "nullInputStream", "registerServer", "rookCall",
  "stdErrStream", "unsafe_ports"
)

# Binds rookery's own objects in this namespace, where both `::` and `:::` look. At load and not when the package is
# built, which would copy them: the list of servers, and classes that others inherit from, have to be the same objects,
# and those of the rookery that is installed.
.onLoad <- function(libname, pkgname) {
  # Those who import httpuv rely on later being there, and R6 prints its classes.
  loadNamespace("later")
  loadNamespace("R6")
  rookery <- asNamespace("rookery")
  httpuv <- topenv()
  for (name in c(getNamespaceExports(rookery), internal_names)) {
    assign(name, get(name, envir = rookery, inherits = FALSE), envir = httpuv)
  }
}
