# Each key of a `_server.yml` for rookery has an effect, and there are no other keys.

# A value for each key that is not its default.
option_keys <- list(
  host = list("127.0.0.2", "--host=127.0.0.2"),
  port = list(8123L, "--port=8123"),
  log = list(FALSE, "--log=none"),
  log_format = list("json", "--log-format=json"),
  tls = list("dev", "--tls=dev"),
  limits = list(list(max_body_size = "10 MB"), "--max-body-size=10 MB"),
  error_detail = list("message", "--error-detail=message"),
  request_id_header = list(FALSE, "--request-id-header=off"),
  server_timing = list(TRUE, "--server-timing"),
  slow_log = list("2s", "--slow-log=2s"),
  interrupt_requests = list(TRUE, "--interrupt-requests"),
  spool_dir = list("/var/tmp", "--spool-dir=/var/tmp"),
  trusted_proxies = list(c("192.0.2.1", "unix"), "--trusted-proxies=192.0.2.1,unix"),
  proxy_protocol = list(TRUE, "--proxy-protocol"),
  proxy_protocol_from = list("192.0.2.1", "--proxy-protocol-from=192.0.2.1"),
  ws_origins = list(c("same", "a.org"), "--ws-origins=same,a.org"),
  ws_compression = list(
    list(level = 3L, threshold = 100L, takeover = TRUE),
    "--ws-compression=level=3,threshold=100,takeover=on"
  ),
  reconnect = list("always", "--reconnect=always"),
  workers = list(3L, "--workers=3"),
  spares = list(1L, "--spares=1"),
  warmup = list(c("/", "/x"), "--warmup=/,/x"),
  max_sessions = list(20L, "--max-sessions=20"),
  max_requests = list(100000L, "--max-requests=100000"),
  max_age = list("12h", "--max-age=12h"),
  max_memory = list("2GB", "--max-memory=2GB"),
  worker_timeout = list("5min", "--worker-timeout=5min"),
  start_timeout = list("90s", "--start-timeout=90s"),
  start_retries = list(5L, "--start-retries=5"), restart = list("never", "--restart=never"),
  drain = list(5L, "--drain=5"),
  drain_sessions = list("4h", "--drain-sessions=4h"),
  sticky = list("cookie", "--sticky=cookie"),
  admin = list("127.0.0.1:9100", "--admin=127.0.0.1:9100"),
  embed = list(TRUE, "--embed"),
  reload = list(TRUE, "--reload"),
  shutdown_delay = list("5s", "--shutdown-delay=5s"),
  fail_fast = list(TRUE, "--fail-fast"),
  surge = list(0L, "--surge=0"),
  max_in_flight = list(8L, "--max-in-flight=8"),
  queue_timeout = list("3s", "--queue-timeout=3s")
)

# Files for tls_config().
pem_dir <- dirname(local_pem(teardown_env()))
file.copy(list.files(pem_dir, full.names = TRUE), file.path(pem_dir, c("c.pem", "k.pem", "ca.pem")))
pem <- function(name) file.path(pem_dir, name)
as_word <- function(option, name) paste0("--", option, "=", pem(name))

tls_keys <- list(
  cert = list(pem("c.pem"), as_word("tls-cert", "c.pem")),
  key = list(pem("k.pem"), as_word("tls-key", "k.pem")),
  client_ca = list(pem("ca.pem"), as_word("tls-client-ca", "ca.pem")),
  client_auth = list("optional", "--tls-client-auth=optional"),
  min_version = list(1.3, "--tls-min-version=1.3"),
  http2 = list(FALSE, "--no-http2"),
  hsts = list(
    list(max_age = 31536000L, include_subdomains = TRUE, preload = TRUE),
    "--hsts=31536000,subdomains,preload"
  ),
  redirect_from = list(8080L, "--redirect-from=8080"),
  acme = list(list(domain = "a.org", agree_tos = TRUE), c("--domain=a.org", "--agree-tos"))
)

acme_keys <- list(
  domain = list(c("a.org", "b.org"), c("--domain=a.org", "--domain=b.org")),
  email = list("me@a.org", "--email=me@a.org"),
  agree_tos = list(TRUE, "--agree-tos"),
  directory = list("https://ca.org/dir", "--acme-directory=https://ca.org/dir"),
  profile = list("shortlived", "--acme-profile=shortlived"),
  ca = list(pem("ca.pem"), as_word("acme-ca", "ca.pem")),
  dir = list("/kept", "--acme-dir=/kept")
)

# A value for each limit that is not its default.
limit_keys <- function() {
  values <- as.list(stats::setNames(rep(7, length(limit_names())), limit_names()))
  # The memory must suffice for a connection.
  values$max_client_memory <- 5e8
  values$max_header_size <- 20000
  values$max_body_size <- values$ws_max_message_size <- 1e6
  values
}

local_yml <- function(options, ..., env = parent.frame()) {
  dir <- local_app("app.R" = "function(req) NULL", env = env)
  file <- file.path(dir, "_server.yml")
  writeLines(yaml::as.yaml(list(engine = "rookery", app = "app.R", options = options, ...)), file)
  file
}

values_of <- function(keys) lapply(keys, `[[`, 1)

as_type_of <- function(example, text) if (is.numeric(example)) as.numeric(text) else text

test_that("each key is read with the type of its setting", {
  read <- function(options) rookery:::own_file(local_yml(options))$values
  for (name in setdiff(
    names(option_keys), c("limits", "ws_compression", "log")
  )) {
    value <- option_keys[[name]][[1]]
    found <- read(values_of(option_keys[name]))
    text <- c(
      host = "127.0.0.2", max_age = 43200, max_memory = 2e9, worker_timeout = 300,
      start_timeout = 90, drain_sessions = 14400,
      shutdown_delay = 5, queue_timeout = 3, slow_log = 2, surge = "0")
    expect_equal(
      unlist(found),
      unlist(if (name %in% names(text)) as_type_of(found[[1]], text[[name]]) else value),
      info = name, ignore_attr = TRUE
    )
  }
  expect_equal(read(list(log = FALSE))$log, "none")
  expect_equal(
    read(list("ws-compression" = list(level = 3L)))$ws_compression,
    list(level = 3, threshold = 512, takeover = FALSE)
  )
  expect_equal(
    read(list(tls = list(cert = "/c.pem", hsts = list(max_age = 5L))))$hsts,
    list(max_age = 5, include_subdomains = FALSE, preload = FALSE)
  )
  limits <- limit_keys()
  expect_mapequal(read(list(limits = limits)), lapply(limits, as.numeric))
  other <- withr::local_tempfile(lines = "engine: plumber2", fileext = ".yml")
  expect_error(rookery:::own_file(other), "its `engine:` is not `rookery`")
})

test_that("HTTPS settings of a file equal those of tls_config()", {
  tls <- function(...) settings_read(local_yml(list(...)))$address$tls
  expect_equal(tls(tls = "dev"), "dev")
  asked <- tls(tls = values_of(tls_keys[setdiff(names(tls_keys), "acme")]))
  expect_equal(asked, tls_config(
    tls_keys$cert[[1]], tls_keys$key[[1]], client_ca = tls_keys$client_ca[[1]],
    client_auth = "optional", min_version = "1.3", http2 = FALSE,
    hsts = list(max_age = 31536000, include_subdomains = TRUE, preload = TRUE), redirect_from = 8080
  ))
  asked <- tls(
    tls = list(
      acme = list(
        domain = c("a.org", "b.org"), agree_tos = TRUE, profile = "shortlived", dir = tempdir()
      )
    )
  )
  expect_equal(
    asked$acme, acme(c("a.org", "b.org"), agree_tos = TRUE, profile = "shortlived", dir = tempdir())
  )
})

test_that("an unknown key is an error at any level, with a suggestion", {
  says <- function(file, text) {
    expect_error(settings_read(file), text, fixed = TRUE, class = "rookery_bad_setting")
  }
  says(
    local_yml(list(tsl = "dev")),
    "line 4, column 3: `tsl:` is not a setting under `options:`. Did you mean `tls:`?"
  )
  says(local_yml(list(drian = "5s")), "Did you mean `drain:`?")
  says(
    local_yml(NULL, optoins = list(port = 1L)),
    "`optoins:` is not a key of `_server.yml`. Did you mean `options:`?"
  )
  says(local_yml(NULL, workers = 2L), "It belongs under `options:`.")
  says(local_yml(list(max_body_size = 1L)), "It belongs under `limits:`.")
  says(
    local_yml(list(limits = list(max_bodysize = 1L))),
    "`max_bodysize:` is not a setting under `limits:`. Did you mean `max_body_size:`?"
  )
  says(local_yml(list(limits = list(workers = 2L))), "It belongs under `options:`.")
  says(local_yml(list(tls = list(cert = "c.pem", hsst = 60L))), "Did you mean `hsts:`?")
  says(
    local_yml(list(tls = list(cert = "c.pem", hsts = list(max_age = 60L, subdomains = TRUE)))),
    "`subdomains:` is not a field of `hsts:`"
  )
  says(local_yml(list(ws_compression = list(levle = 3L))), "Did you mean `level:`?")
  says(local_yml(list(1L, 2L)), "`options:` must have fields such as `port: 8000`")
  says(
    local_yml(list(error_detail = "everything")),
    "`error_detail:` must be none, message or full, not `everything`."
  )
  says(
    local_yml(list(tls = list(hsts = 60L))), "`tls.hsts:` needs `tls.cert:` or `tls.acme.domain:`."
  )
  file <- local_yml(NULL)
  skip_if_not_installed("yaml")
  writeLines(c("engine: Rookery", "app: app.R"), file)
  expect_error(detect_target(dirname(file)), "package names are case-sensitive: `rookery`")
})

# The app reports its settings and their origins, in an R process started in each way.
test_that("host, port, log and all settings take effect in one R process", {
  skip_if_not_installed("processx")
  skip_if_not_installed("yaml")
  tells <- c(
    "function(req) {", "  options <- rookery::rookery_options()",
    "  text <- paste(options$name, options$origin, options$value)",
    "  list(status = 200L, headers = list(), body = paste(text, collapse = '\\n'))", "}"
  )
  # `keep_identity_headers` is only an option of R.
  of_files <- setdiff(rookery:::setting_names(), "keep_identity_headers")
  settings <- values_of(option_keys[of_files])
  settings$proxy_protocol <- settings$proxy_protocol_from <- NULL
  options <- c(
    list(
      host = "127.0.0.2", port = free_port(), log = "access.log", log_format = "json",
      limits = limit_keys()
    ),
    settings
  )
  file <- local_yml(options)
  dir <- dirname(file)
  writeLines(tells, file.path(dir, "app.R"))
  here <- environment()
  ways <- list(
    "_server.yml" = function() local_cli("serve", dir, env = here),
    "_server.yml" = function() local_r(paste0("rookery::serve('", dir, "')"), env = here),
    "_server.yml" = function() local_r(paste0("rookery::launch_server('", file, "')"), env = here)
  )
  for (way in seq_along(ways)) {
    it <- ways[[way]]()
    origin <- names(ways)[[way]]
    url <- expect_serving(it)
    expect_equal(url, paste0("http://127.0.0.2:", options$port))
    lines <- strsplit(fetch(url)$text, "\n")[[1]]
    origins <- sub("^([^ ]+) (_server.yml|[a-z]+).*$", "\\2", lines)
    names(origins) <- sub(" .*", "", lines)
    expect_true(all(origins[names(limit_keys())] == origin))
    expect_true(all(origins[names(settings)] == origin))
    expect_true(any(grepl("^error_detail .* message$", lines)))
    it$signal(15)
    expect_equal(exit_of(it), 0)
    expect_match(paste(readLines(file.path(dir, "access.log")), collapse = ""), "\"path\":\"/\"")
    unlink(file.path(dir, "access.log"))
  }
  # Arguments and command-line options take precedence.
  it <- local_cli("serve", dir, "--host", "127.0.0.3", "--log", "-", "--log-format", "common")
  url <- expect_serving(it)
  expect_equal(url, paste0("http://127.0.0.3:", options$port))
  fetch(url)
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_match(it$tell(), "\"GET / HTTP/1.1\" 200")
  it <- local_r(paste0("rookery::serve('", dir, "', host = '127.0.0.4', port = 0, log = FALSE)"))
  expect_match(expect_serving(it), "^http://127.0.0.4:[0-9]+$")
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_false(file.exists(file.path(dir, "access.log")))
})

test_that("an app with a misspelt HTTPS key is not served as plaintext HTTP", {
  skip_if_not_installed("processx")
  skip_if_not_installed("yaml")
  dir <- dirname(local_yml(list(tsl = "dev", port = 0L)))
  for (it in list(local_cli("serve", dir), local_r(paste0("rookery::serve('", dir, "')")))) {
    expect_gt(exit_of(it), 0)
    expect_match(it$tell(), "`tsl:` .*under `options:`.* Did you mean `tls")
  }
})

test_that("a Unix socket in a _server.yml is relative to the file", {
  skip_if_not_installed("processx")
  skip_if_not_installed("yaml")
  dir <- normalizePath(withr::local_tempdir(pattern = "y", tmpdir = "/tmp"))
  writeLines(
    "function(req) list(status = 200L, headers = list(), body = 'by socket')",
    file.path(dir, "app.R")
  )
  writeLines(
    c("engine: rookery", "app: app.R", "options:", "  host: unix:s", "  log: false"),
    file.path(dir, "_server.yml")
  )
  it <- local_cli("serve", dir)
  expect_true(wait_until(function() file.exists(file.path(dir, "s"))))
  expect_serving(it)
  expect_equal(fetch("http://localhost/", path = file.path(dir, "s"))$text, "by socket")
})

test_that("launch_server() of a hosting service ignores workers and HTTPS, with one message", {
  skip_if_not_installed("processx")
  skip_if_not_installed("yaml")
  file <- local_yml(list(
    workers = 2L, max_age = "12h", tls = list(cert = "none.pem", redirect_from = 8080L),
    error_detail = "message"
  ))
  writeLines(
    "function(req) list(status = 200L, headers = list(), body = as.character(Sys.getpid()))",
    file.path(dirname(file), "app.R")
  )
  it <- local_r(sprintf(
    "rookery::launch_server('%s', '127.0.0.1', %d, log = FALSE)", file, free_port()
  ))
  url <- expect_serving(it)
  expect_match(url, "^http://")
  # The process serves the app itself.
  expect_equal(fetch(url)$text, as.character(it$process$get_pid()))
  said <- "`workers:`, `max_age:`, `tls:` of `.*_server.yml` are ignored, because launch_server\\(\\) was called with the host or port"
  expect_equal(lengths(regmatches(it$tell(), gregexpr(said, it$tell()))), 1, info = it$tell())
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_no_match(it$tell(), "restarted|supervis")
  # Without them, the file is used.
  it <- local_r(sprintf("rookery::launch_server('%s')", file))
  expect_equal(exit_of(it), 1)
  expect_match(it$tell(), "none.pem")
})

test_that("arguments of launch_server() are not matched partially", {
  skip_if_not_installed("yaml")
  file <- local_yml(list(log = "access.log"))
  asked <- settings_read(file, list(log_format = "json"))
  expect_equal(asked$log$format, "json")
  expect_equal(basename(asked$log$path), "access.log")
})

test_that("a key that is given twice, with `-` and with `_`, is an error", {
  skip_if_not_installed("yaml")
  expect_error(
    settings_read(local_yml(list("log-format" = "json", log_format = "common"))),
    "`log_format:` and `log-format:` in line 4 are the same setting",
    class = "rookery_bad_setting"
  )
  expect_error(
    settings_read(local_yml(list(limits = list(max_body_size = 1e6, "max-body-size" = 2e6)))),
    "`max-body-size:` and `max_body_size:` in line 5 are the same setting",
    class = "rookery_bad_setting"
  )
})

test_that("an invalid port is reported with its position in the file", {
  for (port in list("http", 70000L, 1.5, c(1L, 2L))) {
    expect_error(
      settings_read(local_yml(list(port = port))), "`port:` must be a whole number from 0 to 65535",
      class = "rookery_bad_setting"
    )
  }
})

test_that("options that a hosting service decides are ignored, and request limits are used", {
  own <- list(
    request_timeout = 5, admin = "127.0.0.1:1", workers = 2, http2 = FALSE, acme_dir = "/d",
    port = 1
  )
  expect_message(
    kept <- rookery:::without_hosted(own, "a.yml"), "`workers:`, `tls:` of `a.yml` are ignored"
  )
  expect_named(kept, c("request_timeout", "admin", "port"))
})

test_that("`ws_compression: off` in a file turns compression off", {
  file <- withr::local_tempfile(
    lines = c("engine: rookery", "app: app.R", "options:", "  ws_compression: off"),
    fileext = ".yml"
  )
  globals <- rookery:::.globals
  before <- globals$settings
  withr::defer(globals$settings <- before)
  globals$settings <- list(file = rookery:::own_file(file)$values)
  found <- rookery:::setting_of("ws_compression")
  expect_equal(found[c("value", "origin")], list(value = FALSE, origin = "_server.yml"))
})
