//! The settings of the server in this process, in the form that the server uses.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rookery_server::{Config, ErrorPages, TrustedProxies};
use rookery_settings::{Section, Settings};
use rookery_system::disk;

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

impl Https {
    /// Returns the origin of the HTTPS certificates, or `None` if the server does not use HTTPS.
    pub(crate) fn of(all: &Settings) -> Option<Https> {
        [("tls", Https::Development), ("domain", Https::Authority), ("tls_cert", Https::Files)]
            .into_iter()
            .find_map(|(name, https)| all.is_given(name).then_some(https))
    }
}

/// The settings of a server that runs in this process instead of an R process.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    /// The limits of the server. Limits that are not given have the server's defaults.
    pub(crate) config: Config,
    pub(crate) proxies: TrustedProxies,
    pub(crate) proxy_protocol: Option<TrustedProxies>,
    /// The folder for temporary files with large request bodies.
    pub(crate) spool_folder: PathBuf,
    /// The pages that replace the server's own error pages.
    pub(crate) error_pages: Option<Arc<ErrorPages>>,
}

impl ServerSettings {
    /// Converts the combined settings.
    ///
    /// # Errors
    /// Fails if a list of proxies is not valid, or if the given folder for large request bodies or
    /// for error pages cannot be used.
    pub(crate) fn of(all: &Settings) -> Result<ServerSettings, Failure> {
        let mut config = Config { trim: TRIM, ..Config::default() };
        for given in all.all().filter(|given| given.setting.section == Section::Limits) {
            if let Some(number) = given.value.number() {
                config.set_limit(given.setting.name, number);
            }
        }
        let proxies = |name| {
            TrustedProxies::parse(all.list(name).iter().map(String::as_str))
                .map_err(|error| Failure::Unavailable(format!("`{name}`: {error}.")))
        };
        let senders = proxies("proxy_protocol_from")?;
        Ok(ServerSettings {
            config,
            proxies: proxies("trusted_proxies")?,
            proxy_protocol: all.flag("proxy_protocol").then_some(senders),
            spool_folder: spool_folder(all)?,
            error_pages: error_pages(all)?,
        })
    }
}

/// The folder for temporary files that are large (FHS, 5.15). It is on a disk even where `/tmp` is
/// in memory, as on Debian 13.
const FOLDER_ON_DISK: &str = "/var/tmp";

/// Returns the folder for request bodies if neither a setting nor `TMPDIR` names one.
fn default_spool_folder() -> PathBuf {
    let folder = std::env::temp_dir();
    let is_in_memory = |folder: &Path| File::open(folder).is_ok_and(|it| disk::is_in_memory(&it));
    let on_disk = Path::new(FOLDER_ON_DISK);
    if std::env::var_os("TMPDIR").is_none()
        && is_in_memory(&folder)
        && is_usable(on_disk)
        && !is_in_memory(on_disk)
    {
        return on_disk.to_owned();
    }
    folder
}

/// Returns true if this user can create files in the folder.
fn is_usable(folder: &Path) -> bool {
    folder.is_dir() && is_writable(folder) && is_executable(folder)
}

fn spool_folder(all: &Settings) -> Result<PathBuf, Failure> {
    let Some(given) = all.given("spool_dir") else { return Ok(default_spool_folder()) };
    let folder = absolute(given.value.path().expect("the value is a path"));
    if is_usable(&folder) {
        return Ok(folder);
    }
    Err(Failure::Unavailable(format!(
        "{} names `{}`, which is not a folder that this user can write to: create it, or choose \
         another folder.",
        given.name(),
        folder.display()
    )))
}

fn error_pages(all: &Settings) -> Result<Option<Arc<ErrorPages>>, Failure> {
    let Some(given) = all.given("error_pages") else { return Ok(None) };
    let folder = absolute(given.value.path().expect("the value is a path"));
    let pages = ErrorPages::read(&folder).map_err(|error| {
        Failure::Unavailable(format!(
            "{} names `{}`, whose pages cannot be read: {error}.",
            given.name(),
            folder.display()
        ))
    })?;
    Ok(Some(Arc::new(pages)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        let settings = settings_from(&[
            (Source::CommandLine, "max_body_size", "2"),
            (Source::File, "max_queued_requests", "3"),
            (Source::Environment, "idle_timeout", "none"),
        ]);
        let config = ServerSettings::of(&settings).unwrap().config;
        assert_eq!((config.limits.max_body_size, config.queue.max_queued_requests), (2, 3));
        assert_eq!(config.limits.idle_timeout, Duration::MAX);
    }
}
