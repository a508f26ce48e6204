//! `docs/settings.md`.

use std::fmt::Write as _;

use rookery_settings::{
    Default, Former, Group, Kind, Places, Section, Setting, Shown, Stability, table, wanted,
};

const INTRODUCTION: &str = "\
<!-- Written by `make settings` from the table in crates/settings/src/table. Do not edit. -->

# Settings

Every setting has one name. The option of the command line is the name with `-` for `_`, the
environment variable is `ROOKERY_` and the name in capitals, and an option of R is `rookery.` and the
name. In `_server.yml` settings are keys below `options:`, those of HTTPS below `tls:`, those of ACME
below `acme:` in it, and limits below `limits:`; keys may be written with `-` for `_`. Paths in the
file are relative to it.

A value that is given in several places is taken from the first of these:

1. the command line,
2. arguments of functions of R,
3. the environment,
4. `_server.yml`,
5. options of R,
6. defaults; `PORT` and `WEB_CONCURRENCY` come before the defaults of `port` and `workers`.

A list replaces the list of a source with lower precedence. If several sources name
certificates, only the first of them is used for HTTPS; the others are ignored there. Each limit is
looked up separately.

- **Yes and no** are `yes`, `on`, `true` and `1`, or `no`, `off`, `false` and `0`. An option
  without a value is `on`.
- **Sizes** are bytes, or have a unit: `10MB` is ten million bytes, `10MiB` and `10M` are
  10 * 1024 * 1024.
- **Times** are seconds, or have a unit: `500ms`, `30s`, `2min`, `12h`, `1d`.
- **Rates** are whole bytes per second; 0 asks for none.
- `none` and `Inf` mean no limit, for settings that can be unlimited.
- **Lists** have commas between their values on the command line and in the environment, and are
  lists of YAML in a file.

A reload (HUP) reads `_server.yml` again. Each setting says whether a change in the file *applies* at a
reload, to the workers that the reload starts, or only at a restart of the server.

Variables that are marked *program* are read by the program `rookery`, and workers are started
without them.
";

const GENERAL: &str = "\
The limits below have no options of their own. They are set by name: `--limit header_timeout=10s`, a
key below `limits:`, or an argument of `server_limits()` in R.
";

/// Returns the page.
pub(crate) fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let is_by_name = |row: &Setting| row.section == Section::Limits && row.shown == Shown::No;
    for group in Group::ALL {
        let rows = table::all().filter(|row| row.group == group && !is_by_name(row));
        section(&mut page, group.title(), "", rows);
    }
    let by_name = |stability: Stability| {
        table::all().filter(move |row| is_by_name(row) && row.stability == stability)
    };
    section(&mut page, "Limits by name", GENERAL, by_name(Stability::Stable));
    section(&mut page, "Advanced limits", "", by_name(Stability::Advanced));
    let internal = "They divide resources inside of the server, and may change in any release.\n";
    section(&mut page, "Internal limits", internal, by_name(Stability::Internal));
    former(&mut page);
    page
}

fn section<'a>(
    page: &mut String,
    title: &str,
    text: &str,
    rows: impl Iterator<Item = &'a Setting>,
) {
    let _ = write!(page, "\n## {title}\n");
    if !text.is_empty() {
        let _ = write!(page, "\n{text}");
    }
    for row in rows {
        setting(page, row);
    }
}

fn setting(page: &mut String, row: &Setting) {
    let _ = write!(page, "\n### `{}`\n\n{}. {}\n\n", row.name, row.help, row.paragraph);
    let default = match row.default {
        Default::Nothing => "none".to_owned(),
        Default::Is(text) => format!("`{text}`"),
        Default::Derived { text, .. } => text.to_owned(),
    };
    let _ = writeln!(page, "- Value: {}. Default: {default}.", wanted(row));
    let mut places = Vec::new();
    if row.places.has(Places::COMMAND_LINE) {
        if row.shown == Shown::No {
            places.push(format!("`--limit {}=...`", row.name));
        } else {
            let no = if row.is_on_by_default() { "no-" } else { "" };
            let short = row.short.map(|short| format!("`-{short}`, ")).unwrap_or_default();
            let value = if matches!(row.kind, Kind::Flag) {
                String::new()
            } else {
                format!(" <{}>", row.placeholder)
            };
            places.push(format!("{short}`--{no}{}{value}`", row.option()));
        }
    }
    if row.places.has(Places::FILE) {
        places.push(format!("`{}:`", row.path()));
    }
    if !row.r_argument.is_empty() {
        places.push(format!("`{}`", row.r_argument));
    }
    if row.places.has(Places::OPTION) {
        places.push(format!("`options(rookery.{})`", row.name));
    }
    if row.places.has(Places::ENVIRONMENT) {
        let program = if row.is_program_variable { " (program)" } else { "" };
        places.push(format!("`{}`{program}", row.variable()));
    }
    let _ = writeln!(page, "- Where: {}.", places.join(", "));
    if !row.needs.is_empty() {
        let _ = writeln!(page, "- Needs {}.", names(row.needs, " or "));
    }
    if !row.excludes.is_empty() {
        let _ = writeln!(page, "- Excludes {}.", names(row.excludes, " and "));
    }
    if row.places != Places::R {
        let _ = writeln!(page, "- A change applies {}.", row.applies.text());
    }
    let stability = match row.stability {
        Stability::Stable => String::new(),
        other => format!(" {}.", capital(other.name())),
    };
    let _ = writeln!(page, "- Since {}.{stability}", row.since);
}

fn names(names: &[&str], between: &str) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(between)
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn former(page: &mut String) {
    page.push_str("\n## Former names\n\nThey are accepted for one release, with a message.\n\n");
    page.push_str("| name | where | write |\n|---|---|---|\n");
    for row in table::all() {
        for former in row.former {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} |",
                former.name,
                places(former, row),
                instead(former, row)
            );
        }
    }
}

fn places(former: &Former, row: &Setting) -> String {
    let all = [
        (
            Places::COMMAND_LINE,
            if row.section == Section::Limits { "`--limit`" } else { "command line" },
        ),
        (Places::FILE, "`_server.yml`"),
        (Places::R, "R"),
        (Places::ENVIRONMENT, "environment"),
    ];
    all.iter()
        .filter(|(place, _)| former.places.has(*place))
        .map(|(_, name)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn instead(former: &Former, row: &Setting) -> String {
    let reason =
        if former.reason.is_empty() { String::new() } else { format!(": {}", former.reason) };
    if row.shown == Shown::No && former.places == Places::COMMAND_LINE {
        return format!("`{}:` in `_server.yml`, or R{reason}", row.path());
    }
    let value = former.value.map(|value| format!(" {value}")).unwrap_or_default();
    let name = if former.places == Places::COMMAND_LINE {
        format!("--{}", row.option())
    } else if former.name == row.name {
        // What has moved is told with its section.
        row.path()
    } else {
        row.name.to_owned()
    };
    format!("`{name}{value}`{reason}")
}
