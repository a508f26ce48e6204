//! The command-line options of `rookery serve`. They are generated from the table of settings.

use std::ffi::OsString;

use clap::builder::OsStringValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use rookery_settings::{
    GivenValue, Group, Kind, Raw, Section, Setting, Shown, Source, similar_names, table,
};

use super::{help_text, usage_error};
use crate::failure::Failure;

/// The name of the option `--limit`, which sets any limit by name.
const LIMIT: &str = "limit";

/// The settings that are given on the command line.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The values that the command line gives, in the order of the table of all settings.
    pub(crate) given: Vec<GivenValue>,
    /// Whether the app is served for development, as the command `rookery dev` does.
    pub(crate) is_dev: bool,
}

/// Returns all command-line options, in the order of the groups in the help text.
pub(super) fn options() -> impl Iterator<Item = Arg> {
    Group::ALL.into_iter().flat_map(|group| {
        let rows = table::all().filter(move |row| row.group == group);
        let own = rows.filter(|row| row.has_option()).map(option);
        let limit = (group == Group::Limits).then(|| {
            let arg = Arg::new(LIMIT).long(LIMIT).value_name("name=value").help(help_text::LIMIT);
            let long = format!(
                "{}. May be repeated. `rookery man` lists all limits with their defaults.",
                help_text::LIMIT
            );
            let arg = arg.long_help(wrapped(&long)).action(ArgAction::Append);
            arg.value_parser(OsStringValueParser::new())
        });
        own.chain(limit).map(move |arg| arg.help_heading(group.title()))
    })
}

fn option(row: &'static Setting) -> Arg {
    let arg = Arg::new(row.name)
        .long(row.long_option())
        .help(table::with_option_names(row.help))
        .long_help(long_help(row))
        .hide_short_help(row.shown != Shown::Always);
    let arg = if let Some(short) = row.short { arg.short(short) } else { arg };
    with_value(arg, row, row.placeholder())
}

/// Returns the text that `--help` shows for a setting: the one-line help, the details and the
/// default.
fn long_help(row: &Setting) -> String {
    let stop = if row.help.ends_with('.') { "" } else { "." };
    let text = wrapped(&table::with_option_names(&format!("{}{stop} {}", row.help, row.paragraph)));
    match row.default_text() {
        // The help of a flag that is on by default already states this.
        Some(default) if !row.is_on_by_default() => {
            format!("{text}\n[default: {}]", table::with_option_names(default))
        }
        _ => text,
    }
}

/// Breaks a help text into lines of at most 90 bytes, which leaves space for indentation.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 90;
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() || line.len() + 1 + word.len() <= WIDTH {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

/// Adds to the option `arg` how many values it takes, and the text that stands for a value in the
/// help: `on|off` for a flag, otherwise `placeholder`.
fn with_value(arg: Arg, row: &Setting, placeholder: &'static str) -> Arg {
    let arg = arg.value_parser(OsStringValueParser::new());
    match row.kind {
        Kind::Flag => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("on")
            .value_name("on|off"),
        kind if kind.is_list() => arg.action(ArgAction::Append).value_name(placeholder),
        _ => arg.value_name(placeholder),
    }
}

/// The parsed options of a command line. `own` contains the options after the command, such as
/// `serve`, and `root` the options before it.
pub(super) struct Matches<'a> {
    pub(super) own: &'a ArgMatches,
    pub(super) root: &'a ArgMatches,
}

impl Matches<'_> {
    /// Returns the parsed options that contain the option `name`. Options after the command have
    /// precedence over options before it.
    fn of(&self, name: &str) -> Option<&ArgMatches> {
        let is_given = |at: &&ArgMatches| at.value_source(name) == Some(ValueSource::CommandLine);
        [self.own, self.root].into_iter().find(is_given)
    }

    fn values(&self, name: &str) -> Option<Vec<OsString>> {
        self.of(name).map(|at| at.get_many::<OsString>(name).unwrap_or_default().cloned().collect())
    }
}

/// Reads the settings that the parsed command line gives.
///
/// # Errors
/// Fails if a setting does not accept its value.
pub(super) fn read(matches: &Matches<'_>) -> Result<Options, Failure> {
    let mut options = Options::default();
    // Values of `--limit` are added first, because an option of its own overrides `--limit`.
    for at in [matches.root, matches.own] {
        for text in at.get_many::<OsString>(LIMIT).unwrap_or_default() {
            options.limit(text)?;
        }
    }
    for row in table::all().filter(|row| row.has_option()) {
        if let Some(values) = matches.values(row.name) {
            options.add(row, &Source::CommandLine.show(row), values, row.is_on_by_default())?;
        }
    }
    Ok(options)
}

impl Options {
    fn add(
        &mut self,
        setting: &'static Setting,
        name: &str,
        values: Vec<OsString>,
        is_negative: bool,
    ) -> Result<(), Failure> {
        if values.iter().any(|value| value.is_empty()) {
            return usage_error(format!("{name} needs a value."));
        }
        let mut raw: Vec<Raw> = values.into_iter().map(Raw::from).collect();
        let raw = match (raw.len(), raw.pop()) {
            (2.., Some(last)) if setting.kind.is_list() => {
                raw.push(last);
                Raw::List(raw)
            }
            (_, Some(last)) => last,
            (_, None) => return usage_error(format!("{name} needs a value.")),
        };
        let value = setting.read(&raw).map_err(|invalid| Failure::CommandLine(invalid.at(name)))?;
        let value = match value.flag() {
            Some(is_on) if is_negative => rookery_settings::Value::Flag(!is_on),
            _ => value,
        };
        self.given.push(GivenValue { setting, value, source: Source::CommandLine, place: None });
        Ok(())
    }

    /// Sets the limit that one option `--limit name=value` gives.
    fn limit(&mut self, text: &OsString) -> Result<(), Failure> {
        let text = text.to_string_lossy();
        let Some((name, value)) =
            text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty())
        else {
            return usage_error(format!(
                "`--limit` needs a name and a value, such as header_timeout=10s, not `{text}`."
            ));
        };
        let Some(setting) = table::find_key(Section::Limits, name) else {
            return usage_error(format!("`{name}` is not a limit.{}", similar_limit(name)));
        };
        self.add(setting, &format!("`--limit {name}`"), vec![value.into()], false)
    }
}

/// Suggests a limit with a similar name for the error message about an unknown limit.
fn similar_limit(name: &str) -> String {
    let limits = table::all().filter(|row| row.section == Section::Limits);
    let near = similar_names(name, limits.map(|row| row.name)).into_iter().next();
    near.map(|near| format!(" Did you mean `{near}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rookery_settings::{Settings, Value};

    use super::*;
    use crate::command_line::tests::{assert_usage_error, options_of};

    fn settings(words: &[&str]) -> Settings {
        Settings::combine(options_of(words).given)
    }

    #[test]
    fn parses_options_with_the_rows_of_the_table() {
        let settings = settings(&[
            "--trusted-proxies",
            "::1, unix",
            "serve",
            "a",
            "--proxy-protocol",
            "--ws-compression=level=6",
            "--interrupt-requests=off",
            "--no-http2",
            "--max-body-size",
            "10MB",
            "--limit",
            "header_timeout=5",
            "-p",
            "1",
        ]);
        assert_eq!(settings.list("trusted_proxies"), ["::1", "unix"]);
        assert!(
            settings.flag("proxy_protocol")
                && !settings.flag("interrupt_requests")
                && !settings.flag("http2")
        );
        assert!(settings.is_given("interrupt_requests"));
        assert_eq!(
            settings.value("ws_compression").unwrap().field("level"),
            Some(&Value::Number(6.0))
        );
        assert_eq!(
            (settings.number("max_body_size"), settings.number("header_timeout")),
            (Some(1e7), Some(5.0))
        );
        assert_eq!(settings.number("port"), Some(1.0));
    }

    #[test]
    fn lists_are_separated_by_commas_or_repeated_options() {
        let domains =
            settings(&["serve", "a", "--domain", "a.org,b.org", "--domain=c.org"]).list("domain");
        assert_eq!(domains, ["a.org", "b.org", "c.org"]);
        let certificates =
            settings(&["serve", "a", "--tls-cert", "a,b", "--tls-cert=c"]).value("tls_cert");
        assert_eq!(certificates, Some(Value::Paths(vec!["a,b".into(), "c".into()])));
    }

    #[test]
    fn the_last_option_wins_and_options_after_the_command_win() {
        assert_eq!(settings(&["--port=1", "serve", "a"]).number("port"), Some(1.0));
        assert_eq!(
            settings(&["--port=1", "serve", "a", "--port=2", "-p3"]).number("port"),
            Some(3.0)
        );
        let limits = settings(&[
            "--limit=max_queued_requests=1",
            "serve",
            "a",
            "--limit=max_queued_requests=2",
            "--limit=max_connections_per_ip=3",
        ]);
        assert_eq!(
            (limits.number("max_queued_requests"), limits.number("max_connections_per_ip")),
            (Some(2.0), Some(3.0))
        );
    }

    #[test]
    fn every_option_accepts_its_default() {
        for row in table::all().filter(|row| row.has_option()) {
            let rookery_settings::Default::Is(text) = row.default else { continue };
            let text_of_option = if row.is_on_by_default() { "off" } else { text };
            let option = format!("--{}={text_of_option}", row.long_option());
            let settings = settings(&["serve", "a", &option]);
            assert_eq!(
                settings.given(row.name).map(|given| &given.value),
                row.read(&Raw::from(text)).ok().as_ref()
            );
        }
    }

    #[test]
    fn messages_about_wrong_values_name_the_option() {
        for (words, expected) in [
            (&["serve", "a", "--port="][..], "`--port` needs a value."),
            (&["serve", "a", "--log="], "`--log` needs a value."),
            (
                &["serve", "a", "--port", "+1"],
                "`--port` must be a whole number from 0 to 65535, not `+1`.",
            ),
            (
                &["serve", "a", "--port", "65536"],
                "`--port` must be a whole number from 0 to 65535, not `65536`.",
            ),
            (
                &["serve", "a", "--proxy-protocol=2"],
                "`--proxy-protocol` must be yes or no, not `2`.",
            ),
            (&["serve", "a", "--surge", "2"], "`--surge` must be 0 or 1, not `2`."),
            (
                &["serve", "a", "--workers", "1001"],
                "`--workers` must be auto, or a whole number from 1 to 1000, not `1001`.",
            ),
            (
                &["serve", "a", "--max-memory", "512"],
                "`--max-memory` must be 0, or a size such as 512KB or 10MB (without a unit: \
                 bytes), at least 32 MiB, or none, not `512`.",
            ),
            (
                &["serve", "a", "--drain", "0"],
                "`--drain` must be a time such as 500ms, 30s, 5m or 2h (without a unit: seconds), \
                 at least 1 ms, not `0`.",
            ),
            (
                &["serve", "a", "--limit", "max_body_size"],
                "`--limit` needs a name and a value, such as header_timeout=10s, not \
                 `max_body_size`.",
            ),
            (
                &["serve", "a", "--limit", "max_body_sise=1"],
                "`max_body_sise` is not a limit. Did you mean `max_body_size`?",
            ),
            (
                &["serve", "a", "--limit", "max_queued_requests=1.5"],
                "`--limit max_queued_requests` must be a whole number, or none, not `1.5`.",
            ),
        ] {
            assert_usage_error(words, expected);
        }
    }
}
