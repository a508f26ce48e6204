# A small API: `rookery serve examples/plumber`, then for instance
#   curl localhost:8000/square -H 'Content-Type: application/json' -d '{"x": [1, 2, 3]}'
#   curl localhost:8000/upload -F file=@README.md
# and http://localhost:8000/www/ in a browser. Nothing in this API depends on rookery.

#* @apiTitle An API on rookery

# The uploads since the start, each with a name and a size.
uploads <- list()

#* Adds a header to every response.
#* @filter served-by
function(req, res) {
  res$setHeader("X-Served-By", "rookery")
  plumber::forward()
}

#* JSON in, JSON out.
#* @param x Numbers
#* @post /square
#* @serializer unboxedJSON
function(req, res) {
  x <- req$body$x
  if (!is.numeric(x)) {
    res$status <- 422
    return(list(error = "`x` must be numbers, as in {\"x\": [1, 2, 3]}"))
  }
  list(x = x, squares = x^2)
}

#* Fails: plumber responds with 500, and the log has the reason.
#* @get /error
function() {
  stop("the database is away")
}

#* Responds after some seconds, without delaying other requests.
#* @param seconds How long
#* @get /wait
#* @serializer unboxedJSON
function(seconds = 1) {
  started <- Sys.time()
  promises::promise(function(resolve, reject) {
    later::later(function() {
      resolve(list(waited = round(as.numeric(difftime(Sys.time(), started, units = "secs")), 2)))
    }, min(as.numeric(seconds), 30))
  })
}

#* Accepts files of a form, any number, and of any size that fits into memory.
#* @post /upload
#* @parser multi
#* @parser octet
#* @parser text
#* @serializer unboxedJSON
function(req) {
  files <- Filter(function(part) !is.null(part$filename), req$body)
  taken <- lapply(unname(files), function(part) {
    list(name = part$filename, bytes = length(part$value))
  })
  uploads <<- c(uploads, taken)
  taken
}

#* @get /uploads
#* @serializer unboxedJSON
function() {
  uploads
}

#* @assets ./www /www
list()

# The style sheet and the icon of all examples' pages.
#* @assets ../shared /shared
list()
