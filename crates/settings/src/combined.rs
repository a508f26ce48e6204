//! The combination of the settings that different sources give, such as the command line and
//! `_server.yml`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kind::{Raw, Value};
use crate::setting::{Default, Section, Setting};
use crate::table;
use crate::text_forms::UNIX;
use crate::value_parser::InvalidValue;

/// A source of a setting's value. The variants are in the order of precedence, beginning with the
/// highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A command-line option of the program `rookery`.
    CommandLine,
    /// An argument of an R function, such as `serve()`.
    Argument,
    /// An environment variable with the prefix `ROOKERY_`.
    Environment,
    /// The configuration file `_server.yml`.
    File,
    /// An option of R, set with `options()`.
    Option,
    /// An environment variable that hosting services set, such as `PORT`.
    Platform,
    /// The default of the setting, because no other source gives a value.
    Default,
}

impl Source {
    /// Returns the name of the source, as the command `rookery config` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Source::CommandLine => "command line",
            Source::Argument => "argument",
            Source::Environment | Source::Platform => "environment",
            Source::File => "_server.yml",
            Source::Option => "option",
            Source::Default => "default",
        }
    }

    /// Returns the name of the setting in the spelling of this source, in backticks, such as
    /// `--port` for the command line.
    pub fn show(self, setting: &Setting) -> String {
        match self {
            Source::CommandLine => format!("`--{}`", setting.long_option()),
            Source::Environment => format!("`{}`", setting.variable()),
            Source::File => format!("`{}:`", setting.path()),
            Source::Option => format!("`rookery.{}`", setting.name),
            Source::Argument => format!("`{}`", setting.key()),
            Source::Platform | Source::Default => format!("`{}`", setting.name),
        }
    }
}

/// A value of a setting, and the source that gives the value.
#[derive(Debug, Clone)]
pub struct GivenValue {
    /// The setting to which the value belongs.
    pub setting: &'static Setting,
    /// The value of the setting.
    pub value: Value,
    /// The source that gives the value, such as the command line.
    pub source: Source,
    /// The position at which the source gives the value, such as a file and a line, for messages.
    pub place: Option<String>,
}

impl GivenValue {
    /// Parses the value that a source gives to a setting.
    ///
    /// # Errors
    /// Fails if the setting does not accept the value.
    pub fn parse(
        setting: &'static Setting,
        raw: &Raw,
        source: Source,
    ) -> Result<GivenValue, InvalidValue> {
        Ok(GivenValue { setting, value: setting.read(raw)?, source, place: None })
    }

    /// Returns the name of the setting in the spelling of the value's source, such as `--port`, in
    /// backticks.
    pub fn name(&self) -> String {
        self.source.show(self.setting)
    }

    /// Returns `message` with the position of the value, such as a file and a line, before it.
    pub(crate) fn message(&self, message: &str) -> String {
        match &self.place {
            Some(place) => format!("In {place}: {message}"),
            None => message.to_owned(),
        }
    }
}

/// The combined settings. For each setting, the value of the source with the highest precedence is
/// used.
#[derive(Debug, Clone, std::default::Default)]
pub struct Settings {
    given: BTreeMap<&'static str, GivenValue>,
    /// Whether the app is served for development (`rookery dev`).
    is_dev: bool,
}

impl Settings {
    /// Combines the values that several sources, such as the command line and a file, give to the
    /// settings. If a source gives several values to a setting, the last one is used.
    ///
    /// If several sources name certificates, those of the source with the highest precedence are
    /// used, and the HTTPS settings of the other sources with certificates are ignored.
    pub fn combine(given: impl IntoIterator<Item = GivenValue>) -> Settings {
        let mut all: Vec<GivenValue> = given.into_iter().collect();
        let is_certificate =
            |given: &GivenValue| matches!(given.setting.name, "tls" | "tls_cert" | "domain");
        let named: Vec<Source> =
            all.iter().filter(|given| is_certificate(given)).map(|given| given.source).collect();
        let strongest = named.iter().min().copied();
        let is_of_other_certificates = |given: &GivenValue| {
            let is_https = given.setting.name == "tls"
                || matches!(given.setting.section, Section::Tls | Section::Acme);
            is_https
                && named.contains(&given.source)
                && strongest.is_some_and(|strongest| given.source > strongest)
        };
        let mut settings = Settings::default();
        all.sort_by_key(|given| given.source);
        for given in all {
            match settings.given.get(given.setting.name) {
                _ if is_of_other_certificates(&given) => {}
                Some(stronger) if stronger.source < given.source => {}
                _ => {
                    settings.given.insert(given.setting.name, given);
                }
            }
        }
        settings
    }

    /// Returns true if the app is served for development, as `rookery dev` does.
    pub fn is_dev(&self) -> bool {
        self.is_dev
    }

    /// Returns these settings with the defaults of development (`rookery dev`), which the column
    /// [`Setting::dev_default`] of the table contains.
    #[must_use]
    pub fn with_dev_defaults(mut self) -> Settings {
        self.is_dev = true;
        for setting in table::all() {
            let Some(text) = setting.dev_default else { continue };
            let Ok(value) = setting.read(&Raw::from(text)) else { continue };
            let given = GivenValue { setting, value, source: Source::Default, place: None };
            self.given.entry(setting.name).or_insert(given);
        }
        self
    }

    /// Returns the given values without effect on a static site, which has no R process. Options of
    /// an R session and variables of hosting services are for all apps, and are left out.
    pub fn without_effect_on_site(&self) -> impl Iterator<Item = &GivenValue> {
        self.all().filter(|given| {
            given.setting.needs_r
                && given.source <= Source::File
                && given.value != Value::Flag(false)
        })
    }

    /// Returns these settings, except that each setting that `is_kept` accepts keeps its value from
    /// `running`, the settings before the reload. Also returns a list of the kept settings whose
    /// new value would have been different.
    #[must_use]
    pub fn with_values_kept(
        mut self,
        running: &Settings,
        is_kept: impl Fn(&Setting) -> bool,
    ) -> (Settings, Vec<&'static Setting>) {
        let kept = table::all().filter(|row| is_kept(row));
        // A default that follows from another setting is not a change that somebody has made.
        let is_given = |row: &&Setting| self.is_given(row.name) || running.is_given(row.name);
        let has_changed = |row: &&Setting| self.value(row.name) != running.value(row.name);
        let differ = kept.clone().filter(|row| is_given(row) && has_changed(row)).collect();
        for row in kept {
            match running.given.get(row.name) {
                Some(given) => self.given.insert(row.name, given.clone()),
                None => self.given.remove(row.name),
            };
        }
        (self, differ)
    }

    /// Returns the value that a source gives for a setting, or `None` if no source gives one.
    pub fn given(&self, name: &str) -> Option<&GivenValue> {
        self.given.get(name)
    }

    /// Returns true if any source gives a value for the setting.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Returns all values that sources give, in the order of the settings' names.
    pub fn all(&self) -> impl Iterator<Item = &GivenValue> {
        self.given.values()
    }

    /// Returns the value that a source gives for a setting, or else its default. Returns `None` if
    /// there is no default, or if the server determines the default only when it starts.
    pub fn value(&self, name: &str) -> Option<Value> {
        if let Some(given) = self.given.get(name) {
            return Some(given.value.clone());
        }
        let setting = table::row(name);
        match setting.default {
            Default::Derived(_) => self.derived_default(name),
            _ => setting.read(&Raw::from(setting.default_text()?)).ok(),
        }
    }

    /// Returns the default of a setting if it depends only on other settings. Returns `None` if the
    /// server or R determines the default when it starts.
    fn derived_default(&self, name: &str) -> Option<Value> {
        Some(match name {
            "port" => Value::Number(if self.is_given("domain") { 443.0 } else { 8000.0 }),
            // Port 80 for a server with a certificate for a public name on the default port.
            "redirect_from" => {
                let is_usual =
                    self.is_given("domain") && !self.is_given("port") && !self.is_on_unix_socket();
                if is_usual { Value::Number(80.0) } else { Value::Word("none") }
            }
            // No retries for an app under development, whose mistake should be reported at once.
            "start_retries" => Value::Number(if self.flag("reload") { 0.0 } else { 3.0 }),
            // A short time for an app under development, whose new version should be served at
            // once.
            "drain" => Value::Number(if self.flag("reload") { 1.0 } else { 60.0 }),
            "drain_sessions" => return self.value("drain"),
            // No other worker could take the requests that wait for a single one.
            "queue_timeout" => Value::Number(if self.has_one_worker() { 60.0 } else { 10.0 }),
            "max_in_flight" if self.has_one_worker() => return None,
            "max_in_flight" => Value::Number(64.0),
            _ => return None,
        })
    }

    /// Returns true if there is one worker.
    fn has_one_worker(&self) -> bool {
        self.number("workers") == Some(1.0)
    }

    /// Returns true if the server listens on a Unix socket.
    pub(crate) fn is_on_unix_socket(&self) -> bool {
        self.text("host").is_some_and(|host| host.starts_with(UNIX))
    }

    /// Returns true if the setting, which is a flag, is on.
    pub fn flag(&self, name: &str) -> bool {
        self.value(name).and_then(|value| value.flag()).unwrap_or(false)
    }

    /// Returns the value of a setting that is a number. Infinity means no limit.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.value(name)?.number()
    }

    /// Returns the value of a setting that is a whole number. Returns `None` if there is no value,
    /// or if the number is too large for the type.
    #[expect(clippy::cast_sign_loss, reason = "no setting is negative")]
    pub fn whole<T: TryFrom<u64>>(&self, name: &str) -> Option<T> {
        T::try_from(self.number(name)? as u64).ok()
    }

    /// Returns the value of a setting that is a time. Returns `None` if the time is unlimited or
    /// not set.
    pub fn time(&self, name: &str) -> Option<Duration> {
        Duration::try_from_secs_f64(self.number(name)?).ok()
    }

    /// Returns the value of a setting that is a text.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.value(name)? {
            Value::Text(text) => Some(text),
            Value::Word(word) => Some(word.to_owned()),
            _ => None,
        }
    }

    /// Returns the values of a setting that is a list. The list is empty by default.
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Some(Value::List(list)) => list,
            _ => Vec::new(),
        }
    }

    /// Returns a warning about a PROXY protocol header that any client may send.
    pub fn note_about_proxy_headers(&self) -> Option<String> {
        let given = self.given.get("proxy_protocol").filter(|_| self.flag("proxy_protocol"))?;
        // The permissions of its file decide who can connect to a Unix socket.
        if !self.list("proxy_protocol_from").is_empty() || self.is_on_unix_socket() {
            return None;
        }
        Some(format!(
            "{} without {from} lets any client claim any address. List the load balancers that may \
             send a PROXY header in {from}.",
            given.name(),
            from = given.source.show(table::row("proxy_protocol_from")),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(source: Source, name: &str, text: &str) -> GivenValue {
        GivenValue::parse(table::row(name), &Raw::from(text), source).unwrap()
    }

    #[test]
    fn uses_the_source_with_highest_precedence_and_its_last_value() {
        use Source::{Argument, CommandLine, Environment, File, Option, Platform};
        let order = [Platform, Option, File, Environment, Argument, CommandLine];
        let mut all = Vec::new();
        for (at, source) in (0_u32..).zip(order) {
            all.push(given(source, "port", &at.to_string()));
            for sources in [all.clone(), all.iter().rev().cloned().collect()] {
                assert_eq!(Settings::combine(sources).number("port"), Some(f64::from(at)));
            }
        }
        let twice = [given(CommandLine, "port", "1"), given(CommandLine, "port", "2")];
        assert_eq!(Settings::combine(twice).number("port"), Some(2.0));
        assert_eq!(Settings::combine([]).number("port"), Some(8000.0));
    }

    #[test]
    fn a_proxy_header_that_any_client_may_send_is_noted() {
        let notes = |names: &[(&str, &str)]| {
            let all = names.iter().map(|(name, text)| given(Source::CommandLine, name, text));
            Settings::combine(all).note_about_proxy_headers()
        };
        assert_eq!(
            notes(&[("proxy_protocol", "on")]).unwrap(),
            "`--proxy-protocol` without `--proxy-protocol-from` lets any client claim any address. \
             List the load balancers that may send a PROXY header in `--proxy-protocol-from`."
        );
        for fine in [
            &[("proxy_protocol", "off")][..],
            &[("proxy_protocol", "on"), ("proxy_protocol_from", "::1")],
            &[("proxy_protocol", "on"), ("host", "unix:/s")],
        ] {
            assert!(notes(fine).is_none(), "{fine:?}");
        }
    }

    #[test]
    fn lists_replace_and_limits_merge() {
        let settings = Settings::combine([
            given(Source::File, "trusted_proxies", "10.0.0.1,10.0.0.2"),
            given(Source::CommandLine, "trusted_proxies", "unix"),
            given(Source::File, "max_body_size", "1MB"),
            given(Source::CommandLine, "idle_timeout", "5"),
        ]);
        assert_eq!(settings.list("trusted_proxies"), ["unix"]);
        assert_eq!(
            (settings.number("max_body_size"), settings.number("idle_timeout")),
            (Some(1e6), Some(5.0))
        );
    }

    #[test]
    fn certificates_of_a_source_with_precedence_replace_all_https_settings() {
        let settings = Settings::combine([
            given(Source::File, "tls_cert", "file.pem"),
            given(Source::File, "hsts", "300"),
            given(Source::File, "port", "1"),
            given(Source::CommandLine, "tls_cert", "own.pem"),
        ]);
        assert_eq!(settings.value("tls_cert"), Some(Value::Paths(vec!["own.pem".into()])));
        assert!(!settings.is_given("hsts") && settings.is_given("port"));
        // The settings of a source without certificates are added to those of the others.
        let settings = Settings::combine([
            given(Source::File, "acme_dir", "/kept"),
            given(Source::CommandLine, "domain", "a.org"),
        ]);
        assert!(settings.is_given("acme_dir"));
        let settings = Settings::combine([
            given(Source::File, "tls_cert", "file.pem"),
            given(Source::CommandLine, "hsts", "300"),
        ]);
        assert!(settings.is_given("tls_cert") && settings.is_given("hsts"));
    }

    #[test]
    fn values_that_need_a_restart_are_kept_and_named() {
        let of = |port, drain, limit| {
            Settings::combine([
                given(Source::CommandLine, "host", "127.0.0.1"),
                given(Source::File, "port", port),
                given(Source::File, "drain", drain),
                given(Source::File, "max_body_size", limit),
            ])
        };
        let running = of("9000", "5s", "1MB");
        let is_kept = |row: &Setting| row.applies == crate::Applies::AtRestart;
        let (settings, differ) = of("9001", "6s", "2MB").with_values_kept(&running, is_kept);
        assert_eq!(differ.iter().map(|row| row.name).collect::<Vec<_>>(), ["port"]);
        assert_eq!((settings.number("port"), settings.number("drain")), (Some(9000.0), Some(6.0)));
        // A row is also kept if one of the two gives no value.
        let without = Settings::combine([given(Source::CommandLine, "host", "127.0.0.1")]);
        let (settings, differ) = without.clone().with_values_kept(&running, is_kept);
        assert_eq!((settings.number("port"), differ.len()), (Some(9000.0), 1));
        let (settings, differ) = of("8000", "5s", "1MB").with_values_kept(&without, is_kept);
        assert!(!settings.is_given("port") && differ.is_empty());
    }

    #[test]
    fn defaults_depend_on_other_settings() {
        let with = |given: &[(&str, &str)]| {
            Settings::combine(
                given.iter().map(|(name, text)| self::given(Source::CommandLine, name, text)),
            )
        };
        let with_domain = with(&[("domain", "a.org")]);
        assert_eq!(
            (with_domain.number("port"), with_domain.number("redirect_from")),
            (Some(443.0), Some(80.0))
        );
        let elsewhere = with(&[("domain", "a.org"), ("port", "444")]);
        assert_eq!(elsewhere.value("redirect_from"), Some(Value::Word("none")));
        assert_eq!(with(&[]).value("redirect_from"), Some(Value::Word("none")));
        let reload = with(&[("reload", "on")]);
        assert_eq!(
            (reload.number("start_retries"), reload.number("drain")),
            (Some(0.0), Some(1.0))
        );
        assert_eq!(reload.number("drain_sessions"), Some(1.0));
        assert_eq!(with(&[("drain", "5s")]).number("drain_sessions"), Some(5.0));
        assert_eq!(
            (with(&[]).number("start_retries"), with(&[]).number("drain")),
            (Some(3.0), Some(60.0))
        );
        assert_eq!(with(&[]).value("max_client_memory"), None);
    }
}
