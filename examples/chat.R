# A chat room: every open page shows all messages.
#
#   Rscript examples/chat.R         then open http://127.0.0.1:8000 in two windows
#   rookery serve examples/chat.R   the same with an access log
#
# PORT=9000 before the first command, or --port 9000 in the second, changes the port.

library(rookery)

port <- as.integer(Sys.getenv("PORT", "8000"))

# The folder of the page, which is beside this script. `rookery serve` starts in that folder; for
# Rscript the path of the script is used.
script <- sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE))
page <- Filter(dir.exists, file.path(c(".", dirname(script), "examples"), "chat"))[[1]]
# The style sheet and the icon of all example pages.
shared <- file.path(dirname(page), "shared")

# The maximum length of a message in characters. Longer messages are cut off.
longest <- 500L

# The open WebSockets, by number.
sockets <- list()
opened <- 0L

broadcast <- function(text) {
  for (ws in sockets) ws$send(text)
}

# Lines that begin with a star are messages of the room itself, which the page shows in another
# style.
announce <- function() {
  broadcast(sprintf("* %d in the room", length(sockets)))
}

app <- list(
  # Served without R, so the page loads even while R is busy.
  staticPaths = list("/" = page, "/shared" = shared),
  onWSOpen = function(ws) {
    opened <<- opened + 1L
    number <- as.character(opened)
    sockets[[number]] <<- ws
    ws$onMessage(function(binary, message) {
      if (!binary && nzchar(message)) broadcast(paste0("> ", substr(message, 1L, longest)))
    })
    ws$onClose(function() {
      sockets[[number]] <<- NULL
      announce()
    })
    announce()
  }
)

# The same as runServer(), in three lines, so that the address is printed once the server listens.
server <- startServer("127.0.0.1", port, app)
cat("http://127.0.0.1:", server$getPort(), " (Ctrl-C stops)\n", sep = "")
tryCatch(service(0), finally = server$stop())
