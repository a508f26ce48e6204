test_that("a folder that `_server.yml` names is served as a site", {
  dir <- local_app(
    "index.html" = "home", "page.html" = "a page", "404.html" = "our own page",
    "index.Rmd" = "source", "below/_server.yml" = "secret", "below/code.R" = "source"
  )
  client <- local_client(local_server(list(staticPaths = list("/" = site_path(dir)))))
  expect_match(get(client, "/page")$text, "a page")
  for (path in c("/none", "/index.Rmd", "/below/_server.yml", "/below/code.R")) {
    response <- get(client, path)
    expect_identical(response$status, 404L)
    expect_match(response$text, "our own page")
  }
  # A static path of an app is no site.
  plain <- local_client(local_server(list(staticPaths = list("/" = staticPath(dir)))))
  expect_match(get(plain, "/index.Rmd")$text, "source")
})
