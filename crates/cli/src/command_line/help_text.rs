//! Texts that `--help` and the manual page share.

/// The first paragraph of `rookery --help`.
pub(super) const ABOUT: &str = "\
Serves <target>: a Shiny app, a plumber API, a folder with a _server.yml, an R Markdown document
with Shiny, an R file whose last value is an app, or a folder with an index.html (a static site).
Ctrl-C or SIGTERM stops the server once the requests in progress are finished; a second Ctrl-C or
SIGTERM stops it at once.";

/// The commands that `rookery --help` lists, each with its description.
pub(super) const COMMANDS: [(&str, &str); 11] = [
    ("serve", "Serve an app, a document or a static site"),
    ("dev", "Serve an app while you edit it: pages reload, errors show source code"),
    ("config", "Print the value of each setting, and where the value comes from"),
    ("check", "Check settings, certificates, address and app without serving"),
    ("new", "Write a small app to start from: shiny, api, chat or site"),
    ("schema", "Print the JSON schema of _server.yml, for editors"),
    ("status", "Show what running servers and their workers are doing"),
    ("live", "Open the live page of a running server in a browser"),
    ("profile", "Record what the R code of a running server spends its time on"),
    ("completions", "Print a completion script for a shell"),
    ("man", "Print the manual page; read it with: rookery man | man -l -"),
];

/// The exit statuses of the program, each with its meaning.
pub(super) const STATUSES: [(&str, &str); 8] = [
    ("0", "the server was stopped and finished its work, or the app ended with status 0"),
    ("1", "something named in the settings is not available, or `check` has found a mistake"),
    ("2", "the command line is wrong"),
    ("3", "no worker became ready, not even in the retries of --start-retries"),
    ("4", "the address is not available, or the service manager's socket cannot be used"),
    ("5", "all workers kept crashing, and --fail-fast was given"),
    ("128 + n", "a second signal, with the number n, stopped the server at once"),
    ("another", "with --restart never: the exit status of the R process"),
];
