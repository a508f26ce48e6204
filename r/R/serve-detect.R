# Detects what a path or an object is, and therefore what has to run it. Files of the app are read
# but never evaluated, because this runs in the caller's session.

# Creates a target: `kind` says what runs the app, `path` which file or folder, `dir` in which
# folder the R process starts, and `label` is shown to the user.
new_target <- function(kind, path, dir, label, engine = NULL) {
  structure(
    list(kind = kind, path = path, dir = dir, label = label, engine = engine),
    class = "rookery_target"
  )
}

detect_target <- function(path) {
  if (!is.character(path) || length(path) != 1 || is.na(path) || !nzchar(path)) {
    abort(
      "`target` must be a path, as one string, or an app.", "rookery_bad_target",
      argument = "target"
    )
  }
  full <- path.expand(path)
  if (!file.exists(full)) {
    abort_no_path(path)
  }
  full <- normalizePath(full, winslash = "/", mustWork = TRUE)
  if (dir.exists(full)) detect_folder(full) else detect_file(full)
}

detect_folder <- function(dir) {
  entries <- list.files(dir)
  has <- function(name) ascii_lower(name) %in% ascii_lower(entries)
  actual <- function(name) file.path(dir, entries[match(ascii_lower(name), ascii_lower(entries))])
  if (has("_server.yml")) {
    return(detect_server_yml(actual("_server.yml")))
  }
  if (has("app.R")) {
    return(detect_file(actual("app.R")))
  }
  if (has("server.R")) {
    return(new_target("shiny", dir, dir, "Shiny app (server.R)"))
  }
  for (name in c("entrypoint.R", "plumber.R")) {
    if (has(name)) {
      # The folder is the path, because plumb() applies plumber's own rule to a folder.
      label <- paste0("plumber API (", basename(actual(name)), ")")
      return(new_target("plumber", dir, dir, label))
    }
  }
  documents <- Filter(
    is_shiny_document, file.path(dir, entries[grepl("[.](rmd|qmd)$", ascii_lower(entries))])
  )
  if (length(documents) > 1) {
    index <- ascii_lower(basename(documents)) == "index.rmd"
    documents <- if (any(index)) documents[index][1] else documents
  }
  if (length(documents) == 1) {
    return(detect_file(documents))
  }
  if (length(documents) > 1) {
    abort_unknown(
      dir,
      paste0(
        "it contains several documents with `runtime: shiny`: name one of ", quote_names(documents)
      )
    )
  }
  # The program `rookery` serves such a folder without R (crates/cli/src/app_detection.rs).
  if ("index.html" %in% entries && !any(grepl("[.]r$", ascii_lower(entries)))) {
    return(new_target("site", dir, dir, "site"))
  }
  abort_unknown(
    dir,
    if (length(entries) == 0) "the folder is empty" else "it has no file that can be served"
  )
}

detect_file <- function(file) {
  dir <- dirname(file)
  name <- basename(file)
  extension <- ascii_lower(sub("^.*[.]", "", name))
  if (ascii_lower(name) %in% c("_server.yml", "_server.yaml")) {
    return(detect_server_yml(file))
  }
  if (extension %in% c("rmd", "qmd")) {
    if (!is_shiny_document(file)) {
      abort_unknown(
        file,
        if (extension == "qmd") {
          "its front matter has no `server: shiny`"
        } else {
          "its front matter has no `runtime: shiny`"
        }
      )
    }
    if (extension == "qmd") {
      return(new_target("quarto", file, dir, paste0("Quarto document with Shiny (", name, ")")))
    }
    return(new_target(
      "rmarkdown", file, dir, paste0("R Markdown document with Shiny (", name, ")")
    ))
  }
  if (extension != "r") {
    abort_unknown(file, paste0("files with the extension .", extension, " are not supported"))
  }
  if (ascii_lower(name) == "server.r") {
    return(new_target("shiny", dir, dir, "Shiny app (server.R)"))
  }
  detect_script(file)
}

# Detects an R file: plumber's annotations are comments, and a Shiny app calls shinyApp(). Any other
# file is evaluated for its value.
detect_script <- function(file) {
  name <- basename(file)
  lines <- read_utf8_lines(file)
  annotation <- paste0(
    "^\\s*#[*']\\s*@",
    "(get|post|put|delete|patch|head|options|use|filter|assets|plumber|api[A-Z]\\w*)\\b"
  )
  if (any(grepl(annotation, lines, useBytes = TRUE))) {
    return(new_target("plumber", file, dirname(file), paste0("plumber API (", name, ")")))
  }
  parsed <- parse_lines(lines, file)
  calls <- all.names(parsed)
  if (any(c("shinyApp", "shinyAppDir", "shinyAppFile", "shinyUI", "shinyServer") %in% calls)) {
    return(new_target("shiny", file, dirname(file), paste0("Shiny app (", name, ")")))
  }
  if (length(parsed) == 0) {
    abort_unknown(file, "the file has no code")
  }
  # An ambiorix file is evaluated as well, and may call start() itself.
  if ("Ambiorix" %in% calls) {
    return(new_target("script", file, dirname(file), paste0("ambiorix app (", name, ")")))
  }
  new_target("script", file, dirname(file), paste0("the app that ", name, " ends with"))
}

# Parses the lines of a file, with source references. Raises an error with the place of the mistake
# if they are not valid R.
parse_lines <- function(lines, file) {
  name <- basename(file)
  tryCatch(
    with_utf8_locale(parse(
      text = lines, keep.source = TRUE, srcfile = srcfilecopy(name, lines), encoding = "UTF-8"
    )),
    error = function(error) {
      other <- which(!validUTF8(lines))
      reason <- if (length(other) > 0) {
        paste0(
          "` is not in UTF-8, see line ", other[[1]], ". Save it as UTF-8 in your editor, or convert ",
          "it, for example by `iconv -f LATIN1 -t UTF-8 ", name, " > new.R`."
        )
      } else {
        paste0("` is not valid R:\n", conditionMessage(error))
      }
      abort(paste0("`", file, reason), "rookery_bad_target")
    }
  )
}

# Follows plumber2's convention that `engine` names the package whose launch_server() runs the
# folder.
detect_server_yml <- function(file) {
  engine <- server_yml_lines(file)$engine %||% "rookery"
  new_target(
    "engine", file, dirname(file), paste0(basename(file), " (engine ", engine, ")"), engine
  )
}

# Returns whether the front matter of a document requests Shiny. As in rmarkdown, front matter is
# enclosed in two lines of three dashes; the last line may have dots.
is_shiny_document <- function(file) {
  lines <- read_utf8_lines(file, front_matter_lines)
  if (length(lines) == 0 || !grepl("^---\\s*$", lines[[1]])) {
    return(FALSE)
  }
  end <- which(grepl("^(---|[.]{3})\\s*$", lines))[2]
  if (is.na(end) || !any(grepl("shiny", lines[seq_len(end)], fixed = TRUE))) {
    return(FALSE)
  }
  front <- read_yaml(lines[seq_len(end - 1)[-1]], file)
  runtime <- front[["runtime"]]
  server <- front[["server"]]
  # In Quarto, `server` is a string, or a list with a field `type`.
  type <- if (is.list(server)) server[["type"]] else server
  (is.character(runtime) && isTRUE(startsWith(runtime, "shiny"))) || identical(type, "shiny")
}

# Returns the first `n` lines of a file in UTF-8. `options(encoding = )` would make R convert the
# lines from another encoding.
read_utf8_lines <- function(file, n = -1L) {
  con <- file(file, "r", encoding = "native.enc")
  on.exit(close(con))
  readLines(con, n, warn = FALSE, encoding = "UTF-8")
}

# The number of lines in which front matter is searched.
front_matter_lines <- 200L

# Returns the fields of a YAML file as a named list. Code in the file is not evaluated.
read_yaml <- function(lines, file) {
  if (!requireNamespace("yaml", quietly = TRUE)) {
    abort(
      paste0("To read `", file, "`, package yaml has to be installed: install.packages(\"yaml\")."),
      "rookery_no_package"
    )
  }
  fields <- tryCatch(
    yaml::yaml.load(paste(lines, collapse = "\n"), eval.expr = FALSE),
    error = function(error) {
      abort(
        paste0("`", file, "` is not valid YAML: ", conditionMessage(error)), "rookery_bad_target"
      )
    }
  )
  if (is.list(fields)) fields else list()
}

# Detects the kind of an object.
detect_object <- function(object) {
  if (inherits(object, "shiny.appobj")) {
    return(new_target("shiny", NULL, NULL, "Shiny app"))
  }
  if (inherits(object, "Plumber") || inherits(object, "plumber")) {
    return(new_target("plumber", NULL, NULL, "plumber API"))
  }
  # A Plumber2 object is a Fire object as well.
  if (inherits(object, "Fire")) {
    return(new_target(
      "fiery", NULL, NULL, if (inherits(object, "Plumber2")) "plumber2 API" else "fiery app"
    ))
  }
  if (inherits(object, "Ambiorix")) {
    return(new_target("ambiorix", NULL, NULL, "ambiorix app"))
  }
  if (is.function(object)) {
    return(new_target("app", NULL, NULL, "a function of the request"))
  }
  # Exact matching as in C; `$` would match parts of names in a list.
  field <- function(name) {
    if (is.list(object) && !is.object(object)) {
      return(object[[name]])
    }
    is_holder <- is.list(object) || is.environment(object)
    if (is_holder) tryCatch(eval(call("$", object, as.name(name))), error = function(error) NULL)
  }
  if (is.function(field("call"))) {
    return(new_target("app", NULL, NULL, "an app with `call`"))
  }
  if (is.function(field("onWSOpen"))) {
    return(new_target("app", NULL, NULL, "an app with `onWSOpen`"))
  }
  NULL
}

what_is_served <- c(
  paste(
    "a folder with _server.yml (with `engine:`, such as plumber2), app.R, server.R, entrypoint.R,",
    "plumber.R, or one R Markdown document"
  ),
  "a .R file with plumber's annotations, with a call of shinyApp(), or whose last value is an app",
  "an .Rmd file with `runtime: shiny`, a .qmd file with `server: shiny`",
  "a static site: a folder with index.html and without R files",
  paste(
    "an app object of Shiny, plumber, plumber2, fiery or ambiorix, a function of the request, or a",
    "list with `call`"
  )
)

abort_unknown <- function(path, reason) {
  abort(
    paste0(
      "`", path, "` cannot be served: ", reason, ".\nLooked for:\n",
      paste0("  - ", what_is_served, collapse = "\n")
    ),
    "rookery_bad_target",
    argument = "target",
    reason = reason
  )
}

abort_no_path <- function(path) {
  abort(text_of("missing path", path, native = TRUE), "rookery_no_target", argument = "target")
}

# Returns at most three similar names: those that differ from `name` in at most a third of its
# letters, and those that begin with it. With `most`, returns those that differ in at most `most`
# letters.
close_names <- function(name, candidates, most = "") {
  near <- text_of("similar names", name, most, paste(candidates, collapse = "\n"))
  strsplit(near, "\n", fixed = TRUE)[[1]]
}

# Returns " Did you mean `name`?" for the end of a message, or "" if no name is similar.
did_you_mean <- function(name, candidates) {
  near <- close_names(name, candidates)
  if (length(near) > 0) paste0(" Did you mean ", quote_names(near), "?") else ""
}

quote_names <- function(paths) {
  paste0("`", paths, "`", collapse = ", ")
}
