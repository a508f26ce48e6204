# An app with routes of its own, one of which computes for as many seconds as requested and one of
# which fails: see admin/production.test.mjs.
answer <- function(body) {
  list(status = 200L, headers = list("Content-Type" = "text/plain"), body = body)
}

compute <- function(seconds) {
  until <- Sys.time() + seconds
  while (Sys.time() < until) NULL
}

list(call = function(req) {
  parts <- strsplit(req$PATH_INFO, "/", fixed = TRUE)[[1]]
  route <- parts[2]
  req$ROUTE <- if (is.na(route)) "/" else paste0("/", route, "/<id>")
  switch(
    if (is.na(route)) "" else route,
    report = compute(as.numeric(parts[3])),
    plots = compute(0.03),
    users = Sys.sleep(0.005),
    orders = stop("no order has this number")
  )
  answer("hello")
})
