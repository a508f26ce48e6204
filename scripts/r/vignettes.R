# Builds the vignettes of a package's source and adds them to the installed package, as R CMD
# INSTALL does of a tarball.
#
#   Rscript scripts/r/vignettes.R <source> <installed package>
#
# The exit status is 1, with the reason on stderr, if they cannot be built.

arguments <- commandArgs(trailingOnly = TRUE)
source <- arguments[[1]]
installed <- arguments[[2]]
has <- vapply(c("knitr", "rmarkdown"), requireNamespace, NA, quietly = TRUE)
if (!all(has) || !rmarkdown::pandoc_available()) {
  message("install: no vignettes: they need pandoc and the R packages knitr and rmarkdown")
  quit(status = 1)
}

work <- file.path(tempdir(), "package")
dir.create(work)
stopifnot(file.copy(file.path(source, c("DESCRIPTION", "vignettes")), work, recursive = TRUE))
tools::buildVignettes(dir = work)

found <- tools::pkgVignettes(dir = work, output = TRUE)
stopifnot(length(found$docs) > 0, file.exists(found$outputs))
about <- lapply(found$docs, tools::vignetteInfo)
index <- data.frame(
  File = basename(found$docs), Title = vapply(about, `[[`, "", "title"),
  PDF = basename(found$outputs), R = "", stringsAsFactors = FALSE
)
index$Depends <- lapply(about, `[[`, "depends")
index$Keywords <- lapply(about, `[[`, "keywords")

doc <- file.path(installed, "doc")
dir.create(doc, showWarnings = FALSE)
stopifnot(file.copy(c(found$docs, found$outputs), doc, overwrite = TRUE))
saveRDS(index, file.path(installed, "Meta", "vignette.rds"), version = 2)
lines <- c(
  "<!doctype html>", "<meta charset=\"utf-8\">", "<title>Vignettes of rookery</title>",
  "<h1>Vignettes of rookery</h1>", "<ul>",
  paste0("<li><a href=\"", index$PDF, "\">", index$Title, "</a>"), "</ul>"
)
# Written last, because its presence means that all are installed.
writeLines(lines, file.path(doc, "index.html"))
