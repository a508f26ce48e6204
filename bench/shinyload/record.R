# Records a session with an app by shinyloadtest's own recorder: a headless browser opens the app
# through it, moves the slider, enters a title and downloads the data. Needs shinyloadtest, chromote
# and websocket (tests/dependants builds them) and Chromium.
#
#   R_LIBS=.local/dependants/lib Rscript bench/shinyload/record.R <app> <recording>
arguments <- commandArgs(trailingOnly = TRUE)
app <- normalizePath(arguments[[1]])
recording <- arguments[[2]]

serving <- httpuv::randomPort()
recorder <- httpuv::randomPort()
serve <- function(app, port) shiny::runApp(app, port = port, launch.browser = FALSE)
server <- callr::r_bg(serve, list(app, serving))
answers <- function(port) {
  connect <- function() suppressWarnings(socketConnection("127.0.0.1", port, timeout = 2))
  connection <- try(connect(), silent = TRUE)
  if (inherits(connection, "try-error")) return(FALSE)
  close(connection)
  TRUE
}
until <- Sys.time() + 120
while (!answers(serving) && Sys.time() < until) Sys.sleep(0.2)

user <- callr::r_bg(function(port) {
  Sys.setenv(CHROMOTE_CHROME = Sys.which("chromium"))
  chromote::set_chrome_args(c("--no-sandbox", "--disable-gpu", "--headless"))
  Sys.sleep(5)
  page <- chromote::ChromoteSession$new()
  page$Page$navigate(sprintf("http://127.0.0.1:%d/", port), wait_ = FALSE)
  told <- function(expression) isTRUE(page$Runtime$evaluate(expression)$result$value)
  idle <- paste(
    "document.readyState === 'complete' && !!window.Shiny && !!Shiny.shinyapp",
    "&& !!document.querySelector('#plot img')"
  )
  until <- Sys.time() + 90
  while (!told(idle) && Sys.time() < until) Sys.sleep(0.2)
  for (bins in c(10, 30)) {
    Sys.sleep(2)
    page$Runtime$evaluate(sprintf("Shiny.setInputValue('bins', %d)", bins))
  }
  Sys.sleep(2)
  page$Runtime$evaluate("Shiny.setInputValue('title', 'Recorded')")
  Sys.sleep(2)
  download <- "fetch(document.querySelector('#download').href).then(answer => answer.text())"
  page$Runtime$evaluate(download, awaitPromise = TRUE)
  Sys.sleep(1)
  page$close()
}, list(recorder))

shinyloadtest::record_session(
  sprintf("http://127.0.0.1:%d/", serving),
  port = recorder, output_file = recording, open_browser = FALSE
)
user$wait(10000)
user$kill()
server$kill()
