# A Shiny app. `rookery dev .` serves it while you write it, and starts it again when you save a file.

library(shiny)

ui <- fluidPage(
  title = "Old Faithful",
  lang = "en",
  tags$head(
    tags$meta(name = "color-scheme", content = "light dark"),
    tags$link(rel = "stylesheet", href = "style.css")
  ),
  h1("Old Faithful"),
  p("How long the geyser pauses between eruptions."),
  sliderInput("bins", "Number of bins", min = 1, max = 50, value = 20, width = "100%"),
  plotOutput("plot"),
  p(textOutput("summary", inline = TRUE))
)

server <- function(input, output, session) {
  output$plot <- renderPlot(
    {
      # Greys that can be read on light and dark pages.
      par(fg = "grey50", col.axis = "grey50", col.lab = "grey50")
      breaks <- seq(min(faithful$waiting), max(faithful$waiting), length.out = input$bins + 1)
      hist(faithful$waiting, breaks = breaks, main = NULL, xlab = "Minutes", col = "#4a90c2", border = "grey50")
    },
    bg = "transparent",
    alt = "A histogram of the waiting times between eruptions"
  )
  output$summary <- renderText(sprintf("%d eruptions in %d bins", nrow(faithful), input$bins))
}

shinyApp(ui, server)
