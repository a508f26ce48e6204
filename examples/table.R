# A table of ten million rows as CSV, from a data frame, in bounded memory: rows become text as the client takes them.
#
#   Rscript examples/table.R        then curl -o table.csv http://127.0.0.1:8000/table.csv; PORT=9000 in front for another port,
#                                   ROWS=1e5 for fewer rows
#   rookery serve examples/table.R  the same with an access log
#
# GET /memory tells how much memory R holds: it does not grow by a table that is sent, to however many clients at once.

library(rookery)

port <- as.integer(Sys.getenv("PORT", "8000"))
rows <- as.integer(as.numeric(Sys.getenv("ROWS", "1e7")))

# Rows of a chunk: some milliseconds of R's time, after which it looks after others.
rows_at_once <- 1000L

table <- data.frame(
  id = seq_len(rows),
  city = factor(rep_len(c("Lund", "Saint-Louis, \"Ndar\"", "Kyoto"), rows)),
  price = rep_len(round(seq(1, 99, length.out = 997), 2), rows),
  sold = as.Date("2026-01-01") + rep_len(0:364, rows)
)

# A column's values as fields of CSV (RFC 4180): text in quotes, and quotes doubled; what is missing is empty.
fields <- function(column) {
  text <- as.character(column)
  if (!is.numeric(column)) text <- paste0("\"", gsub("\"", "\"\"", text, fixed = TRUE), "\"")
  text[is.na(column)] <- ""
  text
}

# A function that gives the next rows each time it is asked, and NULL at the end. It is asked while less than 64 KiB wait for the
# client, so one who reads slowly slows it down and costs no more memory than one who reads fast.
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
    # Strings are put one behind the other.
    paste0(do.call(paste, c(unname(columns), sep = ",")), "\r\n")
  }
}

# Kilobytes of memory that the process holds, and the most that it has held.
memory <- function() {
  status <- readLines("/proc/self/status")
  paste(grep("^Vm(RSS|HWM)", status, value = TRUE), collapse = "\n")
}

app <- function(req) {
  switch(req$PATH_INFO,
    "/table.csv" = list(
      status = 200L,
      headers = list("Content-Type" = "text/csv; charset=utf-8", "Content-Disposition" = "attachment; filename=\"table.csv\""),
      body = stream_body(csv_of(table), on_close = function(reason) message("A table was sent: ", reason))
    ),
    "/memory" = list(status = 200L, headers = list("Content-Type" = "text/plain"), body = memory()),
    list(status = 404L, headers = list("Content-Type" = "text/plain"), body = "There are /table.csv and /memory\n")
  )
}

# runServer() in three lines, so that the address is printed once it is listened at.
server <- startServer("127.0.0.1", port, app)
cat("http://127.0.0.1:", server$getPort(), " (Ctrl-C stops)\n", sep = "")
tryCatch(service(0), finally = server$stop())
