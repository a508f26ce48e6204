//! The settings of the access log, the status and the health checks, as rows of the table of
//! settings.

use crate::kind::Kind;
use crate::setting::{Default, Group, Places, Setting, Stability};
use crate::text_forms;

const LOGS: Setting = Setting { group: Group::Logs, ..Setting::EMPTY };

pub(super) static ROWS: [Setting; 4] = [
    Setting {
        name: "log",
        is_common: true,
        kind: Kind::Path,
        words: &["-", "none"],
        flag_words: Some(["-", "none"]),
        default: Default::Is("-"),
        places: Places::PROGRAM,
        r_function: "serve",
        help: "Access log: a file, - for standard output, or none",
        paragraph: "The server appends one line for each request to the file. For log rotation, \
                    SIGUSR1 makes the server open the file again. Write `./none` for a file with \
                    the name `none`. In R the value may also be `TRUE`, `FALSE` or a function.",
        ..LOGS
    },
    Setting {
        name: "log_format",
        is_common: true,
        kind: Kind::Choice(&["common", "combined", "json", "terminal"]),
        default: Default::Derived("common; terminal if the log goes to a terminal"),
        places: Places::PROGRAM,
        r_function: "serve",
        help: "Format of the access log: common, combined, json or terminal",
        paragraph: "`common` is the Common Log Format, followed by the duration in seconds. \
                    `combined` adds the `Referer` and the `User-Agent`; after the duration, it \
                    adds the seconds in the queue, the seconds in R, and the route. `json` writes \
                    one JSON object per line, also for messages and for what R prints. `terminal` \
                    writes aligned columns, with colour on a terminal. With several workers, each \
                    line of `common` and `json` also names the worker that responded.",
        ..LOGS
    },
    Setting {
        name: "admin",
        needs_r: true,
        is_common: true,
        kind: Kind::Text(&text_forms::ADMIN),
        placeholder: "address",
        places: Places::PROGRAM,
        r_function: "serve",
        help: "Address for status, metrics and health checks",
        paragraph: "The value is an IP address with a port, such as `127.0.0.1:9100`, or \
                    `unix:/path`. At this address, the server responds to `/metrics` and to the \
                    probes `/-/live` and `/-/ready`, also while R is busy. The address is meant \
                    for monitoring and should not be public.",
        stability: Stability::Experimental,
        ..LOGS
    },
    Setting {
        name: "request_id_header",
        needs_r: true,
        kind: Kind::Flag,
        default: Default::Derived("on for apps that `serve` runs, else off"),
        places: Places::ALL.without(Places::COMMAND_LINE).without(Places::R),
        help: "Send the id of each request to its client as X-Request-Id",
        paragraph: "The id of a request is also in the JSON access log. This setting is part of \
                    the app's interface, so it has no option on the command line: set it in \
                    `_server.yml`, in R or in the environment.",
        ..LOGS
    },
];
