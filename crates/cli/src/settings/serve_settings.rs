//! The settings of `rookery serve` in the form that the program uses.

use std::io::IsTerminal as _;
use std::time::Duration;

use rookery_server::access_log::Format;
use rookery_settings::{Source, Value};
use rookery_status::AdminAddress;

use crate::failure::Failure;
use crate::listen::address::Address;
use crate::serve::access_log::LogTarget;
use crate::settings::admin_address;
use crate::settings::combined::{self, CombinedSettings};
use crate::settings::workers::Workers;

/// The settings of `rookery serve`. Paths may be relative to the folder in which the program was
/// started.
#[derive(Debug, Clone)]
pub(crate) struct ServeSettings {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) settings: CombinedSettings,
    pub(crate) workers: Workers,
    /// The additional address of the admin listener that the user gave, if any. Every server also
    /// has an admin socket in its own folder.
    pub(crate) admin: Option<AdminAddress>,
    /// Whether the app is being developed: open pages reload by themselves, and errors are shown in
    /// the page.
    pub(crate) is_dev: bool,
    /// Whether pages of other sites may show the app in a frame.
    pub(crate) is_embedded: bool,
    /// The time for which the server still accepts requests after a signal to stop. During this
    /// time it already reports that it is not ready.
    pub(crate) shutdown_delay: Duration,
    /// Whether the app is opened in a browser once the server is ready.
    pub(crate) opens_browser: bool,
    pub(crate) log: LogTarget,
    pub(crate) format: Format,
}

impl ServeSettings {
    /// Checks the combined settings for conflicts, and converts them to the values that the program
    /// uses.
    ///
    /// # Errors
    /// Fails with the first conflict.
    pub(crate) fn of(all: rookery_settings::Settings) -> Result<ServeSettings, Failure> {
        let is_dev = all.is_dev();
        all.check().map_err(|conflict| Failure::from_source(conflict.source, conflict.message))?;
        let host = match all.text("host") {
            Some(host) => host,
            // A server with a public name must be reachable on all interfaces.
            None if all.is_given("domain") => Address::all_interfaces().to_owned(),
            None => "127.0.0.1".to_owned(),
        };
        let workers = Workers::of(&all)?;
        let log = match all.value("log") {
            Some(Value::Path(path)) => LogTarget::File(path),
            Some(Value::Word("none")) => LogTarget::Nothing,
            _ => LogTarget::Stdout,
        };
        Ok(ServeSettings {
            host,
            #[expect(clippy::cast_sign_loss, reason = "a port is from 0 to 65535")]
            port: all.number("port").unwrap_or_default() as u16,
            admin: all.text("admin").map(|at| admin_address::parse(&at)).transpose()?,
            is_dev,
            is_embedded: all.flag("embed"),
            shutdown_delay: combined::time(&all, "shutdown_delay").unwrap_or_default(),
            opens_browser: all.flag("open"),
            format: match all.text("log_format").as_deref() {
                Some("combined") => Format::Combined,
                Some("json") => Format::Json,
                Some("terminal") => Format::Terminal { is_coloured: false },
                Some(_) => Format::Common,
                None => {
                    let is_at_terminal =
                        matches!(log, LogTarget::Stdout) && std::io::stdout().is_terminal();
                    if is_at_terminal {
                        Format::Terminal { is_coloured: false }
                    } else {
                        Format::Common
                    }
                }
            },
            log,
            workers,
            settings: CombinedSettings(all),
        })
    }

    /// Returns warnings about settings that have no effect, which the caller has to log. `is_site`
    /// says whether a static site is served.
    pub(crate) fn notes(&self, is_site: bool) -> Vec<String> {
        let all = &self.settings.0;
        let mut notes: Vec<String> = all.note_about_proxy_headers().into_iter().collect();
        let of = |name, source| all.given(name).is_some_and(|given| given.source == source);
        if self.host.starts_with(rookery_settings::UNIX)
            && of("host", Source::File)
            && of("port", Source::CommandLine)
        {
            notes.push(
                "`--port` has no effect: `host:` in `_server.yml` is a Unix socket. Add `--host \
                 127.0.0.1` to listen on the port"
                    .to_owned(),
            );
        }
        let needless = all.without_effect_on_site();
        let needless = needless.filter(|given| is_site && given.source == Source::Environment);
        notes.extend(needless.map(|given| {
            format!("{} has no effect: a static site has no R processes", given.name())
        }));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::tests::{assert_usage_error, served};
    use crate::settings::combined::Https;

    #[test]
    fn converts_address_and_log() {
        let serve =
            served(&["serve", "app/", "--port", "9000", "--host=0.0.0.0", "--log-format", "json"]);
        assert_eq!((serve.host.as_str(), serve.port), ("0.0.0.0", 9000));
        assert!(matches!((&serve.log, serve.format), (LogTarget::Stdout, Format::Json)));
        assert_eq!(serve.settings.https(), None);
        for (words, log) in [
            (&["--log", "-"][..], "Stdout"),
            (&[], "Stdout"),
            (&["--log", "none"], "Nothing"),
            (&["--log=none"], "Nothing"),
            (&["--log", "./none"], "File(\"./none\")"),
        ] {
            let served = served(&[&["serve", "a"], words].concat());
            assert_eq!(format!("{:?}", served.log), log, "{words:?}");
        }
        assert_eq!(
            served(&["serve", "a", "--tls", "dev"]).settings.https(),
            Some(Https::Development)
        );
    }

    #[test]
    fn a_server_with_a_domain_uses_the_default_ports() {
        let serve = |words: &[&str]| {
            let it = served(&[&["serve", "a", "--domain", "b.org"], words].concat());
            (it.host, it.port, it.settings.redirect_from())
        };
        let (host, port, redirect_from) = serve(&[]);
        assert!(host == "::" || host == "0.0.0.0", "{host}");
        assert_eq!((port, redirect_from), (443, Some(80)));
        let here = "127.0.0.1".to_owned();
        assert_eq!(serve(&["--host", "127.0.0.1"]), (here.clone(), 443, Some(80)));
        assert_eq!(serve(&["--host=127.0.0.1", "--port=8443"]), (here.clone(), 8443, None));
        assert_eq!(
            serve(&["--host=127.0.0.1", "--port=0", "--redirect-from=81"]),
            (here.clone(), 0, Some(81))
        );
        assert_eq!(serve(&["--host=127.0.0.1", "--redirect-from=none"]), (here, 443, None));
        assert_eq!(serve(&["--host=unix:/s"]).2, None);
    }

    #[test]
    fn reports_conflicts_between_options() {
        for (words, expected) in [
            (
                &["serve", "a", "--tls", "dev", "--tls-cert", "b"][..],
                "`--tls` and `--tls-cert` cannot be used together: leave one of them out.",
            ),
            (&["serve", "a", "--tls-key", "b"], "`--tls-key` needs `--tls-cert`."),
            (
                &["serve", "a", "--tls", "dev", "--tls-client-ca", "b"],
                "`--tls-client-ca` needs `--tls-cert` or `--domain`.",
            ),
            (&["serve", "a", "--agree-tos"], "`--agree-tos` needs `--domain`."),
            (
                &["serve", "a", "--domain=b.org", "--tls-cert=b"],
                "`--tls-cert` and `--domain` cannot be used together: leave one of them out.",
            ),
            (
                &["serve", "a", "--domain=b.org", "--tls=dev"],
                "`--tls` and `--domain` cannot be used together: leave one of them out.",
            ),
            (&["serve", "a", "--hsts", "60"], "`--hsts` needs `--tls-cert` or `--domain`."),
            (
                &["serve", "a", "--tls=dev", "--redirect-from=80"],
                "`--redirect-from` needs `--tls-cert` or `--domain`.",
            ),
            (
                &["serve", "a", "--interactive", "--workers", "2"],
                "`--interactive` needs a single worker, because a terminal has one prompt: leave \
                 out `--workers`.",
            ),
        ] {
            assert_usage_error(words, expected);
        }
    }
}
