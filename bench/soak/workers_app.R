# The app of bench/soak/workers.py: a handler of 5 ms, one that counts in a file what it has begun, and one that leaves a process behind.
counted <- Sys.getenv("SOAK_COUNTED")
answer <- function(body) list(status = 200L, headers = list("Content-Type" = "text/plain"), body = body)
list(call = function(req) {
  if (req$PATH_INFO == "/count") {
    # One write: what it has begun is there before anything else happens.
    cat(paste0(req$QUERY_STRING, "\n"), file = counted, append = TRUE)
  } else if (req$PATH_INFO == "/child") {
    system("sleep 1000 >/dev/null 2>&1 &")
  }
  Sys.sleep(0.005)
  answer(as.character(Sys.getpid()))
})
