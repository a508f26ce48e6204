# httpuv as Debian ships it.
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
source(file.path(here, "handlers.R"))
library(httpuv)
server <- startServer("127.0.0.1", port, rook_app(staticPath), quiet = FALSE)
while (TRUE) service()
