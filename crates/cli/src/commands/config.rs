//! The command `rookery config`, which prints the value of each setting and the source of the
//! value.

use std::fmt::Write as _;

use rookery_settings::{Default, GivenValue, Group, Places, Setting, Source, table};

use crate::app_detection::Target;
use crate::settings::serve_settings::ServeSettings;

/// The text that `rookery config` prints as the source of a value that is determined only when the
/// server starts.
const AT_START: &str = "determined at start-up";

/// The title above the settings that somebody has set.
const GIVEN: &str = "Set explicitly";

/// The maximum width of the column of values. A longer value moves its own source to the right.
const MAX_VALUE_WIDTH: usize = 40;

/// Returns the output of `rookery config`: first the settings that were given, then a line for each
/// setting.
pub(crate) fn config(serve: &ServeSettings, target: &Target) -> Vec<u8> {
    let all = &serve.all;
    let lines_of = |is_shown: &dyn Fn(&Setting) -> bool| -> Vec<[String; 3]> {
        let rows = table::all().filter(|row| row.places != Places::R && is_shown(row));
        rows.map(|row| line(row, all)).collect()
    };
    let mut sections = vec![(GIVEN, lines_of(&|row| all.given(row.name).is_some()))];
    sections.extend(
        Group::ALL.map(|group| (group.title(), lines_of(&|row: &Setting| row.group == group))),
    );
    let width = |column: usize| {
        let lines = sections.iter().flat_map(|(_, lines)| lines);
        lines.map(|line| line[column].chars().count()).max().unwrap_or(0)
    };
    let (names, values) = (width(0), width(1).min(MAX_VALUE_WIDTH));
    let mut text = format!(
        "Settings of {}. R was not started, so settings of an .Rprofile or the app are not \
         included.\n",
        target.path.display()
    );
    for (title, lines) in sections.iter().filter(|(_, lines)| !lines.is_empty()) {
        let _ = write!(text, "\n{title}\n");
        for [name, value, source] in lines {
            let _ = writeln!(text, "  {name:<names$}  {value:<values$}  {source}");
        }
    }
    text.into_bytes()
}

/// Returns the three columns that `rookery config` prints for a setting: its name, its value, and
/// the source of the value.
fn line(row: &'static Setting, all: &rookery_settings::Settings) -> [String; 3] {
    let (value, source) = match (all.given(row.name), all.value(row.name), row.default) {
        (Some(given), _, _) => (value_text(given), source_of(given)),
        (None, Some(value), _) => (value.show(row.kind), Source::Default.name().to_owned()),
        (None, None, Default::Derived(text)) => (text.to_owned(), AT_START.to_owned()),
        (None, None, _) => ("none".to_owned(), Source::Default.name().to_owned()),
    };
    let name = if row.has_option() { row.name.to_owned() } else { row.path() };
    [name, value, source]
}

/// Returns the value of a setting as text. Passwords within URLs are masked.
fn value_text(given: &GivenValue) -> String {
    let text = given.value.show(given.setting.kind);
    match text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?))) {
        Some((scheme, (user, host))) if !user.contains('/') => {
            format!("{scheme}://(hidden)@{host}")
        }
        _ => text,
    }
}

fn source_of(given: &GivenValue) -> String {
    match (&given.place, given.source) {
        (Some(place), _) => place.clone(),
        (None, Source::Environment) => given.setting.variable(),
        (None, source) => source.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rookery_settings::{Raw, Settings};

    use super::*;

    fn given(source: Source, name: &str, text: &str, place: Option<&str>) -> GivenValue {
        let given = GivenValue::parse(table::row(name), &Raw::from(text), source).unwrap();
        GivenValue { place: place.map(str::to_owned), ..given }
    }

    #[test]
    fn lists_every_setting_with_its_source() {
        let settings = Settings::combine([
            given(Source::CommandLine, "port", "9000", None),
            given(Source::File, "max_body_size", "10MB", Some("`/srv/_server.yml`, line 5")),
            given(Source::Environment, "error_detail", "full", None),
        ]);
        let serve = ServeSettings::of(settings).unwrap();
        let target = Target {
            given: "/srv".into(),
            path: "/srv".into(),
            folder: "/srv".into(),
            is_site: false,
        };
        let text = String::from_utf8(config(&serve, &target)).unwrap();
        let has = |name: &str, value: &str, source: &str| {
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
            assert!(
                line.is_some_and(|line| line.contains(value) && line.ends_with(source)),
                "{name}: {text}"
            );
        };
        has("port", "9000", "command line");
        has("max_body_size", "10 MB", "`/srv/_server.yml`, line 5");
        has("error_detail", "full", "ROOKERY_ERROR_DETAIL");
        has("idle_timeout", "2 min", "default");
        has("max_client_memory", "a quarter of the memory", AT_START);
        for row in table::all().filter(|row| row.places != Places::R) {
            has(if row.has_option() { row.name } else { row.path().leak() }, "", "");
        }
        let given = text.split("\n\n").nth(1).unwrap();
        assert!(given.starts_with(GIVEN) && given.lines().count() == 4, "{given}");
        let sources = given.lines().skip(1).map(|line| line.rfind("  ").unwrap());
        let start = sources.collect::<std::collections::HashSet<_>>();
        assert_eq!(start.len(), 1, "one column: {given}");
        assert!(!text.contains("password") && text.contains("R was not started"), "{text}");
    }

    #[test]
    fn masks_passwords_in_urls() {
        let url = given(Source::File, "acme_directory", "https://me:secret@ca.test/dir", None);
        assert_eq!(value_text(&url), "https://(hidden)@ca.test/dir");
        let url = given(Source::File, "acme_directory", "https://ca.test/dir@1", None);
        assert_eq!(value_text(&url), "https://ca.test/dir@1");
    }
}
