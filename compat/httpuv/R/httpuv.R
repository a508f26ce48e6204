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
# installed rookery. Each object is looked up when it is first used, because .Rprofile may load this
# package in every session.
.onLoad <- function(libname, pkgname) {
  rookery <- asNamespace("rookery")
  httpuv <- topenv()
  bind <- function(name) {
    delayedAssign(name, get(name, envir = rookery, inherits = FALSE), assign.env = httpuv)
  }
  for (name in c(getNamespaceExports(rookery), internal_names)) bind(name)
  assign("own_path", file.path(libname, pkgname), envir = httpuv)
  describe_installed(httpuv)
}

# Sets the path and the version of this namespace to those of the httpuv that is installed in the
# session's libraries, if there is one. packageVersion(), sessionInfo() and tools that record the
# versions of packages for a deployment prefer a loaded namespace to the libraries, and would record
# a version that no repository has. library(httpuv) would unload a namespace whose version differs.
describe_installed <- function(httpuv) {
  paths <- file.path(.libPaths(), "httpuv")
  installed <- file.path(paths, "Meta", "package.rds")
  first <- match(TRUE, file.exists(installed))
  if (!is.na(first)) {
    version <- readRDS(installed[[first]])$DESCRIPTION[["Version"]]
    setNamespaceInfo(httpuv, "path", paths[[first]])
    setNamespaceInfo(httpuv, "spec", c(name = "httpuv", version = version))
  }
}
