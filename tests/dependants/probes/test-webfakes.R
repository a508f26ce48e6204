# webfakes has a server of its own. Its kind of test starts it beside a server of httpuv's in one R.

test_that("an app of httpuv's asks a webfakes app in the same session's loopback", {
  fake <- webfakes::new_app_process(webfakes::httpbin_app())
  withr::defer(fake$stop())
  server <- httpuv::startServer("127.0.0.1", httpuv::randomPort(), list(call = function(req) {
    answer <- curl::curl_fetch_memory(paste0(fake$url(), sub("^/", "", req$PATH_INFO), req$QUERY_STRING))
    list(status = answer$status_code, headers = list("Content-Type" = answer$type), body = answer$content)
  }))
  withr::defer(server$stop())
  done <- list()
  for (path in c("/get?x=1", "/status/418", "/bytes/1000")) {
    curl::curl_fetch_multi(
      sprintf("http://127.0.0.1:%d%s", server$getPort(), path),
      done = function(answer) done[[length(done) + 1]] <<- answer
    )
  }
  until <- Sys.time() + 60
  while (length(done) < 3 && Sys.time() < until) {
    curl::multi_run(timeout = 0.01)
    httpuv::service(10)
  }
  expect_setequal(vapply(done, function(answer) answer$status_code, 1L), c(200L, 418L, 200L))
  expect_true(1000L %in% vapply(done, function(answer) length(answer$content), 1L))
})
