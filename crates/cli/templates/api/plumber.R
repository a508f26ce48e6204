# A plumber API. `rookery dev .` serves it while you write it, and starts it again when you save a file.

#* @apiTitle Old Faithful
#* @apiDescription Eruptions of a geyser.

#* Summarise the waiting times
#* @serializer unboxedJSON
#* @get /summary
function() {
  list(eruptions = nrow(faithful), shortest = min(faithful$waiting), longest = max(faithful$waiting))
}

#* List eruptions whose waiting time is at least so many minutes
#* @param minutes:int The least waiting time
#* @get /eruptions
function(res, minutes = "90") {
  least <- suppressWarnings(as.numeric(minutes))
  if (length(least) != 1 || is.na(least)) {
    res$status <- 400L
    return(list(error = "minutes must be a number"))
  }
  faithful[faithful$waiting >= least, ]
}

#* The first page is the documentation of the API, in which each endpoint can be tried
#* @get /
#* @serializer html
function(res) {
  res$status <- 302L
  res$setHeader("Location", "./__docs__/")
  ""
}

#* A page that uses the API
#* @assets ./www /page
list()
