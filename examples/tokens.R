# The tokens of a language model, shown in a page as they are produced: server-sent events from a
# function that returns one token at each call.
#
#   Rscript examples/tokens.R       then open http://127.0.0.1:8000
#   rookery serve examples/tokens.R the same with an access log
#
# With the environment variable THINKING=1 the model needs a second for each token.
#
# The model is a toy within this process: it chooses the next word by the two words before it. With
# a real model the handler is one line: `sse_body(chat$stream_async(prompt), event = "token")`, with
# `chat` of package ellmer.

library(rookery)

port <- as.integer(Sys.getenv("PORT", "8000"))

# The folder of the page, which is beside this script. `rookery serve` starts in that folder; for
# Rscript the path of the script is used.
script <- sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE))
page <- Filter(dir.exists, file.path(c(".", dirname(script), "examples"), "tokens"))[[1]]
# The style sheet and the icon of all example pages.
shared <- file.path(dirname(page), "shared")

# The maximum number of tokens of a response, of characters of a prompt, and the seconds for each
# token.
longest <- 200L
longest_prompt <- 500L
thinking <- as.numeric(Sys.getenv("THINKING", "0.03"))

learned <- "
  The rook is a bird of the crow family. The rook lives with other rooks, and a colony of rooks is
  a rookery. A rookery is a noisy place, because every rook has something to say. In the morning
  the rooks leave the rookery and fly to the fields. In the fields the rooks look for worms and
  for grain. In the evening the rooks fly home to the rookery, and every rook has something to say
  of the fields. A young rook has a black beak. An old rook has a grey beak and has something to
  say of the young. The crow is a bird of the fields, and the crow lives alone. A crow in a crowd
  is a rook, and a rook alone is a crow. The rook builds its nest of twigs in a tall tree. The
  nest of a rook is close to the nest of another rook. The young rooks leave the nest in the
  spring and fly to the fields with the old. A rook that finds grain tells the other rooks. A rook
  that finds nothing follows a rook that looks full.
"
words <- scan(text = learned, what = "", quiet = TRUE)
# The words that follow each pair of words. The end of the text is followed by its beginning.
pairs <- paste(words, c(words[-1], words[[1]]))
followers <- split(c(words[-(1:2)], words[1:2]), pairs)
beginnings <- which(grepl("[.]$", c(".", words)) & seq_len(length(words) + 1) < length(words))

# Returns a function that returns a promise of the next token at each call, and NULL at the end of
# the response, as coro's async generators do.
generate <- function(prompt) {
  asked <- tolower(scan(text = gsub("[^[:alnum:] ]", " ", prompt), what = "", quiet = TRUE))
  # Begins with a sentence about the prompt, if the text has one.
  sentences <- Filter(function(i) tolower(words[[i + 1]]) %in% asked, beginnings)
  from <- if (length(sentences) > 0) sentences else beginnings
  start <- from[[sample.int(length(from), 1)]]
  said <- character()
  function() {
    n <- length(said)
    is_over <- n >= longest || (n > 12 && grepl("[.]$", said[[n]]))
    if (is_over) return(NULL)
    token <- if (n < 2) {
      words[[start + n]]
    } else {
      choices <- followers[[paste(said[[n - 1]], said[[n]])]]
      choices[[sample.int(length(choices), 1)]]
    }
    said <<- c(said, token)
    # Stands for a model in another process: R serves other requests meanwhile.
    promises::promise(function(resolve, reject) {
      later::later(function() resolve(paste0(token, " ")), thinking)
    })
  }
}

# Adds a last event that marks the end. Without it the page would reconnect, as after a lost
# connection.
with_end <- function(tokens) {
  is_over <- FALSE
  function() {
    if (is_over) return(NULL)
    token <- tokens()
    if (is.null(token)) {
      is_over <<- TRUE
      return(list(event = "done", data = ""))
    }
    promises::then(token, function(text) list(event = "token", data = text))
  }
}

answer <- function(req) {
  prompt <- decodeURIComponent(sub("^[?]prompt=", "", req$QUERY_STRING))
  # A page that reconnects in the middle of a response does not get a second response after the
  # first half.
  if (!is.null(req$HTTP_LAST_EVENT_ID) || is.na(prompt)) {
    return(list(status = 204L, headers = list(), body = ""))
  }
  began <- Sys.time()
  sse_body(
    with_end(generate(substr(prompt, 1L, longest_prompt))),
    map = function(it) sse_event(it$data, event = it$event, id = "1"),
    # The page was closed, or its user pressed Stop, so the model produces no more tokens.
    on_close = function(reason) {
      message(sprintf("An answer ended after %.1f s: %s", Sys.time() - began, reason))
    }
  )
}

app <- list(
  # Served without R.
  staticPaths = list("/" = page, "/shared" = shared, "/answer" = excludeStaticPath()),
  call = function(req) {
    if (req$PATH_INFO == "/answer") {
      answer(req)
    } else {
      list(status = 404L, headers = list(), body = "Not found\n")
    }
  }
)

# The same as runServer(), in three lines, so that the address is printed once the server listens.
server <- startServer("127.0.0.1", port, app)
cat("http://127.0.0.1:", server$getPort(), " (Ctrl-C stops)\n", sep = "")
tryCatch(service(0), finally = server$stop())
