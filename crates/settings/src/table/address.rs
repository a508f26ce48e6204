//! Where the server listens, and who is in front of it.

use crate::kind::Kind;
use crate::setting::{Applies, Default, Group, Places, Setting, Shown};
use crate::{derived, forms};

const ADDRESS: Setting = Setting { group: Group::Address, ..Setting::EMPTY };

pub(super) static ROWS: [Setting; 4] = [
    Setting {
        name: "host",
        key: "host",
        shown: Shown::Always,
        kind: Kind::Text(&forms::HOST),
        placeholder: "address",
        default: Default::Derived {
            text: "127.0.0.1; all addresses with `domain`",
            value: derived::found_at_start,
        },
        places: Places::PROGRAM,
        is_program_variable: true,
        r_argument: "serve(host)",
        help: "Address to listen on, or unix:/path for a Unix socket",
        paragraph: "`127.0.0.1` and `localhost` are reachable from this machine only, `0.0.0.0` and `::` \
                    from all of its networks. With `domain` the default is all addresses, because a \
                    certificate authority connects from outside. A relative socket path is relative to the \
                    current folder or, in `_server.yml`, to the folder of the file.",
        ..ADDRESS
    },
    Setting {
        name: "port",
        key: "port",
        short: Some('p'),
        shown: Shown::Always,
        kind: Kind::Count,
        placeholder: "port",
        default: Default::Derived { text: "8000; 443 with `domain`", value: derived::port },
        max: 65_535.0,
        places: Places::PROGRAM,
        is_program_variable: true,
        r_argument: "serve(port)",
        help: "Port to listen on; 0 lets the system choose",
        paragraph: "With `domain` the default is 443. A port below 1024 needs a privilege on most \
                    systems. The variable `PORT`, which hosting services set, counts if nothing else \
                    says the port.",
        ..ADDRESS
    },
    Setting {
        name: "trusted_proxies",
        applies: Applies::WithAcceptingProcess,
        key: "trusted_proxies",
        shown: Shown::Always,
        kind: Kind::List(&forms::PROXIES),
        placeholder: "list",
        places: Places::ALL.without(Places::R),
        help: "Proxies whose forwarding headers are trusted",
        paragraph: "Addresses, networks, or `unix` for everything that comes over a Unix socket. \
                    `X-Forwarded-Proto`, `X-Forwarded-For` and `X-Request-Id` of other clients are not \
                    believed.",
        ..ADDRESS
    },
    Setting {
        name: "proxy_protocol",
        applies: Applies::WithAcceptingProcess,
        key: "proxy_protocol",
        shown: Shown::InLongHelp,
        kind: Kind::Flag,
        default: Default::Is("off"),
        places: Places::ALL.without(Places::R),
        is_program_variable: true,
        help: "Expect a PROXY protocol header on each connection",
        paragraph: "Each connection has to begin with the header, of version 1 or 2, and `REMOTE_ADDR` \
                    is the client that it names. Set `trusted_proxies` as well, or whoever reaches the \
                    server can claim to be any client.",
        ..ADDRESS
    },
];
