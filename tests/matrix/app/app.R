# The app that the matrix serves. Each route does one thing that a behaviour needs.
reply <- function(body, status = 200L, headers = list()) {
  list(status = status, headers = c(list("Content-Type" = "text/plain"), headers), body = body)
}

version <- "first version"
started <- format(as.numeric(Sys.time()), digits = 15)
kept <- NULL
inner <- NULL

list(
  call = function(req) {
    query <- sub("^[?]", "", req$QUERY_STRING)
    switch(req$PATH_INFO,
      "/" = reply(paste0("pid ", Sys.getpid())),
      "/version" = reply(version),
      "/started" = reply(started),
      "/sleep" = {
        Sys.sleep(as.numeric(query))
        reply(paste0("slept on ", Sys.getpid()))
      },
      # Busy until the file named in the query has gone.
      "/hold" = {
        while (file.exists(query)) Sys.sleep(0.02)
        reply("released")
      },
      "/output" = {
        cat(strrep("o", 200000), "\n")
        reply("written")
      },
      "/noise" = {
        for (line in 1:2000) message(strrep("e", 99))
        reply("written")
      },
      "/keep" = {
        kept <<- c(kept, as.list(numeric(as.numeric(query) / 8)))
        reply("kept")
      },
      "/large" = reply(strrep("x", as.numeric(query))),
      "/error" = stop("this handler always fails"),
      "/crash" = tools::pskill(Sys.getpid(), tools::SIGKILL),
      "/length" = reply(as.character(length(req$rook.input$read()))),
      # What the app sees of the request and of its own process.
      "/seen" = {
        names <- sort(grep("^[A-Z][A-Z_]*$", ls(req), value = TRUE))
        seen <- vapply(names, function(name) paste0(name, "=", paste(format(req[[name]]), collapse = " ")), "")
        reply(paste(c(seen, paste0("rook.url_scheme=", req[["rook.url_scheme"]])), collapse = "\n"))
      },
      "/settings" = {
        settings <- rookery::rookery_options()
        reply(paste0(settings$name, "=", settings$value, " (", settings$origin, ")", collapse = "\n"))
      },
      "/spooled" = {
        open <- Sys.readlink(list.files("/proc/self/fd", full.names = TRUE))
        reply(paste(open, collapse = "\n"))
      },
      "/stream" = rookery::stream_body(function(request) NULL),
      reply("no such route", 404L)
    )
  },
  onWSOpen = function(ws) {
    ws$onMessage(function(binary, message) {
      ws$send(message)
    })
  },
  staticPaths = list("/files" = "www")
)
