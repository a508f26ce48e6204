# The app of bench/soak/workers.py: a handler of 5 ms, and paths for what its rows need.
counted <- Sys.getenv("SOAK_COUNTED")
answer <- function(body) list(status = 200L, headers = list("Content-Type" = "text/plain"),
  body = body)
number <- function(req) as.numeric(sub("^[?]", "", req$QUERY_STRING))
kept <- new.env()
big <- strrep("x", 4 * 2^20)
list(call = function(req) {
  switch(req$PATH_INFO,
    # One write, so that the name is in the file before anything else happens.
    "/count" = cat(paste0(req$QUERY_STRING, "\n"), file = counted, append = TRUE),
    "/child" = system("sleep 1000 >/dev/null 2>&1 &"),
    "/sleep" = Sys.sleep(number(req)),
    # Allocates that many MB more, writes to them, and never frees them.
    "/hog" = assign(as.character(length(kept)), raw(number(req) * 1e6), envir = kept),
    "/upload" = return(answer(as.character(length(req$rook.input$read())))),
    "/big" = return(answer(big))
  )
  Sys.sleep(0.005)
  answer(as.character(Sys.getpid()))
}, onWSOpen = function(ws) NULL)
