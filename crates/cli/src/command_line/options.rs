//! The command-line options of `rookery serve`, which are generated from the table of settings, and
//! the arguments of the commands that take a target to serve or check.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use rookery_settings::{GivenValue, Group, Kind, Raw, Setting, Source, Value, table};

use crate::failure::Failure;

/// The arguments of `rookery serve` and of similar commands.
#[derive(Debug)]
pub(crate) struct ServeArgs {
    /// The path of what to serve.
    pub(crate) target: PathBuf,
    /// The values that the command line gives to settings, in the order of the table.
    pub(crate) given: Vec<GivenValue>,
    /// Whether the app is served for development, as the command `rookery dev` does.
    pub(crate) is_dev: bool,
    /// Whether all calls are shown that led to an error at the start of the app, and not only those
    /// of the app.
    pub(crate) is_verbose: bool,
}

impl ServeArgs {
    /// Reads the target and the settings that the parsed command line gives. `own` contains the
    /// arguments after the command `name`, such as `serve`, and `root` the options before it. An
    /// option after the command has precedence.
    ///
    /// # Errors
    /// Fails if a setting does not accept its value.
    pub(super) fn read(
        name: &str,
        own: &ArgMatches,
        root: &ArgMatches,
    ) -> Result<ServeArgs, Failure> {
        let mut given = Vec::new();
        for row in table::all().filter(|row| row.has_option()) {
            let is_given =
                |at: &&ArgMatches| at.value_source(row.name) == Some(ValueSource::CommandLine);
            if let Some(at) = [own, root].into_iter().find(is_given) {
                let values = at.get_many::<OsString>(row.name).unwrap_or_default();
                given.push(given_value(row, values.cloned().map(Raw::from).collect())?);
            }
        }
        let target = own.get_one::<PathBuf>("target").expect("clap asks for it").clone();
        // `rookery config` has no such option.
        let is_verbose = |at: &ArgMatches| matches!(at.try_get_one("verbose"), Ok(Some(true)));
        let is_verbose = is_verbose(own) || is_verbose(root);
        Ok(ServeArgs { target, given, is_dev: name == "dev", is_verbose })
    }
}

/// Reads the values that the options for a setting have. Of several values, the last one counts,
/// unless the setting is a list.
fn given_value(row: &'static Setting, mut values: Vec<Raw>) -> Result<GivenValue, Failure> {
    let raw = if row.kind.is_list() && values.len() > 1 {
        Raw::List(values)
    } else {
        values.pop().expect("clap asks for a value")
    };
    let mut given = GivenValue::parse(row, &raw, Source::CommandLine)
        .map_err(|invalid| Failure::CommandLine(invalid.at(&Source::CommandLine.show(row))))?;
    if let (Value::Flag(is_on), true) = (&mut given.value, row.is_on_by_default()) {
        *is_on = !*is_on;
    }
    Ok(given)
}

/// Returns all command-line options, in the order of the groups in the help text.
pub(super) fn options() -> impl Iterator<Item = Arg> {
    Group::ALL.into_iter().flat_map(|group| {
        let rows = table::all().filter(move |row| row.group == group && row.has_option());
        rows.map(move |row| option(row).help_heading(group.title()))
    })
}

fn option(row: &'static Setting) -> Arg {
    let arg = Arg::new(row.name)
        .long(row.long_option())
        .help(table::with_option_names(row.help))
        .long_help(long_help(row))
        .hide_short_help(!row.is_common)
        .value_parser(ValueOf(row))
        .hide_possible_values(true)
        .value_name(row.placeholder());
    let arg = if let Some(short) = row.short { arg.short(short) } else { arg };
    match row.kind {
        Kind::Flag => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("on")
            .value_name("on|off"),
        kind if kind.is_list() => arg.action(ArgAction::Append),
        _ => arg,
    }
}

/// Accepts any value of an option, since the table of settings has clearer messages, but tells the
/// completion scripts the choices.
#[derive(Clone)]
struct ValueOf(&'static Setting);

impl TypedValueParser for ValueOf {
    type Value = OsString;

    fn parse_ref(
        &self,
        _: &Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OsString, clap::Error> {
        Ok(value.to_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let Kind::Choice(choices) = self.0.kind else { return None };
        Some(Box::new(choices.iter().map(PossibleValue::new)))
    }
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
            "--header-timeout",
            "5",
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
            (
                &["serve", "a", "--port", "+1"][..],
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
                &["serve", "a", "--max-queued-requests=1.5"],
                "`--max-queued-requests` must be a whole number, or none, not `1.5`.",
            ),
        ] {
            assert_usage_error(words, expected);
        }
    }
}
