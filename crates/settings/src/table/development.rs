//! Writing an app.

use crate::derived;
use crate::kind::Kind;
use crate::setting::{Applies, Default, Group, Places, Setting, Shown, Stability};

const DEVELOPMENT: Setting = Setting { group: Group::Development, ..Setting::EMPTY };

pub(super) static ROWS: [Setting; 4] = [
    Setting {
        name: "interactive",
        key: "interactive",
        shown: Shown::InLongHelp,
        kind: Kind::Flag,
        default: Default::Derived {
            text: "off; on with `rookery dev` at a terminal",
            value: derived::found_at_start,
        },
        places: Places::COMMAND_LINE,
        help: "Run R with a prompt in this terminal",
        paragraph: "For `browser()` and `readline()`, with a single worker.",
        ..DEVELOPMENT
    },
    Setting {
        name: "open",
        key: "open",
        shown: Shown::Always,
        kind: Kind::Flag,
        default: Default::Is("off"),
        places: Places::COMMAND_LINE.and(Places::R),
        r_argument: "serve(open)",
        help: "Open the address in a browser once it is served",
        paragraph: "It is opened once, and not at each reload. RStudio and Positron show it in their viewer when R serves. Over \
                    SSH without a display the address is only printed.",
        ..DEVELOPMENT
    },
    Setting {
        name: "reload",
        key: "reload",
        shown: Shown::Always,
        kind: Kind::Flag,
        default: Default::Is("off"),
        places: Places::PROGRAM,
        is_program_variable: true,
        r_argument: "workers_config(reload)",
        help: "Restart workers when a file of the app changes",
        paragraph: "The server looks at the app's files twice a second. It is for development; a single \
                    worker is replaced as well.",
        stability: Stability::Experimental,
        ..DEVELOPMENT
    },
    Setting {
        name: "error_detail",
        applies: Applies::AtReload,
        key: "error_detail",
        shown: Shown::Always,
        kind: Kind::Choice(&["none", "message", "full"]),
        placeholder: "what",
        default: Default::Derived {
            text: "none; message in an interactive session",
            value: derived::found_at_start,
        },
        places: Places::ALL.without(Places::R),
        help: "What error pages show clients: none, message or full",
        paragraph: "`none`: only that an error occurred, and the id of the request. `message`: also the \
                    error message. `full`: also the call stack, which only browsers on this machine get. \
                    In an interactive session the default is `message`.",
        ..DEVELOPMENT
    },
];
