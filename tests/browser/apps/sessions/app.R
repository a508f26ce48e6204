# An observer that computes until the file that the environment names exists, so that the live page can show for which session.

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
