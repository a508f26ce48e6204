//! The text of the manual page, and the table of exit statuses that the page and `--help` list.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// The one-line description of the program in the manual page.
const NAME: &str = "serve R apps, documents and sites over HTTP and WebSocket";

/// Every exit status with its meaning.
const STATUSES: [(&str, &str); 8] = [
    ("0", "the program was asked to end, and has finished its work"),
    ("1", "something that was asked for is not available, such as a certificate file"),
    ("2", "the command line is wrong"),
    ("3", "no worker ever became ready, also after all retries (--start-retries)"),
    ("4", "the address is not available, or the service manager's socket cannot be used"),
    ("5", "all workers ended again and again, and --fail-fast was given"),
    ("128 + n", "a second signal, number n, ended the program; shells report its death this way"),
    ("another", "with --restart never: the exit status of the R process"),
];

/// Returns the section of `--help` that lists the exit statuses.
pub(super) fn statuses() -> String {
    let lines = STATUSES.map(|(status, meaning)| format!("\n  {status:<9}{meaning}"));
    format!("Exit status:{}", lines.concat())
}

/// Returns the manual page in roff. It also describes the commands, which have no pages of their own.
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
