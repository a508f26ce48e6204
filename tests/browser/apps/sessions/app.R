# An app whose observer computes until the file ROOKERY_TEST_END exists, so that the live page can show for which
# session.

library(shiny)

compute <- function(end) {
  until <- Sys.time() + 120
  while (!file.exists(end) && Sys.time() < until) NULL
}

shinyApp(
  fluidPage(actionButton("go", "Compute"), textOutput("clicks")),
  function(input, output) {
    observeEvent(input$go, compute(Sys.getenv("ROOKERY_TEST_END")), priority = 1)
    output$clicks <- renderText(paste("clicks:", input$go))
  }
)
