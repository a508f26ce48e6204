# An app whose R process computes, waits, streams and fails as requested: see admin/live.test.mjs.
answer <- function(body) {
  list(status = 200L, headers = list("Content-Type" = "text/plain"), body = body)
}

compute <- function(seconds) {
  until <- Sys.time() + seconds
  while (Sys.time() < until) NULL
  answer("computed")
}

# An error whose message quotes everything that the client has sent.
quote_all <- function(req) {
  body <- rawToChar(req$rook.input$read())
  stop(
    "cannot use query ", req$QUERY_STRING, ", cookie ", req$HTTP_COOKIE, ", credentials ",
    req$HTTP_AUTHORIZATION, ", body ", body, " of <b>the client</b>"
  )
}

# A response that does not end.
endless <- function() {
  is_first <- TRUE
  answer(function() {
    chunk <- if (is_first) "begun" else ""
    is_first <<- FALSE
    chunk
  })
}

list(call = function(req) {
  switch(
    req$PATH_INFO,
    "/compute" = compute(8),
    "/wait" = {
      Sys.sleep(8)
      answer("waited")
    },
    "/fail" = quote_all(req),
    "/stream" = endless(),
    answer("hello")
  )
})
