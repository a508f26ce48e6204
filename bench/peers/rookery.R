# Rookery, from the library that ROOKERY_LIB names.
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
source(file.path(here, "handlers.R"))
.libPaths(c(Sys.getenv("ROOKERY_LIB"), .libPaths()))
library(rookery)
app <- rook_app(rookery::staticPath)
if (length(args) > 3L && args[[4]] == "evalq") {
  # what stood between httpuv's loop and the app before its issue 244
  handler <- app$call
  app$call <- function(req) {
    tryCatch(evalq(handler(req), environment()), error = function(e) list(status = 500L, headers = list(), body = ""))
  }
}
server <- startServer("127.0.0.1", port, app, quiet = FALSE)
while (TRUE) service()
