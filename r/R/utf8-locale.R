# Sources of apps are in UTF-8. In another locale, R's parser fails at letters that the locale lacks,
# and in the C locale, which a process has if its environment names no locale, at every letter outside
# ASCII.

# Makes this process an R process with UTF-8 if it was started in the C locale, so that rookery,
# Shiny, plumber and knitr all read sources as UTF-8. Another locale is kept, because the app may
# read data in its encoding, and reads sources as source(encoding = "UTF-8") does.
# The same applies to processes that this one starts, such as R processes of the app and Quarto.
leave_c_locale <- function() {
  if (Sys.getlocale("LC_CTYPE") %in% c("C", "POSIX")) {
    name <- set_utf8_locale()
    variable <- if (nzchar(Sys.getenv("LC_ALL"))) "LC_ALL" else "LC_CTYPE"
    if (!is.null(name)) do.call(Sys.setenv, set_names(list(name), variable))
  }
}

# Evaluates `body` in a locale with UTF-8.
with_utf8_locale <- function(body) {
  if (!l10n_info()[["UTF-8"]]) {
    former <- Sys.getlocale("LC_CTYPE")
    on.exit(Sys.setlocale("LC_CTYPE", former))
    set_utf8_locale()
  }
  body
}

# The names of locales with UTF-8, of which each system has at least one: glibc and musl, macOS, and
# older distributions of Linux.
utf8_locales <- c("C.UTF-8", "UTF-8", "en_US.UTF-8")

# Returns the name of the locale, or NULL if the system has none.
set_utf8_locale <- function() {
  for (name in utf8_locales) {
    # An unknown locale gives a warning and "".
    if (nzchar(suppressWarnings(Sys.setlocale("LC_CTYPE", name)))) {
      return(name)
    }
  }
}
