//! Computes the defaults that depend on other settings.
#![expect(clippy::unnecessary_wraps, reason = "a row holds any of these functions")]

use crate::combined::Settings;
use crate::kind::Value;
use crate::text_forms::UNIX;

/// Returns `None`. This is the default function of settings whose default is determined only when
/// the server or R starts.
pub(crate) fn found_at_start(_: &Settings) -> Option<Value> {
    None
}

pub(crate) fn port(settings: &Settings) -> Option<Value> {
    Some(Value::Number(if settings.is_given("domain") { 443.0 } else { 8000.0 }))
}

/// Returns the default of `redirect_from`. It is port 80 if the server has a certificate for a
/// public host name and uses the default port, otherwise `None`.
pub(crate) fn redirect_from(settings: &Settings) -> Option<Value> {
    let is_socket = settings.text("host").is_some_and(|host| host.starts_with(UNIX));
    let is_usual = settings.is_given("domain") && !settings.is_given("port") && !is_socket;
    Some(if is_usual { Value::Number(80.0) } else { Value::Word("none") })
}

/// Returns the default of `start_retries`. It is 0 with `reload`, because a mistake in an app under
/// development should be reported at once.
pub(crate) fn start_retries(settings: &Settings) -> Option<Value> {
    Some(Value::Number(if settings.flag("reload") { 0.0 } else { 3.0 }))
}

/// Returns the default of `drain`. It is short with `reload`, because a new version of an app under
/// development should be served at once.
pub(crate) fn drain(settings: &Settings) -> Option<Value> {
    Some(Value::Number(if settings.flag("reload") { 1.0 } else { 60.0 }))
}

pub(crate) fn drain_sessions(settings: &Settings) -> Option<Value> {
    settings.value("drain")
}

#[cfg(test)]
mod tests {
    use crate::combined::{GivenValue, Settings, Source};
    use crate::kind::{Raw, Value};
    use crate::table;

    fn settings(given: &[(&str, &str)]) -> Settings {
        Settings::combine(given.iter().map(|(name, text)| {
            GivenValue::parse(table::row(name), &Raw::from(*text), Source::CommandLine).unwrap()
        }))
    }

    #[test]
    fn defaults_depend_on_other_settings() {
        let with_domain = settings(&[("domain", "a.org")]);
        assert_eq!(
            (with_domain.number("port"), with_domain.number("redirect_from")),
            (Some(443.0), Some(80.0))
        );
        let elsewhere = settings(&[("domain", "a.org"), ("port", "444")]);
        assert_eq!(elsewhere.value("redirect_from"), Some(Value::Word("none")));
        assert_eq!(settings(&[]).value("redirect_from"), Some(Value::Word("none")));
        let reload = settings(&[("reload", "on")]);
        assert_eq!(
            (reload.number("start_retries"), reload.number("drain")),
            (Some(0.0), Some(1.0))
        );
        assert_eq!(reload.number("drain_sessions"), Some(1.0));
        assert_eq!(settings(&[("drain", "5s")]).number("drain_sessions"), Some(5.0));
        assert_eq!(
            (settings(&[]).number("start_retries"), settings(&[]).number("drain")),
            (Some(3.0), Some(60.0))
        );
        assert_eq!(settings(&[]).value("max_client_memory"), None);
    }
}
