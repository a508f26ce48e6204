# A table of ten million rows as CSV, from a data frame, in bounded memory: rows become text as the
# client reads them.
#
#   Rscript examples/table.R        then curl -o table.csv http://127.0.0.1:8000/table.csv
#   rookery serve examples/table.R  the same with an access log
#
# The environment variable ROWS=1e5 makes a smaller table.
#
# GET /memory returns how much memory R holds. It does not grow while the table is sent, however
# many clients download it at once.

library(rookery)

port <- as.integer(Sys.getenv("PORT", "8000"))
rows <- as.integer(as.numeric(Sys.getenv("ROWS", "1e7")))

# The number of rows in a chunk. A chunk takes some milliseconds of R's time, after which R serves
# other requests.
rows_at_once <- 1000L

table <- data.frame(
  id = seq_len(rows),
  city = factor(rep_len(c("Lund", "Saint-Louis, \"Ndar\"", "Kyoto"), rows)),
  price = rep_len(round(seq(1, 99, length.out = 997), 2), rows),
  sold = as.Date("2026-01-01") + rep_len(0:364, rows)
)

# Returns a column's values as fields of CSV (RFC 4180): text in quotes, quotes doubled, missing
# values empty.
fields <- function(column) {
  text <- as.character(column)
  if (!is.numeric(column)) text <- paste0("\"", gsub("\"", "\"\"", text, fixed = TRUE), "\"")
  text[is.na(column)] <- ""
  text
}

# Returns a function that returns the next rows at each call, and NULL at the end. The server calls
# it while less than 256 KiB wait for the client. So a client that reads slowly costs no more memory
# than a fast one.
csv_of <- function(data) {
  at <- 0L
  header <- paste0(paste(fields(names(data)), collapse = ","), "\r\n")
  function() {
    if (!is.null(header)) {
      chunk <- header
      header <<- NULL
      return(chunk)
    }
    if (at >= nrow(data)) return(NULL)
    part <- seq.int(at + 1L, min(at + rows_at_once, nrow(data)))
    at <<- at + length(part)
    columns <- lapply(data, function(column) fields(column[part]))
    # The strings are concatenated.
    paste0(do.call(paste, c(unname(columns), sep = ",")), "\r\n")
  }
}

# Returns the memory of the process in kilobytes, and its maximum so far.
memory <- function() {
  status <- readLines("/proc/self/status")
  paste(grep("^Vm(RSS|HWM)", status, value = TRUE), collapse = "\n")
}

app <- function(req) {
  switch(req$PATH_INFO,
    "/table.csv" = list(
      status = 200L,
      headers = list(
        "Content-Type" = "text/csv; charset=utf-8",
        "Content-Disposition" = "attachment; filename=\"table.csv\""
      ),
      body = stream_body(
        csv_of(table),
        on_close = function(reason) message("A table was sent: ", reason)
      )
    ),
    "/memory" = list(status = 200L, headers = list("Content-Type" = "text/plain"), body = memory()),
    list(
      status = 404L, headers = list("Content-Type" = "text/plain"),
      body = "There are /table.csv and /memory\n"
    )
  )
}

# The same as runServer(), in three lines, so that the address is printed once the server listens.
server <- startServer("127.0.0.1", port, app)
cat("http://127.0.0.1:", server$getPort(), " (Ctrl-C stops)\n", sep = "")
tryCatch(service(0), finally = server$stop())
