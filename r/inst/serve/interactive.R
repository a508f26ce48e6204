# The R profile of an interactive worker (`rookery serve --interactive`). It runs the user's
# profile and then cli.R. R is interactive, so that the app can prompt, and would otherwise read
# commands from the terminal.
local({
  folder <- dirname(Sys.getenv("R_PROFILE_USER"))
  profile <- Sys.getenv("ROOKERY_INTERNAL_PROFILE_USER", NA)
  # R processes that the app starts must not inherit them.
  Sys.unsetenv(c("ROOKERY_INTERNAL_PROFILE_USER", "R_PROFILE_USER"))
  if (is.na(profile)) {
    profile <- c(".Rprofile", "~/.Rprofile")
  } else {
    Sys.setenv(R_PROFILE_USER = profile)
  }
  profile <- profile[file.exists(profile)]
  if (length(profile) > 0) {
    tryCatch(
      sys.source(profile[[1]], globalenv()),
      error = function(error) message("Error in ", profile[[1]], ": ", conditionMessage(error))
    )
  }
  first <- get0(".First", globalenv(), mode = "function", inherits = FALSE)
  # When the profile is run the default packages are not attached yet.
  assign(".First", envir = globalenv(), function() {
    rm(".First", envir = globalenv())
    if (!is.null(first)) {
      assign(".First", first, globalenv())
      first()
    }
    .First.sys()
    Sys.setenv(ROOKERY_INTERNAL_SERVE_DIR = folder)
    sys.source(file.path(folder, "cli.R"), new.env())
  })
})
