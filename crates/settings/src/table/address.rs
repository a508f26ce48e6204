//! Settings of the address, and of proxies in front of it.

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
                    `domain` the default is all interfaces, because the certificate authority \
                    connects from outside. A relative socket path is relative to the current \
                    folder or, in `_server.yml`, to the folder of that file.",
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
        paragraph: "Ports below 1024 need a privilege on most systems. If no other source sets the \
                    port, the environment variable `PORT` is used, which many hosting services \
                    set.",
        ..ADDRESS
    },
    Setting {
        name: "trusted_proxies",
        applies: Applies::WithAcceptingProcess,
        shown: Shown::Always,
        kind: Kind::List(&text_forms::PROXIES),
        placeholder: "list",
        places: Places::ALL.without(Places::R),
        help: "Proxies whose forwarding headers are trusted",
        paragraph: "A list of IP addresses, networks such as `10.0.0.0/8`, or `unix` for all \
                    connections over a Unix socket. For requests from these proxies, \
                    `X-Forwarded-Proto` decides whether the client used HTTPS, and `X-Request-Id` \
                    sets the request's id; both headers are ignored in requests from other \
                    clients. With `proxy_protocol` only these proxies may connect. Set this if a \
                    reverse proxy such as nginx forwards requests to the server.",
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
        paragraph: "The header, of version 1 or 2, names the client for `REMOTE_ADDR` and the \
                    access log. Connections without the header are closed. Set this if a TCP load \
                    balancer such as HAProxy sends the header. Also set `trusted_proxies`, \
                    because otherwise anyone who can connect directly can claim any client \
                    address.",
        ..ADDRESS
    },
];
