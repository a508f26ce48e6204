# The expected values are those of httpuv 1.6.9, unless a test names a difference.

families <- function(ips) {
  vapply(ips, ipFamily, integer(1), USE.NAMES = FALSE)
}

test_that("IPv4 addresses are four numbers without leading zeros", {
  good <- c("127.0.0.1", "0.0.0.0", "255.255.255.255")
  expect_identical(families(good), rep(4L, length(good)))
  bad <- c(
    "0.0.200", "256.1.1.1", "01.2.3.4", "001.002.003.004", "00.0.0.0", "1.2.3.0400", "1.2.3.4 ",
    " 1.2.3.4",
    "1.2.3.4\n", "1.2.3.4.5", "1..2.3", "1.2.3.", ".1.2.3", "1.2.3", "1.2.3.-4", "0x7f.0.0.1",
    "127.0.0.1%1", "1.2.3.4%",
    ""
  )
  expect_identical(families(bad), rep(-1L, length(bad)))
})

test_that("IPv6 addresses may be shortened once", {
  good <- c(
    "::1", "::", "1::", "::0:0", "FE80::ABCD", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::",
    "1:2:3:4:5::7:8",
    "::2:3:4:5:6:7:8"
  )
  expect_identical(families(good), rep(6L, length(good)))
  bad <- c(
    ":::1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4::5:6:7:8", "::1:2:3:4:5:6:7:8",
    ":1:2:3:4:5:6:7:8",
    "1::2::3", "0::0::", "1:::2", "12345::", "::00001", "::g", "[::1]", "::1/64", ":", "::1:",
    ":1::"
  )
  expect_identical(families(bad), rep(-1L, length(bad)))
})

test_that("IPv6 addresses may end in an IPv4 address", {
  expect_identical(families(c("::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4")), c(6L, 6L))
  bad <- c("::1.2.3", "::ffff:1.2.3.256", "::1.2.3.4:5", "1:2:3:4:5:6:7:1.2.3.4")
  expect_identical(families(bad), rep(-1L, length(bad)))
})

test_that("IPv6 addresses may have a zone", {
  good <- c(
    "::1%lo0", "fe80::1%eth0", "fe80::1%", "fe80::%1%2", "::%", "::1% ",
    paste0("::1%", strrep("a", 200))
  )
  expect_identical(families(good), rep(6L, length(good)))
  expect_identical(ipFamily("%eth0"), -1L)
})

test_that("names are not addresses, whatever their bytes", {
  expect_identical(families(c("localhost", "\u00e9", "\xff::")), c(-1L, -1L, -1L))
})

test_that("only one string is accepted (httpuv: NA_character_ is -1)", {
  for (ip in list(
    NA, NA_character_, NULL, c("::1", "1.2.3.4"), 1, character(0), factor("::1"), list("::1"), TRUE
  )) {
    expect_error(ipFamily(ip), "`ip` must be one string.", fixed = TRUE)
  }
})
