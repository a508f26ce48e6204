# An app of Shiny with a download.
library(shiny)

shinyApp(
  fluidPage(downloadButton("file", "Download")),
  function(input, output) {
    output$file <- downloadHandler("file.txt", function(file) cat("downloaded", file = file))
  }
)
