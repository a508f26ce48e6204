# The program `rookery`, as users run it. crates/cli tests its command line.

skip_if_not_installed("processx")
skip_if_not_installed("curl")

test_that("rookery --help and --version work, and a mistake exits with status 2", {
  help <- local_cli("--help")
  expect_equal(exit_of(help), 0)
  expect_match(help$tell(), "^Usage: rookery serve <target>")
  version <- local_cli("--version")
  expect_equal(exit_of(version), 0)
  expect_equal(version$tell(), paste("rookery", utils::packageVersion("rookery")))
  wrong <- local_cli("serve", "app", "--nonsense")
  expect_equal(exit_of(wrong), 2)
  expect_match(wrong$tell(), "`--nonsense` is not an option\\.\nTry `rookery --help`")
})

test_that("R reads what the program passes to it", {
  asked <- cli_read("target=/a/b%25c%0Ad=e\nport=8000\nhost=::1\nlog=stdout\nlog_format=json\n")
  expect_equal(asked$target, "/a/b%c\nd=e")
  expect_equal(cli_address(asked), list(host = "::1", port = 8000L, socket = NULL, tls = NULL))
  expect_equal(cli_log(asked), log_target(TRUE, "json"))
  pem <- local_pem()
  other <- local_pem()
  pairs <- paste0("tls:text:tls_cert=", c(pem, other), "\ntls:text:tls_key=", c(pem, other), "\n")
  asked <- cli_read(paste0(
    "target=/a\nsocket=/s\n", pairs[[1]], "log=file\nlog_file=/l\nlog_format=common\n"
  ))
  expect_equal(
    cli_address(asked), list(host = NULL, port = NULL, socket = "/s", tls = tls_config(pem, pem))
  )
  expect_equal(cli_log(asked)[c("to", "path")], list(to = "file", path = "/l"))
  asked <- cli_read(paste0(
    pairs[[1]], pairs[[2]], "tls:text:tls_client_ca=", pem,
    "\ntls:text:tls_client_auth=optional\ntls:text:tls_min_version=1.3\n",
    "tls:flag:http2=FALSE\ntls:number:hsts.max_age=31536000\ntls:flag:hsts.include_subdomains=TRUE\n",
    "tls:flag:hsts.preload=FALSE\ntls:number:redirect_from=80\ncli:text:trusted_proxies=::1\ncli:text:trusted_proxies=unix\n",
    "cli:flag:proxy_protocol=TRUE\ncli:text:ws_origins=same\ncli:number:ws_compression.level=6\n",
    "cli:number:ws_compression.threshold=100\ncli:flag:ws_compression.takeover=TRUE\ncli:text:spool_dir=/s\n"
  ))
  expect_equal(
    cli_address(asked)$tls,
    tls_config(
      c(pem, other), c(pem, other),
      client_ca = pem, client_auth = "optional", min_version = "1.3", http2 = FALSE,
      hsts = list(max_age = 31536000, include_subdomains = TRUE), redirect_from = 80
    )
  )
  expect_equal(
    cli_settings(asked)[
      c("trusted_proxies", "proxy_protocol", "ws_origins", "spool_dir", "ws_compression")
    ],
    list(
      trusted_proxies = c("::1", "unix"), proxy_protocol = TRUE, ws_origins = "same",
      spool_dir = "/s",
      ws_compression = list(level = 6, threshold = 100, takeover = TRUE)
    )
  )
  expect_equal(
    cli_settings(cli_read("cli:number:ws_compression.level=0\ncli:number:ws_compression.threshold=512\ncli:flag:ws_compression.takeover=FALSE\n")),
    list(ws_compression = FALSE)
  )
  expect_equal(
    cli_settings(cli_read(
      "cli:number:max_body_size=2e6\ncli:number:idle_timeout=Inf\ncli:text:error_detail=full\n"
    )),
    list(max_body_size = 2e6, idle_timeout = Inf, error_detail = "full")
  )
  expect_length(cli_settings(cli_read("target=/a\n")), 0)
  # Each source of settings has one setting.
  text <- "cli:text:error_detail=full\nfile:text:reconnect=always\nfile:number:max_body_size=5\nenvironment:number:max_body_size=6\n"
  expect_equal(cli_settings(cli_read(text)), list(error_detail = "full"))
  expect_equal(cli_settings(cli_read(text), "file:"), list(reconnect = "always", max_body_size = 5))
  expect_equal(cli_settings(cli_read(text), "environment:"), list(max_body_size = 6))
})

test_that("settings of the command line take precedence over .Rprofile", {
  app <- local_app(
    ".Rprofile" = "options(rookery.trusted_proxies = 'unix', rookery.header_timeout = '5 s', rookery.idle_timeout = '7 s')",
    "app.R" = c(
      "told <- rookery::rookery_options()",
      "told <- paste0(told$name, '=', told$value, ' ', told$origin)[told$origin != 'default']",
      "told <- sub('=/.*/', '=', told)",
      "function(req) list(status = 200L, headers = list(), body = paste(c(req$rook.url_scheme, sort(told)), collapse = '\n'))"
    )
  )
  dir.create(file.path(app, "spool"))
  it <- local_cli(
    "serve", app, "--port", "0", "--log=none", "--trusted-proxies", "127.0.0.1,::1", "--spool-dir",
    "spool", "--max-body-size", "1 KB",
    "--header-timeout=3s", "--error-detail", "message", "--ws-compression", "level=6",
    "--ws-origins", "same,localhost:80",
    dir = app, environment = c(ROOKERY_MAX_BODY_SIZE = "9 MB", ROOKERY_WS_MAX_MESSAGE_SIZE = "9 MB")
  )
  url <- expect_serving(it)
  handle <- curl::handle_setheaders(curl::new_handle(), "X-Forwarded-Proto" = "https")
  answer <- strsplit(rawToChar(curl::curl_fetch_memory(url, handle)$content), "\n")[[1]]
  compression <- grepl("^ws_compression=", answer)
  expect_match(answer[compression], "6.* command line$")
  expect_setequal(answer[!compression], c(
    "https", "max_body_size=1 kB command line", "error_detail=message command line",
    "header_timeout=3 s command line",
    "idle_timeout=7 s option", "ws_max_message_size=9 MB environment", "spool_dir=spool command line",
    "trusted_proxies=127.0.0.1, ::1 command line", "ws_origins=same, localhost:80 command line"
  ))
  large <- curl::curl_fetch_memory(
    url, curl::handle_setopt(curl::new_handle(), postfields = strrep("x", 2000))
  )
  expect_equal(large$status_code, 413)
  wrong <- local_cli("serve", app, "--port", "0", "--max-body-siz=1")
  expect_equal(exit_of(wrong), 2)
  expect_match(wrong$tell(), "`--max-body-siz` is not an option. Did you mean `--max-body-size`?", fixed = TRUE)
})

test_that("an app in a folder with an unusual name is served, with paths relative to getwd()", {
  dir <- local_app("it's 100% \u00e9/app.R" = "function(req) list(status = 200L, headers = list(), body = basename(getwd()))")
  it <- local_cli("serve", "it's 100% \u00e9", "--port", "0", "--log", "access.log", dir = dir)
  expect_equal(
    enc2utf8(iconv(fetch(expect_serving(it))$text, "UTF-8", "UTF-8")), "it's 100% \u00e9"
  )
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_match(readLines(file.path(dir, "access.log")), "\"GET / HTTP/1.1\" 200", fixed = TRUE)
})

test_that("a file name that is invalid text is served in the C locale, and is an error otherwise", {
  skip_if_not(l10n_info()[["UTF-8"]])
  dir <- local_app("app.R" = "function(req) list(status = 200L, headers = list(), body = 'odd')")
  # Served by the program, because R could not.
  made <- processx::run(
    "sh", c("-c", "mkdir \"$1/$(printf 'b\\351d')\" && cp \"$1/app.R\" \"$1\"/b*d", "sh", dir),
    error_on_status = FALSE
  )
  # Some file systems allow only valid text as names.
  skip_if(made$status != 0)
  command <- c(
    "-c", "cd \"$1\" && exec \"$2\" serve b*d --port 0 --log=none", "sh", dir,
    system.file("exec", "rookery", package = "rookery")
  )
  it <- local_process(command, program = "sh")
  expect_equal(exit_of(it), 3)
  expect_match(it$tell(), "b<e9>d` is not valid text in the encoding of this locale", fixed = TRUE)
  it <- local_process(command, program = "sh", environment = c(LC_ALL = "C"))
  expect_equal(fetch(expect_serving(it))$text, "odd")
})

test_that("the app gets its own arguments and environment", {
  app <- local_app("app.R" = c(
    "own <- c(commandArgs(TRUE), Sys.getenv('ROOKERY_INTERNAL_SETTINGS'), Sys.getenv('R_TESTS'))",
    "function(req) list(status = 200L, headers = list(), body = paste(c('own:', own), collapse = ''))"
  ))
  it <- local_cli("serve", app, "--port", "0", "--log=none")
  expect_equal(fetch(expect_serving(it))$text, "own:")
})

test_that("a static site is served without R, and by serve() from R", {
  expect_error(
    detect_target(local_app("index.html" = "", "secret.r" = "")), class = "rookery_bad_target"
  )
  dir <- local_app(
    "index.html" = "<p>home</p>", "a/b.txt" = "text", "index.Rmd" = c("---", "title: x", "---")
  )
  expect_equal(detect_target(dir)$kind, "site")
  asked <- function(it) {
    url <- expect_serving(it)
    expect_match(it$tell(), paste0("rookery [0-9.]+: site in ", dir))
    expect_match(fetch(url)$text, "home")
    expect_match(fetch(paste0(url, "/a/b.txt"))$text, "text")
    expect_equal(fetch(paste0(url, "/none"))$status_code, 404)
    it$signal(15)
    expect_equal(exit_of(it), 0)
    expect_match(it$tell(), "\"GET /none HTTP/1.1\" 404 ", fixed = TRUE)
  }
  # PATH has no R.
  asked(local_cli("serve", dir, "--port", "0", environment = c(PATH = "/nowhere")))
  asked(local_r(sprintf("rookery::serve('%s', port = 0)", dir)))
})

test_that("a missing R installation is reported as such", {
  it <- local_cli(
    "serve", local_app("app.R" = "1"), "--port", "0", environment = c(PATH = "/nowhere")
  )
  expect_equal(exit_of(it), 1)
  expect_match(it$tell(), "^rookery: R was not found: install it")
})

test_that("install_cli() creates a link that works", {
  dir <- withr::local_tempdir()
  expect_message(command <- install_cli(file.path(dir, "bin")), "not on PATH")
  expect_equal(dirname(command), file.path(normalizePath(dir), "bin"))
  # The program finds R's libraries through the link, as in a shell.
  version <- processx::run(command, "--version", env = c("current", R_TESTS = ""))
  expect_match(version$stdout, "^rookery [0-9]")
  expect_message(install_cli(file.path(dir, "bin")), "Installed")
  other <- file.path(dir, "rookery")
  writeLines("mine", other)
  expect_error(install_cli(dir), "exists and is not a link to rookery", class = "rookery_no_cli")
  expect_equal(readLines(other), "mine")
  expect_message(install_cli(dir, overwrite = TRUE), "Installed")
  expect_match(Sys.readlink(other), "rookery/exec/rookery$")
})

test_that("in a C locale, sources are read as UTF-8", {
  skip_if_not_installed("processx")
  # Writes a file in UTF-8 to a new folder, and returns the folder.
  writes <- function(name, ..., env = parent.frame()) {
    dir <- local_app(env = env)
    path <- file.path(dir, name)
    dir.create(dirname(path), showWarnings = FALSE)
    con <- file(path, "wb")
    writeLines(enc2utf8(c(...)), con, useBytes = TRUE)
    close(con)
    dir
  }
  comment <- "# \u00e9"
  text <- "caf\u00e9 <- 'caf\u00e9 \u4e2d'"
  dirs <- c(
    script = writes(
      "app.R", comment, text,
      # Processes that the app starts have a locale with UTF-8 as well.
      "stopifnot(grepl('UTF-8', system('echo $LC_ALL', intern = TRUE)))",
      "function(req) list(status = 200L, headers = list(), body = caf\u00e9)"
    ),
    shiny = if (requireNamespace("shiny", quietly = TRUE)) {
      dir <- writes("R/text.R", comment, "own_text <- 'caf\u00e9 \u4e2d'")
      app <- "shiny::shinyApp(shiny::fluidPage(own_text), function(input, output) NULL)"
      writeLines(app, file.path(dir, "app.R"))
      dir
    },
    plumber = if (requireNamespace("plumber", quietly = TRUE)) {
      writes("plumber.R", comment, text, "#* @get /", "#* @serializer text", "function() caf\u00e9")
    }
  )
  test <- environment()
  started <- lapply(dirs, function(dir) {
    local_cli(
      "serve", dir, "--port", "0", "--log", "none", environment = c(LC_ALL = "C"), env = test
    )
  })
  started$from_r <- local_r(
    sprintf("rookery::serve('%s', port = 0, log = FALSE)", dirs[["script"]]),
    environment = c(LC_ALL = "C")
  )
  for (it in started) {
    content <- fetch(expect_serving(it))$content
    expect_length(grepRaw(charToRaw("caf\xc3\xa9 \xe4\xb8\xad"), content, fixed = TRUE), 1)
  }
})

test_that("an app may attach the package of a program that is in no library of R", {
  dir <- local_app("app.R" = c(
    "library(rookery)", "function(req) list(status = 200L, headers = list(), body = 'attached')"
  ))
  # Only the libraries of R itself remain, and the dependencies of the package.
  libraries <- setdiff(.libPaths(), dirname(system.file(package = "rookery")))
  skip_if(any(file.exists(file.path(c(libraries, .Library.site, .Library), "rookery"))))
  it <- local_cli(
    "serve", dir, "--port", "0", "--log", "none",
    environment = c(R_LIBS = paste(libraries, collapse = .Platform$path.sep))
  )
  expect_equal(fetch(expect_serving(it))$text, "attached")
})

test_that("a start is not retried if the app needs a package that is not installed", {
  dir <- local_app("app.R" = c("library(notinstalled)", "function(req) 1"))
  it <- local_cli("serve", dir, "--port", "0")
  expect_equal(exit_of(it), 3)
  expect_match(it$tell(), "no package called .notinstalled.")
  expect_no_match(it$tell(), "started again")
})
