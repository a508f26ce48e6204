//! Settings besides where: HTTPS, proxies, WebSockets and the folder of large bodies. In R they are `tls =` and options.

use std::path::{Path, PathBuf};

use rookery_acme::Challenge;
use rookery_server::tls::{Hsts, TlsVersion};
use rookery_server::{Config, Proxies};

use crate::failure::Failure;
use crate::limits::{self, Limit};
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
    #[cfg(any(not(target_os = "linux"), test))]
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
}

impl AskedTls {
    /// The first of the names that a certificate is ordered for.
    pub(crate) fn domain(&self) -> Option<&str> {
        match self {
            AskedTls::Development => None,
            AskedTls::Files(files) => files.acme.as_ref()?.domains.first().map(String::as_str),
        }
    }
}

impl TlsFiles {
    #[cfg(any(not(target_os = "linux"), test))]
    pub(crate) fn minimum_name(&self) -> &'static str {
        match self.minimum {
            TlsVersion::Tls12 => "1.2",
            TlsVersion::Tls13 => "1.3",
        }
    }
}

/// What R has as settings of a server (`rookery_options()`).
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) trusted_proxies: Vec<String>,
    pub(crate) proxy_protocol: bool,
    /// None: a page of any host may open a WebSocket.
    pub(crate) ws_origins: Option<Vec<String>>,
    pub(crate) ws_compression: Option<Compression>,
    pub(crate) limits: Vec<Limit>,
    pub(crate) interrupt_requests: bool,
    pub(crate) error_detail: Option<&'static str>,
    /// Whether a page of Shiny begins a new session when its own has ended.
    pub(crate) reconnect: Option<&'static str>,
    pub(crate) request_id_header: Option<bool>,
    pub(crate) spool_dir: Option<PathBuf>,
}

/// The settings of a site.
#[derive(Debug)]
pub(crate) struct OfSite {
    pub(crate) config: Config,
    pub(crate) proxies: Proxies,
    pub(crate) proxy_protocol: bool,
    pub(crate) spool_folder: PathBuf,
}

/// Limits of WebSockets and of what they may hold: with workers, whose WebSockets they are, theirs as well.
#[cfg(target_os = "linux")]
const OF_WEBSOCKETS: [&str; 9] = [
    "message_bytes",
    "socket_queue",
    "message_rate",
    "stall_time",
    "ping_time",
    "pong_time",
    "close_time",
    "kept_windows",
    "memory",
];

/// How messages of WebSockets are compressed, as in R; level 0: not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compression {
    pub(crate) level: u8,
    /// Bytes.
    pub(crate) threshold: u64,
    pub(crate) takeover: bool,
}

impl Settings {
    /// Checks what can be checked before an R is started.
    ///
    /// # Errors
    /// The first that is wrong.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.proxies()?;
        if let Some(wrong) = self.ws_origins.iter().flatten().find(|origin| !is_host(origin)) {
            return Err(Failure::CommandLine(format!(
                "`--ws-origins` must be same, or hosts such as example.org, *.example.org or localhost:8000 without https://, \
                 not `{wrong}`."
            )));
        }
        let folder = self.spool_folder();
        if self.spool_dir.is_some() && !(folder.is_dir() && is_writable(&folder) && is_executable(&folder)) {
            return Err(Failure::Serving(format!(
                "`--spool-dir` names `{}`, which is no folder that this user may write in: make it, or choose another.",
                folder.display()
            )));
        }
        Ok(())
    }

    /// # Errors
    /// When one is none.
    fn proxies(&self) -> Result<Proxies, Failure> {
        Proxies::of(self.trusted_proxies.iter().map(String::as_str))
            .map_err(|error| Failure::CommandLine(format!("`--trusted-proxies`: {error}.")))
    }

    /// With what the environment says in place of what was not given: for a server that has no R, which reads it by itself.
    ///
    /// # Errors
    /// When it says what cannot be.
    pub(crate) fn with_environment(&self) -> Result<OfSite, Failure> {
        let proxies = match environment("ROOKERY_TRUSTED_PROXIES") {
            Some(text) if self.trusted_proxies.is_empty() => {
                let names = list(&text);
                Proxies::of(names.iter().map(String::as_str)).map_err(|error| {
                    Failure::Serving(format!("The environment variable ROOKERY_TRUSTED_PROXIES: {error}."))
                })?
            }
            _ => self.proxies()?,
        };
        let proxy_protocol = match environment("ROOKERY_PROXY_PROTOCOL").as_deref() {
            _ if self.proxy_protocol => true,
            // As R's as.logical() has them.
            None | Some("FALSE" | "false" | "False" | "F" | "0") => false,
            Some("TRUE" | "true" | "True" | "T" | "1") => true,
            Some(other) => {
                return Err(Failure::Serving(format!(
                    "The environment variable ROOKERY_PROXY_PROTOCOL must be TRUE or FALSE, not `{other}`."
                )));
            }
        };
        let own = environment("ROOKERY_SPOOL_DIR").filter(|_| self.spool_dir.is_none()).map(PathBuf::from);
        let spool_folder = own.map_or_else(|| self.spool_folder(), |folder| settle(&folder));
        Ok(OfSite { config: limits::config(&self.limits)?, proxies, proxy_protocol, spool_folder })
    }

    /// Where large bodies of requests lie.
    fn spool_folder(&self) -> PathBuf {
        self.spool_dir.as_deref().map_or_else(std::env::temp_dir, settle)
    }

    /// Gives each that was asked for to `field`, for R.
    pub(crate) fn hand_over(&self, field: &mut impl FnMut(&str, &[u8])) {
        for proxy in &self.trusted_proxies {
            field("trusted_proxies", proxy.as_bytes());
        }
        if self.proxy_protocol {
            field("proxy_protocol", b"TRUE");
        }
        self.hand_over_spool(field);
        for limit in &self.limits {
            field("limit", limit.text.as_bytes());
        }
        self.hand_over_behaviour(field);
    }

    fn hand_over_spool(&self, field: &mut impl FnMut(&str, &[u8])) {
        use std::os::unix::ffi::OsStrExt as _;
        if self.spool_dir.is_some() {
            field("spool_dir", self.spool_folder().as_os_str().as_bytes());
        }
    }

    /// The same for an R behind a supervisor, which knows the client's side but for WebSockets: those the workers speak with clients.
    #[cfg(target_os = "linux")]
    pub(crate) fn hand_over_to_worker(&self, field: &mut impl FnMut(&str, &[u8])) {
        let is_for_r = |limit: &&Limit| {
            OF_WEBSOCKETS.contains(&limit.name())
                || (self.interrupt_requests && limit.name() == "request_time")
        };
        for limit in self.limits.iter().filter(is_for_r) {
            field("limit", limit.text.as_bytes());
        }
        self.hand_over_spool(field);
        self.hand_over_behaviour(field);
    }

    /// What R does for a request, and what its WebSockets are.
    fn hand_over_behaviour(&self, field: &mut impl FnMut(&str, &[u8])) {
        for origin in self.ws_origins.iter().flatten() {
            field("ws_origins", origin.as_bytes());
        }
        if let Some(Compression { level, threshold, takeover }) = self.ws_compression {
            let takeover = if takeover { "TRUE" } else { "FALSE" };
            field("ws_compression", format!("{level} {threshold} {takeover}").as_bytes());
        }
        if self.interrupt_requests {
            field("interrupt_requests", b"TRUE");
        }
        if let Some(detail) = self.error_detail {
            field("error_detail", detail.as_bytes());
        }
        if let Some(reconnect) = self.reconnect {
            field("reconnect", reconnect.as_bytes());
        }
        if let Some(is_on) = self.request_id_header {
            field("request_id_header", if is_on { b"TRUE" } else { b"FALSE" });
        }
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The words of a list with commas between them; spaces around them do not count.
pub(crate) fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// `on`, `off`, or some of `level=1..9`, `threshold=<bytes>` and `takeover=on`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn compression(text: &str) -> Result<Compression, Failure> {
    // The defaults are R's: `read_compression()`.
    let mut found = Compression { level: 2, threshold: 512, takeover: false };
    match text {
        "on" => return Ok(found),
        "off" => return Ok(Compression { level: 0, ..found }),
        _ => {}
    }
    // Not an empty list, which would be `on`.
    for word in text.split(',').map(str::trim) {
        let (name, value) = word.split_once('=').unwrap_or_default();
        match (name, number(value), value) {
            ("level", Some(level @ 1..=9), _) => found.level = level as u8,
            ("threshold", Some(bytes), _) => found.threshold = bytes,
            ("takeover", _, "on" | "off") => found.takeover = value == "on",
            _ => {
                return Err(Failure::CommandLine(format!(
                    "`--ws-compression` must be on, off, or some of level=1 to level=9, threshold=<bytes> and takeover=on, with \
                     commas between them, not `{word}`."
                )));
            }
        }
    }
    Ok(found)
}

/// Seconds, and behind them perhaps `subdomains` and `preload`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn hsts(text: &str) -> Result<Hsts, Failure> {
    // The limit is R's, whose integers are signed.
    const MOST: u64 = i32::MAX as u64;
    // What those who make browsers ask of a name that they put into them.
    const YEAR: u32 = 31_536_000;
    let mut words = text.split(',').map(str::trim);
    let age = words.next().and_then(number).filter(|age| *age <= MOST);
    let mut found = age.map(|age| Hsts { max_age: age as u32, include_subdomains: false, preload: false });
    for word in words {
        match (&mut found, word) {
            (Some(hsts), "subdomains") => hsts.include_subdomains = true,
            (Some(hsts), "preload") => hsts.preload = true,
            _ => found = None,
        }
    }
    match found {
        Some(hsts) if hsts.preload && !(hsts.include_subdomains && hsts.max_age >= YEAR) => {
            Err(Failure::CommandLine(
                "`--hsts` with preload needs subdomains, and a year or more: 31536000,subdomains,preload."
                    .to_owned(),
            ))
        }
        Some(hsts) => Ok(hsts),
        None => Err(Failure::CommandLine(format!(
            "`--hsts` must be seconds, and perhaps subdomains and preload, with commas between them, not `{text}`."
        ))),
    }
}

/// Not `+1`, which a number may be as well.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `same`, a name that may begin with `*.`, or an address; each perhaps with a port.
fn is_host(text: &str) -> bool {
    let is_port = |port: &str| number(port).is_some();
    if let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let is_rest = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        return is_rest
            && !address.is_empty()
            && address.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
    }
    let (name, is_rest) = match text.split_once(':') {
        Some((name, port)) => (name, is_port(port)),
        None => (text, true),
    };
    let name = name.strip_prefix("*.").unwrap_or(name);
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    is_rest && !name.is_empty() && name.bytes().all(is_of_names)
}

/// Certificates and keys: as many keys as certificates, or none, when each is in its certificate's file.
///
/// # Errors
/// When there are others.
pub(crate) fn pairs(certificates: &[&Path], keys: &[&Path]) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    if !keys.is_empty() && keys.len() != certificates.len() {
        return Err(Failure::CommandLine(format!(
            "`--tls-key` must be given once for each `--tls-cert`: {} times, not {}.",
            certificates.len(),
            keys.len()
        )));
    }
    let keys = if keys.is_empty() { certificates } else { keys };
    Ok(certificates
        .iter()
        .zip(keys)
        .map(|(certificate, key)| ((*certificate).into(), (*key).into()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::said;

    #[cfg(target_os = "linux")]
    #[test]
    fn workers_are_told_what_their_websockets_are() {
        let limit = |text| crate::limits::Limit::of(text).unwrap();
        let settings = Settings {
            limits: vec![limit("message_bytes=1MB"), limit("body_bytes=2MB"), limit("ping_time=5s")],
            ws_compression: Some(compression("level=3").unwrap()),
            ws_origins: Some(list("same")),
            trusted_proxies: list("unix"),
            ..Settings::default()
        };
        let mut told = Vec::new();
        settings.hand_over_to_worker(&mut |name, value| {
            told.push(format!("{name} {}", String::from_utf8_lossy(value)));
        });
        let expected = [
            "limit message_bytes=1MB",
            "limit ping_time=5s",
            "ws_origins same",
            "ws_compression 3 512 FALSE",
        ];
        assert_eq!(told, expected);
        for name in OF_WEBSOCKETS {
            assert!(crate::limits::Limit::of(&format!("{name}=1e9")).is_ok(), "{name}");
        }
    }

    #[test]
    fn hosts_are_as_r_takes_them() {
        for right in ["same", "example.org", "*.example.org", "localhost:8000", "[::1]", "[::1]:80", "a_b-c"]
        {
            assert!(is_host(right), "{right}");
        }
        for wrong in
            ["https://example.org", "", "a:", "a:b", "[]", "[::1", "[::1]x", "*", "*.", "a b", "\u{e9}"]
        {
            assert!(!is_host(wrong), "{wrong}");
        }
        let settings = Settings { ws_origins: Some(list("same, https://a")), ..Settings::default() };
        assert!(said(settings.check()).ends_with("not `https://a`."));
    }

    #[test]
    fn proxies_are_addresses_and_networks() {
        let settings = |text| Settings { trusted_proxies: list(text), ..Settings::default() };
        settings("10.0.0.0/8, ::1,unix").check().unwrap();
        let said = said(settings("10.0.0.0/8,proxy.local").check());
        assert!(
            said.starts_with("`--trusted-proxies`: \"proxy.local\" is no proxy: use an address"),
            "{said}"
        );
    }

    #[test]
    fn compression_has_what_r_has() {
        let of = |text| compression(text).map(|it| (it.level, it.threshold, it.takeover));
        assert_eq!(of("on").unwrap(), (2, 512, false));
        assert_eq!(of("off").unwrap().0, 0);
        assert_eq!(of("level=9,takeover=on").unwrap(), (9, 512, true));
        assert_eq!(of("threshold=0, takeover=off").unwrap(), (2, 0, false));
        for wrong in
            ["", "level=0", "level=10", "level=+2", "yes", "takeover", "threshold=-1", "takeover=yes"]
        {
            assert!(said(of(wrong)).ends_with(&format!("not `{wrong}`.")), "{wrong}");
        }
    }

    #[test]
    fn a_folder_of_bodies_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let settings = |path: &Path| Settings { spool_dir: Some(path.into()), ..Settings::default() };
        settings(folder.path()).check().unwrap();
        assert!(
            said(settings(&folder.path().join("none")).check())
                .contains("which is no folder that this user may write in")
        );
    }

    #[test]
    fn what_browsers_are_told_is_seconds_and_words() {
        let of = |text| hsts(text).map(|it| (it.max_age, it.include_subdomains, it.preload));
        assert_eq!(of("0").unwrap(), (0, false, false));
        assert_eq!(of("2147483647, subdomains").unwrap(), (i32::MAX as u32, true, false));
        assert_eq!(of("31536000,preload,subdomains").unwrap(), (31_536_000, true, true));
        for wrong in
            ["", "on", "-1", "+1", "1.5", "2147483648", "60,", "60,all", "subdomains", "subdomains,60"]
        {
            assert!(said(of(wrong)).ends_with(&format!("not `{wrong}`.")), "{wrong}");
        }
        for wrong in ["31536000,preload", "31535999,subdomains,preload"] {
            assert!(said(of(wrong)).contains("needs subdomains, and a year"), "{wrong}");
        }
    }

    #[test]
    fn each_certificate_has_a_key() {
        let [a, b, k] = ["a", "b", "k"].map(Path::new);
        assert_eq!(pairs(&[a, b], &[]).unwrap()[1], (b.into(), b.into()));
        assert_eq!(pairs(&[a], &[k]).unwrap(), [(a.into(), k.into())]);
        assert!(said(pairs(&[a, b], &[k])).ends_with("2 times, not 1."));
    }
}
