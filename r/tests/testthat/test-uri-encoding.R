# The expected values are those of httpuv 1.6.9, unless a test names a difference.

ascii <- rawToChar(as.raw(1:127))
controls <- paste0(
  "%01%02%03%04%05%06%07%08%09%0A%0B%0C%0D%0E%0F%10%11%12%13%14%15%16%17%18%19%1A%1B%1C%1D%1E%1F%20"
)

test_that("encodeURI() keeps reserved characters, and encodeURIComponent() encodes them", {
  letters_etc <- "%5B%5C%5D%5E_%60abcdefghijklmnopqrstuvwxyz%7B%7C%7D~%7F"
  expect_identical(
    encodeURI(ascii),
    paste0(
      controls, "!%22%23$%25&'()*+,-./0123456789:;%3C=%3E?@ABCDEFGHIJKLMNOPQRSTUVWXYZ", letters_etc
    )
  )
  expect_identical(
    encodeURIComponent(ascii),
    paste0(
      controls,
      "!%22%23%24%25%26'()*%2B%2C-.%2F0123456789%3A%3B%3C%3D%3E%3F%40ABCDEFGHIJKLMNOPQRSTUVWXYZ",
      letters_etc
    )
  )
  expect_identical(encodeURI("a#b%"), "a%23b%25")
})

test_that("text is encoded as UTF-8", {
  for (encode in list(encodeURI, encodeURIComponent)) {
    expect_identical(
      encode(c("\u00e9", "\u65e5\u672c", "\U0001f600")),
      c("%C3%A9", "%E6%97%A5%E6%9C%AC", "%F0%9F%98%80")
    )
    latin1 <- "\xe9"
    Encoding(latin1) <- "latin1"
    expect_identical(encode(latin1), "%C3%A9")
    expect_identical(Encoding(encode("\u00e9")), "unknown")
  }
})

test_that("NA is kept, names and dimensions are dropped, and other types become strings", {
  for (f in list(encodeURI, encodeURIComponent, decodeURI, decodeURIComponent)) {
    expect_identical(f(character(0)), character(0))
    expect_identical(f(NA), NA_character_)
    expect_identical(f(c("", NA)), c("", NA))
    expect_identical(f(5L), "5")
    expect_identical(f(TRUE), "TRUE")
    expect_identical(f(as.raw(65)), "41")
    expect_identical(f(as.Date("2020-01-01")), "2020-01-01")
  }
  expect_identical(encodeURI(1e5), "1e+05")
  expect_identical(encodeURIComponent(1e5), "1e%2B05")
  expect_identical(encodeURI(c(a = "x y", b = NA)), c("x%20y", NA))
  expect_identical(encodeURI(matrix(c("a", "b c"), 1)), c("a", "b%20c"))
  expect_identical(encodeURI(factor(c("a b", "c"))), c("a%20b", "c"))
  expect_identical(decodeURI(c(a = "x%20y", b = NA)), c("x y", NA))
})

test_that("values other than vectors of strings are refused", {
  for (f in list(encodeURI, encodeURIComponent, decodeURI, decodeURIComponent)) {
    expect_error(f(NULL), "`value` must be a character vector, not NULL.", fixed = TRUE)
    expect_error(f(list("a")), "`value` must be a character vector, not list.", fixed = TRUE)
    expect_error(
      f(function(x) x), "`value` must be a character vector, not function.", fixed = TRUE
    )
  }
})

test_that("decodeURI() keeps escapes of reserved characters", {
  reserved <- "%2f%2F%3b%2C%3f%3A%40%26%3d%2B%24"
  expect_identical(decodeURI(reserved), reserved)
  expect_identical(decodeURIComponent(reserved), "//;,?:@&=+$")
  expect_identical(decodeURI("%23%25%5b"), "#%[")
  escaped <- sprintf("%%%02X", 1:127)
  expect_identical(decodeURIComponent(escaped), rawToChar(as.raw(1:127), multiple = TRUE))
  expect_identical(
    escaped[decodeURI(escaped) == escaped],
    c("%24", "%26", "%2B", "%2C", "%2F", "%3A", "%3B", "%3D", "%3F", "%40")
  )
})

test_that("decoding undoes encoding", {
  expect_identical(decodeURIComponent(encodeURIComponent(ascii)), ascii)
  text <- c("\u00e9 & \u65e5\u672c", "100 % + 1", "%41")
  expect_identical(decodeURIComponent(encodeURIComponent(text)), text)
  expect_identical(decodeURI(encodeURI(text)), text)
})

test_that("bad escapes are kept, with the two characters after the percent sign", {
  kept <- c(
    "%4", "%", "%zz", "+", "a%", "a%4", "%%41", "%4g", "%g4", "%%%", "% 41", "%-1", "%+4", "%0x41",
    "%z%41", "%4%41",
    "%%%41", "a%b", "%2", "%\n%41"
  )
  expect_identical(decodeURI(kept), kept)
  expect_identical(decodeURIComponent(kept), kept)
  expect_identical(
    decodeURIComponent(c(
      "%41%", "%41%4", "%zz%41", "%25%41", "%2541", "%ZZ%2F%5", "%\n1%41", "%\u00e9%41"
    )),
    c("A%", "A%4", "%zzA", "%A", "%41", "%ZZ/%5", "%\n1A", "%\u00e9A")
  )
})

test_that("decoded text is marked as UTF-8, even if it is invalid", {
  expect_identical(decodeURIComponent("%C3%A9"), "\u00e9")
  expect_identical(decodeURIComponent("%e2%82%ac%"), "\u20ac%")
  expect_identical(Encoding(decodeURIComponent(c("%C3%A9", "abc"))), c("UTF-8", "unknown"))
  expect_identical(charToRaw(decodeURIComponent("%E9")), as.raw(0xe9))
  expect_identical(charToRaw(decodeURI("%e2%82")), as.raw(c(0xe2, 0x82)))
  expect_identical(Encoding(decodeURI("%E9")), "UTF-8")
})

test_that("a NUL is refused at any position", {
  expect_error(decodeURI("%00"), "embedded nul in string")
  expect_error(decodeURIComponent("a%00b"), "embedded nul in string")
  expect_error(decodeURIComponent("%41%00"), "embedded nul in string")
})

test_that("latin1 is decoded as text (httpuv: as bytes marked as UTF-8)", {
  latin1 <- "caf\xe9%20"
  Encoding(latin1) <- "latin1"
  expect_identical(decodeURIComponent(latin1), "caf\u00e9 ")
})

test_that("invalid bytes are encoded unchanged (httpuv: as '<e9>', or an error)", {
  bytes <- "\xe9"
  Encoding(bytes) <- "bytes"
  expect_identical(encodeURIComponent(bytes), "%E9")
})
