library(testthat)
library(httpuv)

test_check("httpuv")
