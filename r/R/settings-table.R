# Written by `make settings` from the table in crates/settings/src/table. Do not edit.
#
# One row for each setting that R accepts: its name and former name, its argument, whether it is an
# option of R and a limit, its stability, its default, the accepted values, and its help in two
# parts.

setting_table <- rbind.data.frame(
  list(
    name = "host", former = "", argument = "serve(host)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "127.0.0.1; all interfaces with `domain`", is_literal = FALSE,
    wanted = "localhost, an IP address of this machine (0.0.0.0 or :: for all), or unix:/path/of/a/socket",
    help = "Address to listen on, or unix:/path for a Unix socket",
    paragraph = "`127.0.0.1` and `localhost` accept connections from this machine only; `0.0.0.0` (IPv4) and `::` (IPv6) accept them on all network interfaces. With `domain` the default is all interfaces, because the certificate authority must be able to connect from outside. A relative path of a Unix socket is relative to the current folder or, in `_server.yml`, to the folder of that file."
  ),
  list(
    name = "port", former = "", argument = "serve(port)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "8000; 443 with `domain`", is_literal = FALSE,
    wanted = "a whole number from 0 to 65535",
    help = "Port to listen on; 0 lets the system choose a free port",
    paragraph = "Ports below 1024 require root or a special privilege on most systems. If the port is not set anywhere else, the server uses the environment variable `PORT`, which many hosting services set."
  ),
  list(
    name = "trusted_proxies", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "addresses such as 192.0.2.1, networks such as 10.0.0.0/8, or unix",
    help = "Addresses of reverse proxies whose forwarding headers are trusted",
    paragraph = "Set this if a reverse proxy such as nginx forwards requests to the server. The value is a list of IP addresses, of networks such as `10.0.0.0/8`, or of `unix`, which means all connections over a Unix socket. In requests from these proxies, `X-Forwarded-For` (or, without it, `Forwarded`) names the client, `X-Forwarded-Proto` decides whether the client used HTTPS, `X-Request-Id` sets the request's id, and `Shiny-Server-Credentials` reaches the app. In requests from all other clients, the server ignores the first four headers and removes the last. The client's address is the last one in `X-Forwarded-For` that is not itself a trusted proxy; `REMOTE_ADDR`, the access log and traces contain it. The proxies must replace or extend the headers that their own clients send. `max_connections_per_ip` does not apply to them."
  ),
  list(
    name = "keep_identity_headers", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Pass on the identity headers of clients that are not trusted proxies",
    paragraph = "Shiny takes the user and the groups of a session from the header `Shiny-Server-Credentials`, and a front end such as Shiny Server proves itself by `Shiny-Shared-Secret`. The server removes both, however they are spelled, from the requests of clients that are not in `trusted_proxies`, because any client can send them. A server that such a front end starts needs `trusted_proxies` or `keep_identity_headers`. The latter applies only to servers that `startServer()` or `runServer()` starts, as `shiny::runApp()` does, and not to `serve()` or the program."
  ),
  list(
    name = "proxy_protocol", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Expect a PROXY protocol header on each connection",
    paragraph = "Set this if a TCP load balancer such as HAProxy sends a PROXY protocol header (version 1 or 2) at the start of each connection. The server takes the client's address from this header for `REMOTE_ADDR` and the access log. Connections without the header are closed. Also set `proxy_protocol_from`, because otherwise anyone who can connect directly can claim any client address."
  ),
  list(
    name = "proxy_protocol_from", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "addresses such as 192.0.2.1, networks such as 10.0.0.0/8, or unix",
    help = "Addresses of load balancers that may send a PROXY protocol header",
    paragraph = "The value has the form of `trusted_proxies`. Connections from all other addresses are closed, and the log says so. Without this setting, any client may send the header, and the server warns at its start. A load balancer that only passes on what its clients send must not be in `trusted_proxies`, because each client could then forge the forwarding headers. If a trusted proxy is in front of the load balancer, list the proxy in `trusted_proxies`: its address is the one in the PROXY header."
  ),
  list(
    name = "tls", former = "", argument = "serve(tls)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "dev",
    help = "Serve HTTPS with a self-signed certificate (the only value is dev)",
    paragraph = "With the value dev, the server uses a certificate for `localhost`, `127.0.0.1` and `::1`, which is only for development. The certificate is created once and kept in R's user data folder. Browsers warn about it until you mark it as trusted. In `_server.yml`, `tls:` may instead be a mapping with the other HTTPS settings. Certificates that are given on the command line replace the whole mapping."
  ),
  list(
    name = "tls_cert", former = "", argument = "tls_config(cert)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "the path of a file, or a list of paths",
    help = "Certificate chain as a PEM file; may be repeated",
    paragraph = "Turns HTTPS on. The file contains the server's certificate, followed by the intermediate certificates. If there are several files, the server selects the certificate by the host name in the client's TLS handshake (SNI), and uses the first certificate for any other host name. The server checks the files for changes every ten seconds, and reads them again at once after SIGHUP."
  ),
  list(
    name = "tls_key", former = "", argument = "tls_config(key)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "the file of `tls_cert`", is_literal = FALSE,
    wanted = "the path of a file, or a list of paths",
    help = "Private key as a PEM file, if not in the certificate's file",
    paragraph = "For several certificates, give one key for each, in the same order: repeat the option, or give a list in `_server.yml` or a vector in R."
  ),
  list(
    name = "tls_password", former = "", argument = "tls_config(password)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "a text",
    help = "Password of an encrypted private key",
    paragraph = "A string, or a function without arguments that returns the password. Only R accepts this setting, because a password should not appear in a configuration file or in the list of processes."
  ),
  list(
    name = "tls_client_ca", former = "", argument = "tls_config(client_ca)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "PEM file with the CA certificates that verify clients",
    paragraph = "Turns on mutual TLS: the server requests from each client a certificate that is signed by one of these certificate authorities. The app sees the client's certificate as `TLS_CLIENT_SUBJECT` and `TLS_CLIENT_FINGERPRINT`. `tls_client_auth` decides whether clients without a certificate are refused."
  ),
  list(
    name = "tls_client_auth", former = "", argument = "tls_config(client_auth)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "required", is_literal = TRUE,
    wanted = "required or optional",
    help = "Whether client certificates are required or optional",
    paragraph = "`required` refuses connections without a client certificate. `optional` requests a certificate, but also serves clients that have none. This setting needs `tls_client_ca`, which turns on the verification of clients."
  ),
  list(
    name = "tls_min_version", former = "", argument = "tls_config(min_version)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "1.2", is_literal = TRUE,
    wanted = "1.2 or 1.3",
    help = "Oldest TLS version that clients may use: 1.2 or 1.3",
    paragraph = "The server refuses TLS connections from clients that support only older versions."
  ),
  list(
    name = "http2", former = "", argument = "tls_config(http2)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "on", is_literal = TRUE,
    wanted = "yes or no",
    help = "HTTP/2 over TLS, which is on by default. --no-http2 turns it off",
    paragraph = "With HTTP/2, browsers send all their requests over one connection. Clients that do not support HTTP/2 use HTTP/1.1. The app gets the same request objects with either version. `--no-http2=off` leaves HTTP/2 on."
  ),
  list(
    name = "http2_websockets", former = "", argument = "tls_config(http2_websockets)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "on", is_literal = TRUE,
    wanted = "yes or no",
    help = "Accept WebSockets over HTTP/2 (RFC 8441)",
    paragraph = "Browsers then open a WebSocket within the HTTP/2 connection over which they loaded the page. Turn this off only to work around a faulty client or proxy."
  ),
  list(
    name = "hsts", former = "", argument = "tls_config(hsts)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "off, or a number of seconds, optionally followed by subdomains and preload, separated by commas",
    help = "Send Strict-Transport-Security: SECONDS[,subdomains][,preload]",
    paragraph = "The header tells browsers to use only HTTPS for this host for the given number of seconds. They do so even if the server no longer offers HTTPS, so begin with a few minutes. `subdomains` includes all subdomains. `preload` allows browser vendors to build this rule into their browsers; it needs `subdomains` and at least a year (31536000). 0 makes browsers forget the rule."
  ),
  list(
    name = "redirect_from", former = "", argument = "tls_config(redirect_from)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "80 with `domain` and without `port`, else none", is_literal = FALSE,
    wanted = "none, or a whole number from 1 to 65535",
    help = "Port whose HTTP requests are redirected to HTTPS, or none",
    paragraph = "The server also listens on this port at the same address, and redirects plaintext HTTP requests to HTTPS with status 308. If `domain` is set and `port` is not, the default is 80, because certificate authorities send the requests of the `http-01` challenge to port 80."
  ),
  list(
    name = "domain", former = "domains", argument = "acme(domain)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "host names, such as app.example.org",
    help = "Get a certificate for this host name by ACME; may be repeated",
    paragraph = "Turns HTTPS on. While the server runs, it orders the certificate and renews it before it expires. The certificate comes from Let's Encrypt, unless `acme_directory` in `_server.yml` or R names another certificate authority. The authority must be able to reach this server under the host name, and you must agree to its terms with `agree_tos`. Wildcard names are not supported."
  ),
  list(
    name = "email", former = "", argument = "acme(email)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "e-mail addresses, such as ops@example.org",
    help = "Contact address for the certificate authority; may be repeated",
    paragraph = "The authority may write to this address if there is a problem with a certificate."
  ),
  list(
    name = "agree_tos", former = "", argument = "acme(agree_tos)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Agree to the certificate authority's terms of service",
    paragraph = "`domain` requires this agreement. The terms of Let's Encrypt are at <https://letsencrypt.org/repository/>."
  ),
  list(
    name = "acme_staging", former = "", argument = "acme(staging)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Use Let's Encrypt's staging environment, for tests",
    paragraph = "Use this to test whether the certificate authority can reach the server. The staging environment has high rate limits, but browsers do not trust its certificates."
  ),
  list(
    name = "acme_directory", former = "", argument = "acme(directory)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "Let's Encrypt", is_literal = FALSE,
    wanted = "a URL that begins with https://",
    help = "ACME directory URL of another certificate authority",
    paragraph = "Certificates are then ordered from this authority instead of Let's Encrypt. The directory is the URL at which an authority lists its ACME endpoints (RFC 8555, 7.1.1). This setting cannot be combined with `acme_staging`."
  ),
  list(
    name = "acme_profile", former = "", argument = "acme(profile)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "the authority's default", is_literal = FALSE,
    wanted = "a word",
    help = "Certificate profile to request, such as shortlived",
    paragraph = "Each authority defines its own profiles. Let's Encrypt offers `tlsserver` and `shortlived`; certificates for IP addresses need `shortlived`."
  ),
  list(
    name = "acme_challenge", former = "", argument = "acme(challenge)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "both, alternately", is_literal = FALSE,
    wanted = "http-01 or tls-alpn-01",
    help = "Use only this ACME challenge: http-01 or tls-alpn-01",
    paragraph = "A challenge proves to the certificate authority that this server controls the host name. The server answers `http-01` on the plaintext port that `redirect_from` sets, and `tls-alpn-01` on its HTTPS port. By default, the server switches to the other challenge after an attempt has failed."
  ),
  list(
    name = "acme_ca", former = "", argument = "acme(ca)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "the CA certificates of the system", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "PEM file with the CA certificates that verify the ACME server",
    paragraph = "Set this for a private certificate authority whose ACME server has an HTTPS certificate that the system does not trust."
  ),
  list(
    name = "acme_dir", former = "", argument = "acme(dir)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "`acme` in R's user data folder", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "Folder for the ACME account and the certificates",
    paragraph = "Only the user who runs the server can read the folder. If several servers share the folder, also on several machines, only one of them orders the certificates. All of them use these certificates and respond to the challenges of the authority, which may connect to any of them."
  ),
  list(
    name = "workers", former = "", argument = "serve(workers)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "1", is_literal = TRUE,
    wanted = "auto, or a whole number from 1 to 1000",
    help = "Number of R processes, or auto for one per processor",
    paragraph = "More than one worker needs Linux. `auto` starts one worker for each processor that the CPU limit of the control group and the CPU affinity allow. If the number is not set anywhere else, the server uses the environment variable `WEB_CONCURRENCY`."
  ),
  list(
    name = "spares", former = "", argument = "workers_config(spares)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "0", is_literal = TRUE,
    wanted = "a whole number from 0 to 1000",
    help = "Number of started workers (R processes) held in reserve",
    paragraph = "A spare worker has already loaded the app, so it takes over immediately when another worker ends. Set this if the app takes long to start."
  ),
  list(
    name = "surge", former = "", argument = "workers_config(surge)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "1", is_literal = TRUE,
    wanted = "0 or 1",
    help = "Extra workers during a replacement: 1, or 0 to save memory",
    paragraph = "With 1, a new worker starts before the old worker that it replaces is stopped. With 0, the old worker is stopped first. This needs less memory, but one worker fewer serves requests until the new worker is ready."
  ),
  list(
    name = "warmup", former = "", argument = "workers_config(warmup)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "paths that begin with / and contain no spaces, separated by commas",
    help = "Paths requested from a new worker before it gets traffic",
    paragraph = "A list of URL paths, such as `/,/predict?x=1`. Set this for an app whose first requests are slow. A new worker that responds to one of the paths with a status of 500 or above is stopped."
  ),
  list(
    name = "max_sessions", former = "", argument = "workers_config(max_sessions)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a whole number, at least 1",
    help = "Maximum number of WebSockets (Shiny sessions) per worker",
    paragraph = "When every worker has this many WebSockets, new clients get status 503, while clients that already have a WebSocket are still served. There is no limit by default."
  ),
  list(
    name = "max_in_flight", former = "", argument = "workers_config(max_in_flight)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none with one worker, else 64", is_literal = FALSE,
    wanted = "a whole number, at least 1",
    help = "Maximum unfinished requests per worker, for apps with promises",
    paragraph = "An app that uses promises can start a request before it has responded to the previous ones. This setting limits the number of requests that one worker has started and not yet responded to."
  ),
  list(
    name = "queue_timeout", former = "", argument = "workers_config(queue_timeout)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "60 s with one worker, else 10 s", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "How long a request may wait for a worker; status 503 after that",
    paragraph = "The time limit `request_timeout` begins only when a worker gets the request. A single worker has a longer default, because no other worker could take the request."
  ),
  list(
    name = "max_requests", former = "", argument = "workers_config(max_requests)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a whole number, at least 1",
    help = "Replace a worker after this many requests",
    paragraph = "Set this if the app leaks memory. The old worker finishes its requests while a new worker takes its place. By default, workers are not replaced for this reason."
  ),
  list(
    name = "max_age", former = "", argument = "workers_config(max_age)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "Replace a worker that has run for longer than this, such as 12h",
    paragraph = "The old worker finishes its requests while a new worker takes its place. By default, workers are not replaced because of their age."
  ),
  list(
    name = "max_memory", former = "", argument = "workers_config(max_memory)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none with one worker; else 80 % of the control group's limit, divided by the workers", is_literal = FALSE,
    wanted = "0, or a size such as 512KB or 10MB (without a unit: bytes), at least 32 MiB, or none",
    help = "Replace a worker that uses more memory than this, such as 2GB",
    paragraph = "A worker's memory is the anonymous, swapped and shared memory of all its processes. 0 and `none` mean no limit."
  ),
  list(
    name = "worker_timeout", former = "kill_stuck", argument = "workers_config(worker_timeout)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "Replace a worker that is busy with one task for this long",
    paragraph = "This detects a worker (an R process) that hangs, whether it processes a request or another task. The worker is killed. With `interrupt_requests`, R is interrupted first, and the worker is killed only if it stays busy. The clients whose requests R has begun get status 504. There is no limit by default. To limit only the time of requests, use `request_timeout` instead."
  ),
  list(
    name = "slow_log", former = "", argument = "workers_config(slow_log)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "10 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 100 ms, or none",
    help = "Report a task of R that takes longer than this",
    paragraph = "The program's messages then name the worker, the request (method and path, no query) and whether R computes or waits, and later how long the task took. `none` reports nothing."
  ),
  list(
    name = "start_timeout", former = "", argument = "workers_config(start_timeout)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "60 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "How long a worker may take to become ready",
    paragraph = "A worker that is not ready to serve after this time is stopped, and its start counts as failed. Increase this for an app that takes long to load."
  ),
  list(
    name = "start_retries", former = "", argument = "workers_config(start_retries)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "3; 0 with `reload`", is_literal = FALSE,
    wanted = "a whole number from 0 to 1000",
    help = "Retries of a failed start before exiting with status 3",
    paragraph = "Set this if the app may have to wait, for example for a database, when the server starts. The pauses between retries grow. The setting has no effect once a worker has been ready."
  ),
  list(
    name = "drain", former = "", argument = "workers_config(drain)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "60 s; 1 s with `reload`", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "Time for requests to finish when a worker or the server stops",
    paragraph = "A worker that is being stopped gets no new requests. Requests and WebSockets that are still open after this time are cut off."
  ),
  list(
    name = "drain_sessions", former = "", argument = "workers_config(drain_sessions)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "the time of `drain`", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 1 ms",
    help = "How long WebSockets of a replaced worker may stay open, such as 4h",
    paragraph = "When a worker is replaced, it waits up to this long for its WebSockets, such as Shiny sessions, to end. If the worker is replaced because of its memory, or if the server stops, it waits only as long as for requests (see `drain`)."
  ),
  list(
    name = "sticky", former = "", argument = "workers_config(sticky)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "auto", is_literal = TRUE,
    wanted = "auto, cookie or none",
    help = "Session affinity: auto (for Shiny), cookie or none",
    paragraph = "With several workers, session affinity sends all requests of one client to the same worker. `auto` applies it to Shiny apps, because a Shiny session exists in only one worker. `cookie` applies it to every app."
  ),
  list(
    name = "cookie_suffix", former = "name", argument = "workers_config(cookie_suffix)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "derived from the app's path and the address", is_literal = FALSE,
    wanted = "1 to 64 letters, digits, `-`, `_` or `.`",
    help = "End of the session cookie's name, rookery-SUFFIX",
    paragraph = "The session cookie assigns a client to its worker (see `sticky`). Servers that share a host name need different suffixes, because otherwise they overwrite each other's cookie."
  ),
  list(
    name = "retry_safe_methods", former = "retry_begun", argument = "workers_config(retry_safe_methods)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Retry the GET, HEAD and OPTIONS requests of a crashed worker",
    paragraph = "A request that the crashed worker had started is sent once more, to another worker. Set this only if such requests may be processed twice. Requests that the crashed worker had not started are always retried."
  ),
  list(
    name = "keep_half_closed", former = "", argument = "workers_config(keep_half_closed)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Respond to clients that half-close while they wait for a worker",
    paragraph = "Some clients, such as `nc -N` and a few health checks, close their sending side after the request and still expect a response. By default, such a client counts as disconnected if its request still waits for a worker, because most clients that do so have given up."
  ),
  list(
    name = "restart", former = "", argument = "workers_config(restart)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "always", is_literal = TRUE,
    wanted = "always or never",
    help = "Whether a worker that ended is restarted: always or never",
    paragraph = "With `never`, the server exits when a worker exits by itself, with the exit status of R. Set this if an orchestrator such as Kubernetes restarts the server."
  ),
  list(
    name = "fail_fast", former = "", argument = "workers_config(fail_fast)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Exit with status 5 when all workers keep crashing",
    paragraph = "Set this if an orchestrator such as Kubernetes should restart the server elsewhere. By default the server keeps restarting its workers, with growing pauses."
  ),
  list(
    name = "shutdown_delay", former = "", argument = "workers_config(shutdown_delay)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "0 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds)",
    help = "How long to keep serving requests after a signal to stop",
    paragraph = "During this time, the probe `/-/ready` already fails. Load balancers can therefore notice that the server is stopping before it refuses connections."
  ),
  list(
    name = "min_ready", former = "", argument = "workers_config(min_ready)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "1", is_literal = TRUE,
    wanted = "a whole number from 1 to 1000",
    help = "Number of ready workers that the probe /-/ready requires",
    paragraph = "With fewer ready workers, `/-/ready` fails, and load balancers send no requests to this server. The number cannot be greater than `workers`."
  ),
  list(
    name = "drain_status", former = "", argument = "workers_config(drain_status)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "503", is_literal = TRUE,
    wanted = "503 or 404",
    help = "Status of the probe /-/ready during shutdown: 503 or 404",
    paragraph = "Set this to 404 if HAProxy uses `http-check disable-on-404`: it then sends no new clients to this server, but keeps the existing sessions on it."
  ),
  list(
    name = "reconnect", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "app", is_literal = TRUE,
    wanted = "app, always or never",
    help = "When a disconnected Shiny page reconnects: app, always, never",
    paragraph = "`app` reconnects a page only if the app calls `session$allowReconnect(TRUE)`. `always` reconnects it unless the app calls `session$allowReconnect(FALSE)`. `never` reconnects no page. A reconnected page gets a new session with the inputs of the old one; other state of the old session is lost."
  ),
  list(
    name = "embed", former = "", argument = "workers_config(embed)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Send the session cookie to frames on other sites (HTTPS only)",
    paragraph = "Set this if pages of other sites show the app in a frame and the app needs session affinity (see `sticky`). Browsers accept the session cookie in such frames only over HTTPS."
  ),
  list(
    name = "max_body_size", former = "body_bytes", argument = "server_limits(max_body_size)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "none", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), or none",
    help = "Maximum size of a request body, such as 10MB; status 413 above it",
    paragraph = "There is no limit by default, because Shiny and plumber have their own limits."
  ),
  list(
    name = "request_timeout", former = "request_time", argument = "server_limits(request_timeout)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "none", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long the app may take to respond; status 504 after that",
    paragraph = "R still finishes the request, and its late response is discarded. With `interrupt_requests`, R is interrupted instead. There is no limit by default, because a request may take long, for example to fit a model."
  ),
  list(
    name = "idle_timeout", former = "idle_time", argument = "server_limits(idle_timeout)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "120 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "Close a connection that makes no progress for this long",
    paragraph = "The time applies to a connection that waits for its next request, and to a request body or response whose transfer has stalled. The default is longer than the idle timeout of common proxies (60 s)."
  ),
  list(
    name = "max_connections", former = "connections", argument = "server_limits(max_connections)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "10000", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Maximum number of client connections",
    paragraph = "At the limit, a new connection replaces an idle or slow one, beginning with the least active. A connection is slow if it has not sent its request head within a second, or transfers data below its minimum rate. If no connection is idle or slow, the new connection is refused with status 503."
  ),
  list(
    name = "max_header_size", former = "head_bytes", argument = "server_limits(max_header_size)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "96 KiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 8 KiB, or none",
    help = "Maximum size of an HTTP/1.1 request head; status 431 above it",
    paragraph = "The request head is the request line and all header fields. The default is larger than the limit of httpuv (80 KiB), because the cookies of some apps reach that size."
  ),
  list(
    name = "header_timeout", former = "head_time", argument = "server_limits(header_timeout)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "30 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long a request head may take to arrive; status 408 after that",
    paragraph = "The request head is the request line and all header fields. The time starts when the connection is accepted or, for a later request on that connection, with the first byte of its head."
  ),
  list(
    name = "max_connections_per_ip", former = "per_address", argument = "server_limits(max_connections_per_ip)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "none", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Maximum connections of one IPv4 address or IPv6 /64 network",
    paragraph = "Further connections from that address or network are refused with status 503. There is no limit by default, because behind a proxy all clients have the same address."
  ),
  list(
    name = "max_queued_requests", former = "queue_requests", argument = "server_limits(max_queued_requests)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "1024", is_literal = TRUE,
    wanted = "a whole number, or none",
    help = "Maximum number of requests that wait for R; status 503 above it",
    paragraph = "A request waits from its arrival until R starts to process it."
  ),
  list(
    name = "max_client_memory", former = "memory", argument = "server_limits(max_client_memory)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "a quarter of the memory that the process may use, and at least 32 MiB", is_literal = FALSE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 MiB, or none",
    help = "Maximum memory that clients can make the server use",
    paragraph = "The limit is for all clients together, and does not include the memory of the app. The memory is divided into shares, for example one for request bodies. When a share is used up, the client that uses the most of it, or the newest client, gets status 503 or WebSocket close code 1013."
  ),
  list(
    name = "ws_max_message_size", former = "message_bytes", argument = "server_limits(ws_max_message_size)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "64 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 B, or none",
    help = "Maximum size of a WebSocket message; close code 1009 above it",
    paragraph = "The default is the same limit as in Shiny Server."
  ),
  list(
    name = "interrupt_requests", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Interrupt R when a request or a task exceeds its time limit",
    paragraph = "The time limits are `request_timeout` for a request and `worker_timeout` for any task of a worker. The interrupted R code fails with the error that `setTimeLimit()` raises. This is off by default, because an interrupt can break a database transaction."
  ),
  list(
    name = "ws_origins", former = "", argument = "app$wsOrigins", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "same, or hosts such as example.org, *.example.org or localhost:8000 without https://",
    help = "Origins that may open WebSockets: same, example.org, ...",
    paragraph = "A list of the hosts whose pages may open WebSockets, without `https://`. Each host may begin with `*.` and end with a port; `same` means the app's own host. By default, pages of every site may open WebSockets, so set this if the app identifies its users by cookies."
  ),
  list(
    name = "ws_compression", former = "", argument = "app$wsCompression", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "on, off, or one or more of level=1 to level=9, threshold=<bytes> and takeover=on, separated by commas",
    help = "WebSocket compression: on, off, or level=6,threshold=512,...",
    paragraph = "`level` is from 1 (fastest) to 9 (smallest). Messages shorter than `threshold` bytes are not compressed. `takeover=on` keeps the compression context for the next message, which compresses better but takes 512 KiB of memory per WebSocket. `on` means `level=2,threshold=512,takeover=off`. In `_server.yml` and in R, the value may also be a mapping of `level`, `threshold` and `takeover`."
  ),
  list(
    name = "spool_dir", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "`TMPDIR`; in R, `tempdir()`", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "Folder for temporary files with large request bodies",
    paragraph = "A request body larger than `body_buffer_size` is written to an unnamed temporary file in this folder while the app reads it."
  ),
  list(
    name = "max_headers", former = "header_lines", argument = "server_limits(max_headers)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "2000", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Maximum number of header lines in a request; status 431 above it",
    paragraph = "Values above 24,576 have the same effect as 24,576."
  ),
  list(
    name = "http2_max_header_list_size", former = "stream_head_bytes", argument = "server_limits(http2_max_header_list_size)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "32 KiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 KiB, or none",
    help = "Maximum size of an HTTP/2 request head; status 431 above it",
    paragraph = "The size is the sum of all header fields, where each field counts 32 bytes in addition to its name and value (RFC 9113, 6.5.2). A connection may be closed if a client sends a head of three times this size."
  ),
  list(
    name = "http2_max_concurrent_streams", former = "streams", argument = "server_limits(http2_max_concurrent_streams)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "100", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Maximum concurrent requests on one HTTP/2 connection",
    paragraph = "A request that the client has cancelled still counts until the app has finished it."
  ),
  list(
    name = "body_buffer_size", former = "body_memory", argument = "server_limits(body_buffer_size)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "1 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), or none",
    help = "Request bodies above this size are written to a temporary file",
    paragraph = "Smaller bodies stay in memory. The temporary files are in the folder that `spool_dir` sets."
  ),
  list(
    name = "disk_reserve", former = "", argument = "server_limits(disk_reserve)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "1 GiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), or none",
    help = "Disk space that temporary files of request bodies must leave free",
    paragraph = "If a request body would use this space, the request gets status 507. On a small file system, the reserve is at most a tenth of its size (see `disk_share`)."
  ),
  list(
    name = "tls_handshake_timeout", former = "handshake_time", argument = "server_limits(tls_handshake_timeout)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "10 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long a TLS handshake may take",
    paragraph = "The time starts when the connection is accepted. A connection whose handshake takes longer is closed."
  ),
  list(
    name = "tls_max_handshakes", former = "handshakes", argument = "server_limits(tls_max_handshakes)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "256", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Maximum number of concurrent TLS handshakes",
    paragraph = "At the limit, the server accepts no further connections until a handshake is done. Handshakes that wait for data from the client do not count."
  ),
  list(
    name = "min_header_rate", former = "head_rate", argument = "server_limits(min_header_rate)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "32 B/s", is_literal = TRUE,
    wanted = "whole bytes per second, such as 512 or 1kB/s",
    help = "Minimum rate at which a request head must arrive; 0: no minimum",
    paragraph = "In bytes per second. A request gets status 408 if its head (the request line and all header fields) falls behind this rate by more than the time `header_grace`."
  ),
  list(
    name = "header_grace", former = "head_grace", argument = "server_limits(header_grace)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "10 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long a request head may be below its minimum rate",
    paragraph = "If a request head stays below `min_header_rate` for longer, the request gets status 408. The default allows for the loss of three TCP segments."
  ),
  list(
    name = "min_body_rate", former = "body_rate", argument = "server_limits(min_body_rate)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "512 B/s", is_literal = TRUE,
    wanted = "whole bytes per second, such as 512 or 1kB/s",
    help = "Minimum rate at which a request body must arrive; 0: no minimum",
    paragraph = "In bytes per second. A request gets status 408 if its body falls behind this rate by more than the time `idle_timeout`."
  ),
  list(
    name = "min_response_rate", former = "reply_rate", argument = "server_limits(min_response_rate)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "512 B/s", is_literal = TRUE,
    wanted = "whole bytes per second, such as 512 or 1kB/s",
    help = "Minimum rate at which a client must read a response; 0: none",
    paragraph = "In bytes per second. If a client falls behind this rate by more than the time `idle_timeout`, its connection is closed."
  ),
  list(
    name = "ws_max_send_queue_size", former = "socket_queue", argument = "server_limits(ws_max_send_queue_size)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "64 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 B, or none",
    help = "Maximum bytes that wait to be sent to one WebSocket client",
    paragraph = "If a client reads so slowly that more bytes wait, its WebSocket is closed with code 1013. If the client does not read the close frame either, its connection is dropped."
  ),
  list(
    name = "ws_min_rate", former = "message_rate", argument = "server_limits(ws_min_rate)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "512 B/s", is_literal = TRUE,
    wanted = "whole bytes per second, such as 512 or 1kB/s",
    help = "Minimum rate of a WebSocket client within a message; 0: none",
    paragraph = "In bytes per second. The rate applies while a client is sending a message, and while messages wait to be read by the client. If the client falls behind the rate by more than `ws_stall_timeout`, its WebSocket is closed with code 1008."
  ),
  list(
    name = "ws_stall_timeout", former = "stall_time", argument = "server_limits(ws_stall_timeout)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "15 min", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long a WebSocket client may be below its minimum rate",
    paragraph = "If a client stays below `ws_min_rate` for longer, its WebSocket is closed with code 1008. With the default, a Shiny session survives if the user's laptop sleeps for some minutes."
  ),
  list(
    name = "ws_ping_interval", former = "ping_time", argument = "server_limits(ws_ping_interval)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "20 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "Interval at which a ping is sent to an idle WebSocket",
    paragraph = "The pings keep proxies from closing idle connections."
  ),
  list(
    name = "ws_ping_timeout", former = "pong_time", argument = "server_limits(ws_ping_timeout)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "15 min", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "Close a WebSocket that is silent for this long after a ping",
    paragraph = "Browsers respond to pings by themselves. Any byte from the client counts as a response to the ping."
  ),
  list(
    name = "ws_close_timeout", former = "close_time", argument = "server_limits(ws_close_timeout)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "5 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long a WebSocket client may take to answer a close frame",
    paragraph = "After this time the connection is dropped."
  ),
  list(
    name = "stop_timeout", former = "stop_time", argument = "server_limits(stop_timeout)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "1 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), or none",
    help = "How long $stop() of a server in R waits for unfinished responses",
    paragraph = "Connections that still send a response after this time are closed."
  ),
  list(
    name = "ws_max_receive_queue_messages", former = "queue_messages", argument = "server_limits(ws_max_receive_queue_messages)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "4096", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Maximum number of WebSocket messages that wait for R",
    paragraph = "The limit is for all WebSockets together. At the limit, the server reads no more messages from clients until R has processed some of those that wait."
  ),
  list(
    name = "ws_max_receive_queue_size", former = "queue_bytes", argument = "server_limits(ws_max_receive_queue_size)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "8 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 B, or none",
    help = "Maximum bytes of WebSocket messages that wait for R",
    paragraph = "The limit is for all WebSockets together. At the limit, the server reads no more messages from clients until R has processed some of those that wait."
  ),
  list(
    name = "max_stream_queue_size", former = "stream_queue", argument = "server_limits(max_stream_queue_size)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "16 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 B, or none",
    help = "Maximum bytes of a streamed response that wait for the client",
    paragraph = "A streamed response is sent to the client while the app still produces it. A client that reads so slowly that more bytes wait is disconnected."
  ),
  list(
    name = "disk_share", former = "", argument = "server_limits(disk_share)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "10", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Divisor of the file system's size that limits `disk_reserve`",
    paragraph = "`disk_reserve` is at most the size of the file system divided by this number. 10 therefore means that at most a tenth of the file system is kept free."
  ),
  list(
    name = "kept_windows", former = "", argument = "server_limits(kept_windows)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "64", is_literal = TRUE,
    wanted = "a whole number, or none",
    help = "Maximum WebSockets that keep a compression context",
    paragraph = "A WebSocket that keeps its compression context between messages compresses better, but takes 512 KiB of memory for it. Other WebSockets compress each message by itself."
  ),
  list(
    name = "pool_bytes", former = "", argument = "server_limits(pool_bytes)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "8 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), or none",
    help = "Memory of finished requests that is kept for new requests",
    paragraph = "The memory of 1,024 typical requests is 6 MiB."
  ),
  list(
    name = "share_connections", former = "", argument = "server_limits(share_connections)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "20", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Percentage of `max_client_memory` for open connections",
    paragraph = "Each open connection counts as 32 KiB, or 80 KiB with TLS."
  ),
  list(
    name = "share_requests", former = "", argument = "server_limits(share_requests)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "15", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Percentage of `max_client_memory` for request bodies in memory",
    paragraph = "Only requests larger than 8 KiB count. When this part of the memory is used up, further such requests get status 503."
  ),
  list(
    name = "share_messages", former = "", argument = "server_limits(share_messages)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "15", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Percentage of `max_client_memory` for partly received messages",
    paragraph = "The percentage is for WebSocket messages that have not arrived completely. When this part of the memory is used up, a WebSocket is closed with code 1013."
  ),
  list(
    name = "share_waiting", former = "", argument = "server_limits(share_waiting)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "5", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Percentage of `max_client_memory` for messages that wait for R",
    paragraph = "The percentage is for WebSocket messages that have arrived and that R has not read yet. When this part of the memory is used up, the server stops reading from WebSockets."
  ),
  list(
    name = "share_queues", former = "", argument = "server_limits(share_queues)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "20", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Percentage of `max_client_memory` for data queued for clients",
    paragraph = "The data are WebSocket messages and streamed responses that clients have not read yet. When this part of the memory is used up, WebSockets are closed with code 1013, and streamed responses are cut off."
  ),
  list(
    name = "share_replies", former = "", argument = "server_limits(share_replies)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "20", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Percentage of `max_client_memory` for responses being sent",
    paragraph = "Only responses larger than 8 KiB count. When this part of the memory is used up, requests get status 503, or the server cuts off the largest response that its client does not read."
  ),
  list(
    name = "share_compressors", former = "", argument = "server_limits(share_compressors)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "5", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Percentage of `max_client_memory` for response compression",
    paragraph = "When this part of the memory is used up, responses are sent uncompressed."
  ),
  list(
    name = "log", former = "", argument = "serve(log)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "-", is_literal = TRUE,
    wanted = "-, none, or the path of a file or folder",
    help = "Access log: a file, - for standard output, or none",
    paragraph = "The server appends one line for each request to the file. For log rotation, SIGUSR1 makes the server open the file again. Write `./none` for a file with the name `none`. In R the value may also be `TRUE`, `FALSE` or a function."
  ),
  list(
    name = "log_format", former = "", argument = "serve(log_format)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "common; terminal if the log goes to a terminal", is_literal = FALSE,
    wanted = "common, combined, json or terminal",
    help = "Format of the access log: common, combined, json or terminal",
    paragraph = "`common` is the Common Log Format, followed by the duration in seconds. `combined` adds the `Referer` and the `User-Agent`; after the duration, it adds the seconds in the queue, the seconds in R, and the route. `json` writes one JSON object per line, also for messages and for what R prints. `terminal` writes aligned columns, with colour on a terminal. With several workers, each line of `common` and `json` also names the worker that responded."
  ),
  list(
    name = "admin", former = "", argument = "serve(admin)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "an address with a port, such as 127.0.0.1:9100, or unix:/path/of/a/socket",
    help = "Address for status, metrics and health checks",
    paragraph = "The value is an IP address with a port, such as `127.0.0.1:9100`, or `unix:/path`. At this address, the server responds to `/metrics` and to the probes `/-/live` and `/-/ready`, also while R is busy. The address is meant for monitoring and should not be public."
  ),
  list(
    name = "request_id_header", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "on for apps that `serve` runs, else off", is_literal = FALSE,
    wanted = "yes or no",
    help = "Send the id of each request to its client as X-Request-Id",
    paragraph = "The id of a request is also in the JSON access log. This setting is part of the app's interface, so it has no option on the command line: set it in `_server.yml`, in R or in the environment."
  ),
  list(
    name = "open", former = "", argument = "serve(open)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Open the app in a browser once the server is ready",
    paragraph = "The browser is opened once, and not after each reload. In RStudio and Positron, R's `serve()` without `workers` shows the app in the viewer instead. Over SSH without a display, the server only prints the address."
  ),
  list(
    name = "reload", former = "", argument = "workers_config(reload)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Restart workers when a file of the app changes",
    paragraph = "For development: the server watches the app's files, and replaces all workers after a change. `rookery dev` also reloads the open pages."
  ),
  list(
    name = "server_timing", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Send the time of a request in the queue and in R as Server-Timing",
    paragraph = "The developer tools of browsers show these times, and `render`, in which the app's value became the response. An app can add times of its own, such as `Server-Timing: db;dur=12`. Only for development: the header tells strangers how the server works."
  ),
  list(
    name = "error_detail", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "none; message in an interactive R session", is_literal = FALSE,
    wanted = "none, message or full",
    help = "What error pages show to clients: none, message or full",
    paragraph = "`none` shows only that an error occurred, with the id of the request. `message` also shows the error message. `full` also shows the call stack, but only to browsers on this machine, and with `rookery dev` only to browsers that have the token."
  ),
  stringsAsFactors = FALSE
)
