# A page of 50 images, whose title says how many have been asked for.

asked <- 0

function(req) {
  if (startsWith(req$PATH_INFO, "/image")) {
    asked <<- asked + 1
    image <- '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><rect width="8" height="8"/></svg>'
    return(list(status = 200L, headers = list("Content-Type" = "image/svg+xml", "Cache-Control" = "no-store"), body = image))
  }
  images <- paste0('<img src="/image/', 1:50, '">', collapse = "\n")
  list(status = 200L, headers = list("Content-Type" = "text/html"), body = paste0("<!doctype html><title>", asked, "</title>", images))
}
