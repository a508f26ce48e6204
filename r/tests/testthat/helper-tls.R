# HTTPS in tests: certificates, and a client in the process that serves.

# Creates a certificate for localhost with its key, with openssl; `signed_by` is the certificate of
# an authority.
make_pair <- function(dir, name, subject = "/CN=localhost", signed_by = NULL) {
  skip_if(!nzchar(Sys.which("openssl")), "there is no openssl")
  file <- function(ending) file.path(dir, paste0(name, ending))
  run <- function(...) {
    said <- suppressWarnings(system2("openssl", c(...), stdout = TRUE, stderr = TRUE))
    if (!is.null(attr(said, "status"))) stop(paste(said, collapse = "\n"))
  }
  key <- c(
    "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", file(".key"),
    "-subj", shQuote(subject)
  )
  if (is.null(signed_by)) {
    names <- c("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    run("req", "-x509", key, "-out", file(".pem"), "-days", "30", names)
  } else {
    run("req", "-new", key, "-out", file(".csr"))
    extensions <- file(".ext")
    writeLines(c("basicConstraints=CA:FALSE", "extendedKeyUsage=clientAuth"), extensions)
    run(
      "x509", "-req", "-in", file(".csr"), "-CA", signed_by$cert, "-CAkey", signed_by$key,
      "-CAcreateserial", "-days", "30",
      "-extfile", extensions, "-out", file(".pem")
    )
  }
  Sys.chmod(file(".key"), "600")
  list(cert = file(".pem"), key = file(".key"))
}

# Creates a PEM file with a certificate for localhost and its key.
local_pem <- function(env = parent.frame()) {
  .Call(rookery:::ffi_tls_development_certificate, withr::local_tempdir(.local_envir = env))[[1]]
}

# Sends one request while this process serves; returns the response, or curl's error as a string.
fetch_here <- function(url, ...) {
  result <- NULL
  handle <- curl::new_handle(
    url = url, timeout = 60, fresh_connect = TRUE, forbid_reuse = TRUE, ...
  )
  pool <- curl::new_pool()
  curl::multi_add(
    handle, done = function(answer) result <<- answer, fail = function(text) result <<- text,
    pool = pool
  )
  serve_until(function() {
    curl::multi_run(timeout = 0, pool = pool)
    !is.null(result)
  })
  # Bytes with a NUL are not converted to text.
  if (is.list(result) && !any(result$content == 0)) {
    result$text <- rawToChar(result$content)
  }
  result
}

local_tls_server <- function(tls, app = NULL, env = parent.frame()) {
  app <- if (is.null(app)) {
    function(req) list(status = 200L, headers = list(), body = req$rook.url_scheme)
  } else {
    app
  }
  server <- startServer("127.0.0.1", 0, app, tls = tls)
  withr::defer(server$stop(), envir = env)
  server
}

secure_url <- function(server, path = "/") paste0("https://localhost:", server$getPort(), path)
