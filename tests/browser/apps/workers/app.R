# What a page shows of the R behind it, and what it has to have kept when that R is another one. Its pages allow no script but those of files
# (what is evaluated is Shiny's conditions, and what the tests wait for).

library(shiny)

policy <- "default-src 'self' data:; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'"

ui <- function(request) {
  fluidPage(
    tags$head(tags$meta(`http-equiv` = "Content-Security-Policy", content = policy)),
    tags$p(id = "made-by", Sys.getpid()),
    textInput("text", "text", "first"),
    sliderInput("number", "number", 1, 100, 1),
    actionButton("add", "add"),
    textOutput("pid"),
    textOutput("echo"),
    textOutput("count"),
    fileInput("file", "file"),
    textOutput("upload"),
    downloadLink("download", "download")
  )
}

server <- function(input, output, session) {
  allows <- isolate(parseQueryString(session$clientData$url_search)$allow)
  session$allowReconnect(!identical(allows, "no"))
  # Kept by the session alone.
  count <- reactiveVal(0)
  observeEvent(input$add, count(count() + 1))
  output$pid <- renderText(Sys.getpid())
  output$echo <- renderText(paste(input$text, input$number))
  # Observers of what happens once, which a new session must not do again.
  observeEvent(input$event, count(count() + 100))
  output$count <- renderText(count())
  output$upload <- renderText({
    file <- req(input$file)
    paste(file$size, tools::md5sum(file$datapath), Sys.getpid())
  })
  output$download <- downloadHandler(
    filename = "pid.txt",
    content = function(path) writeLines(as.character(Sys.getpid()), path)
  )
}

shinyApp(ui, server)
