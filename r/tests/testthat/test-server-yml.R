# Each key of a `_server.yml` whose engine is rookery has its effect, and there are no others.

# A value of each key that is not its default, and the words of the command line that it becomes.
option_keys <- list(
  host = list("127.0.0.2", "--host=127.0.0.2"),
  port = list(8123L, "--port=8123"),
  log = list(FALSE, "--no-log"),
  log_format = list("json", "--log-format=json"),
  tls = list("dev", "--tls=dev"),
  limits = list(list(body_bytes = "10 MB"), "--limit=body_bytes=10 MB"),
  error_detail = list("message", "--error-detail=message"),
  request_id_header = list(FALSE, "--request-id-header=off"),
  interrupt_requests = list(TRUE, "--interrupt-requests"),
  spool_dir = list("/var/tmp", "--spool-dir=/var/tmp"),
  trusted_proxies = list(c("192.0.2.1", "unix"), "--trusted-proxies=192.0.2.1,unix"),
  proxy_protocol = list(TRUE, "--proxy-protocol"),
  ws_origins = list(c("same", "a.org"), "--ws-origins=same,a.org"),
  ws_compression = list(list(level = 3L, threshold = 100L, takeover = TRUE), "--ws-compression=level=3,threshold=100,takeover=on"),
  reconnect = list("always", "--reconnect=always"),
  workers = list(3L, "--workers=3"),
  spares = list(1L, "--spares=1"),
  warmup = list(c("/", "/x"), "--warmup=/,/x"),
  max_sessions = list(20L, "--max-sessions=20"),
  max_requests = list(100000L, "--max-requests=100000"),
  max_age = list("12h", "--max-age=12h"),
  max_memory = list("2GB", "--max-memory=2GB"),
  request_timeout = list("30s", "--request-timeout=30s"),
  kill_stuck = list("5min", "--kill-stuck=5min"),
  start_timeout = list("90s", "--start-timeout=90s"),
  start_retries = list(5L, "--start-retries=5"), restart = list("never", "--restart=never"),
  drain = list(5L, "--drain=5"),
  drain_sessions = list("4h", "--drain-sessions=4h"),
  sticky = list("cookie", "--sticky=cookie"),
  name = list("billing", "--name=billing"),
  admin = list("127.0.0.1:9100", "--admin=127.0.0.1:9100"),
  embed = list(TRUE, "--embed"),
  reload = list(TRUE, "--reload"),
  shutdown_delay = list("5s", "--shutdown-delay=5s"),
  min_ready = list(2L, "--min-ready=2"),
  drain_status = list(404L, "--drain-status=404"),
  fail_fast = list(TRUE, "--fail-fast"),
  retry_begun = list(TRUE, "--retry-begun"),
  surge = list(0L, "--surge=0"),
  max_in_flight = list(8L, "--max-in-flight=8"),
  queue_timeout = list("3s", "--queue-timeout=3s"),
  keep_half_closed = list(TRUE, "--keep-half-closed")
)

tls_keys <- list(
  cert = list("/c.pem", "--tls-cert=/c.pem"),
  key = list("/k.pem", "--tls-key=/k.pem"),
  client_ca = list("/ca.pem", "--tls-client-ca=/ca.pem"),
  client_auth = list("optional", "--tls-client-auth=optional"),
  min_version = list(1.3, "--tls-min-version=1.3"),
  http2 = list(FALSE, "--no-http2"),
  http2_websockets = list(FALSE, "--no-http2-websockets"),
  hsts = list(list(max_age = 31536000L, include_subdomains = TRUE, preload = TRUE), "--hsts=31536000,subdomains,preload"),
  redirect_from = list(8080L, "--redirect-from=8080"),
  acme = list(list(domains = "a.org", agree_tos = TRUE), c("--domain=a.org", "--agree-tos"))
)

acme_keys <- list(
  domains = list(c("a.org", "b.org"), c("--domain=a.org", "--domain=b.org")),
  email = list("me@a.org", "--email=me@a.org"),
  agree_tos = list(TRUE, "--agree-tos"),
  staging = list(TRUE, "--acme-staging"),
  directory = list("https://ca.org/dir", "--acme-directory=https://ca.org/dir"),
  profile = list("shortlived", "--acme-profile=shortlived"),
  challenge = list("http-01", "--acme-challenge=http-01"),
  ca = list("/ca.pem", "--acme-ca=/ca.pem"),
  dir = list("/kept", "--acme-dir=/kept")
)

# A value of each limit that is not its default.
limit_keys <- function() {
  table <- rookery:::limit_table()
  some <- c(count = 7, bytes = 1e6, seconds = 7, rate = 77, percent = 3)
  values <- pmax(table$least, some[table$kind])
  # The memory has to do for a connection.
  values[table$name == "memory"] <- 5e8
  values[table$name %in% c("head_bytes", "stream_head_bytes")] <- 20000
  values <- values + ifelse(!is.nan(table$default) & values == table$default, 1, 0)
  as.list(stats::setNames(values, table$name))
}

local_yml <- function(options, ..., env = parent.frame()) {
  dir <- local_app("app.R" = "function(req) NULL", env = env)
  file <- file.path(dir, "_server.yml")
  writeLines(yaml::as.yaml(list(engine = "rookery", app = "app.R", options = options, ...)), file)
  file
}

values_of <- function(keys) lapply(keys, `[[`, 1)

test_that("each key goes to the program as the option that it is", {
  skip_if_not_installed("yaml")
  keys <- function(level) sort(rookery:::file_keys(level))
  expect_equal(sort(names(option_keys)), keys("options"))
  expect_equal(sort(names(tls_keys)), keys("tls"))
  expect_equal(sort(names(acme_keys)), keys("acme"))
  expect_equal(sort(names(limit_keys())), keys("limits"))
  expect_equal(sort(names(tls_keys$hsts[[1]])), keys("hsts"))
  expect_equal(sort(names(option_keys$ws_compression[[1]])), keys("ws_compression"))
  words <- function(options) rookery:::words_of_file(local_yml(options))
  for (name in names(option_keys)) {
    expect_equal(words(values_of(option_keys[name])), option_keys[[name]][[2]])
  }
  # Together they ask for no other.
  expect_setequal(words(values_of(option_keys)), unlist(lapply(option_keys, `[[`, 2), use.names = FALSE))
  # `-` is `_`, as in options of the command line.
  expect_equal(words(list("max-age" = "1h")), "--max-age=1h")
  files <- setdiff(names(tls_keys), "acme")
  expect_setequal(words(list(tls = values_of(tls_keys[files]))), unlist(lapply(tls_keys[files], `[[`, 2), use.names = FALSE))
  needed <- list(domains = "c.org", agree_tos = TRUE)
  for (name in names(acme_keys)) {
    acme <- utils::modifyList(needed, values_of(acme_keys[name]))
    expect_true(all(acme_keys[[name]][[2]] %in% words(list(tls = list(acme = acme)))), info = name)
  }
  limits <- limit_keys()
  text <- vapply(limits, format, "", scientific = FALSE, digits = 15)
  expect_setequal(words(list(limits = limits)), paste0("--limit=", names(limits), "=", text))
})

test_that("an unknown key is an error at any level, with the one that may be meant", {
  skip_if_not_installed("yaml")
  says <- function(file, text) {
    expect_error(settings_read(file), text, fixed = TRUE, class = "rookery_bad_setting")
  }
  says(local_yml(list(tsl = "dev")), "`tsl:` under `options:` in `")
  says(local_yml(list(tsl = "dev")), "is no setting. Did you mean `tls`?")
  says(local_yml(list(drian = "5s")), "Did you mean `drain`?")
  says(local_yml(NULL, optoins = list(port = 1L)), "`optoins:` in `")
  says(local_yml(NULL, optoins = list(port = 1L)), "Did you mean `options`?")
  says(local_yml(NULL, workers = 2L), "`workers:` in `")
  says(local_yml(NULL, workers = 2L), "It belongs under `options:`.")
  says(local_yml(list(body_bytes = 1L)), "It belongs under `limits:`.")
  says(local_yml(list(limits = list(bodybytes = 1L))), "`bodybytes:` under `limits:`")
  says(local_yml(list(limits = list(workers = 2L))), "It belongs under `options:`.")
  says(local_yml(list(tls = list(cert = "c.pem", hsst = 60L))), "Did you mean `hsts`?")
  says(local_yml(list(tls = list(cert = "c.pem", hsts = list(max_age = 60L, subdomains = TRUE)))), "`subdomains:` under `hsts:`")
  says(local_yml(list(tls = list(acme = list(domain = "a.org")))), "Did you mean `domains`?")
  says(local_yml(list(ws_compression = list(levle = 3L))), "Did you mean `level`?")
  says(local_yml(list(1L, 2L)), "its `options:` are no fields such as `port: 8000`")
  expect_error(settings_read(local_yml(list(error_detail = "everything"))), "`error_detail:` of `.*` must be \"none\"", class = "rookery_bad_setting")
  file <- local_yml(NULL)
  writeLines(c("engine: Rookery", "app: app.R"), file)
  expect_error(detect_target(dirname(file)), "names of packages have their case: `rookery`")
})

# One R process, started in each way, tells its settings and where they come from.
test_that("host, port, log and all settings take effect in one R process", {
  skip_if_not_installed("processx")
  skip_if_not_installed("yaml")
  tells <- c(
    "function(req) {", "  options <- rookery::rookery_options()", "  text <- paste(options$name, options$origin, options$value)",
    "  list(status = 200L, headers = list(), body = paste(text, collapse = '\\n'))", "}"
  )
  settings <- values_of(option_keys[rookery:::setting_names])
  settings$proxy_protocol <- NULL
  options <- c(list(host = "127.0.0.2", port = free_port(), log = "access.log", log_format = "json", limits = limit_keys()), settings)
  file <- local_yml(options)
  dir <- dirname(file)
  writeLines(tells, file.path(dir, "app.R"))
  here <- environment()
  ways <- list(
    # The program has read the file, and hands its settings over as its own.
    command = function() local_cli("serve", dir, env = here),
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
  # Arguments and options of the command line take precedence.
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

test_that("an app that asks for HTTPS in a misspelt key is not served in the clear", {
  skip_if_not_installed("processx")
  skip_if_not_installed("yaml")
  dir <- dirname(local_yml(list(tsl = "dev", port = 0L)))
  for (it in list(local_cli("serve", dir), local_r(paste0("rookery::serve('", dir, "')")))) {
    expect_gt(exit_of(it), 0)
    expect_match(it$tell(), "`tsl:` under `options:` .* Did you mean `tls`")
  }
})

test_that("a Unix socket that a _server.yml names is relative to it", {
  skip_if_not_installed("processx")
  skip_if_not_installed("yaml")
  dir <- normalizePath(withr::local_tempdir(pattern = "y", tmpdir = "/tmp"))
  writeLines("function(req) list(status = 200L, headers = list(), body = 'by socket')", file.path(dir, "app.R"))
  writeLines(c("engine: rookery", "app: app.R", "options:", "  host: unix:s", "  log: false"), file.path(dir, "_server.yml"))
  it <- local_cli("serve", dir)
  expect_true(wait_until(function() file.exists(file.path(dir, "s"))))
  expect_serving(it)
  expect_equal(fetch("http://localhost/", path = file.path(dir, "s"))$text, "by socket")
})

test_that("launch_server() as a host calls it ignores workers and HTTPS of the file, and says so once", {
  skip_if_not_installed("processx")
  skip_if_not_installed("yaml")
  file <- local_yml(list(workers = 2L, max_age = "12h", tls = list(cert = "none.pem", redirect_from = 8080L), error_detail = "message"))
  writeLines("function(req) list(status = 200L, headers = list(), body = as.character(Sys.getpid()))", file.path(dirname(file), "app.R"))
  it <- local_r(sprintf("rookery::launch_server('%s', '127.0.0.1', %d, log = FALSE)", file, free_port()))
  url <- expect_serving(it)
  expect_match(url, "^http://")
  # This very process serves.
  expect_equal(fetch(url)$text, as.character(it$process$get_pid()))
  said <- "`workers:`, `max_age:`, `tls:` of `.*_server.yml` are ignored, because launch_server\\(\\) was called with the host or port"
  expect_equal(lengths(regmatches(it$tell(), gregexpr(said, it$tell()))), 1, info = it$tell())
  it$signal(15)
  expect_equal(exit_of(it), 0)
  expect_no_match(it$tell(), "restarted|supervis")
  # Without them the file counts.
  it <- local_r(sprintf("rookery::launch_server('%s')", file))
  expect_equal(exit_of(it), 1)
  expect_match(it$tell(), "none.pem")
})

test_that("an argument of launch_server() is not taken for another whose name it begins", {
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
    "`log-format:` and `log_format:` are the same setting",
    class = "rookery_bad_setting"
  )
  expect_error(
    settings_read(local_yml(list(limits = list(body_bytes = 1e6, "body-bytes" = 2e6)))),
    "`body_bytes:` and `body-bytes:` are the same setting",
    class = "rookery_bad_setting"
  )
})

test_that("a port that is none is reported with the file that has it", {
  skip_if_not_installed("yaml")
  for (port in list("http", 70000L, 1.5, c(1L, 2L))) {
    file <- local_yml(list(port = port))
    expect_error(settings_read(file), paste0("`port:` of `", file, "` must be"), fixed = TRUE, class = "rookery_bad_address")
  }
})
