//! The settings of `rookery serve` in the form that the program uses.

use std::io::IsTerminal as _;

use rookery_server::access_log::Format;
use rookery_settings::{Settings, Source, UNIX, Value};
use rookery_status::AdminAddress;

use crate::failure::Failure;
use crate::listen::address::Address;
use crate::serve::access_log::LogTarget;
use crate::user_paths::absolute;

/// The settings of `rookery serve`. Paths may be relative to the folder in which the program was
/// started.
#[derive(Debug, Clone)]
pub(crate) struct ServeSettings {
    /// The settings as combined from all sources. The other fields are made from them.
    pub(crate) all: Settings,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The number of workers (R processes).
    #[cfg_attr(
        any(not(target_os = "linux"), feature = "portable"),
        allow(dead_code, reason = "there the R process is the server")
    )]
    pub(crate) workers: u32,
    /// Whether the only worker shares the terminal with this program, so that R can show its prompt
    /// there.
    #[cfg_attr(
        any(not(target_os = "linux"), feature = "portable"),
        allow(dead_code, reason = "there the R process is the server")
    )]
    pub(crate) is_interactive: bool,
    /// Whether R shows all calls that led to an error at the start of the app, and not only the
    /// app's own.
    pub(crate) is_verbose: bool,
    /// The additional address of the admin listener that the user gave, if any. Every server also
    /// has an admin socket in its own folder.
    pub(crate) admin: Option<AdminAddress>,
    pub(crate) log: LogTarget,
    pub(crate) format: Format,
}

impl ServeSettings {
    /// Checks the combined settings for conflicts, and converts them to the values that the program
    /// uses. In development, R shows a prompt in the terminal of this program if there is a single
    /// worker.
    ///
    /// # Errors
    /// Fails with the first conflict, or if several workers would share a terminal.
    pub(crate) fn of(all: Settings) -> Result<ServeSettings, Failure> {
        all.check().map_err(|conflict| Failure::from_source(conflict.source, conflict.message))?;
        let host = match all.text("host") {
            Some(host) => host,
            // A server with a public name must be reachable on all interfaces.
            None if all.is_given("domain") => Address::all_interfaces().to_owned(),
            None => "127.0.0.1".to_owned(),
        };
        let workers = all.whole("workers").unwrap_or_else(processors);
        let is_prompting = all.is_dev()
            && workers == 1
            && std::io::stdin().is_terminal()
            && std::io::stderr().is_terminal();
        let is_interactive =
            if all.is_given("interactive") { all.flag("interactive") } else { is_prompting };
        if is_interactive && workers > 1 {
            return Err(Failure::CommandLine(
                "`--interactive` needs a single worker, because a terminal has one prompt: leave \
                 out `--workers`."
                    .to_owned(),
            ));
        }
        let log = match all.value("log") {
            Some(Value::Path(path)) => LogTarget::File(path),
            Some(Value::Word("none")) => LogTarget::Nothing,
            _ => LogTarget::Stdout,
        };
        let is_at_terminal = matches!(log, LogTarget::Stdout) && std::io::stdout().is_terminal();
        let admin = all.text("admin").and_then(|text| admin_address(&text));
        if cfg!(windows) && matches!(admin, Some(AdminAddress::Unix(_))) {
            return Err(Failure::CommandLine(
                "`--admin` must be an address with a port, such as 127.0.0.1:9100: Windows has no \
                 Unix sockets."
                    .to_owned(),
            ));
        }
        Ok(ServeSettings {
            host,
            port: all.whole("port").unwrap_or_default(),
            workers,
            is_interactive,
            is_verbose: false,
            admin,
            format: match all.text("log_format").as_deref() {
                Some("combined") => Format::Combined,
                Some("json") => Format::Json,
                Some("terminal") => Format::Terminal { is_coloured: false },
                None if is_at_terminal => Format::Terminal { is_coloured: false },
                _ => Format::Common,
            },
            log,
            all,
        })
    }

    /// Returns warnings about settings that have no effect, which the caller has to log. `is_site`
    /// says whether a static site is served.
    pub(crate) fn notes(&self, is_site: bool) -> Vec<String> {
        let all = &self.all;
        let mut notes: Vec<String> = all.note_about_proxy_headers().into_iter().collect();
        let of = |name, source| all.given(name).is_some_and(|given| given.source == source);
        if self.host.starts_with(UNIX)
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

/// Parses the address of the admin listener, which serves status and metrics. A relative path of a
/// Unix socket becomes absolute. Returns `None` if the text is not an address.
pub(crate) fn admin_address(text: &str) -> Option<AdminAddress> {
    Some(match AdminAddress::parse(text)? {
        AdminAddress::Unix(path) => AdminAddress::Unix(absolute(&path)),
        tcp @ AdminAddress::Tcp(_) => tcp,
    })
}

/// Returns the number of workers for `auto`: the number in `WEB_CONCURRENCY`, or else the number of
/// processors that the control group and the CPU affinity of this process allow.
fn processors() -> u32 {
    const MOST: u32 = 1000;
    let count = std::env::var("WEB_CONCURRENCY").ok().and_then(|text| text.parse().ok());
    match count {
        Some(count @ 1..=MOST) => count,
        _ => std::thread::available_parallelism()
            .map_or(1, |count| count.get().min(MOST as usize) as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::tests::{assert_usage_error, served};
    use crate::settings::server::Https;

    #[test]
    fn converts_address_and_log() {
        let serve =
            served(&["serve", "app/", "--port", "9000", "--host=0.0.0.0", "--log-format", "json"]);
        assert_eq!((serve.host.as_str(), serve.port), ("0.0.0.0", 9000));
        assert!(matches!((&serve.log, serve.format), (LogTarget::Stdout, Format::Json)));
        assert_eq!(Https::of(&serve.all), None);
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
            Https::of(&served(&["serve", "a", "--tls", "dev"]).all),
            Some(Https::Development)
        );
    }

    #[test]
    fn a_server_with_a_domain_uses_the_default_ports() {
        let serve = |words: &[&str]| {
            let it = served(&[&["serve", "a", "--domain", "b.org"], words].concat());
            (it.host, it.port, it.all.whole::<u16>("redirect_from"))
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

    #[test]
    fn a_single_worker_may_share_the_terminal() {
        let plain = served(&["serve", "a"]);
        assert_eq!((plain.workers, plain.is_interactive), (1, false));
        assert!(served(&["serve", "a", "--interactive"]).is_interactive);
        // The value depends on the machine.
        assert_eq!(served(&["serve", "a", "--workers=auto"]).workers, processors());
    }

    #[test]
    fn parses_admin_addresses_and_makes_socket_paths_absolute() {
        assert_eq!(admin_address("[::1]:9100"), AdminAddress::parse("[::1]:9100"));
        assert_eq!(admin_address("unix:/run/admin"), AdminAddress::parse("unix:/run/admin"));
        assert!(
            matches!(admin_address("unix:a"), Some(AdminAddress::Unix(path)) if path.is_absolute())
        );
        assert_eq!(admin_address("9100"), None);
    }
}
