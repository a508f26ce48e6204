# A small Shiny app that uses all kinds of requests that Shiny sends: a WebSocket for the slider,
# the plot and the text, a POST for the upload, a GET for the download, and a URL for the bookmark.
#
#   make run
#
# It is plain Shiny, and depends on no server in particular.

library(shiny)

# Shiny's own limit is 5 MB.
options(shiny.maxRequestSize = 64 * 1024^2)

# How many lines of an uploaded file are shown, and how many characters of a line.
shown_lines <- 5L
shown_width <- 80L

ui <- function(request) {
  fluidPage(
    titlePanel("Old Faithful"),
    sidebarLayout(
      sidebarPanel(
        sliderInput("bins", "Number of bins", min = 1, max = 50, value = 20),
        textInput("title", "Title of the plot", "Waiting time between eruptions"),
        bookmarkButton("Bookmark the title and the bins"),
        hr(),
        fileInput("file", "A file to upload"),
        downloadButton("download", "Download the data as CSV")
      ),
      mainPanel(
        plotOutput("plot"),
        textOutput("summary"),
        h4("The uploaded file"),
        tableOutput("upload"),
        verbatimTextOutput("lines", placeholder = TRUE)
      )
    )
  )
}

# Returns the first lines of a file as text, whatever the file contains. Reads no more than is
# shown.
first_lines <- function(path) {
  bytes <- readBin(path, "raw", n = shown_lines * shown_width)
  printable <- bytes == as.raw(0x0a) | (bytes >= as.raw(0x20) & bytes < as.raw(0x7f))
  bytes[!printable] <- charToRaw(".")
  lines <- strsplit(rawToChar(bytes), "\n", fixed = TRUE)[[1]]
  substr(head(lines, shown_lines), 1L, shown_width)
}

server <- function(input, output, session) {
  message("session started: ", session$token)
  session$onSessionEnded(function() message("session ended: ", session$token))

  breaks <- reactive({
    seq(min(faithful$waiting), max(faithful$waiting), length.out = input$bins + 1L)
  })

  output$plot <- renderPlot({
    hist(
      faithful$waiting, breaks = breaks(), main = input$title, xlab = "Minutes",
      col = "grey80", border = "white"
    )
  })

  output$summary <- renderText({
    width <- diff(range(faithful$waiting)) / input$bins
    sprintf("%d eruptions in %d bins of %.2f minutes", nrow(faithful), input$bins, width)
  })

  output$upload <- renderTable({
    file <- req(input$file)
    data.frame(name = file$name, bytes = file$size, md5 = unname(tools::md5sum(file$datapath)))
  }, digits = 0)

  output$lines <- renderText(paste(first_lines(req(input$file)$datapath), collapse = "\n"))

  output$download <- downloadHandler(
    filename = "faithful.csv",
    content = function(path) write.csv(faithful, path, row.names = FALSE),
    contentType = "text/csv"
  )
}

shinyApp(ui, server, enableBookmarking = "url")
