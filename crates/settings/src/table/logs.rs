//! The access log, status and health checks.

use crate::kind::Kind;
use crate::setting::{Applies, Default, Former, Group, Places, Section, Setting, Shown, Stability};
use crate::{derived, forms};

const LOGS: Setting = Setting { group: Group::Logs, ..Setting::EMPTY };

pub(super) static ROWS: [Setting; 4] = [
    Setting {
        name: "log",
        key: "log",
        shown: Shown::Always,
        kind: Kind::Path,
        placeholder: "file",
        words: &["-", "none"],
        flag_words: Some(["-", "none"]),
        default: Default::Is("-"),
        places: Places::PROGRAM,
        is_program_variable: true,
        r_argument: "serve(log)",
        help: "Access log: a file, - for stdout, or none",
        paragraph: "The server appends to the file, and reopens it after SIGUSR1. A file with the name \
                    `none` is written `./none`. In R the value may also be `TRUE`, `FALSE` or a function.",
        former: &[Former {
            value: Some("none"),
            ..Former::option("no_log", "two options for one setting")
        }],
        ..LOGS
    },
    Setting {
        name: "log_format",
        key: "log_format",
        shown: Shown::Always,
        kind: Kind::Choice(&["common", "json"]),
        placeholder: "format",
        default: Default::Is("common"),
        places: Places::PROGRAM,
        is_program_variable: true,
        r_argument: "serve(log_format)",
        help: "Format of the access log: common or json",
        paragraph: "`common` is the Common Log Format with the duration in seconds at the end; `json` is \
                    one JSON object per line. With several workers, each line also names the worker that \
                    responded.",
        ..LOGS
    },
    Setting {
        name: "admin",
        key: "admin",
        shown: Shown::Always,
        kind: Kind::Text(&forms::ADMIN),
        placeholder: "address",
        places: Places::PROGRAM,
        is_program_variable: true,
        r_argument: "serve(admin)",
        help: "Address for status, metrics and health checks",
        paragraph: "It serves `/metrics` and the probes `/-/live` and `/-/ready`, also while R is busy. It \
                    is meant for monitoring, and is not part of the app.",
        stability: Stability::Experimental,
        former: &[Former { places: Places::R, ..Former::everywhere("admin", Section::Options) }],
        ..LOGS
    },
    Setting {
        name: "request_id_header",
        applies: Applies::WithAcceptingProcess,
        key: "request_id_header",
        kind: Kind::Flag,
        default: Default::Derived {
            text: "on under `serve`, else off",
            value: derived::found_at_start,
        },
        places: Places::ALL.without(Places::COMMAND_LINE).without(Places::R),
        help: "Send the request's id as X-Request-Id",
        paragraph: "A property of the app's interface, so it is set in a file, in R or in the \
                    environment.",
        former: &[Former::option(
            "request_id_header",
            "it is a property of the app's interface and not of one start",
        )],
        ..LOGS
    },
];
