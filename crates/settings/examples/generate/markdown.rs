//! Writes `docs/settings.md`, the reference of all settings.

use std::fmt::Write as _;

use rookery_settings::{Group, Kind, Places, Setting, Stability, expected_form, table};

const INTRODUCTION: &str = "\
<!-- Written by `make settings` from the table in crates/settings/src/table. -->

# Settings

A setting has the same name everywhere, in a form that depends on the place. For
`request_timeout` these are:

- the option `--request-timeout` on the command line,
- the environment variable `ROOKERY_REQUEST_TIMEOUT`,
- the option `options(rookery.request_timeout = )` in R,
- a key in `_server.yml`, where `-` may be written instead of `_`.

In `_server.yml`, settings are keys below `options:`. The settings of HTTPS are
keys below `tls:`, those of ACME below `acme:` within `tls:`, and limits below
`limits:`. Relative paths are relative to the file. The file applies to its
folder, and to the file of the app beside it that its `app:` names.

If several places set a setting, the first of these is used:

1. the command line,
2. arguments of R functions,
3. the environment,
4. `_server.yml`,
5. options of R,
6. `PORT` and `WEB_CONCURRENCY`, for `port` and `workers`,
7. the default.

A list replaces a list with lower precedence. Each limit is looked up by itself.
If several places name certificates, the first of them determines all settings
of HTTPS, and the HTTPS settings of the others are ignored.

Values are written as follows:

- **Flags** are `yes`, `on`, `true` and `1`, or `no`, `off`, `false` and `0`. An
  option without a value is `on`.
- **Sizes** are numbers of bytes, or have a unit: `10MB` is ten million bytes;
  `10MiB` and `10M` are 10 * 1024 * 1024 bytes.
- **Times** are numbers of seconds, or have a unit: `500ms`, `30s`, `5m` or
  `5min`, `12h`, `1d`.
- `none` and `Inf` mean that there is no limit.
- **Lists** are separated by commas on the command line and in the environment.
  In `_server.yml` they are YAML lists.

A reload (SIGHUP) reads `_server.yml` again. For each setting, this page says
whether a change in the file applies to the workers that the reload starts, or
only after a restart of the server.

An environment variable that begins with `ROOKERY_` and belongs to no setting
has no effect. A warning names it and the setting with the most similar name.
Environment variables marked *program* are read by the program `rookery`, and
workers are started without them.
";

/// Returns the page.
pub(crate) fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for group in Group::ALL {
        let _ = write!(page, "\n## {}\n", group.title());
        table::all().filter(|row| row.group == group).for_each(|row| setting(&mut page, row));
    }
    development(&mut page);
    page
}

const DEVELOPMENT: &str = "\
Under `rookery dev`, these settings have other defaults, and any of them can be
given:

| Setting | `rookery serve` | `rookery dev` |
|---|---|---|
";

const ALSO_IN_DEVELOPMENT: &str = "
At a terminal, a single worker also runs with a prompt in that terminal
(`interactive`). `drain` and `start_retries` follow from `reload`. The front end
always accepts the connections, since it adds a script to the pages.
";

/// Writes the table of the settings that have another default in development.
fn development(page: &mut String) {
    let _ = write!(page, "\n## Defaults in development\n\n{DEVELOPMENT}");
    for row in table::all() {
        if let Some(default) = row.dev_default {
            let usual = row.default_text().unwrap_or("none");
            let _ = writeln!(page, "| `{}` | {usual} | {default} |", row.name);
        }
    }
    page.push_str(ALSO_IN_DEVELOPMENT);
}

fn setting(page: &mut String, row: &Setting) {
    let text = wrapped(&format!("{}. {}", row.help, row.paragraph), "");
    let _ = write!(page, "\n### `{}`\n\n{text}\n\n", row.name);
    let mut facts = Vec::new();
    let default = row.default_text().unwrap_or("none");
    facts.push(format!("Value: {}. Default: {default}.", expected_form(row)));
    let mut places = Vec::new();
    if row.places.has(Places::COMMAND_LINE) {
        let short = row.short.map(|short| format!("`-{short}`, ")).unwrap_or_default();
        let value = if matches!(row.kind, Kind::Flag) {
            String::new()
        } else {
            format!(" <{}>", row.placeholder())
        };
        places.push(format!("{short}`--{}{value}`", row.long_option()));
    }
    if row.places.has(Places::FILE) {
        places.push(format!("`{}:`", row.path()));
    }
    places.extend(row.r_argument().map(|argument| format!("`{argument}`")));
    if row.places.has(Places::OPTION) {
        places.push(format!("`options(rookery.{})`", row.name));
    }
    if row.places.has(Places::ENVIRONMENT) {
        let program = if row.is_program_variable() { " (program)" } else { "" };
        places.push(format!("`{}`{program}", row.variable()));
    }
    facts.push(format!("Set by: {}.", places.join(", ")));
    if !row.needs.is_empty() {
        facts.push(format!("Needs {}.", names(row.needs, " or ")));
    }
    if !row.excludes.is_empty() {
        facts.push(format!("Cannot be combined with {}.", names(row.excludes, " and ")));
    }
    if row.places != Places::R {
        facts.push(format!("A change applies {}.", row.applies.text()));
    }
    if row.stability == Stability::Experimental {
        facts.push("Experimental: it may change in any release.".to_owned());
    }
    for fact in facts {
        let _ = writeln!(page, "- {}", wrapped(&fact, "  "));
    }
}

/// Breaks a text into lines of at most 80 characters, with `indent` before each line but the first.
fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut width) = (String::new(), indent.len());
    for word in text.split(' ') {
        if lines.is_empty() {
            lines.push_str(word);
        } else if width + 1 + word.len() <= 80 {
            let _ = write!(lines, " {word}");
            width += 1;
        } else {
            let _ = write!(lines, "\n{indent}{word}");
            width = indent.len();
        }
        width += word.len();
    }
    lines
}

fn names(names: &[&str], between: &str) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(between)
}
