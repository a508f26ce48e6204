# Makes a copy of this package independent of the repository. `R CMD build r` copies the package and
# follows its links to the repository: src/rust/crates, src/rust/libraries, src/rust/third-party,
# src/rust/workspace.toml and src/rust/workspace.lock. configure (or cleanup, if no vignette must be
# built) runs this script in the copy. The resulting tarball installs without a network.
#
#   Rscript tools/vendor.R      in the copy's top folder
#
#  - src/rust/Cargo.toml becomes the workspace of the repository, with this crate as its root.
#  - src/rust/third-party contains the crates that the repository has changed copies of.
#  - src/rust/vendor.tar.xz contains the sources of all other crates; configure unpacks it.
#  - inst/compat-src, the source of rookery's httpuv, is removed unless ROOKERY_COMPAT=yes, because
#    repositories do not accept a package of that name within another one.
#  - inst/AUTHORS and LICENSE.note, which scripts/r/licences writes, must list these crates.

rust <- file.path("src", "rust")
stopifnot(
  "run in the top folder of the package" = file.exists("DESCRIPTION"),
  "src/rust/crates is a link: this is the source tree, where crates are not vendored" =
    !nzchar(Sys.readlink(file.path(rust, "crates"))),
  "src/rust/crates does not exist" = dir.exists(file.path(rust, "crates"))
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

if (!identical(Sys.getenv("ROOKERY_COMPAT"), "yes")) {
  unlink(file.path("inst", "compat-src"), recursive = TRUE)
}

# ---- one workspace --------------------------------------------------------

# Returns the lines of a TOML file without the tables whose header matches.
without_tables <- function(lines, pattern) {
  is_head <- grepl("^\\[", lines)
  table <- cumsum(is_head)
  dropped <- table[is_head][grepl(pattern, lines[is_head])]
  lines[!table %in% dropped]
}

root <- readLines(file.path(rust, "workspace.toml"))
# crates/test-support is a dev-dependency of other crates, whose tests stay in the repository.
root <- root[!grepl("\"r/src/rust\"|^exclude *=|test-support", root)]
own <- readLines(file.path(rust, "Cargo.toml"))
writeLines(c(root, "", own), file.path(rust, "Cargo.toml"))
file.copy(file.path(rust, "workspace.lock"), file.path(rust, "Cargo.lock"), overwrite = TRUE)
unlink(file.path(rust, c("workspace.toml", "workspace.lock")))
unlink(file.path(rust, "crates", "test-support"), recursive = TRUE)
for (crate in list.dirs(file.path(rust, c("crates", "libraries")), recursive = FALSE)) {
  manifest <- file.path(crate, "Cargo.toml")
  # Tests run in the repository. In the tarball they would only require more crates.
  writeLines(without_tables(readLines(manifest), "dev-dependencies|^\\[\\[(test|bench|example)"), manifest)
  unlink(file.path(crate, c("tests", "bench", "benches", "examples", "fuzz", "target")), recursive = TRUE)
}
# Removes the dependencies of tests from the lock file, and changes no version.
run("metadata", "--format-version=1", "--quiet", if (nzchar(Sys.getenv("ROOKERY_OFFLINE"))) "--offline")

# ---- third-party crates ----------------------------------------------------

unlink(file.path(rust, "vendor"), recursive = TRUE)
run("vendor", "--locked", "--quiet", "vendor")
vendor <- file.path(rust, "vendor")

# Removes files of a vendored crate and their checksums, because cargo checks all listed files.
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

# Returns the files that the sources of a crate include, such as examples in clap's documentation.
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

# The crates that are compiled for Windows, such as "windows-sys 0.61.2", with their features.
on_windows <- strsplit(
  sub(" v([^ |]+)[^|]*", " \\1", run(
    "tree", "--locked", "--offline", "--quiet", "--target", "x86_64-pc-windows-gnu", "--edges", "normal,build",
    "--prefix", "none", "--no-dedupe", "--format", shQuote("{p}|{f}")
  )),
  "|", fixed = TRUE
)
features_on_windows <- lapply(split(on_windows, vapply(on_windows, `[`, "", 1)), function(crates) {
  unique(unlist(lapply(crates, function(crate) strsplit(paste0(crate[-1], ""), ",", fixed = TRUE))))
})
stopifnot("cargo tree names no crate of Windows" = any(grepl("^windows-sys ", names(features_on_windows))))

# Returns the name and the version of a vendored crate.
id_of <- function(crate) {
  lines <- readLines(file.path(crate, "Cargo.toml"), warn = FALSE)
  value <- function(field) sub(".*\"([^\"]*)\".*", "\\1", grep(paste0("^", field, " *= *\""), lines, value = TRUE)[[1]])
  paste(value("name"), value("version"))
}

# The crates that are compiled on some system that the package supports. The others are for other
# systems or for features that nothing turns on. cargo's resolver needs only their manifests.
compiled <- sub(" v([^ ]+).*", " \\1", run(
  "tree", "--locked", "--offline", "--quiet", "--edges", "normal,build", "--prefix", "none",
  paste("--target", c(
    "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "x86_64-pc-windows-gnu", "aarch64-pc-windows-gnullvm",
    "x86_64-apple-darwin", "aarch64-apple-darwin", "x86_64-unknown-freebsd"
  ))
))
is_foreign <- function(crate) !id_of(crate) %in% compiled

# Returns whether files of windows-sys, which has a module for each of its features, belong to
# features that are used. The others are nine tenths of its size.
is_module_used <- function(crate, files) {
  used <- gsub("_", "/", features_on_windows[[id_of(crate)]], fixed = TRUE)
  !startsWith(files, "src/Windows/") | sub("^src/Windows/(.*/)?mod[.]rs$", "\\1", files) %in% c("", paste0(used, "/"))
}

for (crate in list.dirs(vendor, recursive = FALSE)) {
  if (is_foreign(crate)) {
    prune(crate, function(files) grepl("^(Cargo[.]toml|[.]cargo-checksum[.]json|LICEN[CS]E.*|license.*)$", files))
    dir.create(file.path(crate, "src"), showWarnings = FALSE)
    file.create(file.path(crate, "src", "lib.rs"))
  } else if (startsWith(id_of(crate), "windows-sys ")) {
    prune(crate, function(files) is_module_used(crate, files))
  } else {
    needed <- included(crate)
    prune(crate, function(files) {
      # ring contains assembly for other assemblers, and for processors without R on Windows.
      files %in% needed | !grepl("^(tests|test-macros|benches|bench|examples|fuzz|ci|docs|doc|[.]github|test_data|test-data|corpus)/", files) &
        !grepl("^pregenerated/.*(-win32n[.].*|-win64[.]S|[.]asm)$", files) &
        # The crate contains two versions of mimalloc, of which one is compiled.
        !grepl("^c_src/mimalloc/(v2|v3/(contrib|[.]github))/", files)
    })
  }
  empty <- rev(list.dirs(crate))
  unlink(empty[vapply(empty, function(dir) length(list.files(dir, all.files = TRUE, no.. = TRUE)) == 0, logical(1))],
    recursive = TRUE
  )
}

# ---- authors and licences --------------------------------------------------

# scripts/r/licences in the repository has written the list.
field <- function(lines, name) {
  found <- grep(paste0("^", name, " *= *\""), lines, value = TRUE)
  sub("\".*$", "", sub("^[^\"]*\"", "", found[[1]]))
}
crates <- list.dirs(c(vendor, file.path(rust, "third-party")), recursive = FALSE)
entries <- vapply(crates, function(crate) {
  lines <- readLines(file.path(crate, "Cargo.toml"), warn = FALSE)
  paste(field(lines, "name"), field(lines, "version"))
}, character(1))
unlisted <- setdiff(entries, readLines(file.path("inst", "AUTHORS"), encoding = "UTF-8"))
if (length(unlisted) > 0) {
  stop(
    "inst/AUTHORS does not list ", paste(unlisted, collapse = ", "), ": run scripts/r/licences in the repository",
    call. = FALSE
  )
}

# ---- the archive ----------------------------------------------------------

before <- setwd(rust)
# xz -9 saves a tenth of the size and takes a minute.
status <- system2("tar", c("-cJf", "vendor.tar.xz", "vendor"), env = "XZ_OPT=-9")
stopifnot("tar with xz is needed" = status == 0)
unlink("vendor", recursive = TRUE)
setwd(before)

# Outside the repository, the target folder is in the package.
makevars <- readLines(file.path("src", "Makevars"))
stopifnot("Makevars has changed: see the end of tools/vendor.R" = any(grepl("^TARGET_DIR *=", makevars)))
writeLines(sub("^TARGET_DIR *=.*$", "TARGET_DIR = $(CURDIR)/rust/target", makevars), file.path("src", "Makevars"))
size <- file.size(file.path(rust, "vendor.tar.xz"))
message("vendored ", length(entries), " crates into src/rust/vendor.tar.xz (", round(size / 2^20, 1), " MiB)")
