test_that("the OAuth listener takes the code, and its page arrives before the server is gone", {
  port <- httpuv::randomPort()
  withr::local_envvar(HTTR_PORT = port)
  asking <- callr::r_bg(function(url) {
    for (i in 1:600) {
      answer <- try(curl::curl_fetch_memory(url), silent = TRUE)
      if (!inherits(answer, "try-error")) return(answer)
      Sys.sleep(0.1)
    }
  }, list(sprintf("http://localhost:%d/?code=abc&state=s%%20t", port)))
  withr::defer(asking$kill())
  got <- httr::oauth_listener("http://localhost/authorize", is_interactive = TRUE)
  expect_equal(got[c("code", "state")], list(code = "abc", state = "s t"))
  asking$wait(60000)
  expect_match(rawToChar(asking$get_result()$content), "Authentication complete")
})
