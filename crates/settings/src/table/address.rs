//! The settings of the address to listen on and of proxies in front of the server, as rows of the
//! table of settings.

use crate::kind::Kind;
use crate::setting::{Applies, Default, Group, Places, Setting, Shown};
use crate::text_forms;

const ADDRESS: Setting = Setting { group: Group::Address, ..Setting::EMPTY };

pub(super) static ROWS: [Setting; 4] = [
    Setting {
        name: "host",
        shown: Shown::Always,
        kind: Kind::Text(&text_forms::HOST),
        placeholder: "address",
        default: Default::Derived("127.0.0.1; all interfaces with `domain`"),
        places: Places::PROGRAM,
        is_program_variable: true,
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
        shown: Shown::Always,
        kind: Kind::Count,
        placeholder: "port",
        default: Default::Derived("8000; 443 with `domain`"),
        max: 65_535.0,
        places: Places::PROGRAM,
        is_program_variable: true,
        r_function: "serve",
        help: "Port to listen on; 0 lets the system choose a free port",
        paragraph: "Ports below 1024 require root or a special privilege on most systems. If the \
                    port is not set anywhere else, the server uses the environment variable \
                    `PORT`, which many hosting services set.",
        ..ADDRESS
    },
    Setting {
        name: "trusted_proxies",
        applies: Applies::WithAcceptingProcess,
        shown: Shown::Always,
        kind: Kind::List(&text_forms::PROXIES),
        placeholder: "list",
        places: Places::ALL.without(Places::R),
        help: "Addresses of reverse proxies whose forwarding headers are trusted",
        paragraph: "Set this if a reverse proxy such as nginx forwards requests to the server. The \
                    value is a list of IP addresses, of networks such as `10.0.0.0/8`, or of \
                    `unix`, which means all connections over a Unix socket. In requests from these \
                    proxies, `X-Forwarded-Proto` decides whether the client used HTTPS, and \
                    `X-Request-Id` sets the request's id. In requests from all other clients, the \
                    server ignores both headers. If the proxies announce their clients by the \
                    PROXY protocol (see `proxy_protocol`), all other clients are refused.",
        ..ADDRESS
    },
    Setting {
        name: "proxy_protocol",
        applies: Applies::WithAcceptingProcess,
        shown: Shown::InLongHelp,
        kind: Kind::Flag,
        default: Default::Is("off"),
        places: Places::ALL.without(Places::R),
        is_program_variable: true,
        help: "Expect a PROXY protocol header on each connection",
        paragraph: "Set this if a TCP load balancer such as HAProxy sends a PROXY protocol header \
                    (version 1 or 2) at the start of each connection. The server takes the \
                    client's address from this header for `REMOTE_ADDR` and the access log. \
                    Connections without the header are closed. Also set `trusted_proxies`, because \
                    otherwise anyone who can connect directly can claim any client address.",
        ..ADDRESS
    },
];
