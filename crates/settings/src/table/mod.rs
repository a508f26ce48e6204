//! The table of settings, and functions that find a setting by name.

mod acme;
mod address;
mod development;
mod https;
mod limits;
mod logs;
mod workers;

use crate::setting::{Places, Section, Setting};
use crate::suggestions::did_you_mean;

static TABLES: [&[Setting]; 7] = [
    &address::ROWS,
    &https::ROWS,
    &acme::ROWS,
    &workers::ROWS,
    &limits::ROWS,
    &logs::ROWS,
    &development::ROWS,
];

/// Returns all settings of Rookery. The settings of one group, such as the limits, are next to each
/// other.
pub fn all() -> impl Iterator<Item = &'static Setting> + Clone {
    TABLES.iter().copied().flatten()
}

/// Returns the setting with this name, or `None` if there is no such setting.
pub fn find(name: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.name == name)
}

/// Returns the setting with this name, which must exist. Each setting is a row of the table of
/// settings.
///
/// # Panics
/// Panics if there is no setting with this name.
pub fn row(name: &str) -> &'static Setting {
    find(name).unwrap_or_else(|| panic!("`{name}` is not in the table of settings"))
}

/// Finds the setting with this key in a section of `_server.yml`.
pub fn find_key(section: Section, key: &str) -> Option<&'static Setting> {
    all().find(|row| row.section == section && row.key() == key && row.places.has(Places::FILE))
}

/// Replaces the names of settings in backticks by the names of their command-line options. For
/// example, `host` becomes `--host`.
pub fn with_option_names(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| match find(part) {
        Some(row) if at % 2 == 1 && row.has_option() => format!("--{}", row.option()),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Replaces command-line options in backticks by arguments of R functions. For example,
/// `--port 8001` becomes `port = 8001`. Options for which R has no argument stay as they are.
pub fn with_argument_names(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| {
        let option = part.strip_prefix("--").filter(|_| at % 2 == 1);
        option.and_then(argument_of_option).unwrap_or_else(|| part.to_owned())
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Returns the argument of an R function for a command-line option, such as `port 8001`.
fn argument_of_option(option: &str) -> Option<String> {
    let words = option.strip_prefix("limit ").unwrap_or(option);
    let (name, value) =
        words.split_once(' ').map_or((words, None), |(name, value)| (name, Some(value)));
    let is_named = |row: &&Setting| [row.name, &row.option(), &row.long_option()].contains(&name);
    let row = all().find(|row| row.r_argument().is_some() && is_named(row))?;
    let key = row.key();
    Some(match value {
        None if name.starts_with("no-") => format!("{key} = FALSE"),
        None => key.to_owned(),
        Some(number) if number.parse::<f64>().is_ok() => format!("{key} = {number}"),
        Some(value) => format!("{key} = \"{value}\""),
    })
}

/// Returns a hint for the error message about an unknown key in a section of `_server.yml`. The
/// hint names the section to which the key belongs, or a similar key.
pub(crate) fn hint_for_key(section: Section, key: &str) -> String {
    let other = Section::ALL.into_iter().filter(|other| *other != section);
    if let Some(other) = other.into_iter().find(|other| find_key(*other, key).is_some()) {
        return format!(" It belongs under `{}:`.", other.key());
    }
    let keys = all()
        .filter(|row| row.section == section && row.places.has(Places::FILE))
        .map(Setting::key);
    let sections =
        Section::ALL.into_iter().filter(|inner| inner.parent() == Some(section)).map(Section::key);
    did_you_mean(key, keys.chain(sections), |near| format!("`{near}:`"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::kind::{Kind, Raw};
    use crate::setting::{Default, Group};

    #[test]
    fn names_keys_and_short_options_are_unique() {
        let mut names = HashSet::new();
        let mut keys = HashSet::new();
        let mut shorts = HashSet::from(['h', 'v', 'V']);
        for row in all() {
            assert!(names.insert(row.name), "{}", row.name);
            assert!(keys.insert((row.section, row.key())), "{}", row.name);
            assert!(row.short.is_none_or(|short| shorts.insert(short)), "{}", row.name);
            let is_name = |text: &str| {
                !text.is_empty()
                    && text.bytes().all(|byte| {
                        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
                    })
            };
            assert!(is_name(row.name) && is_name(row.key()), "{}", row.name);
        }
    }

    #[test]
    fn messages_for_r_name_arguments_in_place_of_options() {
        for (option, argument) in [
            ("Use `--port 8001`, or `--host ::1`.", "Use `port = 8001`, or `host = \"::1\"`."),
            ("`--no-http2` needs `--tls-cert`.", "`http2 = FALSE` needs `cert`."),
            ("`--limit header_timeout` and `--max-memory`", "`header_timeout` and `max_memory`"),
            ("ends (`--restart never`)", "ends (`restart = \"never\"`)"),
            (
                "`rookery --help`, --port 1, `--dev-hosts`",
                "`rookery --help`, --port 1, `--dev-hosts`",
            ),
        ] {
            assert_eq!(with_argument_names(option), argument);
        }
    }

    #[test]
    fn help_is_short_and_every_row_has_a_paragraph() {
        for row in all() {
            assert!((10..=70).contains(&row.help.chars().count()), "{}: {}", row.name, row.help);
            assert!(!row.help.ends_with('.') || row.help.ends_with("..."), "{}", row.name);
            assert!(row.paragraph.ends_with('.') && row.paragraph.len() > 20, "{}", row.name);
        }
        let shown = all().filter(|row| row.is_common).count();
        // Help also lists `--help` and `--version`.
        assert!(shown + 2 <= 35, "{shown}");
        for group in Group::ALL {
            assert!(all().any(|row| row.group == group && row.is_common), "{group:?}");
        }
    }

    /// Checks that no text quotes a value that `with_option_names` would turn into an option.
    #[test]
    fn texts_do_not_quote_values_that_are_names_of_settings() {
        for row in all() {
            let Kind::Choice(choices) = row.kind else { continue };
            for value in choices.iter().filter(|value| find(value).is_some()) {
                let quoted = format!("`{value}`");
                assert!(
                    !row.paragraph.contains(&quoted) && !row.help.contains(&quoted),
                    "{quoted}"
                );
            }
        }
    }

    #[test]
    fn defaults_are_accepted_by_their_own_rows() {
        for row in all() {
            if let Default::Is(text) = row.default {
                let read = row.read(&Raw::from(text));
                assert!(read.is_ok(), "{}: {read:?}", row.name);
            }
            assert!(row.min <= row.max, "{}", row.name);
        }
    }

    #[test]
    fn bounds_hold_for_every_number() {
        for row in all().filter(|row| row.kind.is_number()) {
            let read = |text: &str| row.read(&Raw::from(text));
            let show = |number: f64| format!("{number}");
            assert_eq!(
                read(&show(row.min)).ok().and_then(|value| value.number()),
                Some(row.min),
                "{}",
                row.name
            );
            if row.min > 0.0 && !row.words.contains(&"0") {
                assert!(read(&show(row.min / 2.0)).is_err() && read("0").is_err(), "{}", row.name);
            }
            if row.max.is_finite() {
                assert!(read(&show(row.max)).is_ok(), "{}", row.name);
                assert!(read(&show(row.max * 2.0 + 1.0)).is_err(), "{}", row.name);
            }
            let accepts_none = row.max.is_infinite() || row.words.contains(&"none");
            for word in ["none", "Inf"] {
                assert!(accepts_none || read(word).is_err(), "{}: {word}", row.name);
            }
            for text in
                ["1e999", "1e19", "NaN", "-1", "-Inf", "", "x", "1 x", "010", "0x10", "1:30"]
            {
                assert!(read(text).is_err(), "{}: {text}", row.name);
            }
            if matches!(row.kind, Kind::Count) {
                assert!(read(&show(row.min + 1.5)).is_err(), "{}", row.name);
            }
        }
    }

    #[test]
    fn settings_of_the_program_are_not_options_of_r() {
        for row in all() {
            let is_limit = row.section == Section::Limits;
            assert!(!is_limit || !row.is_program_variable(), "{}", row.name);
            assert!(!is_limit || row.places == Places::ALL, "{}", row.name);
        }
    }

    #[test]
    fn hints_for_unknown_keys_name_the_section_or_a_similar_key() {
        for (section, key, hint) in [
            (Section::Options, "prot", " Did you mean `port:`?"),
            (Section::Options, "max_body_size", " It belongs under `limits:`."),
            (Section::Options, "limit", " Did you mean `limits:`?"),
            (Section::Limits, "max_body_sise", " Did you mean `max_body_size:`?"),
            (Section::Tls, "profile", " It belongs under `acme:`."),
            (Section::Options, "zzzzzzzzz", ""),
            (Section::Tls, "password", ""),
        ] {
            assert_eq!(hint_for_key(section, key), hint, "{key}");
        }
    }
}
