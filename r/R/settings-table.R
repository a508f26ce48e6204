# Written by `make settings` from the table in crates/settings/src/table. Do not edit.
#
# One row for each setting that R accepts: its name, its argument, whether it is an
# option of R and a limit, its stability, its default, the accepted values, and its help in two
# parts.

setting_table <- rbind.data.frame(
  list(
    name = "host", argument = "serve(host)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "127.0.0.1; all interfaces with `domain`", is_literal = FALSE,
    wanted = "localhost, an IP address of this machine (0.0.0.0 or :: for all), or unix:/path/of/a/socket",
    help = "Address to listen on, or unix:/path for a Unix socket",
    paragraph = "`127.0.0.1` and `localhost` accept connections from this machine only; `0.0.0.0` (IPv4) and `::` (IPv6) accept them on all network interfaces. With `domain` the default is all interfaces, because the certificate authority must be able to connect from outside. A relative path of a Unix socket is relative to the current folder or, in `_server.yml`, to the folder of that file."
  ),
  list(
    name = "port", argument = "serve(port)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "8000; 443 with `domain`", is_literal = FALSE,
    wanted = "a whole number from 0 to 65535",
    help = "Port to listen on; 0 lets the system choose a free port",
    paragraph = "Ports below 1024 require root or a special privilege on most systems. If the port is not set anywhere else, the server uses the environment variable `PORT`, which many hosting services set."
  ),
  list(
    name = "trusted_proxies", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "addresses such as 192.0.2.1, networks such as 10.0.0.0/8, or unix",
    help = "Addresses of reverse proxies whose forwarding headers are trusted",
    paragraph = "Set this if a reverse proxy such as nginx forwards requests to the server. The value is a list of IP addresses, of networks such as `10.0.0.0/8`, or of `unix`, which means all connections over a Unix socket. In requests from these proxies, `X-Forwarded-For` (or, without it, `Forwarded`) names the client, `X-Forwarded-Proto` decides whether the client used HTTPS, `X-Request-Id` sets the request's id, and `Shiny-Server-Credentials` reaches the app. In requests from all other clients, the server ignores the first four headers and removes the last. The client's address is the last one in `X-Forwarded-For` that is not itself a trusted proxy; `REMOTE_ADDR`, the access log and traces contain it. The proxies must replace or extend the headers that their own clients send. `max_connections_per_ip` does not apply to them."
  ),
  list(
    name = "keep_identity_headers", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Pass on the identity headers of clients that are not trusted proxies",
    paragraph = "Shiny takes the user and the groups of a session from the header `Shiny-Server-Credentials`, and a front end such as Shiny Server proves itself by `Shiny-Shared-Secret`. The server removes both, however they are spelled, from the requests of clients that are not in `trusted_proxies`, because any client can send them. A server that such a front end starts needs `trusted_proxies` or `keep_identity_headers`. The latter applies only to servers that `startServer()` or `runServer()` starts, as `shiny::runApp()` does, and not to `serve()` or the program."
  ),
  list(
    name = "proxy_protocol", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Expect a PROXY protocol header on each connection",
    paragraph = "Set this if a TCP load balancer such as HAProxy sends a PROXY protocol header (version 1 or 2) at the start of each connection. The server takes the client's address from this header for `REMOTE_ADDR` and the access log. Connections without the header are closed. Also set `proxy_protocol_from`, because otherwise anyone who can connect directly can claim any client address."
  ),
  list(
    name = "proxy_protocol_from", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "addresses such as 192.0.2.1, networks such as 10.0.0.0/8, or unix",
    help = "Addresses of load balancers that may send a PROXY protocol header",
    paragraph = "The value has the form of `trusted_proxies`. Connections from all other addresses are closed, and the log says so. Without this setting, any client may send the header, and the server warns at its start. A load balancer that only passes on what its clients send must not be in `trusted_proxies`, because each client could then forge the forwarding headers. If a trusted proxy is in front of the load balancer, list the proxy in `trusted_proxies`: its address is the one in the PROXY header."
  ),
  list(
    name = "tls", argument = "serve(tls)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "dev",
    help = "Serve HTTPS with a self-signed certificate (the only value is dev)",
    paragraph = "With the value dev, the server uses a certificate for `localhost`, `127.0.0.1` and `::1`, which is only for development. The certificate is created once and kept in R's user data folder. Browsers warn about it until you mark it as trusted. In `_server.yml`, `tls:` may instead be a mapping with the other HTTPS settings. Certificates that are given on the command line replace the whole mapping."
  ),
  list(
    name = "tls_cert", argument = "tls_config(cert)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "the path of a file, or a list of paths",
    help = "Certificate chain as a PEM file; may be repeated",
    paragraph = "Turns HTTPS on. The file contains the server's certificate, followed by the intermediate certificates. If there are several files, the server selects the certificate by the host name in the client's TLS handshake (SNI), and uses the first certificate for any other host name. The server checks the files for changes every ten seconds, and reads them again at once after SIGHUP."
  ),
  list(
    name = "tls_key", argument = "tls_config(key)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "the file of `tls_cert`", is_literal = FALSE,
    wanted = "the path of a file, or a list of paths",
    help = "Private key as a PEM file, if not in the certificate's file",
    paragraph = "For several certificates, give one key for each, in the same order: repeat the option, or give a list in `_server.yml` or a vector in R."
  ),
  list(
    name = "tls_client_ca", argument = "tls_config(client_ca)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "PEM file with the CA certificates that verify clients",
    paragraph = "Turns on mutual TLS: the server requests from each client a certificate that is signed by one of these certificate authorities. The app sees the client's certificate as `TLS_CLIENT_SUBJECT` and `TLS_CLIENT_FINGERPRINT`. `tls_client_auth` decides whether clients without a certificate are refused."
  ),
  list(
    name = "tls_client_auth", argument = "tls_config(client_auth)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "required", is_literal = TRUE,
    wanted = "required or optional",
    help = "Whether client certificates are required or optional",
    paragraph = "`required` refuses connections without a client certificate. `optional` requests a certificate, but also serves clients that have none. This setting needs `tls_client_ca`, which turns on the verification of clients."
  ),
  list(
    name = "tls_min_version", argument = "tls_config(min_version)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "1.2", is_literal = TRUE,
    wanted = "1.2 or 1.3",
    help = "Oldest TLS version that clients may use: 1.2 or 1.3",
    paragraph = "The server refuses TLS connections from clients that support only older versions."
  ),
  list(
    name = "http2", argument = "tls_config(http2)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "on", is_literal = TRUE,
    wanted = "yes or no",
    help = "HTTP/2 over TLS, which is on by default. --no-http2 turns it off",
    paragraph = "With HTTP/2, browsers send all their requests over one connection. Clients that do not support HTTP/2 use HTTP/1.1. The app gets the same request objects with either version. `--no-http2=off` leaves HTTP/2 on."
  ),
  list(
    name = "hsts", argument = "tls_config(hsts)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "off, or a number of seconds, optionally followed by subdomains and preload, separated by commas",
    help = "Send Strict-Transport-Security: SECONDS[,subdomains][,preload]",
    paragraph = "The header tells browsers to use only HTTPS for this host for the given number of seconds. They do so even if the server no longer offers HTTPS, so begin with a few minutes. `subdomains` includes all subdomains. `preload` allows browser vendors to build this rule into their browsers; it needs `subdomains` and at least a year (31536000). 0 makes browsers forget the rule."
  ),
  list(
    name = "redirect_from", argument = "tls_config(redirect_from)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "80 with `domain` and without `port`, else none", is_literal = FALSE,
    wanted = "none, or a whole number from 1 to 65535",
    help = "Port whose HTTP requests are redirected to HTTPS, or none",
    paragraph = "The server also listens on this port at the same address, and redirects plaintext HTTP requests to HTTPS with status 308. If `domain` is set and `port` is not, the default is 80, because certificate authorities send the requests of the `http-01` challenge to port 80."
  ),
  list(
    name = "domain", argument = "acme(domain)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "host names, such as app.example.org",
    help = "Get a certificate for this host name by ACME; may be repeated",
    paragraph = "Turns HTTPS on. While the server runs, it orders the certificate and renews it before it expires. The certificate comes from Let's Encrypt, unless `acme_directory` in `_server.yml` or R names another certificate authority. The authority must be able to reach this server under the host name, and you must agree to its terms with `agree_tos`. Wildcard names are not supported."
  ),
  list(
    name = "email", argument = "acme(email)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "e-mail addresses, such as ops@example.org",
    help = "Contact address for the certificate authority; may be repeated",
    paragraph = "The authority may write to this address if there is a problem with a certificate."
  ),
  list(
    name = "agree_tos", argument = "acme(agree_tos)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Agree to the certificate authority's terms of service",
    paragraph = "`domain` requires this agreement. The terms of Let's Encrypt are at <https://letsencrypt.org/repository/>."
  ),
  list(
    name = "acme_directory", argument = "acme(directory)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "Let's Encrypt", is_literal = FALSE,
    wanted = "a URL that begins with https://",
    help = "ACME directory URL of another certificate authority",
    paragraph = "Certificates are then ordered from this authority instead of Let's Encrypt. The directory is the URL at which an authority lists its ACME endpoints (RFC 8555, 7.1.1). The staging environment of Let's Encrypt, for tests, is at <https://acme-staging-v02.api.letsencrypt.org/directory>; browsers do not trust its certificates."
  ),
  list(
    name = "acme_profile", argument = "acme(profile)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "the authority's default", is_literal = FALSE,
    wanted = "a word",
    help = "Certificate profile to request, such as shortlived",
    paragraph = "Each authority defines its own profiles. Let's Encrypt offers `tlsserver` and `shortlived`; certificates for IP addresses need `shortlived`."
  ),
  list(
    name = "acme_ca", argument = "acme(ca)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "the CA certificates of the system", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "PEM file with the CA certificates that verify the ACME server",
    paragraph = "Set this for a private certificate authority whose ACME server has an HTTPS certificate that the system does not trust."
  ),
  list(
    name = "acme_dir", argument = "acme(dir)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "`acme` in R's user data folder", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "Folder for the ACME account and the certificates",
    paragraph = "Only the user who runs the server can read the folder. If several servers share the folder, also on several machines, only one of them orders the certificates. All of them use these certificates and respond to the challenges of the authority, which may connect to any of them."
  ),
  list(
    name = "workers", argument = "serve(workers)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "1", is_literal = TRUE,
    wanted = "auto, or a whole number from 1 to 1000",
    help = "Number of R processes, or auto for one per processor",
    paragraph = "More than one worker needs Linux or macOS. `auto` starts one worker for each processor that the CPU limit of the control group and the CPU affinity allow. If the number is not set anywhere else, the server uses the environment variable `WEB_CONCURRENCY`."
  ),
  list(
    name = "spares", argument = "workers_config(spares)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "0", is_literal = TRUE,
    wanted = "a whole number from 0 to 1000",
    help = "Number of started workers (R processes) held in reserve",
    paragraph = "A spare worker has already loaded the app, so it takes over immediately when another worker ends. Set this if the app takes long to start."
  ),
  list(
    name = "surge", argument = "workers_config(surge)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "1", is_literal = TRUE,
    wanted = "0 or 1",
    help = "Extra workers during a replacement: 1, or 0 to save memory",
    paragraph = "With 1, a new worker starts before the old worker that it replaces is stopped. With 0, the old worker is stopped first. This needs less memory, but one worker fewer serves requests until the new worker is ready."
  ),
  list(
    name = "warmup", argument = "workers_config(warmup)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "paths that begin with / and contain no spaces, separated by commas",
    help = "Paths requested from a new worker before it gets traffic",
    paragraph = "A list of URL paths, such as `/,/predict?x=1`. Set this for an app whose first requests are slow. A new worker that responds to one of the paths with a status of 500 or above is stopped."
  ),
  list(
    name = "max_sessions", argument = "workers_config(max_sessions)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a whole number, at least 1",
    help = "Maximum number of WebSockets (Shiny sessions) per worker",
    paragraph = "When every worker has this many WebSockets, new clients get status 503, while clients that already have a WebSocket are still served. There is no limit by default."
  ),
  list(
    name = "max_in_flight", argument = "workers_config(max_in_flight)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "64", is_literal = TRUE,
    wanted = "a whole number, at least 1",
    help = "Maximum unfinished requests per worker, for apps with promises",
    paragraph = "An app that uses promises can start a request before it has responded to the previous ones. This setting limits the number of requests that one worker has started and not yet responded to."
  ),
  list(
    name = "queue_timeout", argument = "workers_config(queue_timeout)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "10 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "How long a request may wait for a worker; status 503 after that",
    paragraph = "The time limit `request_timeout` begins only when a worker gets the request. A single worker usually accepts connections itself, and requests do not wait for it in the supervisor process. If you set this limit, the supervisor accepts the connections instead."
  ),
  list(
    name = "max_requests", argument = "workers_config(max_requests)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a whole number, at least 1",
    help = "Replace a worker after this many requests",
    paragraph = "Set this if the app leaks memory. The old worker finishes its requests while a new worker takes its place. By default, workers are not replaced for this reason."
  ),
  list(
    name = "max_age", argument = "workers_config(max_age)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "Replace a worker that has run for longer than this, such as 12h",
    paragraph = "The old worker finishes its requests while a new worker takes its place. By default, workers are not replaced because of their age."
  ),
  list(
    name = "max_memory", argument = "workers_config(max_memory)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none with one worker; else 80 % of the control group's limit, divided by the workers", is_literal = FALSE,
    wanted = "0, or a size such as 512KB or 10MB (without a unit: bytes), at least 32 MiB, or none",
    help = "Replace a worker that uses more memory than this, such as 2GB",
    paragraph = "A worker's memory is the anonymous, swapped and shared memory of all its processes. 0 and `none` mean no limit."
  ),
  list(
    name = "worker_timeout", argument = "workers_config(worker_timeout)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "Replace a worker that is busy with one task for this long",
    paragraph = "This detects a worker (an R process) that hangs, whether it processes a request or another task. The worker is killed. With `interrupt_requests`, R is interrupted first, and the worker is killed only if it stays busy. The clients whose requests R has begun get status 504. There is no limit by default. To limit only the time of requests, use `request_timeout` instead."
  ),
  list(
    name = "slow_log", argument = "workers_config(slow_log)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "10 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 100 ms, or none",
    help = "Report a task of R that takes longer than this",
    paragraph = "The program's messages then name the worker, the request (method and path, no query) and whether R computes or waits, and later how long the task took. `none` reports nothing."
  ),
  list(
    name = "start_timeout", argument = "workers_config(start_timeout)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "60 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "How long a worker may take to become ready",
    paragraph = "A worker that is not ready to serve after this time is stopped, and its start counts as failed. Increase this for an app that takes long to load."
  ),
  list(
    name = "start_retries", argument = "workers_config(start_retries)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "3; 0 with `reload`", is_literal = FALSE,
    wanted = "a whole number from 0 to 1000",
    help = "Retries of a failed start before exiting with status 3",
    paragraph = "Set this if the app may have to wait, for example for a database, when the server starts. The pauses between retries grow. The setting has no effect once a worker has been ready."
  ),
  list(
    name = "drain", argument = "workers_config(drain)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "60 s; 1 s with `reload`", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "Time for requests to finish when a worker or the server stops",
    paragraph = "A worker that is being stopped gets no new requests. Requests and WebSockets that are still open after this time are cut off."
  ),
  list(
    name = "drain_sessions", argument = "workers_config(drain_sessions)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "the time of `drain`", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "How long WebSockets of a replaced worker may stay open, such as 4h",
    paragraph = "When a worker is replaced, it waits up to this long for its WebSockets, such as Shiny sessions, to end. If the worker is replaced because of its memory, or if the server stops, it waits only as long as for requests (see `drain`)."
  ),
  list(
    name = "sticky", argument = "workers_config(sticky)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "auto", is_literal = TRUE,
    wanted = "auto, cookie or none",
    help = "Session affinity: auto (for Shiny), cookie or none",
    paragraph = "With several workers, session affinity sends all requests of one client to the same worker. `auto` applies it to Shiny apps, because a Shiny session exists in only one worker. `cookie` applies it to every app."
  ),
  list(
    name = "restart", argument = "workers_config(restart)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "always", is_literal = TRUE,
    wanted = "always or never",
    help = "Whether a worker that ended is restarted: always or never",
    paragraph = "With `never`, the server exits when a worker exits by itself, with the exit status of R. Set this if an orchestrator such as Kubernetes restarts the server."
  ),
  list(
    name = "fail_fast", argument = "workers_config(fail_fast)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Exit with status 5 when all workers keep crashing",
    paragraph = "Set this if an orchestrator such as Kubernetes should restart the server elsewhere. By default the server keeps restarting its workers, with growing pauses."
  ),
  list(
    name = "shutdown_delay", argument = "workers_config(shutdown_delay)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "0 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds)",
    help = "How long to keep serving requests after a signal to stop",
    paragraph = "During this time, the probe `/-/ready` already fails. Load balancers can therefore notice that the server is stopping before it refuses connections."
  ),
  list(
    name = "reconnect", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "app", is_literal = TRUE,
    wanted = "app, always or never",
    help = "When a disconnected Shiny page reconnects: app, always, never",
    paragraph = "`app` reconnects a page only if the app calls `session$allowReconnect(TRUE)`. `always` reconnects it unless the app calls `session$allowReconnect(FALSE)`. `never` reconnects no page. A reconnected page gets a new session with the inputs of the old one; other state of the old session is lost."
  ),
  list(
    name = "embed", argument = "workers_config(embed)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Send the session cookie to frames on other sites (HTTPS only)",
    paragraph = "Set this if pages of other sites show the app in a frame and the app needs session affinity (see `sticky`). Browsers accept the session cookie in such frames only over HTTPS."
  ),
  list(
    name = "max_body_size", argument = "server_limits(max_body_size)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "none", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), or none",
    help = "Maximum size of a request body, such as 10MB; status 413 above it",
    paragraph = "There is no limit by default, because Shiny and plumber have their own limits."
  ),
  list(
    name = "request_timeout", argument = "server_limits(request_timeout)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "none", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long the app may take to respond; status 504 after that",
    paragraph = "R still finishes the request, and its late response is discarded. With `interrupt_requests`, R is interrupted instead. There is no limit by default, because a request may take long, for example to fit a model."
  ),
  list(
    name = "idle_timeout", argument = "server_limits(idle_timeout)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "120 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "Close a connection that makes no progress for this long",
    paragraph = "The time applies to a connection that waits for its next request, and to a request body or response whose transfer has stalled, or falls behind a rate of 512 bytes per second by this time. The default is longer than the idle timeout of common proxies (60 s)."
  ),
  list(
    name = "max_connections", argument = "server_limits(max_connections)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "10000", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Maximum number of client connections",
    paragraph = "At the limit, a new connection replaces an idle or slow one, beginning with the least active. A connection is slow if it has not sent its request head within a second, or transfers less than 512 bytes per second. If no connection is idle or slow, the new connection is refused with status 503."
  ),
  list(
    name = "max_header_size", argument = "server_limits(max_header_size)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "96 KiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 8 KiB, or none",
    help = "Maximum size of an HTTP/1.1 request head; status 431 above it",
    paragraph = "The request head is the request line and all header fields. The default is larger than the limit of httpuv (80 KiB), because the cookies of some apps reach that size. Over HTTP/2, the limit is 32 KiB."
  ),
  list(
    name = "header_timeout", argument = "server_limits(header_timeout)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "30 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long a request head may take to arrive; status 408 after that",
    paragraph = "The request head is the request line and all header fields. The time starts when the connection is accepted or, for a later request on that connection, with the first byte of its head. A head also gets status 408 if it falls behind a rate of 32 bytes per second by 10 s."
  ),
  list(
    name = "max_connections_per_ip", argument = "server_limits(max_connections_per_ip)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "none", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Maximum connections of one IPv4 address or IPv6 /64 network",
    paragraph = "Further connections from that address or network are refused with status 503. There is no limit by default, because behind a proxy all clients have the same address."
  ),
  list(
    name = "max_queued_requests", argument = "server_limits(max_queued_requests)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "1024", is_literal = TRUE,
    wanted = "a whole number, or none",
    help = "Maximum number of requests that wait for R; status 503 above it",
    paragraph = "A request waits from its arrival until R starts to process it."
  ),
  list(
    name = "max_client_memory", argument = "server_limits(max_client_memory)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "a quarter of the memory that the process may use, and at least 32 MiB", is_literal = FALSE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 MiB, or none",
    help = "Maximum memory that clients can make the server use",
    paragraph = "The limit is for all clients together, and does not include the memory of the app. The memory is divided into fixed shares, for example one for request bodies. When a share is used up, the client that uses the most of it, or the newest client, gets status 503 or WebSocket close code 1013."
  ),
  list(
    name = "ws_max_message_size", argument = "server_limits(ws_max_message_size)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "64 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 B, or none",
    help = "Maximum size of a WebSocket message; close code 1009 above it",
    paragraph = "The default is the same limit as in Shiny Server."
  ),
  list(
    name = "interrupt_requests", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Interrupt R when a request or a task exceeds its time limit",
    paragraph = "The time limits are `request_timeout` for a request and `worker_timeout` for any task of a worker. The interrupted R code fails with the error that `setTimeLimit()` raises. This is off by default, because an interrupt can break a database transaction."
  ),
  list(
    name = "ws_origins", argument = "app$wsOrigins", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "same, or hosts such as example.org, *.example.org or localhost:8000 without https://",
    help = "Origins that may open WebSockets: same, example.org, ...",
    paragraph = "A list of the hosts whose pages may open WebSockets, without `https://`. Each host may begin with `*.` and end with a port; `same` means the app's own host. By default, pages of every site may open WebSockets, so set this if the app identifies its users by cookies."
  ),
  list(
    name = "ws_compression", argument = "app$wsCompression", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "on, off, or one or more of level=1 to level=9, threshold=<bytes> and takeover=on, separated by commas",
    help = "WebSocket compression: on, off, or level=6,threshold=512,...",
    paragraph = "`level` is from 1 (fastest) to 9 (smallest). Messages shorter than `threshold` bytes are not compressed. `takeover=on` keeps the compression context for the next message, which compresses better but takes 512 KiB of memory per WebSocket. `on` means `level=2,threshold=512,takeover=off`. In `_server.yml` and in R, the value may also be a mapping of `level`, `threshold` and `takeover`."
  ),
  list(
    name = "spool_dir", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "`TMPDIR`; in R, `tempdir()`", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "Folder for temporary files with large request bodies",
    paragraph = "A request body larger than 1 MiB is written to an unnamed temporary file in this folder while the app reads it."
  ),
  list(
    name = "log", argument = "serve(log)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "-", is_literal = TRUE,
    wanted = "-, none, or the path of a file or folder",
    help = "Access log: a file, - for standard output, or none",
    paragraph = "The server appends one line for each request to the file. For log rotation, SIGUSR1 makes the server open the file again. Write `./none` for a file with the name `none`. In R the value may also be `TRUE`, `FALSE` or a function."
  ),
  list(
    name = "log_format", argument = "serve(log_format)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "common; terminal if the log goes to a terminal", is_literal = FALSE,
    wanted = "common, combined, json or terminal",
    help = "Format of the access log: common, combined, json or terminal",
    paragraph = "`common` is the Common Log Format, followed by the duration in seconds. `combined` adds the `Referer` and the `User-Agent`; after the duration, it adds the seconds in the queue, the seconds in R, and the route. `json` writes one JSON object per line, also for messages and for what R prints. `terminal` writes aligned columns, with colour on a terminal. With several workers, each line of `common` and `json` also names the worker that responded."
  ),
  list(
    name = "admin", argument = "serve(admin)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "an address with a port, such as 127.0.0.1:9100, or unix:/path/of/a/socket",
    help = "Address for status, metrics and health checks",
    paragraph = "The value is an IP address with a port, such as `127.0.0.1:9100`, or `unix:/path`. At this address, the server responds to `/metrics` and to the probes `/-/live` and `/-/ready`, also while R is busy. The address is meant for monitoring and should not be public."
  ),
  list(
    name = "request_id_header", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "on for apps that `serve` runs, else off", is_literal = FALSE,
    wanted = "yes or no",
    help = "Send the id of each request to its client as X-Request-Id",
    paragraph = "The id of a request is also in the JSON access log. This setting is part of the app's interface, so it has no option on the command line: set it in `_server.yml`, in R or in the environment."
  ),
  list(
    name = "open", argument = "serve(open)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Open the app in a browser once the server is ready",
    paragraph = "The browser is opened once, and not after each reload. In RStudio and Positron, R's `serve()` without `workers` shows the app in the viewer instead. Over SSH without a display, the server only prints the address."
  ),
  list(
    name = "reload", argument = "workers_config(reload)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Restart workers when a file of the app changes",
    paragraph = "For development: the server watches the app's files, and replaces all workers after a change. `rookery dev` also reloads the open pages."
  ),
  list(
    name = "server_timing", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Send the time of a request in the queue and in R as Server-Timing",
    paragraph = "The developer tools of browsers show these times, and `render`, in which the app's value became the response. An app can add times of its own, such as `Server-Timing: db;dur=12`. Only for development: the header tells strangers how the server works."
  ),
  list(
    name = "error_detail", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "none; message in an interactive R session", is_literal = FALSE,
    wanted = "none, message or full",
    help = "What error pages show to clients: none, message or full",
    paragraph = "`none` shows only that an error occurred, with the id of the request. `message` also shows the error message. `full` also shows the call stack, but only to browsers on this machine, and with `rookery dev` only to browsers that have the token."
  ),
  stringsAsFactors = FALSE
)
