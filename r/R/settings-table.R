# Written by `make settings` from the table in crates/settings/src/table. Do not edit.
#
# Each setting that may be given in R: its name and its former one, the argument that gives it, whether it is
# an option of R and a limit, its default, what it accepts, its help in two parts, and its stability.

setting_table <- rbind.data.frame(
  list(
    name = "host", former = "", argument = "serve(host)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "127.0.0.1; all addresses with `domain`", is_literal = FALSE,
    wanted = "localhost, an IP address of this machine (0.0.0.0 or :: for all), or unix:/path/of/a/socket",
    help = "Address to listen on, or unix:/path for a Unix socket",
    paragraph = "`127.0.0.1` and `localhost` are reachable from this machine only, `0.0.0.0` and `::` from all of its networks. With `domain` the default is all addresses, because a certificate authority connects from outside. A relative socket path is relative to the current folder or, in `_server.yml`, to the folder of the file."
  ),
  list(
    name = "port", former = "", argument = "serve(port)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "8000; 443 with `domain`", is_literal = FALSE,
    wanted = "a whole number from 0 to 65535",
    help = "Port to listen on; 0 lets the system choose",
    paragraph = "With `domain` the default is 443. A port below 1024 needs a privilege on most systems. The variable `PORT`, which hosting services set, counts if nothing else says the port."
  ),
  list(
    name = "trusted_proxies", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "addresses such as 192.0.2.1, networks such as 10.0.0.0/8, or unix",
    help = "Proxies whose forwarding headers are trusted",
    paragraph = "Addresses, networks, or `unix` for everything that comes over a Unix socket. `X-Forwarded-Proto`, `X-Forwarded-For` and `X-Request-Id` of other clients are not believed."
  ),
  list(
    name = "proxy_protocol", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Expect a PROXY protocol header on each connection",
    paragraph = "Each connection has to begin with the header, of version 1 or 2, and `REMOTE_ADDR` is the client that it names. Set `trusted_proxies` as well, or whoever reaches the server can claim to be any client."
  ),
  list(
    name = "tls", former = "", argument = "serve(tls)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "dev",
    help = "HTTPS with a self-signed certificate for localhost: dev",
    paragraph = "`dev` makes a certificate for `localhost`, `127.0.0.1` and `::1` once and keeps it in R's user data folder. In `_server.yml`, `tls:` may also be a mapping of the HTTPS settings. The mapping counts as one value: certificates on the command line replace all of it."
  ),
  list(
    name = "tls_cert", former = "", argument = "tls_config(cert)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "the path of a file, or a list of paths",
    help = "Certificate chain in PEM; may be repeated",
    paragraph = "The server's own certificate comes first in a file, followed by the intermediate certificates. With several files, the host name that the client asks for selects the certificate; a client that asks for none of the names gets the first. The files are checked for changes every ten seconds, and at once after SIGHUP."
  ),
  list(
    name = "tls_key", former = "", argument = "tls_config(key)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "the file of `tls_cert`", is_literal = FALSE,
    wanted = "the path of a file, or a list of paths",
    help = "Private key in PEM, if it is not in the certificate's file",
    paragraph = "One for each certificate, in the same order. Without it the key is expected in the certificate's file."
  ),
  list(
    name = "tls_password", former = "", argument = "tls_config(password)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "a text",
    help = "Password of an encrypted private key",
    paragraph = "A string, or a function without arguments that returns it. It exists in R only, because a secret belongs in no file that is deployed and in no list of processes."
  ),
  list(
    name = "tls_client_ca", former = "", argument = "tls_config(client_ca)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "Request client certificates signed by these authorities",
    paragraph = "Clients are asked for a certificate that one of these authorities has signed; the app sees it as `TLS_CLIENT_SUBJECT` and `TLS_CLIENT_FINGERPRINT`."
  ),
  list(
    name = "tls_client_auth", former = "", argument = "tls_config(client_auth)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "required", is_literal = TRUE,
    wanted = "required or optional",
    help = "Whether clients must present a certificate: required, optional",
    paragraph = "`required` refuses clients without a certificate; `optional` asks for one. It needs `tls_client_ca`."
  ),
  list(
    name = "tls_min_version", former = "", argument = "tls_config(min_version)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "1.2", is_literal = TRUE,
    wanted = "1.2 or 1.3",
    help = "Oldest TLS version that is accepted: 1.2 or 1.3",
    paragraph = "Clients that offer older versions only are refused."
  ),
  list(
    name = "http2", former = "", argument = "tls_config(http2)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "on", is_literal = TRUE,
    wanted = "yes or no",
    help = "Offer HTTP/2 over TLS; on by default, --no-http2 turns it off",
    paragraph = "Clients that do not support HTTP/2 get HTTP/1.1 in any case, and requests look the same to R."
  ),
  list(
    name = "http2_websockets", former = "", argument = "tls_config(http2_websockets)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "on", is_literal = TRUE,
    wanted = "yes or no",
    help = "Accept WebSockets over HTTP/2 (RFC 8441)",
    paragraph = "Browsers then open WebSockets within the connection that the page came by. Turn it off only to work around a faulty client or proxy."
  ),
  list(
    name = "hsts", former = "", argument = "tls_config(hsts)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "off, or a number of seconds and perhaps subdomains and preload, with commas between them",
    help = "Strict-Transport-Security: SECONDS[,subdomains][,preload]",
    paragraph = "Browsers then use HTTPS only until the time has passed, even if the server no longer offers HTTPS: begin with minutes. `subdomains` includes subdomains; `preload` needs `subdomains` and at least a year. 0 makes browsers forget the host."
  ),
  list(
    name = "redirect_from", former = "", argument = "tls_config(redirect_from)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "80 with `domain` and no `port`, else none", is_literal = FALSE,
    wanted = "none, or a whole number from 1 to 65535",
    help = "Port whose HTTP requests are redirected to HTTPS, or none",
    paragraph = "The port is opened on the same address. Requests are redirected with status 308. With `domain` and without `port` the default is 80, where certificate authorities look for the response to the `http-01` challenge."
  ),
  list(
    name = "domain", former = "domains", argument = "acme(domain)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "host names, such as app.example.org",
    help = "Get a certificate for this name by ACME; may be repeated",
    paragraph = "The certificate is ordered and renewed while the server runs, from Let's Encrypt unless `acme_directory` names another authority. Wildcard names are not supported."
  ),
  list(
    name = "email", former = "", argument = "acme(email)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "addresses of mail, such as ops@example.org",
    help = "Contact address for the certificate authority",
    paragraph = "Several may be given. The authority may write there when something is wrong with a certificate."
  ),
  list(
    name = "agree_tos", former = "", argument = "acme(agree_tos)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Agree to the certificate authority's terms of service",
    paragraph = "`domain` needs it. The terms of Let's Encrypt are at <https://letsencrypt.org/repository/>."
  ),
  list(
    name = "acme_staging", former = "", argument = "acme(staging)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Use Let's Encrypt's staging environment, for trials",
    paragraph = "Its certificates are trusted by no browser, and its limits are wide: use it to try out a name and a firewall."
  ),
  list(
    name = "acme_directory", former = "", argument = "acme(directory)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "Let's Encrypt", is_literal = FALSE,
    wanted = "a URL that begins with https://",
    help = "ACME directory of another certificate authority",
    paragraph = "The URL of the directory that RFC 8555 describes. It excludes `acme_staging`."
  ),
  list(
    name = "acme_profile", former = "", argument = "acme(profile)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "the authority's default", is_literal = FALSE,
    wanted = "a word",
    help = "Certificate profile to ask for, such as shortlived",
    paragraph = "Let's Encrypt has `tlsserver` and `shortlived`; addresses instead of names need the latter."
  ),
  list(
    name = "acme_challenge", former = "", argument = "acme(challenge)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "both, in turn", is_literal = FALSE,
    wanted = "http-01 or tls-alpn-01",
    help = "Only ACME challenge to use: http-01 or tls-alpn-01",
    paragraph = "The server answers `http-01` on the port of `redirect_from`, and `tls-alpn-01` on its own port. If this is not set and one challenge fails, the other one is tried."
  ),
  list(
    name = "acme_ca", former = "", argument = "acme(ca)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "the authorities that the system trusts", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "Authority that signs the ACME server's own certificate",
    paragraph = "PEM. It is needed for an authority of your own whose certificate the system does not trust."
  ),
  list(
    name = "acme_dir", former = "", argument = "acme(dir)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "`acme/` in R's folder for data", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "Folder that keeps the ACME account and certificates",
    paragraph = "Only the user who runs the server may read it. If several servers share the folder, one of them orders certificates, and all of them use these."
  ),
  list(
    name = "workers", former = "", argument = "serve(workers)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "1", is_literal = TRUE,
    wanted = "auto, or a whole number from 1 to 1000",
    help = "Number of R processes, or auto for one per processor",
    paragraph = "`auto` respects the CPU limit of the control group and the CPU affinity of the process. Several workers need Linux. The variable `WEB_CONCURRENCY` is used if the number is given nowhere else."
  ),
  list(
    name = "spares", former = "", argument = "workers_config(spares)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "0", is_literal = TRUE,
    wanted = "a whole number from 0 to 1000",
    help = "Number of started workers held in reserve",
    paragraph = "A worker that ends is replaced by one that has loaded the app already."
  ),
  list(
    name = "surge", former = "", argument = "workers_config(surge)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "1", is_literal = TRUE,
    wanted = "0 or 1",
    help = "Extra workers during a replacement: 1, or 0 to save memory",
    paragraph = "With 1 a new worker starts beside the one that it replaces. With 0 the old one ends first, which needs less memory; one worker fewer serves meanwhile."
  ),
  list(
    name = "warmup", former = "", argument = "workers_config(warmup)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "paths that begin with / and have no spaces, with commas between them",
    help = "Paths requested from a new worker before it gets traffic",
    paragraph = "A worker that answers one of them with a status of 500 or more does not serve."
  ),
  list(
    name = "max_sessions", former = "", argument = "workers_config(max_sessions)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a whole number, at least 1",
    help = "WebSockets per worker, such as Shiny sessions; 503 above it",
    paragraph = "When every worker has this many sessions, further clients get 503; clients that already have a WebSocket do not."
  ),
  list(
    name = "max_in_flight", former = "", argument = "workers_config(max_in_flight)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "64", is_literal = TRUE,
    wanted = "a whole number, at least 1",
    help = "Unanswered requests per worker, for apps that use promises",
    paragraph = "The number of requests that a worker may have started and not yet answered, as happens when R waits for promises."
  ),
  list(
    name = "queue_timeout", former = "", argument = "workers_config(queue_timeout)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "10 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 1 ms",
    help = "How long a request may wait for a worker; 503 after that",
    paragraph = "The time ends when a worker gets the request; the time of `request_timeout` begins then. A single worker that accepts connections itself has no such limit; if this is set, the front end accepts."
  ),
  list(
    name = "max_requests", former = "", argument = "workers_config(max_requests)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a whole number, at least 1",
    help = "Replace a worker after this many requests",
    paragraph = "The worker finishes its work and a new one takes its place. It bounds what a leak of memory can do."
  ),
  list(
    name = "max_age", former = "", argument = "workers_config(max_age)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 1 ms",
    help = "Replace a worker that is older than this, such as 12h",
    paragraph = "The worker finishes its work and a new one takes its place."
  ),
  list(
    name = "max_memory", former = "", argument = "workers_config(max_memory)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none for one worker; for several each one's part of 4/5 of the control group's limit", is_literal = FALSE,
    wanted = "0, or a size such as 512KB or 10MB (without a unit: bytes), at least 32 MiB, or none",
    help = "Replace a worker that uses more memory, such as 2GB",
    paragraph = "The anonymous, swapped and shared memory of the worker's processes counts. With several workers in a control group with a memory limit, the default is each worker's share of 4/5 of that limit. 0 and `none` mean no limit."
  ),
  list(
    name = "worker_timeout", former = "kill_stuck", argument = "workers_config(worker_timeout)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 1 ms",
    help = "Replace a worker whose R is busy with one task for this long",
    paragraph = "A health check of the worker, and not a time limit of a request: it also applies to a task that no request caused. With `interrupt_requests` R is interrupted first, and the worker is ended only if that does not help. Its clients get 504, or lose their connections if the worker accepts connections itself."
  ),
  list(
    name = "start_timeout", former = "", argument = "workers_config(start_timeout)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "60 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 1 ms",
    help = "How long a worker may take to become ready",
    paragraph = "A worker that is not ready by then is ended, and its start counts as failed."
  ),
  list(
    name = "start_retries", former = "", argument = "workers_config(start_retries)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "3; 0 with `reload`", is_literal = FALSE,
    wanted = "a whole number from 0 to 1000",
    help = "Retries of a failed start before exiting with status 3",
    paragraph = "The pauses between retries grow. Starts are retried only until a worker has been ready: something that the app needs, such as a database, may become available later. With `reload` the default is 0."
  ),
  list(
    name = "drain", former = "", argument = "workers_config(drain)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "60 s; 1 s with `reload`", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 1 ms",
    help = "How long to finish requests before a worker or server ends",
    paragraph = "The time that requests and WebSockets in progress have to finish when a worker or the server ends. With `reload` the default is 1 s."
  ),
  list(
    name = "drain_sessions", former = "", argument = "workers_config(drain_sessions)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "as `drain`", is_literal = FALSE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 1 ms",
    help = "How long WebSockets of a replaced worker may stay, such as 4h",
    paragraph = "The time that a replaced worker gives its WebSockets, such as Shiny sessions, to end. A worker that is replaced for its memory, and every worker when the server ends, waits no longer than `drain`."
  ),
  list(
    name = "sticky", former = "", argument = "workers_config(sticky)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "auto", is_literal = TRUE,
    wanted = "auto, cookie or none",
    help = "Session affinity: auto (for Shiny), cookie or none",
    paragraph = "`auto` keeps clients of a Shiny app with their worker, `cookie` those of every app."
  ),
  list(
    name = "cookie_suffix", former = "name", argument = "workers_config(cookie_suffix)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "derived from path and address", is_literal = FALSE,
    wanted = "1 to 64 letters, digits, `-`, `_` or `.`",
    help = "End of the session cookie's name, rookery-SUFFIX",
    paragraph = "Servers of one host need different suffixes, or they overwrite each other's cookie. The default is derived from the app's path and the address."
  ),
  list(
    name = "retry_safe_methods", former = "retry_begun", argument = "workers_config(retry_safe_methods)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Retry GET, HEAD and OPTIONS that a crashed worker had started",
    paragraph = "The request is sent to another worker once, although the crashed one may have had effects. A request that no worker had started is retried in any case."
  ),
  list(
    name = "keep_half_closed", former = "", argument = "workers_config(keep_half_closed)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Answer clients that half-close while they wait for a worker",
    paragraph = "By default a client that closes its sending side while its request waits counts as disconnected, because most such clients have left. `nc -N` and a few health checks half-close and still expect the response."
  ),
  list(
    name = "restart", former = "", argument = "workers_config(restart)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "always", is_literal = TRUE,
    wanted = "always or never",
    help = "When a worker that ended is restarted: always or never",
    paragraph = "With `never` the server ends when a worker ends by itself, and passes on the exit status of R, for orchestrators that restart services themselves."
  ),
  list(
    name = "fail_fast", former = "", argument = "workers_config(fail_fast)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Exit with status 5 when all workers keep crashing",
    paragraph = "Without it the program keeps trying, less and less often."
  ),
  list(
    name = "shutdown_delay", former = "", argument = "workers_config(shutdown_delay)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "0 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds)",
    help = "How long to keep serving, while not ready, before shutting down",
    paragraph = "Within this time load balancers notice that `/-/ready` fails, while the server still serves requests."
  ),
  list(
    name = "min_ready", former = "", argument = "workers_config(min_ready)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "1", is_literal = TRUE,
    wanted = "a whole number from 1 to 1000",
    help = "Ready workers needed for /-/ready to answer 200",
    paragraph = "At most the number of workers."
  ),
  list(
    name = "drain_status", former = "", argument = "workers_config(drain_status)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "503", is_literal = TRUE,
    wanted = "503 or 404",
    help = "Status of /-/ready during shutdown: 503 or 404",
    paragraph = "Some balancers take 404 for \"no new clients\"; `http-check disable-on-404` of HAProxy does."
  ),
  list(
    name = "reconnect", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "app", is_literal = TRUE,
    wanted = "app, always or never",
    help = "When a disconnected Shiny page reconnects: app, always, never",
    paragraph = "`app`: if the app calls `session$allowReconnect(TRUE)`. `always`: unless the app calls `session$allowReconnect(FALSE)`; the new session has the inputs of the old one, and all other state of the old session is lost. `never`: no page reconnects."
  ),
  list(
    name = "embed", former = "", argument = "workers_config(embed)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Allow the session cookie in frames on other sites (HTTPS)",
    paragraph = "The cookie of `sticky` is then sent to pages in frames of other sites, which browsers do over HTTPS only."
  ),
  list(
    name = "max_body_size", former = "body_bytes", argument = "server_limits(max_body_size)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "none", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), or none",
    help = "Largest request body, such as 10MB; 413 above it",
    paragraph = "Shiny and plumber have limits of their own, so there is none by default."
  ),
  list(
    name = "request_timeout", former = "request_time", argument = "server_limits(request_timeout)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "none", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long the app may take to answer; 504 after that",
    paragraph = "The app is not notified, and its late response is discarded. R continues with the request unless `interrupt_requests` is on. There is no limit by default, because handlers may take long, for example to fit a model."
  ),
  list(
    name = "idle_timeout", former = "idle_time", argument = "server_limits(idle_timeout)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "120 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "Close a connection that is idle, or stalled, for this long",
    paragraph = "It applies between requests, and while a body or a response makes no progress. The default is twice the time for which proxies keep connections."
  ),
  list(
    name = "max_connections", former = "connections", argument = "server_limits(max_connections)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "10000", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Maximum number of client connections; idle ones are evicted",
    paragraph = "At the limit, a new connection replaces the slowest one that is idle, has not sent its request head within a second, or is below its minimum rate. If there is none, the new connection is refused with 503."
  ),
  list(
    name = "max_header_size", former = "head_bytes", argument = "server_limits(max_header_size)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "96 KiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 8 KiB, or none",
    help = "Largest request head over HTTP/1.1; 431 above it",
    paragraph = "httpuv takes 80 KiB, and apps send cookies of that size."
  ),
  list(
    name = "header_timeout", former = "head_time", argument = "server_limits(header_timeout)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "30 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long a request head may take to arrive; 408 after that",
    paragraph = "The time begins when the connection is accepted or, after a response, with the first byte of the next head."
  ),
  list(
    name = "max_connections_per_ip", former = "per_address", argument = "server_limits(max_connections_per_ip)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "none", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Connections of one IPv4 address or IPv6 /64; 503 above it",
    paragraph = "Behind a proxy all clients have one address, so there is no limit by default."
  ),
  list(
    name = "max_queued_requests", former = "queue_requests", argument = "server_limits(max_queued_requests)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "1024", is_literal = TRUE,
    wanted = "a whole number, or none",
    help = "Requests that may wait for R; 503 above it",
    paragraph = "Requests that have arrived and that R has not begun."
  ),
  list(
    name = "max_client_memory", former = "memory", argument = "server_limits(max_client_memory)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "a quarter of what the process may use, and at least 32 MiB", is_literal = FALSE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 MiB, or none",
    help = "Memory that clients can make the server hold",
    paragraph = "The limit is for all clients together; memory of the app does not count. When a share of it is used up, the client that holds the most of that share, or the newest client, gets 503 or close code 1013."
  ),
  list(
    name = "ws_max_message_size", former = "message_bytes", argument = "server_limits(ws_max_message_size)", is_option = TRUE, is_limit = TRUE, stability = "stable",
    default = "64 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 B, or none",
    help = "Largest WebSocket message; close code 1009 above it",
    paragraph = "Shiny Server takes as much as the default."
  ),
  list(
    name = "interrupt_requests", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Interrupt R when a request exceeds request_timeout",
    paragraph = "The R code of the request fails with the error that `setTimeLimit()` raises. It is off by default because an interrupt can break a transaction. It has no effect without `request_timeout` or `worker_timeout`."
  ),
  list(
    name = "ws_origins", former = "", argument = "app$wsOrigins", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "none", is_literal = FALSE,
    wanted = "same, or hosts such as example.org, *.example.org or localhost:8000 without https://",
    help = "Origins allowed to open WebSockets: same, example.org, ...",
    paragraph = "`same` allows pages of the app's own host. Hosts are written without `https://`, and may begin with `*.` and end with a port. Without it, pages of every site may open WebSockets."
  ),
  list(
    name = "ws_compression", former = "", argument = "app$wsCompression", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "on, off, or some of level=1 to level=9, threshold=<bytes> and takeover=on, with commas between them",
    help = "WebSocket compression: on, off, or level=6,threshold=512,...",
    paragraph = "In `_server.yml` and in R, the value may also be a mapping of `level` (1 to 9), `threshold` (shorter messages, in bytes, are not compressed) and `takeover` (whether the compression context is kept for the next message)."
  ),
  list(
    name = "spool_dir", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "`TMPDIR`; in R `tempdir()`", is_literal = FALSE,
    wanted = "the path of a file or folder",
    help = "Folder for large request bodies",
    paragraph = "A body larger than `body_buffer_size` is stored here, in a file without a name, while the app reads it. The default is `TMPDIR`; when R itself serves, it is `tempdir()`."
  ),
  list(
    name = "max_headers", former = "header_lines", argument = "server_limits(max_headers)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "2000", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Header lines of a request; 431 above it",
    paragraph = "The server never takes more than 24,576."
  ),
  list(
    name = "http2_max_header_list_size", former = "stream_head_bytes", argument = "server_limits(http2_max_header_list_size)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "32 KiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 KiB, or none",
    help = "Largest request head over HTTP/2; 431 above it",
    paragraph = "Each header field counts 32 bytes more than its name and value (RFC 9113, 6.5.2). A connection that sends four times the limit is closed."
  ),
  list(
    name = "http2_max_concurrent_streams", former = "streams", argument = "server_limits(http2_max_concurrent_streams)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "100", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Requests at once on one HTTP/2 connection",
    paragraph = "Requests that their client has given up count while the app still has them."
  ),
  list(
    name = "body_buffer_size", former = "body_memory", argument = "server_limits(body_buffer_size)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "1 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), or none",
    help = "Request bodies above this size are spooled to a file",
    paragraph = "A body up to this size stays in memory."
  ),
  list(
    name = "disk_reserve", former = "", argument = "server_limits(disk_reserve)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "1 GiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), or none",
    help = "Disk space that spooled bodies leave free; 507 otherwise",
    paragraph = "The reserve is at most the size of the file system divided by `disk_share`, so that bodies can be spooled to small file systems too."
  ),
  list(
    name = "tls_handshake_timeout", former = "handshake_time", argument = "server_limits(tls_handshake_timeout)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "10 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long a TLS handshake may take",
    paragraph = "The time begins when the connection is accepted; the connection is closed after it."
  ),
  list(
    name = "tls_max_handshakes", former = "handshakes", argument = "server_limits(tls_max_handshakes)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "256", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "TLS handshakes under way at once",
    paragraph = "Further connections wait to be accepted. Handshakes that wait for their client do not count."
  ),
  list(
    name = "min_header_rate", former = "head_rate", argument = "server_limits(min_header_rate)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "32 B/s", is_literal = TRUE,
    wanted = "whole bytes per second, such as 512 or 1kB/s",
    help = "Slowest rate at which a request head may arrive; 0: none",
    paragraph = "A head that falls behind this rate by more than `header_grace` is refused with 408."
  ),
  list(
    name = "header_grace", former = "head_grace", argument = "server_limits(header_grace)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "10 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long a request head may stall below its minimum rate",
    paragraph = "The default allows for three lost segments."
  ),
  list(
    name = "min_body_rate", former = "body_rate", argument = "server_limits(min_body_rate)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "512 B/s", is_literal = TRUE,
    wanted = "whole bytes per second, such as 512 or 1kB/s",
    help = "Slowest rate at which a request body may arrive; 0: none",
    paragraph = "A body that falls behind this rate by more than `idle_timeout` is refused with 408."
  ),
  list(
    name = "min_response_rate", former = "reply_rate", argument = "server_limits(min_response_rate)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "512 B/s", is_literal = TRUE,
    wanted = "whole bytes per second, such as 512 or 1kB/s",
    help = "Slowest rate at which a client may read a response; 0: none",
    paragraph = "If a client falls behind this rate by more than `idle_timeout`, the connection is closed."
  ),
  list(
    name = "ws_max_send_queue_size", former = "socket_queue", argument = "server_limits(ws_max_send_queue_size)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "64 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 B, or none",
    help = "Bytes that may wait to be sent to one WebSocket",
    paragraph = "Above it, the WebSocket of a client that does not read is closed with 1013. If the client does not read the close frame either, the connection is dropped."
  ),
  list(
    name = "ws_min_rate", former = "message_rate", argument = "server_limits(ws_min_rate)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "512 B/s", is_literal = TRUE,
    wanted = "whole bytes per second, such as 512 or 1kB/s",
    help = "Minimum rate of a WebSocket client within a message; 0: none",
    paragraph = "The rate applies within a message and to reading what is queued for the client. A client that falls behind it by more than `ws_stall_timeout` is closed with 1008."
  ),
  list(
    name = "ws_stall_timeout", former = "stall_time", argument = "server_limits(ws_stall_timeout)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "15 min", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long a WebSocket client may stall below its minimum rate",
    paragraph = "A laptop whose lid was closed finds its session again within the default."
  ),
  list(
    name = "ws_ping_interval", former = "ping_time", argument = "server_limits(ws_ping_interval)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "20 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How often an idle WebSocket is sent a ping",
    paragraph = "Pings keep proxies from closing connections that are silent."
  ),
  list(
    name = "ws_ping_timeout", former = "pong_time", argument = "server_limits(ws_ping_timeout)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "15 min", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "Close a WebSocket that is silent for this long after a ping",
    paragraph = "Browsers answer pings by themselves. Any byte counts as an answer."
  ),
  list(
    name = "ws_close_timeout", former = "close_time", argument = "server_limits(ws_close_timeout)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "5 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), at least 10 ms, or none",
    help = "How long a client may take to answer a close frame",
    paragraph = "The connection is dropped after it."
  ),
  list(
    name = "stop_timeout", former = "stop_time", argument = "server_limits(stop_timeout)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "1 s", is_literal = TRUE,
    wanted = "a time such as 500ms, 30s or 2h (without a unit: seconds), or none",
    help = "How long $stop() waits for responses that are under way",
    paragraph = "Connections that are not idle by then are closed."
  ),
  list(
    name = "ws_max_receive_queue_messages", former = "queue_messages", argument = "server_limits(ws_max_receive_queue_messages)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "4096", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "WebSocket messages that may wait for R",
    paragraph = "The server reads no further messages above it."
  ),
  list(
    name = "ws_max_receive_queue_size", former = "queue_bytes", argument = "server_limits(ws_max_receive_queue_size)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "8 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 B, or none",
    help = "Bytes of WebSocket messages that may wait for R",
    paragraph = "The server reads no further messages above it."
  ),
  list(
    name = "max_stream_queue_size", former = "stream_queue", argument = "server_limits(max_stream_queue_size)", is_option = TRUE, is_limit = TRUE, stability = "advanced",
    default = "16 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), at least 1 B, or none",
    help = "Bytes of one streamed response that may wait for its client",
    paragraph = "A client that does not read is disconnected above it."
  ),
  list(
    name = "disk_share", former = "", argument = "server_limits(disk_share)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "10", is_literal = TRUE,
    wanted = "a whole number, at least 1, or none",
    help = "Divisor of the file system's size that bounds disk_reserve",
    paragraph = "`disk_reserve` is at most the size of the file system divided by this number; 10 means a tenth."
  ),
  list(
    name = "kept_windows", former = "", argument = "server_limits(kept_windows)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "64", is_literal = TRUE,
    wanted = "a whole number, or none",
    help = "WebSockets that may keep a compression context between messages",
    paragraph = "Each takes 512 KiB. The messages of other WebSockets are compressed one by one."
  ),
  list(
    name = "pool_bytes", former = "", argument = "server_limits(pool_bytes)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "8 MiB", is_literal = TRUE,
    wanted = "a size such as 512KB or 10MB (without a unit: bytes), or none",
    help = "Bytes of request buffers that are kept for reuse",
    paragraph = "The buffers of 1,024 ordinary requests take 6 MiB."
  ),
  list(
    name = "share_connections", former = "", argument = "server_limits(share_connections)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "20", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Share of max_client_memory for connections",
    paragraph = "Each connection counts 32 KiB, and 80 KiB with TLS."
  ),
  list(
    name = "share_requests", former = "", argument = "server_limits(share_requests)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "15", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Share of max_client_memory for request bodies in memory",
    paragraph = "Requests that are larger than 8 KiB; 503 above it."
  ),
  list(
    name = "share_messages", former = "", argument = "server_limits(share_messages)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "15", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Share of max_client_memory for incomplete WebSocket messages",
    paragraph = "Close code 1013 above it."
  ),
  list(
    name = "share_waiting", former = "", argument = "server_limits(share_waiting)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "5", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Share of max_client_memory for WebSocket messages that wait for R",
    paragraph = "Reading stops above it."
  ),
  list(
    name = "share_queues", former = "", argument = "server_limits(share_queues)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "20", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Share of max_client_memory for queues to WebSockets and streams",
    paragraph = "WebSockets are closed with 1013 above it, and streamed responses are cut off."
  ),
  list(
    name = "share_replies", former = "", argument = "server_limits(share_replies)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "20", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Share of max_client_memory for responses being sent",
    paragraph = "Responses that are larger than 8 KiB; 503 above it, or the largest that is not read is cut off."
  ),
  list(
    name = "share_compressors", former = "", argument = "server_limits(share_compressors)", is_option = TRUE, is_limit = TRUE, stability = "internal",
    default = "5", is_literal = TRUE,
    wanted = "a whole number of percent from 1 % to 100 %",
    help = "Share of max_client_memory for compressors",
    paragraph = "Responses leave uncompressed above it."
  ),
  list(
    name = "log", former = "", argument = "serve(log)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "-", is_literal = TRUE,
    wanted = "-, none, or the path of a file or folder",
    help = "Access log: a file, - for stdout, or none",
    paragraph = "The server appends to the file, and reopens it after SIGUSR1. A file with the name `none` is written `./none`. In R the value may also be `TRUE`, `FALSE` or a function."
  ),
  list(
    name = "log_format", former = "", argument = "serve(log_format)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "common", is_literal = TRUE,
    wanted = "common or json",
    help = "Format of the access log: common or json",
    paragraph = "`common` is the Common Log Format with the duration in seconds at the end; `json` is one JSON object per line. With several workers, each line also names the worker that responded."
  ),
  list(
    name = "admin", former = "", argument = "serve(admin)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "none", is_literal = FALSE,
    wanted = "an address with its port, such as 127.0.0.1:9100, or unix:/path/of/a/socket",
    help = "Address for status, metrics and health checks",
    paragraph = "It serves `/metrics` and the probes `/-/live` and `/-/ready`, also while R is busy. It is meant for monitoring, and is not part of the app."
  ),
  list(
    name = "request_id_header", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "on under `serve`, else off", is_literal = FALSE,
    wanted = "yes or no",
    help = "Send the request's id as X-Request-Id",
    paragraph = "A property of the app's interface, so it is set in a file, in R or in the environment."
  ),
  list(
    name = "open", former = "", argument = "serve(open)", is_option = FALSE, is_limit = FALSE, stability = "stable",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Open the address in a browser once it is served",
    paragraph = "It is opened once, and not at each reload. RStudio and Positron show it in their viewer when R serves. Over SSH without a display the address is only printed."
  ),
  list(
    name = "reload", former = "", argument = "workers_config(reload)", is_option = FALSE, is_limit = FALSE, stability = "experimental",
    default = "off", is_literal = TRUE,
    wanted = "yes or no",
    help = "Restart workers when a file of the app changes",
    paragraph = "The server looks at the app's files twice a second. It is for development; a single worker is replaced as well."
  ),
  list(
    name = "error_detail", former = "", argument = "", is_option = TRUE, is_limit = FALSE, stability = "stable",
    default = "none; message in an interactive session", is_literal = FALSE,
    wanted = "none, message or full",
    help = "What error pages show clients: none, message or full",
    paragraph = "`none`: only that an error occurred, and the id of the request. `message`: also the error message. `full`: also the call stack, which only browsers on this machine get. In an interactive session the default is `message`."
  ),
  stringsAsFactors = FALSE
)
