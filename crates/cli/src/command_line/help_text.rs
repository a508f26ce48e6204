//! What `--help` and the manual page both say. The generator of crates/settings reads this file as
//! well, so it depends on nothing.

/// The first paragraph of help.
pub(super) const ABOUT: &str = "\
Serves a Shiny app, a plumber API, a folder with _server.yml, an R Markdown document with Shiny, any R file that
ends with an app, or a site: a folder with index.html. Ctrl-C or SIGTERM ends it once requests in progress are
finished; a second one ends it at once.";

/// Every command that help lists, with its meaning.
pub(super) const COMMANDS: [(&str, &str); 8] = [
    ("serve", "serves <target>, a folder or a file"),
    (
        "dev",
        "serves <target> for development: reloads when a file changes, runs R at this terminal",
    ),
    ("config", "prints the settings that are in force, and where each comes from"),
    ("check", "checks settings, certificates, address and app, and serves nothing"),
    ("new", "writes a small app to begin with: shiny, api or site"),
    ("status", "shows the state of running servers and their workers"),
    ("completions", "prints a completion script for a shell"),
    ("man", "prints the manual page: rookery man | man -l -"),
];

/// The help of `--limit`.
pub(super) const LIMIT: &str = "Any limit, by name: --limit header_timeout=10s";

/// Every exit status with its meaning.
pub(super) const STATUSES: [(&str, &str); 8] = [
    ("0", "the program was asked to end and has finished its work, or its app ended with status 0"),
    ("1", "something that was asked for is not available, such as a certificate file"),
    ("2", "the command line is wrong"),
    ("3", "no worker ever became ready, after any retries of the start (--start-retries)"),
    ("4", "the address is not available, or the service manager's socket cannot be used"),
    ("5", "all workers ended again and again, and --fail-fast was given"),
    ("128 + n", "a second signal, number n, ended the program; shells report its death this way"),
    ("another", "with --restart never: the exit status of the R process"),
];
