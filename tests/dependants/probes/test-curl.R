# curl's own tests ask a server in the internet before they begin.

test_that("curl_echo() shows fields and a form with a file", {
  h <- curl::new_handle(url = "http://example.org/post?x=1", copypostfields = "a=1&b=2", httpheader = "X-Test: yes")
  out <- curl::curl_echo(h)
  expect_equal(out$method, "POST")
  expect_equal(out$path, "/post")
  expect_equal(rawToChar(out$body), "a=1&b=2")
  expect_equal(out$headers[["x-test"]], "yes")
  h <- curl::new_handle()
  curl::handle_setform(h, text = "x", file = curl::form_file(system.file("DESCRIPTION", package = "curl")))
  out <- curl::curl_echo(h)
  expect_match(out$content_type, "multipart/form-data")
  expect_match(rawToChar(out$body), "Package: curl")
})

test_that("curl_echo() takes a body of a megabyte", {
  body <- as.raw(rep_len(0:255, 1e6))
  out <- curl::curl_echo(curl::new_handle(url = "http://example.org/", post = TRUE, postfields = body, postfieldsize = 1e6))
  expect_identical(out$body, body)
})
