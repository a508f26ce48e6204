# Servers of the parent in a forked child.

skip_on_os("windows")

test_that("a fork can neither change nor stop a server of its parent", {
  server <- local_server(function(req) ok("parent"))
  told <- parallel::mccollect(parallel::mcparallel({
    before <- list(server$isRunning(), format(server))
    refused <- tryCatch(server$setStaticPath("/x" = tempdir()), error = conditionMessage)
    server$stop()
    list(before, refused, server$isRunning(), length(listServers()))
  }))[[1]]
  expect_identical(told[[1]][[1]], FALSE)
  expect_match(told[[1]][[2]], "of another R process", fixed = TRUE)
  expect_match(told[[2]], "belongs to the process from which this one was forked")
  expect_identical(told[[3]], FALSE)
  expect_equal(told[[4]], length(listServers()) - 1)
  expect_true(server$isRunning())
  expect_equal(get(local_client(server))$text, "parent")
})

test_that("a fork can run its own server", {
  server <- local_server(function(req) ok("parent"))
  told <- in_fork(function() {
    own <- startServer("127.0.0.1", 0, function(req) ok("child"))
    is_running <- own$isRunning()
    client <- local_client(own)
    text <- get(client)$text
    own$stop()
    list(is_running, text)
  })
  expect_identical(told, list(TRUE, "child"))
})
