# What the browser tests need and a user does not: events that are counted, an output that is slow and large, a large
# download, and the ends of sessions told on stderr.

library(shiny)

options(shiny.maxRequestSize = 64 * 1024^2)

# Byte i of the download is (i * 31 + i %/% 256) %% 256; the test computes the same.
download_size <- 8 * 1024^2

ui <- fluidPage(
  actionButton("go", "Large output"),
  textOutput("count"),
  textOutput("order"),
  fileInput("file", "file"),
  textOutput("upload"),
  downloadLink("download", "download"),
  uiOutput("large")
)

server <- function(input, output, session) {
  message("session started: ", session$token)
  session$onSessionEnded(function() message("session ended: ", session$token))

  seen <- reactiveVal(integer())
  observeEvent(input$tick, seen(c(seen(), input$tick)))
  output$count <- renderText(length(seen()))
  output$order <- renderText(paste(seen(), collapse = " "))

  # Slow, so that a test can leave while R computes; 4 MB, so that it is too much for one write.
  output$large <- renderUI({
    req(input$go > 0)
    message("large output begins: ", session$token)
    Sys.sleep(1)
    tags$div(id = "large-text", strrep("x", 4e6))
  })

  output$upload <- renderText({
    file <- req(input$file)
    paste(file$size, tools::md5sum(file$datapath))
  })

  output$download <- downloadHandler(
    filename = "pattern.bin",
    content = function(path) {
      i <- seq_len(download_size) - 1
      writeBin(as.raw((i * 31 + i %/% 256) %% 256), path)
    }
  )
}

shinyApp(ui, server)
