# The expected values are those of httpuv 1.6.9, unless a test names a difference.

test_that("bytes are encoded with padding", {
  expect_identical(rawToBase64(raw()), "")
  expect_identical(rawToBase64(charToRaw("a")), "YQ==")
  expect_identical(rawToBase64(charToRaw("ab")), "YWI=")
  expect_identical(rawToBase64(charToRaw("abc")), "YWJj")
})

test_that("every byte and every character of the alphabet is correct", {
  expect_identical(
    rawToBase64(as.raw(0:255)),
    paste0(
      "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0BBQkNERUZHSElKS0xNTk9Q",
      "UVJTVFVWV1hZWltcXV5fYGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn+AgYKDhIWGh4iJiouMjY6PkJGSk5SVlpeYmZqbnJ2en6Ch",
      "oqOkpaanqKmqq6ytrq+wsbKztLW2t7i5uru8vb6/wMHCw8TFxsfIycrLzM3Oz9DR0tPU1dbX2Nna29zd3t/g4eLj5OXm5+jp6uvs7e7v8PHy",
      "8/T19vf4+fr7/P3+/w=="
    )
  )
})

test_that("there are no line breaks, and attributes do not matter", {
  expect_identical(nchar(rawToBase64(raw(1e6))), 1333336L)
  expect_identical(rawToBase64(c(a = as.raw(1))), "AQ==")
  expect_identical(rawToBase64(structure(as.raw(1:4), dim = c(2, 2))), "AQIDBA==")
})

test_that("only raw vectors are accepted (httpuv: also numbers and logicals)", {
  expect_error(rawToBase64("a"), "`x` must be a raw vector, not character.", fixed = TRUE)
  expect_error(rawToBase64(NULL), "`x` must be a raw vector, not NULL.", fixed = TRUE)
  expect_error(rawToBase64(list(as.raw(1))), "`x` must be a raw vector, not list.", fixed = TRUE)
  expect_error(rawToBase64(1L), "`x` must be a raw vector, not integer.", fixed = TRUE)
})
