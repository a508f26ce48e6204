//! The settings that help to develop an app, as rows of the table of settings.

use crate::kind::Kind;
use crate::setting::{Applies, Default, Group, Places, Setting, Stability};
use crate::text_forms;

const DEVELOPMENT: Setting = Setting { group: Group::Development, ..Setting::EMPTY };

pub(super) static ROWS: [Setting; 9] = [
    Setting {
        name: "dev_anywhere",
        kind: Kind::Flag,
        places: Places::COMMAND_LINE,
        help: "Let other machines reach an app under development",
        paragraph: "Without it, `rookery dev` refuses addresses other than those of this machine, \
                    except in a hosted development environment (Codespaces, Gitpod, Coder, \
                    Posit Workbench), whose proxy asks for a login.",
        stability: Stability::Experimental,
        ..DEVELOPMENT
    },
    Setting {
        name: "dev_hosts",
        kind: Kind::List(&text_forms::DEV_HOSTS),
        places: Places::COMMAND_LINE,
        help: "Host names by which browsers may reach an app under development",
        paragraph: "`rookery dev` refuses requests for other host names, so that a web page of \
                    another site cannot read the app under a name that resolves to this machine \
                    (DNS rebinding). `localhost`, names below it, IP addresses and the names of \
                    `domain` are always accepted, and the machine's own name if other machines can \
                    reach the app. `*.example.org` stands for all names below `example.org`. A \
                    tunnel, for example, needs this setting. Over a Unix socket and in a hosted \
                    development environment, all names are accepted. `rookery serve` refuses this \
                    setting, because it checks no host names.",
        stability: Stability::Experimental,
        ..DEVELOPMENT
    },
    Setting {
        name: "editor",
        kind: Kind::Text(&text_forms::EDITOR),
        default: Default::Derived("the editor in whose terminal the server was started"),
        places: Places::COMMAND_LINE.and(Places::ENVIRONMENT),
        applies: Applies::AtReload,
        help: "The editor that the links on error pages open",
        paragraph: "`vscode`, `positron`, `cursor`, `windsurf`, `zed`, `idea`, `sublime`, `none`, \
                    or a URL with `{file}` and `{line}`, such as \
                    `vscode://file{file}:{line}`.",
        stability: Stability::Experimental,
        ..DEVELOPMENT
    },
    Setting {
        name: "ignore",
        kind: Kind::List(&text_forms::PATTERNS),
        places: Places::COMMAND_LINE.and(Places::FILE),
        help: "Files and folders whose changes do not restart the app",
        paragraph: "A list of names, such as `output` or `*.html`, which are those of files and \
                    folders anywhere in the app's folder, or of paths from this folder, such as \
                    `data/plots/*.png`. `*` stands for any characters except `/`. Files that the \
                    app writes and has not read before do not restart the app in any case.",
        stability: Stability::Experimental,
        ..DEVELOPMENT
    },
    Setting {
        name: "interactive",
        needs_r: true,
        kind: Kind::Flag,
        default: Default::Derived("off; on with `rookery dev` at a terminal"),
        places: Places::COMMAND_LINE,
        help: "Run R with a prompt in this terminal",
        paragraph: "With a prompt, you can use `browser()` and `readline()` in the app. This needs \
                    a terminal and a single worker.",
        ..DEVELOPMENT
    },
    Setting {
        name: "open",
        is_common: true,
        kind: Kind::Flag,
        dev_default: Some("on"),
        places: Places::COMMAND_LINE.and(Places::R),
        r_function: "serve",
        help: "Open the app in a browser once the server is ready",
        paragraph: "The browser is opened once, and not after each reload. In RStudio and \
                    Positron, R's `serve()` without `workers` shows the app in the viewer instead. \
                    Over SSH without a display, the server only prints the address.",
        ..DEVELOPMENT
    },
    Setting {
        name: "reload",
        needs_r: true,
        is_common: true,
        kind: Kind::Flag,
        dev_default: Some("on"),
        places: Places::PROGRAM,
        r_function: "workers_config",
        help: "Restart workers when a file of the app changes",
        paragraph: "For development: the server watches the app's files, and replaces all \
                    workers after a change. `rookery dev` also reloads the open pages.",
        stability: Stability::Experimental,
        ..DEVELOPMENT
    },
    Setting {
        name: "server_timing",
        needs_r: true,
        kind: Kind::Flag,
        dev_default: Some("on"),
        places: Places::ALL.without(Places::R),
        help: "Send the time of a request in the queue and in R as Server-Timing",
        paragraph: "The developer tools of browsers show these times, and `render`, in which the \
                    app's value became the response. An app can add times of its own, such as \
                    `Server-Timing: db;dur=12`. Only for development: the header tells strangers \
                    how the server works.",
        ..DEVELOPMENT
    },
    Setting {
        name: "error_detail",
        needs_r: true,
        applies: Applies::AtReload,
        is_common: true,
        kind: Kind::Choice(&["none", "message", "full"]),
        default: Default::Derived("none; message in an interactive R session"),
        dev_default: Some("full"),
        places: Places::ALL.without(Places::R),
        help: "What error pages show to clients: none, message or full",
        paragraph: "`none` shows only that an error occurred, with the id of the request. \
                    `message` also shows the error message. `full` also shows the call stack, but \
                    only to browsers on this machine, and with `rookery dev` only to browsers \
                    that have the token.",
        ..DEVELOPMENT
    },
];
