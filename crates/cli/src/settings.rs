//! The settings of all sources, as the server and R take them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rookery_acme::{Challenge, LETS_ENCRYPT_STAGING};
use rookery_server::tls::{Hsts, TlsVersion};
use rookery_server::{Config, NamedLimit, Proxies};
use rookery_settings::{Given, Section, Setting, Source, Value, table};

use crate::failure::Failure;
use crate::memory;
use crate::path::{is_executable, is_writable, settle};

/// What HTTPS is to be spoken with.
#[derive(Debug, Clone)]
pub(crate) enum AskedTls {
    /// A certificate for this machine, made by us.
    Development,
    Files(Box<TlsFiles>),
}

/// As `tls_config()` in R.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsFiles {
    /// Certificates and their keys, which may be in one file; none where an authority issues them.
    pub(crate) pairs: Vec<(PathBuf, PathBuf)>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_auth: ClientAuth,
    pub(crate) minimum: TlsVersion,
    /// Whether HTTP/2 is not offered.
    pub(crate) only_http1: bool,
    /// Whether clients are not told that WebSockets may be opened over HTTP/2.
    pub(crate) only_http1_websockets: bool,
    pub(crate) hsts: Option<Hsts>,
    /// The port from which requests in the clear are sent on.
    pub(crate) redirect_from: Option<u16>,
    pub(crate) acme: Option<AskedAcme>,
}

/// As `acme()` in R.
#[derive(Debug, Clone, Default)]
pub(crate) struct AskedAcme {
    pub(crate) domains: Vec<String>,
    pub(crate) emails: Vec<String>,
    pub(crate) agrees: bool,
    /// None: Let's Encrypt's.
    pub(crate) directory: Option<String>,
    /// Who signs the authority's own certificate; none: those whom the system trusts.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) profile: Option<String>,
    pub(crate) challenge: Option<Challenge>,
    /// Where account and certificates are kept; none: in the user's folder for data.
    pub(crate) folder: Option<PathBuf>,
}

/// Whether a client that is asked for a certificate has to have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ClientAuth {
    #[default]
    Required,
    Optional,
}

impl ClientAuth {
    pub(crate) fn name(self) -> &'static str {
        if self == ClientAuth::Required { "required" } else { "optional" }
    }
}

impl AskedTls {
    /// The port from which requests in the clear are sent on.
    pub(crate) fn redirect_from(&self) -> Option<u16> {
        match self {
            AskedTls::Development => None,
            AskedTls::Files(files) => files.redirect_from,
        }
    }

    /// The first of the names that a certificate is ordered for.
    pub(crate) fn domain(&self) -> Option<&str> {
        match self {
            AskedTls::Development => None,
            AskedTls::Files(files) => files.acme.as_ref()?.domains.first().map(String::as_str),
        }
    }
}

impl TlsFiles {
    pub(crate) fn minimum_name(&self) -> &'static str {
        match self.minimum {
            TlsVersion::Tls12 => "1.2",
            TlsVersion::Tls13 => "1.3",
        }
    }
}

/// Returns what HTTPS is to be spoken with, by settings that have been checked.
pub(crate) fn tls(all: &rookery_settings::Settings) -> Option<AskedTls> {
    if all.is_given("tls") {
        return Some(AskedTls::Development);
    }
    let certificates = paths(all, "tls_cert");
    let domains = all.list("domain");
    if certificates.is_empty() && domains.is_empty() {
        return None;
    }
    let keys = paths(all, "tls_key");
    let keys = if keys.is_empty() { certificates.clone() } else { keys };
    let is_text = |name, text| all.text(name).is_some_and(|own| own == text);
    let acme = (!domains.is_empty()).then(|| AskedAcme {
        domains,
        emails: all.list("email"),
        agrees: all.flag("agree_tos"),
        directory: all
            .text("acme_directory")
            .or_else(|| all.flag("acme_staging").then(|| LETS_ENCRYPT_STAGING.to_owned())),
        ca: path(all, "acme_ca"),
        profile: all.text("acme_profile"),
        challenge: [Challenge::Http, Challenge::Tls]
            .into_iter()
            .find(|way| is_text("acme_challenge", way.name())),
        folder: path(all, "acme_dir"),
    });
    Some(AskedTls::Files(Box::new(TlsFiles {
        pairs: certificates.into_iter().zip(keys).collect(),
        client_ca: path(all, "tls_client_ca"),
        client_auth: if is_text("tls_client_auth", "optional") {
            ClientAuth::Optional
        } else {
            ClientAuth::Required
        },
        minimum: if is_text("tls_min_version", "1.3") { TlsVersion::Tls13 } else { TlsVersion::Tls12 },
        only_http1: !all.flag("http2"),
        only_http1_websockets: !all.flag("http2_websockets"),
        hsts: all.value("hsts").as_ref().and_then(hsts),
        #[expect(clippy::cast_sign_loss, reason = "a port is from 1 to 65535")]
        redirect_from: all.number("redirect_from").map(|port| port as u16),
        acme,
    })))
}

fn hsts(value: &Value) -> Option<Hsts> {
    let is_on = |name| value.field(name).and_then(Value::flag) == Some(true);
    #[expect(clippy::cast_sign_loss, reason = "it is from 0 to 2^31 - 1")]
    let max_age = value.field("max_age")?.number()? as u32;
    Some(Hsts { max_age, include_subdomains: is_on("include_subdomains"), preload: is_on("preload") })
}

fn path(all: &rookery_settings::Settings, name: &str) -> Option<PathBuf> {
    all.value(name)?.path().map(Path::to_path_buf)
}

fn paths(all: &rookery_settings::Settings, name: &str) -> Vec<PathBuf> {
    all.value(name).and_then(|value| value.paths().map(<[PathBuf]>::to_vec)).unwrap_or_default()
}

/// Returns a time, if it is bounded.
pub(crate) fn time(all: &rookery_settings::Settings, name: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(all.number(name)?).ok()
}

/// The settings of all sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings(pub(crate) rookery_settings::Settings);

/// The settings of a server in this process.
#[derive(Debug)]
pub(crate) struct OfServer {
    pub(crate) config: Config,
    pub(crate) proxies: Proxies,
    pub(crate) proxy_protocol: bool,
    pub(crate) spool_folder: PathBuf,
}

/// Settings of R, besides limits.
const OF_R: [&str; 9] = [
    "trusted_proxies",
    "proxy_protocol",
    "spool_dir",
    "ws_origins",
    "ws_compression",
    "interrupt_requests",
    "error_detail",
    "reconnect",
    "request_id_header",
];

/// Settings of a worker. Its supervisor is between it and clients, but for WebSockets.
#[cfg(target_os = "linux")]
const OF_WORKERS: [&str; 17] = [
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

impl Settings {
    /// Checks what can be checked before R is started.
    ///
    /// # Errors
    /// Fails when a folder cannot be used.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.proxies()?;
        let folder = self.spool_folder();
        let Some(given) = self.0.given("spool_dir") else { return Ok(()) };
        if !(folder.is_dir() && is_writable(&folder) && is_executable(&folder)) {
            return Err(Failure::Serving(format!(
                "{} names `{}`, which is no folder that this user may write in: make it, or choose another.",
                given.name(),
                folder.display()
            )));
        }
        Ok(())
    }

    fn proxies(&self) -> Result<Proxies, Failure> {
        let proxies = self.0.list("trusted_proxies");
        Proxies::of(proxies.iter().map(String::as_str))
            .map_err(|error| Failure::Serving(format!("`trusted_proxies`: {error}.")))
    }

    /// Returns the settings of a server in this process.
    ///
    /// # Errors
    /// Fails when the proxies cannot be used.
    pub(crate) fn of_server(&self) -> Result<OfServer, Failure> {
        Ok(OfServer {
            config: self.config(),
            proxies: self.proxies()?,
            proxy_protocol: self.0.flag("proxy_protocol"),
            spool_folder: self.spool_folder(),
        })
    }

    /// Returns the limits: what was given, else the defaults of the server.
    fn config(&self) -> Config {
        let mut config = Config { reclaim: Some(memory::reclaim), ..Config::default() };
        for given in self.0.all() {
            if let (Some(limit), Some(number)) = (limit_of(given.setting), given.value.number()) {
                limit.set(&mut config, number);
            }
        }
        config
    }

    /// Where large bodies of requests lie.
    fn spool_folder(&self) -> PathBuf {
        path(&self.0, "spool_dir").map_or_else(std::env::temp_dir, |folder| settle(&folder))
    }

    /// Returns whether responses have the id of their request.
    #[cfg(target_os = "linux")]
    pub(crate) fn tells_request_id(&self) -> bool {
        self.0.given("request_id_header").and_then(|given| given.value.flag()).unwrap_or(true)
    }

    /// Gives each setting of R that was given to `field`.
    pub(crate) fn hand_over(&self, field: &mut impl FnMut(&str, &[u8])) {
        self.hand_over_those(field, |row| row.section == Section::Limits || OF_R.contains(&row.name));
    }

    /// Gives each setting of a worker that was given to `field`.
    #[cfg(target_os = "linux")]
    pub(crate) fn hand_over_to_worker(&self, field: &mut impl FnMut(&str, &[u8])) {
        self.hand_over_those(field, |row| OF_WORKERS.contains(&row.name));
    }

    fn hand_over_those(&self, field: &mut impl FnMut(&str, &[u8]), is_it: impl Fn(&Setting) -> bool) {
        for given in table::all().filter(|row| is_it(row)).filter_map(|row| self.0.given(row.name)) {
            hand_over(given, field);
        }
    }
}

/// Gives the values of a setting to `field`, under the name that R has for it, with its source in
/// front.
fn hand_over(given: &Given, field: &mut impl FnMut(&str, &[u8])) {
    use std::os::unix::ffi::OsStrExt as _;
    let source = match given.source {
        Source::Environment => "environment:",
        Source::File => "file:",
        _ => "",
    };
    let name = given.setting.name;
    if let (Some(limit), Some(number)) = (limit_of(given.setting), given.value.number()) {
        let name = limit.name().to_str().expect("a name of the server's table is ASCII");
        let number = if number.is_infinite() { "Inf".to_owned() } else { number.to_string() };
        return field(&format!("{source}limit"), format!("{name}={number}").as_bytes());
    }
    let name = &format!("{source}{name}");
    match &given.value {
        Value::Flag(is_on) => field(name, r_flag(*is_on)),
        Value::Text(text) => field(name, text.as_bytes()),
        Value::List(list) => list.iter().for_each(|value| field(name, value.as_bytes())),
        Value::Path(path) => field(name, settle(path).as_os_str().as_bytes()),
        value @ Value::Fields(fields) if given.setting.name == "ws_compression" => {
            debug_assert_eq!(fields.len(), 3, "{value:?}");
            let parts = fields.iter().map(|(_, value)| match value {
                Value::Flag(is_on) => String::from_utf8_lossy(r_flag(*is_on)).into_owned(),
                value => value.number().unwrap_or_default().to_string(),
            });
            field(name, parts.collect::<Vec<_>>().join(" ").as_bytes());
        }
        other => unreachable!("{name} is not handed over: {other:?}"),
    }
}

fn r_flag(is_on: bool) -> &'static [u8] {
    if is_on { b"TRUE" } else { b"FALSE" }
}

/// Returns the limit of the server that a setting sets. The server's table has it under its present
/// or a former name.
fn limit_of(setting: &Setting) -> Option<&'static NamedLimit> {
    if setting.section != Section::Limits {
        return None;
    }
    let name = |limit: &NamedLimit| limit.name().to_str().unwrap_or_default();
    NamedLimit::all().iter().find(|limit| {
        name(limit) == setting.name || setting.former.iter().any(|former| former.name == name(limit))
    })
}

#[cfg(test)]
mod tests {
    use rookery_server::LimitKind;
    use rookery_settings::{Default as InTable, Kind, Raw};

    use super::*;

    fn settings(given: &[(Source, &str, &str)]) -> Settings {
        Settings(rookery_settings::Settings::combine(given.iter().map(|(source, name, text)| {
            let setting = table::row(name);
            Given { setting, value: setting.read(&Raw::from(*text)).unwrap(), source: *source, place: None }
        })))
    }

    fn handed_over(fill: impl Fn(&mut dyn FnMut(&str, &[u8]))) -> Vec<String> {
        let mut told = Vec::new();
        fill(&mut |name, value| told.push(format!("{name} {}", String::from_utf8_lossy(value))));
        told
    }

    #[test]
    fn limits_of_the_table_are_those_of_the_server() {
        let limits: Vec<&Setting> = table::all().filter(|row| row.section == Section::Limits).collect();
        assert_eq!(limits.len(), NamedLimit::all().len());
        for row in limits {
            let limit = limit_of(row).unwrap_or_else(|| panic!("the server has no limit {}", row.name));
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
                    assert_eq!(row.read(&Raw::from(text)).unwrap(), Value::Number(default), "{}", row.name);
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
        let told = handed_over(|mut field| settings.hand_over_to_worker(&mut field));
        let limit = |name| limit_of(table::row(name)).unwrap().name().to_str().unwrap();
        assert_eq!(
            told,
            [
                format!("limit {}=1000000", limit("ws_max_message_size")),
                "ws_origins same".to_owned(),
                "ws_compression 3 512 FALSE".to_owned(),
                format!("file:limit {}=5", limit("ws_ping_interval")),
            ]
        );
    }

    /// What only the worker uses applies at a reload; what the process that accepts uses as well does so
    /// only if the worker accepts.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_reload_applies_what_workers_are_given() {
        use rookery_settings::Applies;
        let of_both =
            ["spool_dir", "ws_close_timeout", "max_client_memory", "request_timeout", "request_id_header"];
        for row in table::all() {
            if OF_WORKERS.contains(&row.name) && !of_both.contains(&row.name) {
                assert_eq!(row.applies, Applies::AtReload, "{}", row.name);
            } else if row.section == Section::Limits || OF_R.contains(&row.name) {
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
        let told = handed_over(|mut field| settings.hand_over(&mut field));
        assert_eq!(
            told,
            [
                "trusted_proxies 10.0.0.0/8",
                "trusted_proxies unix",
                "spool_dir /tmp",
                "file:request_id_header FALSE",
                "environment:error_detail full",
            ]
        );
        for name in OF_R {
            table::row(name);
        }
    }
}
