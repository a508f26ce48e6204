# Allocations of the server, counted by the allocator.

test_that("a request and its response over a persistent connection do not allocate", {
  server <- local_server(function(req) ok())
  client <- local_client(server)
  ask <- function(n) {
    before <- .Call(ffi_allocations)
    for (i in seq_len(n)) get(client, "/")
    .Call(ffi_allocations) - before
  }
  ask(200)
  # Buffers that last for some hundred requests result in fractions.
  expect_lt(ask(1000), 50)
})
