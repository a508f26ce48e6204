//! Checks that compare the values of several settings. Simpler conflicts are described by the
//! fields `needs` and `excludes` of a setting.

use crate::combined::{GivenValue, Settings, Source};
use crate::kind::Value;
use crate::table;

/// A conflict between the values of several settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The source of the value that conflicts with other settings.
    pub source: Source,
    /// A sentence that describes the conflict to the user.
    pub message: String,
}

impl Settings {
    /// Checks whether the values of different settings conflict.
    ///
    /// # Errors
    /// Fails with the first conflict.
    pub fn check(&self) -> Result<(), Conflict> {
        for given in self.all() {
            let conflict = |message: String| Conflict {
                source: given.source,
                message: given.message(&message),
            };
            let show = |name: &&str| given.source.show(table::row(name));
            let needs = given.setting.needs;
            if !needs.is_empty() && !needs.iter().any(|name| self.is_given(name)) {
                let needed: Vec<String> = needs.iter().map(show).collect();
                return Err(conflict(format!("{} needs {}.", given.name(), needed.join(" or "))));
            }
            let is_on = given.value != Value::Flag(false);
            let mut others = given.setting.excludes.iter().filter_map(|name| self.given(name));
            if let Some(other) = others.find(|other| is_on && other.value != Value::Flag(false)) {
                let message = format!(
                    "{} and {} cannot be used together: leave one of them out.",
                    given.name(),
                    other.name()
                );
                return Err(conflict(message));
            }
            let rule = match given.setting.name {
                "tls_key" => one_key_for_each_certificate(self, given),
                "domain" => clients_need_another_port(self, given),
                "redirect_from" => redirects_need_a_port(self, given),
                "trusted_proxies" => proxies_need_senders(self, given),
                "dev_hosts" | "dev_anywhere" => only_during_development(self, given),
                _ => Ok(()),
            };
            rule.map_err(conflict)?;
        }
        Ok(())
    }
}

fn one_key_for_each_certificate(settings: &Settings, keys: &GivenValue) -> Result<(), String> {
    let certificates = settings.value("tls_cert");
    let count = |value: Option<&Value>| value.and_then(Value::paths).map_or(0, <[_]>::len);
    let (certificates, given) = (count(certificates.as_ref()), count(Some(&keys.value)));
    if certificates == given {
        return Ok(());
    }
    let certificate = keys.source.show(table::row("tls_cert"));
    Err(format!(
        "{} must be given once for each {certificate}: {certificates} times, not {given}.",
        keys.name()
    ))
}

fn clients_need_another_port(settings: &Settings, domain: &GivenValue) -> Result<(), String> {
    let is_required = settings.text("tls_client_auth").is_some_and(|how| how == "required");
    let redirects = settings.value("redirect_from").is_some_and(|port| !port.is_word("none"));
    if !settings.is_given("tls_client_ca") || !is_required || redirects {
        return Ok(());
    }
    let port = domain.source.show(table::row("redirect_from"));
    Err(format!(
        "{} needs {port}, usually port 80, if clients need a certificate, because the authority \
         has none.",
        domain.name()
    ))
}

fn redirects_need_a_port(settings: &Settings, redirect: &GivenValue) -> Result<(), String> {
    if !settings.is_on_unix_socket() || redirect.value.is_word("none") {
        return Ok(());
    }
    Err(format!(
        "{} cannot be used with a Unix socket: leave it out, or use a port.",
        redirect.name()
    ))
}

/// Any client that may send a PROXY header can claim the address of a trusted proxy.
fn proxies_need_senders(settings: &Settings, proxies: &GivenValue) -> Result<(), String> {
    let is_any = |name| settings.list(name).is_empty();
    if !settings.flag("proxy_protocol")
        || is_any("trusted_proxies")
        || !is_any("proxy_protocol_from")
    {
        return Ok(());
    }
    Err(format!(
        "{} and {} need {}, the load balancers that may send a PROXY header: otherwise any client \
         can claim the address of a trusted proxy.",
        proxies.source.show(table::row("proxy_protocol")),
        proxies.name(),
        proxies.source.show(table::row("proxy_protocol_from")),
    ))
}

fn only_during_development(settings: &Settings, given: &GivenValue) -> Result<(), String> {
    if settings.is_dev() || given.value == Value::Flag(false) {
        return Ok(());
    }
    Err(format!(
        "{} has a meaning only for an app under development: leave it out, or serve the app with \
         `rookery dev`.",
        given.name()
    ))
}

#[cfg(test)]
mod tests {
    use crate::combined::{GivenValue, Settings, Source};
    use crate::kind::Raw;
    use crate::table;

    fn conflict<'a>(given: impl Iterator<Item = (Source, &'a str, &'a str)>) -> String {
        let given = given.map(|(source, name, text)| {
            let setting = table::row(name);
            let raw = if setting.kind.is_list() && text.contains(' ') {
                Raw::List(text.split(' ').map(Raw::from).collect())
            } else {
                Raw::from(text)
            };
            GivenValue::parse(setting, &raw, source).unwrap()
        });
        Settings::combine(given)
            .check()
            .map_or_else(|conflict| conflict.message, |()| "fine".to_owned())
    }

    #[test]
    fn checks_settings_against_each_other() {
        for (given, message) in [
            (
                &[("tls_cert", "a b"), ("tls_key", "k")][..],
                "`--tls-key` must be given once for each `--tls-cert`: 2 times, not 1.",
            ),
            (&[("tls_cert", "a b"), ("tls_key", "k l")], "fine"),
            (
                &[("domain", "a.org"), ("port", "444"), ("tls_client_ca", "c")],
                "`--domain` needs `--redirect-from`, usually port 80, if clients need a \
                 certificate, because the authority has none.",
            ),
            (&[("domain", "a.org"), ("tls_client_ca", "c")], "fine"),
            (
                &[
                    ("domain", "a.org"),
                    ("port", "444"),
                    ("tls_client_ca", "c"),
                    ("tls_client_auth", "optional"),
                ],
                "fine",
            ),
            (
                &[("tls_cert", "c"), ("host", "unix:/s"), ("redirect_from", "80")],
                "`--redirect-from` cannot be used with a Unix socket: leave it out, or use a port.",
            ),
            (&[("tls_cert", "c"), ("host", "unix:/s"), ("redirect_from", "none")], "fine"),
            (
                &[("proxy_protocol", "on"), ("trusted_proxies", "unix")],
                "`--proxy-protocol` and `--trusted-proxies` need `--proxy-protocol-from`, the load \
                 balancers that may send a PROXY header: otherwise any client can claim the \
                 address of a trusted proxy.",
            ),
            (
                &[
                    ("proxy_protocol", "on"),
                    ("trusted_proxies", "unix"),
                    ("proxy_protocol_from", "::1"),
                ],
                "fine",
            ),
            (&[("proxy_protocol", "off"), ("trusted_proxies", "unix")], "fine"),
            (
                &[("proxy_protocol_from", "::1")],
                "`--proxy-protocol-from` needs `--proxy-protocol`.",
            ),
            (
                &[("dev_hosts", "a.org")],
                "`--dev-hosts` has a meaning only for an app under development: leave it out, or \
                 serve the app with `rookery dev`.",
            ),
            (&[("dev_anywhere", "off")], "fine"),
        ] {
            let all = given.iter().map(|(name, text)| (Source::CommandLine, *name, *text));
            assert_eq!(conflict(all), message, "{given:?}");
        }
    }

    #[test]
    fn messages_about_conflicts_use_the_spelling_of_the_source() {
        use Source::{CommandLine, Environment, File};
        for (settings, message) in [
            (&[(CommandLine, "hsts", "300")][..], "`--hsts` needs `--tls-cert` or `--domain`."),
            (&[(File, "hsts", "300")], "`tls.hsts:` needs `tls.cert:` or `tls.acme.domain:`."),
            (&[(Environment, "tls_key", "k")], "`ROOKERY_TLS_KEY` needs `ROOKERY_TLS_CERT`."),
            (&[(CommandLine, "http2", "off")], "`--no-http2` needs `--tls-cert` or `--domain`."),
            (
                &[(CommandLine, "tls", "dev"), (CommandLine, "tls_cert", "c")],
                "`--tls` and `--tls-cert` cannot be used together: leave one of them out.",
            ),
            (
                &[(CommandLine, "domain", "a.org"), (CommandLine, "tls_cert", "c")],
                "`--tls-cert` and `--domain` cannot be used together: leave one of them out.",
            ),
            (
                &[(CommandLine, "tls_cert", "c"), (CommandLine, "tls_client_auth", "optional")],
                "`--tls-client-auth` needs `--tls-client-ca`.",
            ),
            (&[(CommandLine, "tls_cert", "c"), (CommandLine, "hsts", "300")], "fine"),
            (&[(CommandLine, "email", "a@b")], "`--email` needs `--domain`."),
        ] {
            assert_eq!(conflict(settings.iter().copied()), message, "{settings:?}");
        }
    }
}
