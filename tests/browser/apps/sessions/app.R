# An observer that computes for a while, so that the live page can show for which session.

library(shiny)

compute <- function(seconds) {
  until <- Sys.time() + seconds
  while (Sys.time() < until) NULL
}

shinyApp(
  fluidPage(actionButton("go", "Compute"), textOutput("clicks")),
  function(input, output) {
    observeEvent(input$go, compute(4), priority = 1)
    output$clicks <- renderText(paste("clicks:", input$go))
  }
)
