//! The settings of the address to listen on and of proxies in front of the server, as rows of the
//! table of settings.

use crate::kind::Kind;
use crate::setting::{Default, Group, Places, Setting};
use crate::text_forms;

const ADDRESS: Setting = Setting { group: Group::Address, ..Setting::EMPTY };

pub(super) static ROWS: [Setting; 6] = [
    Setting {
        name: "host",
        is_common: true,
        kind: Kind::Text(&text_forms::HOST),
        placeholder: "address",
        default: Default::Derived("127.0.0.1; all interfaces with `domain`"),
        places: Places::PROGRAM,
        r_function: "serve",
        help: "Address to listen on, or unix:/path for a Unix socket",
        paragraph: "`127.0.0.1` and `localhost` accept connections from this machine only; \
                    `0.0.0.0` (IPv4) and `::` (IPv6) accept them on all network interfaces. With \
                    `domain` the default is all interfaces, because the certificate authority must \
                    be able to connect from outside. A relative path of a Unix socket is relative \
                    to the current folder or, in `_server.yml`, to the folder of that file.",
        ..ADDRESS
    },
    Setting {
        name: "port",
        short: Some('p'),
        is_common: true,
        kind: Kind::Count,
        placeholder: "port",
        default: Default::Derived("8000; 443 with `domain`"),
        max: 65_535.0,
        places: Places::PROGRAM,
        r_function: "serve",
        help: "Port to listen on; 0 lets the system choose a free port",
        paragraph: "Ports below 1024 require root or a special privilege on most systems. If the \
                    port is not set anywhere else, the server uses the environment variable \
                    `PORT`, which many hosting services set.",
        ..ADDRESS
    },
    Setting {
        name: "trusted_proxies",
        is_common: true,
        kind: Kind::List(&text_forms::PROXIES),
        places: Places::ALL.without(Places::R),
        help: "Addresses of reverse proxies whose forwarding headers are trusted",
        paragraph: "Set this if a reverse proxy such as nginx forwards requests to the server. The \
                    value is a list of IP addresses, of networks such as `10.0.0.0/8`, or of \
                    `unix`, which means all connections over a Unix socket. In requests from these \
                    proxies, `X-Forwarded-For` (or, without it, `Forwarded`) names the client, \
                    `X-Forwarded-Proto` decides whether the client used HTTPS, `X-Request-Id` sets \
                    the request's id, and `Shiny-Server-Credentials` reaches the app. In requests \
                    from all other clients, the server ignores the first four headers and removes \
                    the last. The client's address is the last one in `X-Forwarded-For` that is \
                    not itself a trusted proxy; `REMOTE_ADDR`, the access log and traces contain \
                    it. The proxies must replace or extend the headers that their own clients \
                    send. `max_connections_per_ip` does not apply to them.",
        ..ADDRESS
    },
    Setting {
        name: "keep_identity_headers",
        kind: Kind::Flag,
        places: Places::OPTION,
        help: "Pass on the identity headers of clients that are not trusted proxies",
        paragraph: "Shiny takes the user and the groups of a session from the header \
                    `Shiny-Server-Credentials`, and a front end such as Shiny Server proves itself \
                    by `Shiny-Shared-Secret`. The server removes both, however they are spelled, \
                    from the requests of clients that are not in `trusted_proxies`, because any \
                    client can send them. A server that such a front end starts needs \
                    `trusted_proxies` or `keep_identity_headers`. The latter applies only to \
                    servers that `startServer()` or `runServer()` starts, as `shiny::runApp()` \
                    does, and not to `serve()` or the program.",
        ..ADDRESS
    },
    Setting {
        name: "proxy_protocol",
        kind: Kind::Flag,
        places: Places::ALL.without(Places::R),
        help: "Expect a PROXY protocol header on each connection",
        paragraph: "Set this if a TCP load balancer such as HAProxy sends a PROXY protocol header \
                    (version 1 or 2) at the start of each connection. The server takes the \
                    client's address from this header for `REMOTE_ADDR` and the access log. \
                    Connections without the header are closed. Also set `proxy_protocol_from`, \
                    because otherwise anyone who can connect directly can claim any client \
                    address.",
        ..ADDRESS
    },
    Setting {
        name: "proxy_protocol_from",
        kind: Kind::List(&text_forms::PROXIES),
        places: Places::ALL.without(Places::R),
        needs: &["proxy_protocol"],
        help: "Addresses of load balancers that may send a PROXY protocol header",
        paragraph: "The value has the form of `trusted_proxies`. Connections from all other \
                    addresses are closed, and the log says so. Without this setting, any client \
                    may send the header, and the server warns at its start. A \
                    load balancer that only passes on what its clients send must not be in \
                    `trusted_proxies`, because each client could then forge the forwarding \
                    headers. If a trusted proxy is in front of the load balancer, list the proxy \
                    in `trusted_proxies`: its address is the one in the PROXY header.",
        ..ADDRESS
    },
];
