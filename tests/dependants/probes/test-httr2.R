test_that("the OAuth listener takes the code, and its page arrives before the server is gone", {
  port <- httpuv::randomPort()
  url <- sprintf("http://127.0.0.1:%d/", port)
  asking <- callr::r_bg(function(url) {
    for (i in 1:600) {
      answer <- try(curl::curl_fetch_memory(url), silent = TRUE)
      if (!inherits(answer, "try-error")) return(answer)
      Sys.sleep(0.1)
    }
  }, list(paste0(url, "?code=abc&state=xyz")))
  withr::defer(asking$kill())
  at <- list(port = port, redirect_uri = url)
  got <- do.call(httr2::oauth_flow_auth_code_listen, at[names(at) %in% names(formals(httr2::oauth_flow_auth_code_listen))])
  expect_equal(got[c("code", "state")], list(code = "abc", state = "xyz"))
  asking$wait(60000)
  expect_match(rawToChar(asking$get_result()$content), "Authentication complete")
})

test_that("req_dry_run() shows the request", {
  request <- httr2::req_headers(httr2::request("http://example.org/path"), Accept = "text/turtle")
  said <- capture.output(httr2::req_dry_run(request))
  expect_match(said, "GET /path HTTP/1.1", fixed = TRUE, all = FALSE)
  expect_match(said, "text/turtle", fixed = TRUE, all = FALSE)
})
