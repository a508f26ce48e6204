# The error page for developers: the condition, the calls that led to it with their source lines,
# and the request. It is sent only if `rookery.error_detail` is "full", and only to a browser on
# this machine (src/rust/src/exchange/error_format.rs). `rookery dev` sends it to browsers that have
# the server's token, and also shows it if the app could not be started.

# The number of source lines shown before and after the line of a call.
lines_around <- 3L
# The maximum number of characters shown of a text, and of one value of the request.
page_text <- 10000L
page_value <- 1000L

page_style <- paste0(
  "*{box-sizing:border-box}",
  ":root{color-scheme:light dark;--text:#1b1f24;--quiet:#5b646e;--back:#f5f6f8;--card:#fff;--line:#d9dee4;--red:#c42b1c;--here:#fdeae8;--link:#0a58ca}",
  "body{margin:0;font:15px/1.55 system-ui,sans-serif;color:var(--text);background:var(--back)}",
  "header{background:var(--card);border-top:5px solid var(--red);border-bottom:1px solid var(--line)}",
  "header,main{padding:1.1rem max(1.25rem,calc(50vw - 35rem))}",
  "main{padding-bottom:3rem}",
  "main>p:last-child{margin-top:1.6rem}",
  "h1{font-size:1.45rem;line-height:1.35;margin:.35rem 0 .5rem;white-space:pre-wrap;overflow-wrap:anywhere}",
  "h2{font-size:.8rem;letter-spacing:.06em;text-transform:uppercase;color:var(--quiet);margin:1.8rem 0 .5rem}",
  "p{margin:.25rem 0}",
  ".quiet{color:var(--quiet)}",
  "a{color:var(--link)}",
  "code,pre,td,th{font:13px/1.6 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}",
  "details,table{background:var(--card);border:1px solid var(--line)}",
  "details{border-radius:8px;margin:.45rem 0;overflow:hidden}",
  "details details{margin:.45rem .8rem}",
  "details>p{padding:0 .9rem .6rem}",
  "summary{padding:.5rem .9rem;cursor:pointer;overflow-wrap:anywhere}",
  "summary:hover{background:var(--back)}",
  "header pre{padding:.6rem 0 0;margin:.2rem 0 .6rem;border:0}",
  "summary span{float:right;margin-left:1rem}",
  "pre{margin:0;padding:.6rem 0;overflow-x:auto;border-top:1px solid var(--line);tab-size:4}",
  "pre i,pre b{display:block;font-style:normal;font-weight:400;padding:0 .9rem;border-left:3px solid transparent;min-width:max-content}",
  "pre b{background:var(--here);border-color:var(--red)}",
  "table{border-collapse:collapse;width:100%}",
  "th,td{text-align:left;vertical-align:top;padding:.3rem .8rem;border:1px solid var(--line);overflow-wrap:anywhere}",
  "th{width:14rem;font-weight:600}",
  "@media(max-width:40rem){th{width:8rem}summary span{float:none;display:block;margin:0}}",
  "@media(prefers-color-scheme:dark){:root{--text:#e4e7ea;--quiet:#9aa4af;--back:#14161a;--card:#1c1f24;--line:#343a42;--red:#f0685b;--here:#45211f;--link:#7db1ff}}"
)

# The Content-Security-Policy allows no scripts and no loading of resources. The only style is the
# page's own, named by the hash of `page_style`.
page_headers <- list(
  "Content-Type" = "text/html; charset=utf-8",
  "Content-Security-Policy" =
    "default-src 'none'; style-src 'sha256-5eg5CKv3O59aDnJii6T7H+KFI2LQGXRGvMF5GiAKtag='; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox",
  "Cache-Control" = "no-store",
  "X-Content-Type-Options" = "nosniff",
  "Referrer-Policy" = "no-referrer",
  "Cross-Origin-Resource-Policy" = "same-origin"
)

# The policy of a page in a frame (dev_write_session_error()), in which no script runs.
framed_page_policy <-
  "default-src 'none'; style-src 'sha256-5eg5CKv3O59aDnJii6T7H+KFI2LQGXRGvMF5GiAKtag='"

# The policy of the page in development, in which a script of the server reloads it.
dev_page_policy <- paste0(
  framed_page_policy, "; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
)

page_response <- function(report) {
  list(status = 500L, headers = page_headers, body = error_html(report))
}

error_html <- function(report) {
  condition <- condition_of(report)
  request <- page_request(report$req)
  hide <- function(text) hide_values(text, c(request$secrets, report$secrets))
  message <- tryCatch(
    paste(conditionMessage(condition), collapse = "\n"), error = function(error) ""
  )
  message <- if (is.character(message) && nzchar(message)) {
    readable(message)
  } else {
    "an error without a message"
  }
  classes <- setdiff(class(condition), c("rookery_failure", "rookery_error"))
  call <- tryCatch(conditionCall(condition), error = function(error) NULL)
  about <- c(
    paste("<p class=quiet>", html_text(hide(error_place(report))), "</p>"),
    message_html(hide(message)),
    paste0("<p><code>", html_text(paste(classes, collapse = ", ")), "</code></p>"),
    if (is.call(call)) paste0("<p>in <code>", html_text(hide(one_line(call))), "</code></p>"),
    vapply(
      parent_lines(condition),
      function(line) paste0("<p>", html_text(hide(line), page_text), "</p>"), ""
    ),
    if (nzchar(report$request_id)) {
      paste0("<p class=quiet>Request <code>", html_text(report$request_id), "</code></p>")
    },
    if (nzchar(report$session %||% "")) {
      paste0("<p class=quiet>Session <code>", html_text(report$session), "</code></p>")
    }
  )
  paste0(
    c(
      "<!doctype html>", "<html lang=en>", "<head><meta charset=utf-8>",
      "<meta name=viewport content=width=device-width>",
      paste0("<title>", html_text(hide(message), 200L), "</title>"),
      paste0("<style>", page_style, "</style></head>"), "<body>", "<header>", about, "</header>",
      "<main>",
      parse_html(message, hide),
      if (!identical(report$stage, "start") || length(report$trace$call) > 0) {
        frames_html(report$trace, hide)
      },
      values_html("Inputs", report$inputs, hide), request_html(request, hide),
      paste0("<p class=quiet>", page_reason(report), "</p>"),
      "</main>", "</body>", "</html>"
    ),
    "\n", collapse = ""
  )
}

# Returns the first line of a message as the heading, and the others below it.
message_html <- function(message) {
  lines <- strsplit(substr(message, 1L, page_text), "\n", fixed = TRUE)[[1]]
  more <- lines[-1]
  c(
    paste0("<h1>", html_text(lines[1], page_text), "</h1>"),
    if (length(more) > 0) {
      paste0("<pre>", html_text(paste(more, collapse = "\n"), page_text), "</pre>")
    }
  )
}

# Says why the page is shown.
page_reason <- function(report) {
  if (identical(report$stage, "start")) {
    return("Save a file of the app to start it again. This page then reloads by itself.")
  }
  who <- if (is_dev()) {
    "browsers that have the token of this server. It reloads by itself when a file is saved"
  } else {
    "a browser on this machine"
  }
  paste0("This page is shown because rookery.error_detail is full, and only to ", who, ".")
}

# Returns the lines around the place that the message of an error in R's parser names.
parse_html <- function(message, hide) {
  place <- dev_parse_place(message)
  if (is.null(place)) {
    return(NULL)
  }
  source <- srcfile(place$file, encoding = "UTF-8")
  c(
    "<h2>Source</h2>",
    paste0(
      "<details open><summary><code>", html_text(basename(place$file)), "</code>",
      place_html(basename(place$file), place$line, source),
      "</summary>", lines_html(source, place$line, hide), "</details>"
    )
  )
}

# ---- calls ----

# Formats the frames, the innermost first. Consecutive calls within packages are folded, unless the
# app's code is evaluated by a package, as an argument of a package's function is.
frames_html <- function(trace, hide) {
  count <- length(trace$call)
  if (count == 0) {
    return(c(
      "<h2>Calls</h2>",
      "<p class=quiet>The calls are unknown, as after a promise or a stack overflow.</p>"
    ))
  }
  at <- rev(seq_len(count))
  of_package <- !is.na(trace$package)
  is_own <- !of_package | (!is.na(trace$file) & c(FALSE, of_package[-count]))
  is_package <- !is_own[at]
  run <- cumsum(c(TRUE, is_package[-1] != is_package[-count] | !is_package[-1]))
  is_first <- TRUE
  parts <- character()
  for (frames in unname(split(at, run))) {
    html <- vapply(frames, function(frame) {
      is_open <- is_first && is_own[[frame]]
      if (is_open) is_first <<- FALSE
      frame_html(trace, frame, hide, is_open)
    }, "")
    packages <- unique(trace$package[frames])
    if (!any(is_own[frames])) {
      calls <- paste(
        length(frames), if (length(frames) == 1) "call" else "calls", "inside",
        paste(packages, collapse = ", ")
      )
      html <- c(
        paste0("<details><summary class=quiet>", html_text(calls), "</summary>"), html, "</details>"
      )
    }
    parts <- c(parts, html)
  }
  left_out <- if (isTRUE(trace$left_out > 0)) {
    paste0("<p class=quiet>", trace$left_out, " more are left out.</p>")
  }
  folded <- if (isTRUE(trace$folded > 0)) {
    paste0("<p class=quiet>", trace$folded, " calls of packages are not shown.</p>")
  }
  c("<h2>Calls, the newest first</h2>", parts, left_out, folded)
}

# Returns the HTML of a frame, with the source lines around the line that was being evaluated, or
# around the call if that line is unknown.
frame_html <- function(trace, frame, hide, is_open) {
  is_at <- !is.na(trace$at_line[[frame]])
  file <- if (is_at) trace$at_file[[frame]] else trace$file[[frame]]
  line <- if (is_at) trace$at_line[[frame]] else trace$line[[frame]]
  source <- if (is_at) trace$at_source[[frame]] else trace$source[[frame]]
  title <- paste0(
    "<code>", html_text(hide(trace$call[[frame]])), "</code>", place_html(file, line, source)
  )
  lines <- lines_html(source, line, hide)
  if (is.null(lines)) {
    return(paste0(
      "<details><summary>", title,
      "</summary><p class=quiet>R has no source code of it.</p></details>"
    ))
  }
  paste0("<details", if (is_open) " open", "><summary>", title, "</summary>", lines, "</details>")
}

# Returns the name of a file with a line, as a link to the developer's editor if that is known.
place_html <- function(file, line, source) {
  if (is.na(line)) {
    return("")
  }
  text <- html_text(paste0(if (is.na(file)) "line " else paste0(file, ":"), line))
  link <- dev_editor_link(source, line)
  if (!is.null(link)) {
    text <- paste0(
      "<a title=\"Open in the editor\" href=\"", html_text(link, 4000L), "\">", text, "</a>"
    )
  }
  paste0(" <span class=quiet>", text, "</span>")
}

# Returns the lines around a line of a source, or NULL if the source has no such line.
lines_html <- function(source, line, hide) {
  lines <- source_lines(source, line)
  if (length(lines) == 0) {
    return(NULL)
  }
  text <- paste(
    formatC(names(lines), width = max(nchar(names(lines)))), html_text(hide(lines), page_value)
  )
  is_here <- names(lines) == line
  tags <- ifelse(is_here, "b", "i")
  paste0("<pre>", paste0("<", tags, ">", text, "</", tags, ">", collapse = ""), "</pre>")
}

# Returns the lines around a line of a source, named by their numbers; none if the file has changed
# since it was parsed.
source_lines <- function(source, line) {
  if (is.null(source) || is.na(line)) {
    return(character())
  }
  first <- max(1L, line - lines_around)
  lines <- tryCatch(
    vapply(getSrcLines(source, first, line + lines_around), readable, "", USE.NAMES = FALSE),
    error = function(error) character(), warning = function(warning) character()
  )
  set_names(lines, seq(first, length.out = length(lines)))
}

# ---- the request ----

# Returns list(line =, headers =, parameters =, secrets =): the parts of the request that the page
# shows, and the values that must not appear anywhere on the page. NULL without a request.
page_request <- function(req) {
  if (!is.environment(req)) {
    return(NULL)
  }
  field <- function(name) {
    value <- tryCatch(get0(name, envir = req, inherits = FALSE), error = function(error) NULL)
    if (is.character(value)) vapply(value, readable, "") else character()
  }
  headers <- field("HEADERS")
  parameters <- query_parameters(field("QUERY_STRING"))
  is_secret <- is_secret_name(names(parameters))
  masked <- mask(headers)
  # The query parameters of the referring page may be secret.
  masked[names(masked) == "referer"] <- sub("[?].*$", "?...", masked[names(masked) == "referer"])
  hidden <- c(headers[masked == "[masked]"], parameters[is_secret])
  parameters[is_secret] <- "[masked]"
  line <- trimws(paste(field("REQUEST_METHOD")[1], field("PATH_INFO")[1]))
  list(line = line, headers = masked, parameters = parameters, secrets = secret_parts(hidden))
}

# Returns the decoded query parameters, named.
query_parameters <- function(query) {
  parts <- strsplit(sub("^[?]", "", paste(query, collapse = "")), "&", fixed = TRUE)[[1]]
  decode <- function(text) {
    text <- gsub("+", " ", text, fixed = TRUE)
    vapply(
      text,
      function(text) readable(tryCatch(decodeURIComponent(text), error = function(error) text)), "",
      USE.NAMES = FALSE
    )
  }
  has_value <- grepl("=", parts, fixed = TRUE)
  values <- ifelse(has_value, sub("^[^=]*=", "", parts), "")
  set_names(decode(values), decode(sub("=.*$", "", parts)))
}

# Returns the texts by which secret values could appear in a message: the whole value, the value of
# a cookie, the token after "Bearer". Texts of less than four bytes are left out, because they would
# match everywhere.
secret_parts <- function(values) {
  parts <- unlist(strsplit(values, "[;, ]+"), use.names = FALSE)
  parts <- unique(c(values, parts, sub("^[^=]*=", "", parts)))
  parts <- parts[nchar(parts, "bytes") >= 4]
  unname(parts[order(nchar(parts, "bytes"), decreasing = TRUE)])
}

hide_values <- function(text, secrets) {
  for (secret in secrets) text <- gsub(secret, "[masked]", text, fixed = TRUE)
  text
}

request_html <- function(request, hide) {
  if (is.null(request)) {
    return(NULL)
  }
  c(
    "<h2>Request</h2>",
    paste0("<p><code>", html_text(hide(request$line), page_value), "</code></p>"),
    values_html("Parameters", request$parameters, hide),
    values_html("Headers", request$headers, hide)
  )
}

values_html <- function(title, values, hide) {
  if (length(values) == 0) {
    return(NULL)
  }
  rows <- paste0(
    "<tr><th>", html_text(names(values), page_value), "</th><td>",
    html_text(hide(values), page_value), "</td></tr>"
  )
  c(paste0("<h2>", title, "</h2>"), "<table>", rows, "</table>")
}

# ---- text ----

# Escapes text for HTML, also within quotes. Characters that HTML does not allow, and those that
# change the direction of the following text, are replaced.
html_text <- function(text, most = page_value) {
  is_long <- nchar(text) > most
  text[is_long] <- paste0(substr(text[is_long], 1, most), "...")
  text <- gsub("[\001-\010\013\014\016-\037\177]", "\ufffd", text)
  text <- gsub("[\u202a-\u202e\u2066-\u2069]", "\ufffd", text)
  for (special in list(c("&", "&amp;"), c("<", "&lt;"), c(">", "&gt;"), c("\"", "&quot;"), c("'", "&#39;"))) {
    text <- gsub(special[[1]], special[[2]], text, fixed = TRUE)
  }
  text
}
