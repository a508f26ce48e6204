library(testthat)
library(rookery)

# CRAN limits the time of a check, and its build of the package does not contain rookery's httpuv.
# There, only quick tests run that need neither that package nor several processes. `make test`
# runs all tests.
is_full <- identical(Sys.getenv("NOT_CRAN"), "true")
quick <- c(
  "base64", "check-arguments", "conditions", "encoding", "error-page", "ip-family",
  "print", "random-port", "rook-input", "settings-table", "static-paths", "uri-encoding",
  "websocket-object"
)
test_check("rookery", filter = if (!is_full) paste0("^(", paste(quick, collapse = "|"), ")$"))
