# Makes a copy of this package stand on its own: `R CMD build r` makes a copy, following the links src/rust/crates,
# src/rust/workspace.toml and src/rust/workspace.lock out of the package, and configure (or cleanup, when no vignette
# has to be built) runs this in it. What comes out is a tarball that installs without a network.
#
#   Rscript tools/vendor.R      in the copy's top folder
#
#  - src/rust/Cargo.toml becomes a workspace of its own: the repository's, with this crate as its root.
#  - src/rust/vendor.tar.xz holds the sources of all other crates; configure unpacks it.
#  - inst/COPYRIGHTS names them with their licences.

rust <- file.path("src", "rust")
stopifnot(
  "run in the top folder of the package" = file.exists("DESCRIPTION"),
  "src/rust/crates is a link: this is the source tree, which needs none of this" = !nzchar(Sys.readlink(file.path(rust, "crates"))),
  "src/rust/crates is not there" = dir.exists(file.path(rust, "crates"))
)

run <- function(..., dir = rust, env = character()) {
  before <- setwd(dir)
  on.exit(setwd(before))
  output <- suppressWarnings(system2("cargo", c(...), stdout = TRUE, stderr = TRUE, env = env))
  if (!is.null(attr(output, "status"))) {
    stop("cargo ", paste(c(...), collapse = " "), " failed:\n", paste(output, collapse = "\n"), call. = FALSE)
  }
  output
}

# ---- one workspace --------------------------------------------------------

# Leaves out the tables whose heads match.
without_tables <- function(lines, pattern) {
  is_head <- grepl("^\\[", lines)
  table <- cumsum(is_head)
  dropped <- table[is_head][grepl(pattern, lines[is_head])]
  lines[!table %in% dropped]
}

root <- readLines(file.path(rust, "workspace.toml"))
root <- root[!grepl("\"r/src/rust\"|^exclude *=", root)]
own <- readLines(file.path(rust, "Cargo.toml"))
writeLines(c(root, "", own), file.path(rust, "Cargo.toml"))
file.copy(file.path(rust, "workspace.lock"), file.path(rust, "Cargo.lock"), overwrite = TRUE)
unlink(file.path(rust, c("workspace.toml", "workspace.lock")))
for (crate in list.dirs(file.path(rust, "crates"), recursive = FALSE)) {
  manifest <- file.path(crate, "Cargo.toml")
  # Their tests are run in the repository; here they would only be more crates to carry.
  writeLines(without_tables(readLines(manifest), "dev-dependencies|^\\[\\[(test|bench|example)"), manifest)
  unlink(file.path(crate, c("tests", "benches", "examples", "fuzz", "target")), recursive = TRUE)
}
# Drops from the lock what only tests needed, and changes no version.
run("metadata", "--format-version=1", "--quiet", if (nzchar(Sys.getenv("ROOKERY_OFFLINE"))) "--offline")

# ---- everybody else's crates ----------------------------------------------

unlink(file.path(rust, "vendor"), recursive = TRUE)
run("vendor", "--locked", "--quiet", "vendor")
vendor <- file.path(rust, "vendor")

# Removes files of a vendored crate, and their checksums: cargo checks what is listed.
prune <- function(crate, keeps) {
  files <- list.files(crate, recursive = TRUE, all.files = TRUE)
  gone <- files[!keeps(files)]
  unlink(file.path(crate, gone))
  path <- file.path(crate, ".cargo-checksum.json")
  sums <- readLines(path, warn = FALSE)
  for (name in gone) {
    entry <- paste0("\"", gsub("([.+*?^$()|{}\\[\\]\\\\])", "\\\\\\1", name, perl = TRUE), "\":\"[0-9a-f]{64}\",?")
    sums <- sub(entry, "", sums, perl = TRUE)
  }
  writeLines(sub(",}", "}", sums, fixed = TRUE), path)
}

# The files that the sources of a crate include, such as the examples in clap's documentation.
included <- function(crate) {
  sources <- list.files(crate, "[.]rs$", recursive = TRUE)
  paths <- lapply(sources, function(source) {
    lines <- grep("include(_str|_bytes)?!", readLines(file.path(crate, source), warn = FALSE), value = TRUE, useBytes = TRUE)
    found <- regmatches(lines, regexpr("include(_str|_bytes)?!\\(\"[^\"]+", lines, useBytes = TRUE))
    if (length(found) > 0) file.path(dirname(source), sub("^[^\"]*\"", "", found, useBytes = TRUE))
  })
  paths <- as.character(unlist(paths))
  while (any(is_up <- grepl("[^/]+/[.][.]/", paths))) {
    paths[is_up] <- sub("[^/]+/[.][.]/", "", paths[is_up])
  }
  paths
}

# Crates for systems that the package does not support: the resolver wants to see them, nobody compiles them.
is_foreign <- function(name) grepl("^(windows|winapi|wasi|wasip|wit-bindgen|r-efi|hermit-abi|redox_)", name)
for (crate in list.dirs(vendor, recursive = FALSE)) {
  if (is_foreign(basename(crate))) {
    prune(crate, function(files) grepl("^(Cargo[.]toml|[.]cargo-checksum[.]json|LICEN[CS]E.*|license.*)$", files))
    dir.create(file.path(crate, "src"), showWarnings = FALSE)
    file.create(file.path(crate, "src", "lib.rs"))
  } else {
    needed <- included(crate)
    prune(crate, function(files) {
      # ring has its assembly for Windows as well, some of it assembled.
      files %in% needed | !grepl("^(tests|benches|bench|examples|fuzz|ci|docs|doc|[.]github|test_data|test-data|corpus)/", files) &
        !grepl("^pregenerated/.*-(nasm|win32n|win64)[.]", files) &
        # mimalloc comes in two versions, of which one is compiled.
        !grepl("^c_src/mimalloc/(v2|v3/(contrib|[.]github))/", files)
    })
  }
  empty <- rev(list.dirs(crate))
  unlink(empty[vapply(empty, function(dir) length(list.files(dir, all.files = TRUE, no.. = TRUE)) == 0, logical(1))],
    recursive = TRUE
  )
}

# ---- who wrote them -------------------------------------------------------

field <- function(lines, name) {
  found <- grep(paste0("^", name, " *= *\""), lines, value = TRUE)
  if (length(found) == 0) NA_character_ else sub("\".*$", "", sub("^[^\"]*\"", "", found[[1]]))
}
authors <- function(text) {
  found <- regmatches(text, regexpr("(?m)^authors *= *\\[[^]]*\\]", text, perl = TRUE))
  if (length(found) == 0) return("")
  paste(gsub("\"", "", regmatches(found, gregexpr("\"[^\"]*\"", found))[[1]]), collapse = ", ")
}
entries <- vapply(list.dirs(vendor, recursive = FALSE), function(crate) {
  lines <- readLines(file.path(crate, "Cargo.toml"), warn = FALSE)
  who <- authors(paste(lines, collapse = "\n"))
  paste0(
    field(lines, "name"), " ", field(lines, "version"), "\n  Licence: ", field(lines, "license"),
    if (nzchar(who)) paste0("\n  Authors: ", who)
  )
}, character(1))
licences <- sub("\n.*", "", sub(".*\n  Licence: ", "", entries))
if (anyNA(licences) || any(licences == "NA")) {
  stop("no licence: ", paste(basename(names(entries)[licences == "NA"]), collapse = ", "), call. = FALSE)
}
dir.create("inst", showWarnings = FALSE)
writeLines(
  c("The shared object and the program of this package contain these Rust crates (those for other systems left out):", "", entries),
  file.path("inst", "COPYRIGHTS")
)

# ---- the archive ----------------------------------------------------------

before <- setwd(rust)
# xz -9: a tenth of the size, once, against a minute.
status <- system2("tar", c("-cJf", "vendor.tar.xz", "vendor"), env = "XZ_OPT=-9")
stopifnot("tar with xz is needed" = status == 0)
unlink("vendor", recursive = TRUE)
setwd(before)

# Outside the repository the target folder is the package's own.
makevars <- readLines(file.path("src", "Makevars"))
stopifnot("Makevars has changed: see the end of tools/vendor.R" = any(grepl("^TARGET_DIR *=", makevars)))
writeLines(sub("^TARGET_DIR *=.*$", "TARGET_DIR = $(CURDIR)/rust/target", makevars), file.path("src", "Makevars"))
size <- file.size(file.path(rust, "vendor.tar.xz"))
message("vendored ", length(entries), " crates into src/rust/vendor.tar.xz (", round(size / 2^20, 1), " MiB)")
