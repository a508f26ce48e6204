//! The settings of all sources, as the server and R take them.

use std::path::PathBuf;
use std::time::Duration;

use rookery_server::{Config, NamedLimit, TrustedProxies};
use rookery_settings::lines::Lines;
use rookery_settings::{Places, Section, Setting, Source, Value, table};

use crate::failure::Failure;
use crate::process::allocator;
use crate::user_paths::{absolute, is_executable, is_writable};

/// Where the certificates for HTTPS come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Https {
    /// One for this machine, made by us.
    Development,
    Files,
    Authority,
}

pub(crate) fn path(all: &rookery_settings::Settings, name: &str) -> Option<PathBuf> {
    all.value(name)?.path().map(absolute)
}

/// Returns a time, if it is bounded.
pub(crate) fn time(all: &rookery_settings::Settings, name: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(all.number(name)?).ok()
}

/// The settings of all sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct CombinedSettings(pub(crate) rookery_settings::Settings);

/// The settings of a server in this process.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    pub(crate) config: Config,
    pub(crate) proxies: TrustedProxies,
    pub(crate) proxy_protocol: bool,
    pub(crate) spool_folder: PathBuf,
}

/// Settings of a worker. Its supervisor is between it and clients, but for WebSockets.
#[cfg(target_os = "linux")]
const WORKER_SETTINGS: [&str; 17] = [
    "spool_dir",
    "ws_max_message_size",
    "ws_max_send_queue_size",
    "ws_min_rate",
    "ws_stall_timeout",
    "ws_ping_interval",
    "ws_ping_timeout",
    "ws_close_timeout",
    "kept_windows",
    "max_client_memory",
    // For `interrupt_requests`, which is R's to do.
    "request_timeout",
    "ws_origins",
    "ws_compression",
    "interrupt_requests",
    "error_detail",
    "reconnect",
    "request_id_header",
];

impl CombinedSettings {
    /// Checks what can be checked before R is started.
    ///
    /// # Errors
    /// Fails when a folder cannot be used.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.proxies()?;
        let folder = self.spool_folder();
        let Some(given) = self.0.given("spool_dir") else { return Ok(()) };
        if !(folder.is_dir() && is_writable(&folder) && is_executable(&folder)) {
            return Err(Failure::Unavailable(format!(
                "{} names `{}`, which is no folder that this user may write in: make it, or choose another.",
                given.name(),
                folder.display()
            )));
        }
        Ok(())
    }

    fn proxies(&self) -> Result<TrustedProxies, Failure> {
        let proxies = self.0.list("trusted_proxies");
        TrustedProxies::parse(proxies.iter().map(String::as_str))
            .map_err(|error| Failure::Unavailable(format!("`trusted_proxies`: {error}.")))
    }

    /// Returns the settings of a server in this process.
    ///
    /// # Errors
    /// Fails when the proxies cannot be used.
    pub(crate) fn server_settings(&self) -> Result<ServerSettings, Failure> {
        Ok(ServerSettings {
            config: self.config(),
            proxies: self.proxies()?,
            proxy_protocol: self.0.flag("proxy_protocol"),
            spool_folder: self.spool_folder(),
        })
    }

    /// Returns the limits: what was given, else the defaults of the server.
    fn config(&self) -> Config {
        let mut config = Config { trim: Some(allocator::reclaim), ..Config::default() };
        for given in self.0.all() {
            if let (Some(limit), Some(number)) = (limit_of(given.setting), given.value.number()) {
                limit.set(&mut config, number);
            }
        }
        config
    }

    /// Where large bodies of requests lie.
    fn spool_folder(&self) -> PathBuf {
        path(&self.0, "spool_dir").unwrap_or_else(std::env::temp_dir)
    }

    /// Returns where certificates come from; `None` without HTTPS.
    pub(crate) fn https(&self) -> Option<Https> {
        [("tls", Https::Development), ("domain", Https::Authority), ("tls_cert", Https::Files)]
            .into_iter()
            .find_map(|(name, https)| self.0.is_given(name).then_some(https))
    }

    /// Returns the port from which requests in the clear are sent on.
    #[expect(clippy::cast_sign_loss, reason = "a port is from 1 to 65535")]
    pub(crate) fn redirect_from(&self) -> Option<u16> {
        self.0.number("redirect_from").map(|port| port as u16)
    }

    /// Returns whether responses have the id of their request.
    #[cfg(target_os = "linux")]
    pub(crate) fn sends_request_id(&self) -> bool {
        self.0.given("request_id_header").and_then(|given| given.value.flag()).unwrap_or(true)
    }

    /// Hands each setting over that was given and is an option of R as well.
    pub(crate) fn pass_to_r(&self, lines: &mut Lines) {
        self.pass_rows(lines, |row| row.places.has(Places::OPTION));
    }

    /// Hands each setting of a worker over that was given.
    #[cfg(target_os = "linux")]
    pub(crate) fn pass_to_worker(&self, lines: &mut Lines) {
        self.pass_rows(lines, |row| WORKER_SETTINGS.contains(&row.name));
    }

    /// Puts the source in front of the name of each.
    fn pass_rows(&self, lines: &mut Lines, is_included: impl Fn(&Setting) -> bool) {
        for given in
            table::all().filter(|row| is_included(row)).filter_map(|row| self.0.given(row.name))
        {
            let source = match given.source {
                Source::Environment => "environment:",
                Source::File => "file:",
                _ => "cli:",
            };
            lines.value(source, given.setting.name, &with_absolute_paths(given.value.clone()));
        }
    }

    /// Hands over what HTTPS is spoken with, where `is_included` accepts the row: what was given, and defaults.
    pub(crate) fn pass_https(&self, lines: &mut Lines, is_included: impl Fn(&Setting) -> bool) {
        if self.https().is_none() {
            return;
        }
        let is_https = |row: &Setting| {
            row.name == "tls" || matches!(row.section, Section::Tls | Section::Acme)
        };
        for row in table::all().filter(|row| is_https(row) && is_included(row)) {
            if let Some(value) = self.0.value(row.name) {
                lines.value("tls:", row.name, &with_absolute_paths(value));
            }
        }
    }
}

/// Returns a value that is the same in the app's folder.
fn with_absolute_paths(value: Value) -> Value {
    match value {
        Value::Path(path) => Value::Path(absolute(&path)),
        Value::Paths(paths) => Value::Paths(paths.iter().map(|path| absolute(path)).collect()),
        value => value,
    }
}

/// Returns the limit of the server that a setting sets. The server's table has it under its present
/// or a former name.
fn limit_of(setting: &Setting) -> Option<&'static NamedLimit> {
    if setting.section != Section::Limits {
        return None;
    }
    let name = |limit: &NamedLimit| limit.name().to_str().unwrap_or_default();
    NamedLimit::all().iter().find(|limit| {
        name(limit) == setting.name
            || setting.former.iter().any(|former| former.name == name(limit))
    })
}

#[cfg(test)]
mod tests {
    use rookery_server::LimitKind;
    use rookery_settings::{Default as InTable, Given, Kind, Raw};

    use super::*;

    fn settings(given: &[(Source, &str, &str)]) -> CombinedSettings {
        CombinedSettings(rookery_settings::Settings::combine(given.iter().map(
            |(source, name, text)| {
                let setting = table::row(name);
                Given {
                    setting,
                    value: setting.read(&Raw::from(*text)).unwrap(),
                    source: *source,
                    place: None,
                }
            },
        )))
    }

    fn lines_of(fill: impl Fn(&mut Lines)) -> Vec<String> {
        let mut lines = Lines::default();
        fill(&mut lines);
        String::from_utf8(lines.into_bytes()).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn limits_of_the_table_are_those_of_the_server() {
        let limits: Vec<&Setting> =
            table::all().filter(|row| row.section == Section::Limits).collect();
        assert_eq!(limits.len(), NamedLimit::all().len());
        for row in limits {
            let limit =
                limit_of(row).unwrap_or_else(|| panic!("the server has no limit {}", row.name));
            let kind = match limit.kind() {
                LimitKind::Count => Kind::Count.name(),
                LimitKind::Bytes => Kind::Bytes.name(),
                LimitKind::Seconds => Kind::Seconds.name(),
                LimitKind::Rate => Kind::Rate.name(),
                LimitKind::Percent => Kind::Percent.name(),
            };
            assert_eq!(row.kind.name(), kind, "{}", row.name);
            assert_eq!(row.min.to_bits(), limit.least().to_bits(), "{}", row.name);
            assert!(!row.max.is_infinite() || limit.takes(f64::INFINITY), "{}", row.name);
            let default = limit.get(&Config::default());
            match row.default {
                InTable::Is(text) => {
                    assert_eq!(
                        row.read(&Raw::from(text)).unwrap(),
                        Value::Number(default),
                        "{}",
                        row.name
                    );
                }
                _ => assert!(default.is_nan(), "{}: {default}", row.name),
            }
        }
    }

    #[test]
    fn limits_reach_the_server() {
        let config = settings(&[
            (Source::CommandLine, "max_body_size", "2"),
            (Source::File, "max_queued_requests", "3"),
            (Source::Environment, "idle_timeout", "none"),
        ])
        .config();
        assert_eq!((config.limits.body_bytes, config.queue.requests), (2, 3));
        assert_eq!(config.limits.idle_time, Duration::MAX);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn workers_are_told_what_their_websockets_are() {
        let settings = settings(&[
            (Source::CommandLine, "ws_max_message_size", "1MB"),
            (Source::CommandLine, "max_body_size", "2MB"),
            (Source::File, "ws_ping_interval", "5s"),
            (Source::CommandLine, "ws_compression", "level=3"),
            (Source::CommandLine, "ws_origins", "same"),
            (Source::CommandLine, "trusted_proxies", "unix"),
        ]);
        let told = lines_of(|lines| settings.pass_to_worker(lines));
        assert_eq!(
            told,
            [
                "cli:number:ws_max_message_size=1000000",
                "cli:text:ws_origins=same",
                "cli:number:ws_compression.level=3",
                "cli:number:ws_compression.threshold=512",
                "cli:flag:ws_compression.takeover=FALSE",
                "file:number:ws_ping_interval=5",
            ]
        );
    }

    /// What only the worker uses applies at a reload; what the process that accepts uses as well does so
    /// only if the worker accepts.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_reload_applies_what_workers_are_given() {
        use rookery_settings::Applies;
        let of_both = [
            "spool_dir",
            "ws_close_timeout",
            "max_client_memory",
            "request_timeout",
            "request_id_header",
        ];
        for row in table::all() {
            if WORKER_SETTINGS.contains(&row.name) && !of_both.contains(&row.name) {
                assert_eq!(row.applies, Applies::AtReload, "{}", row.name);
            } else if row.places.has(Places::OPTION) {
                assert_eq!(row.applies, Applies::WithAcceptingProcess, "{}", row.name);
            }
        }
    }

    #[test]
    fn settings_of_r_are_handed_over_with_their_source() {
        let settings = settings(&[
            (Source::CommandLine, "trusted_proxies", "10.0.0.0/8,unix"),
            (Source::Environment, "error_detail", "full"),
            (Source::File, "request_id_header", "off"),
            (Source::CommandLine, "spool_dir", "/tmp"),
            (Source::CommandLine, "port", "1"),
        ]);
        let told = lines_of(|lines| settings.pass_to_r(lines));
        assert_eq!(
            told,
            [
                "cli:text:trusted_proxies=10.0.0.0/8",
                "cli:text:trusted_proxies=unix",
                "cli:text:spool_dir=/tmp",
                "file:flag:request_id_header=FALSE",
                "environment:text:error_detail=full",
            ]
        );
    }
}
