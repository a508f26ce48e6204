//! The manual page that `rookery man` prints, made from the table of settings.

use std::fmt::Write as _;

use rookery_settings::{Group, Kind, Setting, expected_form, table};

use super::help_text;

/// Returns the page in roff. It also describes the commands, which have no pages of their own.
pub(super) fn page() -> String {
    let mut page = format!(".TH rookery 1 \"\" \"rookery {}\"\n", env!("CARGO_PKG_VERSION"));
    page.push_str(
        ".SH NAME\nrookery \\- serve R apps, documents and sites over HTTP and WebSocket\n",
    );
    page.push_str(
        ".SH SYNOPSIS\n.B rookery serve\n<target> [options]\n.br\n.B rookery\n<command> \
                   ...\n.SH DESCRIPTION\n",
    );
    page.push_str(&lines(&help_text::ABOUT.replace('\n', " ")));
    entries(
        &mut page,
        "COMMANDS",
        help_text::COMMANDS.map(|(name, about)| (format!("rookery {name}"), about)),
    );
    page.push_str(".SH OPTIONS\n");
    item(
        &mut page,
        "\\fB\\-h\\fR, \\fB\\-\\-help\\fR",
        "-h prints the most common options, --help prints all options.",
    );
    item(&mut page, "\\fB\\-v\\fR, \\fB\\-\\-version\\fR", "Print the version.");
    item(
        &mut page,
        "\\fB\\-\\-verbose\\fR",
        "With --version: also print the build, the system and the R that is used. With serve, dev \
         and check: if the app cannot be started, show all calls that led to the error.",
    );
    item(
        &mut page,
        "\\fB\\-\\-load\\fR",
        "With check: also run the code of the app as a worker does, for at most --start-timeout, \
         without serving it.",
    );
    for group in Group::ALL {
        let _ = writeln!(page, ".SS {}", group.title());
        for row in table::all().filter(|row| row.group == group && row.has_option()) {
            item(&mut page, &head(row), &text(row));
        }
    }
    files_and_environment(&mut page);
    entries(
        &mut page,
        "\"EXIT STATUS\"",
        help_text::STATUSES.map(|(status, meaning)| (status.to_owned(), meaning)),
    );
    page
}

fn files_and_environment(page: &mut String) {
    page.push_str(".SH FILES\n");
    item(
        page,
        "\\fI_server.yml\\fR",
        "A file in the folder of the app, with `engine: rookery`. Settings are keys below \
         `options:`, with _ instead of -. Relative paths are relative to the file. rookery config \
         prints all settings and their values.",
    );
    page.push_str(".SH ENVIRONMENT\n");
    page.push_str(&lines(
        "The variable of a setting is ROOKERY_ followed by its name in capitals. The command line \
         overrides arguments of R functions such as serve(), which override the environment, \
         which overrides _server.yml, which overrides options of R. These variables are used only \
         if nothing else sets the setting:",
    ));
    item(page, "\\fBPORT\\fR", "The default of --port.");
    item(page, "\\fBWEB_CONCURRENCY\\fR", "The default of --workers.");
}

/// Returns the option with its value.
fn head(row: &Setting) -> String {
    let short = row.short.map(|short| format!("\\fB\\-{short}\\fR, ")).unwrap_or_default();
    let value = match row.kind {
        Kind::Flag => String::new(),
        _ => format!(" \\fI{}\\fR", escaped(row.placeholder())),
    };
    format!("{short}\\fB{}\\fR{value}", escaped(&format!("--{}", row.long_option())))
}

fn text(row: &Setting) -> String {
    let default = row.default_text().unwrap_or("none");
    let value = match row.kind {
        Kind::Flag => String::new(),
        _ => format!(" Value: {}.", expected_form(row)),
    };
    let text = format!("{}. {}{value} Default: {default}.", row.help, row.paragraph);
    table::with_option_names(&text)
}

fn entries<const N: usize>(page: &mut String, title: &str, entries: [(String, &str); N]) {
    let _ = writeln!(page, ".SH {title}");
    for (name, meaning) in entries {
        item(page, &format!("\\fB{}\\fR", escaped(&name)), meaning);
    }
}

/// Adds an entry. `head` is roff already; `text` is plain text.
fn item(page: &mut String, head: &str, text: &str) {
    let _ = write!(page, ".TP\n{head}\n{}", lines(text));
}

/// Writes a text as roff, with each sentence on a line of its own, as is usual in roff.
fn lines(text: &str) -> String {
    let text = escaped(&text.replace('`', ""));
    let sentences = text.replace(". ", ".\n");
    // roff would take a line that begins with one of these characters for a request.
    let plain = sentences.lines().map(|line| {
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        format!("{guard}{line}\n")
    });
    plain.collect()
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}
