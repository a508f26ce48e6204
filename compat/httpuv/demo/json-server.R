# Answers with the request's headers as JSON. Stop it with Ctrl-C or Esc.
library(httpuv)

quote_json <- function(text) {
  encodeString(enc2utf8(text), quote = "\"")
}

app <- list(
  call = function(req) {
    fields <- paste0("  ", quote_json(names(req$HEADERS)), ": ", quote_json(req$HEADERS), collapse = ",\n")
    list(
      status = 200L,
      headers = list("Content-Type" = "application/json"),
      body = paste0("{\n", fields, "\n}\n")
    )
  }
)

message("http://127.0.0.1:9454/")
runServer("127.0.0.1", 9454, app)
