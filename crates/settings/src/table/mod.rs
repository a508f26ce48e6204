//! The table of settings, and functions that find a setting by name.

mod acme;
mod address;
mod advanced;
mod development;
mod https;
mod internal;
mod limits;
mod logs;
mod workers;

use crate::setting::{Former, Places, Section, Setting};
use crate::suggestions::did_you_mean;

/// The maximum of a numeric setting that accepts any finite number, but not "no limit".
const FINITE: f64 = 1e18;
/// The largest number up to which R and JSON represent every whole number exactly (2^53).
const EXACT: f64 = 9_007_199_254_740_992.0;

static TABLES: [&[Setting]; 9] = [
    &address::ROWS,
    &https::ROWS,
    &acme::ROWS,
    &workers::ROWS,
    &limits::ROWS,
    &advanced::ROWS,
    &internal::ROWS,
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

/// A setting that was found by its present name or by one of its former names.
#[derive(Debug, Clone, Copy)]
pub struct FoundSetting {
    /// The setting that was found.
    pub setting: &'static Setting,
    /// The former name by which the setting was found; `None` if it was found by its present name.
    pub former: Option<&'static Former>,
}

/// Finds the setting with this present or former key in a section of `_server.yml`.
pub fn find_key(section: Section, key: &str) -> Option<FoundSetting> {
    let is_it = |setting: &&Setting| {
        setting.section == section && setting.key() == key && setting.places.has(Places::FILE)
    };
    all().find(is_it).map(|setting| FoundSetting { setting, former: None }).or_else(|| {
        find_former(|former| {
            former.section == section && former.name == key && former.places.has(Places::FILE)
        })
    })
}

/// Finds the setting in the section `limits` of `_server.yml` that has, or formerly had, this name.
pub fn find_limit(name: &str) -> Option<FoundSetting> {
    find_key(Section::Limits, name)
}

/// Finds the setting that was formerly called `name`. The former name must still be accepted in
/// `place`, such as the command line.
fn find_former_in(place: Places, name: &str) -> Option<FoundSetting> {
    find_former(|former| former.name == name && former.places.has(place))
}

/// Finds the setting with this present name, or with a former name that R still accepts.
pub fn find_for_r(name: &str) -> Option<&'static Setting> {
    find(name).or_else(|| find_former_in(Places::R, name).map(|found| found.setting))
}

fn find_former(is_it: impl Fn(&Former) -> bool) -> Option<FoundSetting> {
    all().find_map(|setting| {
        setting
            .former
            .iter()
            .find(|former| is_it(former))
            .map(|former| FoundSetting { setting, former: Some(former) })
    })
}

/// Replaces the names of settings in backticks by the names of their command-line options. For
/// example, `host` becomes `--host`.
pub fn with_option_names(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| match find(part) {
        Some(row) if at % 2 == 1 && row.has_option() => format!("--{}", row.option()),
        Some(row) if at % 2 == 1 && row.section == Section::Limits => {
            format!("--limit {}", row.name)
        }
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
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
    let former = all().flat_map(|row| row.former).filter(|former| former.section == section);
    let former = former.filter(|former| former.places.has(Places::FILE)).map(|former| former.name);
    // The hint names the present name instead of a former one.
    let show = |near: &str| {
        let found = find_key(section, near).filter(|found| found.former.is_some());
        found.map_or(format!("`{near}:`"), |found| format!("`{}:`", found.setting.key()))
    };
    did_you_mean(key, keys.chain(sections).chain(former), show)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::kind::{Kind, Raw, Value};
    use crate::setting::{Default, Group, Shown, Stability};

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
        // A former name must not be the present name of another setting in the same place.
        for row in all() {
            for former in row.former {
                assert!(former.name == row.name || !names.contains(former.name), "{}", former.name);
                let is_taken = find_key(former.section, former.name)
                    .is_some_and(|found| found.former.is_none());
                assert!(!former.places.has(Places::FILE) || !is_taken, "{}", former.name);
            }
        }
    }

    #[test]
    fn help_is_short_and_every_row_has_a_paragraph() {
        for row in all() {
            assert!((10..=70).contains(&row.help.chars().count()), "{}: {}", row.name, row.help);
            assert!(!row.help.ends_with('.') || row.help.ends_with("..."), "{}", row.name);
            assert!(row.paragraph.ends_with('.') && row.paragraph.len() > 20, "{}", row.name);
        }
        let shown = all().filter(|row| row.shown == Shown::Always).count();
        // Help also lists `--limit`, `--help` and `--version`.
        assert!(shown + 3 <= 35, "{shown}");
        for group in Group::ALL {
            assert!(all().any(|row| row.group == group && row.shown == Shown::Always), "{group:?}");
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
            if matches!(row.kind, Kind::Flag) {
                assert!(
                    matches!(row.default, Default::Is(_) | Default::Derived { .. }),
                    "{}",
                    row.name
                );
            }
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
            if matches!(row.kind, Kind::Count | Kind::Rate | Kind::Percent) {
                assert!(read(&show(row.min + 1.5)).is_err(), "{}", row.name);
            }
        }
    }

    #[test]
    fn settings_of_the_program_are_not_options_of_r() {
        for row in all() {
            let is_limit = row.section == Section::Limits;
            assert!(!is_limit || !row.is_program_variable, "{}", row.name);
            assert!(!is_limit || row.places == Places::ALL, "{}", row.name);
            assert!(row.stability != Stability::Advanced || is_limit, "{}", row.name);
            assert!(!row.is_secret || row.places == Places::R, "{}", row.name);
        }
    }

    #[test]
    fn settings_are_found_by_former_names() {
        let found = find_limit("body_bytes").unwrap();
        assert!(found.setting.name == "max_body_size" && found.former.is_some());
        assert!(find_limit("max_body_size").unwrap().former.is_none());
        assert_eq!(find_key(Section::Acme, "domains").unwrap().setting.name, "domain");
        assert_eq!(
            find_former_in(Places::COMMAND_LINE, "no_log").unwrap().former.unwrap().value,
            Some("none")
        );
        assert!(find_former_in(Places::ENVIRONMENT, "kill_stuck").is_none());
        assert_eq!(row("port").read(&Raw::from("8000")).unwrap(), Value::Number(8000.0));
    }

    #[test]
    fn hints_for_unknown_keys_name_the_section_or_a_similar_key() {
        for (section, key, hint) in [
            (Section::Options, "prot", " Did you mean `port:`?"),
            (Section::Options, "max_body_size", " It belongs under `limits:`."),
            (Section::Options, "limit", " Did you mean `limits:`?"),
            (Section::Limits, "max_body_sise", " Did you mean `max_body_size:`?"),
            (Section::Limits, "bodybytes", " Did you mean `max_body_size:`?"),
            (Section::Tls, "staging", " It belongs under `acme:`."),
            (Section::Options, "zzzzzzzzz", ""),
            (Section::Tls, "password", ""),
        ] {
            assert_eq!(hint_for_key(section, key), hint, "{key}");
        }
    }
}
