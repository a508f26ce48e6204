# Rookery, from the library that ROOKERY_LIB names.
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
source(file.path(here, "handlers.R"))
.libPaths(c(Sys.getenv("ROOKERY_LIB"), .libPaths()))
library(rookery)
server <- startServer("127.0.0.1", port, rook_app(rookery::staticPath), quiet = FALSE)
while (TRUE) service()
