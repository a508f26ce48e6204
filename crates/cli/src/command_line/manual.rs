//! The manual page, and the exit statuses, which it lists as `--help` does.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// What the page says of the program in a line.
const NAME: &str = "serve R apps, documents and sites over HTTP and WebSocket";

/// Every exit status, and what it means.
const STATUSES: [(&str, &str); 8] = [
    ("0", "it was asked to end, and has finished"),
    ("1", "what was asked for cannot be had, such as a certificate that is not there"),
    ("2", "the command line is wrong"),
    ("3", "no worker ever became ready, nor did any of its retries (--start-retries)"),
    ("4", "the address cannot be had, or a socket of the service manager not be used"),
    ("5", "all workers end again and again, and --fail-fast was given"),
    ("128 + n", "a second signal, of number n; a shell says so of a process that the signal ended"),
    ("another", "that of the app, with one R process"),
];

/// Returns what `--help` says of exit statuses.
pub(super) fn statuses() -> String {
    let lines = STATUSES.map(|(status, meaning)| format!("\n  {status:<9}{meaning}"));
    format!("Exit status:{}", lines.concat())
}

/// Returns the page. Commands are described on it, since they have no pages of their own.
pub(super) fn page(command: Command) -> Vec<u8> {
    let about = command.get_about().cloned().unwrap_or_default();
    let commands: Vec<(String, String)> = command
        .get_subcommands()
        .filter(|it| !it.is_hide_set())
        .map(|it| (it.get_name().to_owned(), it.get_about().map(ToString::to_string).unwrap_or_default()))
        .collect();
    let man = Man::new(command.about(NAME).long_about(about).disable_help_subcommand(true));
    let mut text = Vec::new();
    let written = man
        .render_title(&mut text)
        .and_then(|()| man.render_name_section(&mut text))
        .and_then(|()| man.render_synopsis_section(&mut text))
        .and_then(|()| man.render_description_section(&mut text))
        .and_then(|()| {
            let entries = commands.iter().map(|(name, about)| (format!("rookery {name}"), about.clone()));
            section("COMMANDS", entries).to_writer(&mut text)
        })
        .and_then(|()| man.render_options_section(&mut text))
        .and_then(|()| {
            let entries = STATUSES.map(|(status, meaning)| (status.to_owned(), meaning.to_owned()));
            section("EXIT STATUS", entries.into_iter()).to_writer(&mut text)
        });
    written.expect("a vector takes all");
    text
}

fn section(title: &str, entries: impl Iterator<Item = (String, String)>) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (name, meaning) in entries {
        roff.control("TP", []);
        roff.text([bold(name)]);
        roff.text([roman(meaning)]);
    }
    roff
}
