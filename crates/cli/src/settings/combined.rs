//! The settings as combined from all sources (command line, environment, `_server.yml`), and
//! functions that convert them into the values that the server uses.

use std::path::PathBuf;
use std::time::Duration;

use rookery_server::{Config, TrustedProxies};
use rookery_settings::Section;

use crate::failure::Failure;
use crate::process::TRIM;
use crate::user_paths::{absolute, is_executable, is_writable};

/// The origin of the server's HTTPS certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Https {
    /// The self-signed development certificate for this machine.
    Development,
    Files,
    Authority,
}

pub(crate) fn path(all: &rookery_settings::Settings, name: &str) -> Option<PathBuf> {
    all.value(name)?.path().map(absolute)
}

/// Returns the value of a setting that is a time. Returns `None` if the time is unlimited or not
/// set.
pub(crate) fn time(all: &rookery_settings::Settings, name: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(all.number(name)?).ok()
}

/// The settings of the server, combined from all sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct CombinedSettings(pub(crate) rookery_settings::Settings);

/// The settings of a server that runs in this process instead of an R process.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    pub(crate) config: Config,
    pub(crate) proxies: TrustedProxies,
    pub(crate) proxy_protocol: Option<TrustedProxies>,
    pub(crate) spool_folder: PathBuf,
}

impl CombinedSettings {
    /// Checks the lists of proxies and the folder for large request bodies before R is started.
    ///
    /// # Errors
    /// Fails if one of them cannot be used.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.proxies("trusted_proxies")?;
        self.proxies("proxy_protocol_from")?;
        let folder = self.spool_folder();
        let Some(given) = self.0.given("spool_dir") else { return Ok(()) };
        if !(folder.is_dir() && is_writable(&folder) && is_executable(&folder)) {
            return Err(Failure::Unavailable(format!(
                "{} names `{}`, which is not a folder that this user can write to: create it, or \
                 choose another folder.",
                given.name(),
                folder.display()
            )));
        }
        Ok(())
    }

    /// Returns the proxies that the setting with this name lists.
    fn proxies(&self, setting: &str) -> Result<TrustedProxies, Failure> {
        let proxies = self.0.list(setting);
        TrustedProxies::parse(proxies.iter().map(String::as_str))
            .map_err(|error| Failure::Unavailable(format!("`{setting}`: {error}.")))
    }

    /// Returns the settings for a server that runs in this process instead of an R process.
    ///
    /// # Errors
    /// Fails if a list of proxies is not valid.
    pub(crate) fn server_settings(&self) -> Result<ServerSettings, Failure> {
        Ok(ServerSettings {
            config: self.config(),
            proxies: self.proxies("trusted_proxies")?,
            proxy_protocol: if self.0.flag("proxy_protocol") {
                Some(self.proxies("proxy_protocol_from")?)
            } else {
                None
            },
            spool_folder: self.spool_folder(),
        })
    }

    /// Returns the limits of the server. Limits that are not given have the server's defaults.
    fn config(&self) -> Config {
        let mut config = Config { trim: TRIM, ..Config::default() };
        for given in self.0.all().filter(|given| given.setting.section == Section::Limits) {
            if let Some(number) = given.value.number() {
                config.set_limit(given.setting.name, number);
            }
        }
        config
    }

    /// Returns the folder for temporary files with large request bodies.
    fn spool_folder(&self) -> PathBuf {
        path(&self.0, "spool_dir").unwrap_or_else(std::env::temp_dir)
    }

    /// Returns the origin of the HTTPS certificates, or `None` if the server does not use HTTPS.
    pub(crate) fn https(&self) -> Option<Https> {
        [("tls", Https::Development), ("domain", Https::Authority), ("tls_cert", Https::Files)]
            .into_iter()
            .find_map(|(name, https)| self.0.is_given(name).then_some(https))
    }

    /// Returns the port from which plaintext HTTP requests are redirected to HTTPS, if there is
    /// one.
    #[expect(clippy::cast_sign_loss, reason = "a port is from 1 to 65535")]
    pub(crate) fn redirect_from(&self) -> Option<u16> {
        self.0.number("redirect_from").map(|port| port as u16)
    }

    /// Returns true if each response contains the id of its request as a header.
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    pub(crate) fn sends_request_id(&self) -> bool {
        self.0.given("request_id_header").and_then(|given| given.value.flag()).unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use rookery_settings::{Default as InTable, Raw, Source, table};

    use super::*;
    use crate::settings::settings_from;

    #[test]
    fn the_table_has_the_limits_of_the_server_with_their_defaults() {
        for row in table::all().filter(|row| row.section == Section::Limits) {
            let mut config = Config::default();
            let InTable::Is(text) = row.default else { continue };
            let default = row.read(&Raw::from(text)).unwrap().number().unwrap();
            assert!(config.set_limit(row.name, default), "{}", row.name);
            assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()), "{}", row.name);
            assert!(config.set_limit(row.name, 12_345.0), "{}", row.name);
            assert_ne!(format!("{config:?}"), format!("{:?}", Config::default()), "{}", row.name);
        }
        assert!(!Config::default().set_limit("nonsense", 1.0));
    }

    #[test]
    fn passes_limits_to_the_server() {
        let config = settings_from(&[
            (Source::CommandLine, "max_body_size", "2"),
            (Source::File, "max_queued_requests", "3"),
            (Source::Environment, "idle_timeout", "none"),
        ])
        .config();
        assert_eq!((config.limits.max_body_size, config.queue.max_queued_requests), (2, 3));
        assert_eq!(config.limits.idle_timeout, Duration::MAX);
    }
}
