# Headers that are no variables of their request.
#
# A variable of an environment needs an R symbol, and R never frees a symbol. The names that clients
# choose therefore become symbols only up to a limit (src/rust/src/exchange/header_names.rs). A request
# with further names has the class `rookery_request`, and the headers with these names in an attribute.
# The methods of the class find these headers as if they were variables. Functions that are not
# generic, such as ls() and get(), do not find them.

request_classes <- c("rookery_request", "environment")

request_variable <- function(req, name) {
  headers <- attr(req, "unbound_headers", exact = TRUE)
  at <- match(name, names(headers))
  # The app may have set a variable with the name of the header. exists() is not called with the
  # name of a header that is no variable, because it would make a symbol of the name.
  if (!is.na(at) && !name %in% ls(req, all.names = TRUE, sorted = FALSE)) {
    return(headers[[at]])
  }
  if (exists(name, envir = req, inherits = FALSE)) get(name, envir = req, inherits = FALSE)
}

# Returns the headers that are neither variables nor hidden by a variable with the same name.
unbound_headers <- function(req) {
  headers <- attr(req, "unbound_headers", exact = TRUE)
  headers[!names(headers) %in% ls(req, all.names = TRUE, sorted = FALSE)]
}

#' @export
`$.rookery_request` <- function(x, name) {
  request_variable(x, name)
}

#' @export
`[[.rookery_request` <- function(x, i, ...) {
  if (is.character(i) && length(i) == 1 && !is.na(i)) request_variable(x, i) else NextMethod()
}

#' @export
names.rookery_request <- function(x) {
  c(ls(x, all.names = TRUE, sorted = FALSE), names(unbound_headers(x)))
}

#' @export
as.list.rookery_request <- function(x, ...) {
  c(NextMethod(), as.list(unbound_headers(x)))
}
