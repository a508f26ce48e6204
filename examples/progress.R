# The progress of a long job in every open page. The job is started once; pages may be opened and
# closed.
#
#   Rscript examples/progress.R       then open http://127.0.0.1:8000 in two windows
#   rookery serve examples/progress.R the same with an access log
#
# The job is done in slices, between which R serves requests. Work that cannot be divided into
# slices belongs in another process (package mirai, or callr), which reports its progress by a
# promise or a file.

library(rookery)

port <- as.integer(Sys.getenv("PORT", "8000"))

# The folder of the page, which is beside this script. `rookery serve` starts in that folder; for
# Rscript the path of the script is used.
script <- sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE))
page <- Filter(dir.exists, file.path(c(".", dirname(script), "examples"), "progress"))[[1]]
# The style sheet and the icon of all example pages.
shared <- file.path(dirname(page), "shared")

slices <- 100L
points_of_slice <- 50000L
# Seconds between two slices, for other requests. The job takes about five seconds.
pause <- 0.05

job <- list(done = 0L, inside = 0, is_running = FALSE)
# The event streams of the open pages.
pages <- list()

state <- function() {
  list(
    done = 100 * job$done / slices,
    estimate = if (job$done > 0) 4 * job$inside / (job$done * points_of_slice) else NULL,
    running = job$is_running
  )
}

tell <- function() {
  # Streams that have ended are removed. write() never waits for a client that does not read.
  pages <<- Filter(function(page) page$is_open(), pages)
  for (page in pages) page$send(state(), event = "progress")
}

# Estimates pi by points in a square.
slice <- function() {
  x <- runif(points_of_slice)
  y <- runif(points_of_slice)
  job$inside <<- job$inside + sum(x^2 + y^2 < 1)
  job$done <<- job$done + 1L
  job$is_running <<- job$done < slices
  tell()
  if (job$is_running) later::later(slice, pause)
}

start <- function(req) {
  if (job$is_running) {
    headers <- list("Content-Type" = "text/plain")
    return(list(status = 409L, headers = headers, body = "The job runs already.\n"))
  }
  job <<- list(done = 0L, inside = 0, is_running = TRUE)
  later::later(slice)
  list(status = 202L, headers = list("Content-Type" = "text/plain"), body = "Started.\n")
}

# A page that connects or reconnects first gets the current state.
follow <- function(req) {
  page <- sse_response(on_close = function(reason) message("A page has left: ", reason))
  page$send(state(), event = "progress")
  pages[[length(pages) + 1]] <<- page
  page
}

app <- list(
  # Served without R.
  staticPaths = list(
    "/" = page, "/shared" = shared,
    "/progress" = excludeStaticPath(), "/start" = excludeStaticPath()
  ),
  call = function(req) {
    switch(paste(req$REQUEST_METHOD, req$PATH_INFO),
      "POST /start" = start(req),
      "GET /progress" = follow(req),
      list(status = 404L, headers = list("Content-Type" = "text/plain"), body = "Not found\n")
    )
  }
)

# The same as runServer(), in three lines, so that the address is printed once the server listens.
server <- startServer("127.0.0.1", port, app)
cat("http://127.0.0.1:", server$getPort(), " (Ctrl-C stops)\n", sep = "")
tryCatch(service(0), finally = server$stop())
