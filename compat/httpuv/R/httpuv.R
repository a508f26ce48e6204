# Internal names that other packages use by `httpuv:::`. plumber uses `unsafe_ports`; others inherit
# from `WebServer`, inspect an `AppWrapper`, call `rookCall` or set the `logLevel`.
internal_names <- c(
  ".globals", "AppWrapper", "ErrorStream", "InputStream", "NullInputStream", "PipeServer", "Server", "WebServer",
  "deregisterServer", "error_unavailable_port", "httpuv_version", "is_port_available", "logLevel", "log_level",
  "normalizeStaticPathOptions", "normalizeStaticPaths", "nullInputStream", "registerServer", "rookCall",
  "stdErrStream", "unsafe_ports"
)

# Binds rookery's objects in this namespace, so that both `::` and `:::` find them. This is done
# when the package is loaded, because building the package would copy the objects. The list of
# servers, and classes that others inherit from, must be the same objects, and those of the
# installed rookery.
.onLoad <- function(libname, pkgname) {
  # Packages that import httpuv expect later to be loaded, and R6 prints the classes.
  loadNamespace("later")
  loadNamespace("R6")
  rookery <- asNamespace("rookery")
  httpuv <- topenv()
  for (name in c(getNamespaceExports(rookery), internal_names)) {
    assign(name, get(name, envir = rookery, inherits = FALSE), envir = httpuv)
  }
}
