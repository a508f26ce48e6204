library(testthat)
library(rookery)

test_check("rookery")
