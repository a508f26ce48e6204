//! The TLS configuration of a listener, with certificates that can be replaced while the server
//! runs.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use http::HeaderValue;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};

use super::challenges::ACME_TLS;
use super::file_watch::{Contents, FileWatch, build_unchanged};
use super::identity::{Identity, ServedCertificate, Validity};
use super::pem::Pem;
use super::resolver::{CertificateResolver, ChallengeResolver};
use super::settings::{CertificatePair, Hsts, TlsSettings, TlsVersion};
use super::stream::HTTP2;
use super::tls_error::{TlsError, TlsPart};

/// The TLS configuration of a listener. Clones share their state. A change applies to new
/// connections; open connections keep the configuration with which they started.
///
/// Clients resume TLS sessions by tickets (RFC 5077; RFC 8446, 4.6.1). The ticket keys belong to
/// this process, and change every six hours and with every reload. Therefore, a client whose
/// certificate is no longer trusted after a reload cannot resume a session.
#[derive(Clone)]
pub struct Tls(Arc<Store>);

struct Store {
    /// The TLS settings with which the listener started. The settings for ACME challenges, HSTS and
    /// WebSockets over HTTP/2 are always taken from this field, because they cannot be changed
    /// while the listener runs.
    settings: TlsSettings,
    /// The TLS settings from which the current certificates were read.
    current: ArcSwap<TlsSettings>,
    binds_names: AtomicBool,
    notice: fn(&str),
    config: ArcSwap<ServerConfig>,
    /// The TLS configuration that is used while ACME challenges over TLS are pending.
    challenge_config: ArcSwap<ServerConfig>,
    /// The resolver that chooses the certificate for a host name.
    names: ArcSwap<CertificateResolver>,
    file_watch: Mutex<FileWatch>,
    dates: Mutex<Dates>,
    hsts: Option<HeaderValue>,
}

/// The validity dates of the certificates. Warnings about them are logged once a day, because a
/// server may keep running after its certificate has expired.
#[derive(Debug)]
struct Dates {
    all: Vec<Validity>,
    warned_at: SystemTime,
}

impl Dates {
    fn of(all: Vec<Validity>) -> Mutex<Dates> {
        Mutex::new(Dates { all, warned_at: SystemTime::now() })
    }
}

/// The interval between log warnings about certificates that expire soon or are not valid.
const DATE_WARNING_INTERVAL: Duration = Duration::from_secs(86_400);

impl Tls {
    /// Reads the certificates and keys of `settings`. `notice` is called with one line for each
    /// warning, during this call and after each reload. An automatic reload calls it on another
    /// thread.
    ///
    /// # Errors
    /// Fails if a certificate or key cannot be read, or if a key does not belong to its
    /// certificate.
    pub fn new(mut settings: TlsSettings, notice: fn(&str)) -> Result<Tls, TlsError> {
        settings.make_paths_absolute();
        let (served, built) = load(&settings, notice);
        let (config, names, dates) = built?;
        let hsts = settings.hsts.map(Hsts::value);
        let challenge_config = challenge_config_of(&config, &settings, &names);
        Ok(Tls(Arc::new(Store {
            binds_names: AtomicBool::new(settings.binds_names()),
            current: ArcSwap::from_pointee(settings.clone()),
            settings,
            notice,
            challenge_config: ArcSwap::from_pointee(challenge_config),
            config: ArcSwap::from_pointee(config),
            names: ArcSwap::new(names),
            file_watch: Mutex::new(FileWatch::new(served)),
            dates: Dates::of(dates),
            hsts,
        })))
    }

    /// Reads all certificate and key files again. New connections use the new certificates, and
    /// open connections keep the old ones. Blocks.
    ///
    /// # Errors
    /// Fails like [`new`](Self::new). The previous certificates then stay in use, and the files are
    /// tried again automatically.
    pub fn reload(&self) -> Result<(), TlsError> {
        loop {
            let (settings, before) = self.current_settings();
            let (found, built) = load(&settings, self.0.notice);
            let mut file_watch = self.file_watch();
            if file_watch.generation() != before {
                // Another thread has installed certificates meanwhile, which may be newer than
                // those just read.
                continue;
            }
            return match built {
                Ok(built) => {
                    self.install(&mut file_watch, &settings, &found, built);
                    Ok(())
                }
                Err(error) => {
                    file_watch.on_failure(found, error.to_string(), Instant::now());
                    Err(error)
                }
            };
        }
    }

    /// Replaces the certificates, their keys, the certificate authorities for clients, and the TLS
    /// versions. New connections use the new settings, and open connections keep the old ones.
    /// [`TlsSettings::hsts`] and [`TlsSettings::challenges`] are not changed. Blocks.
    ///
    /// # Errors
    /// Fails like [`new`](Self::new). The previous settings and certificates then stay in use.
    pub fn replace(&self, mut settings: TlsSettings) -> Result<(), TlsError> {
        settings.make_paths_absolute();
        let kept = self.0.settings.clone();
        let settings =
            Arc::new(TlsSettings { hsts: kept.hsts, challenges: kept.challenges, ..settings });
        let (found, built) = load(&settings, self.0.notice);
        let built = built?;
        let mut file_watch = self.file_watch();
        self.0.current.store(Arc::clone(&settings));
        self.install(&mut file_watch, &settings, &found, built);
        Ok(())
    }

    /// Checks whether the certificate files have changed. If so, reads them and uses the new
    /// certificates for new connections. Success and failure are logged. After a failed attempt,
    /// later calls try again until one succeeds, with growing pauses. Blocks.
    pub(crate) fn check_files(&self, now: Instant) {
        let notice = self.0.notice;
        // No lock is held while files are read, because a file system may be slow.
        let (settings, before) = self.current_settings();
        let found = contents(&settings);
        {
            let mut file_watch = self.file_watch();
            if file_watch.generation() != before || !file_watch.compare(&found, now) {
                return;
            }
        }
        let (found, built) = load(&settings, notice);
        let mut file_watch = self.file_watch();
        if file_watch.generation() != before {
            // Another thread has installed certificates meanwhile, so the next check compares with
            // those.
            return;
        }
        match built {
            Ok(built) => {
                self.install(&mut file_watch, &settings, &found, built);
                notice("TLS: the certificate has changed; new connections use the new one");
            }
            Err(error) => {
                let text = error.to_string();
                if file_watch.on_failure(found, text, now) {
                    notice(&format!(
                        "TLS: {error}. New connections keep using the previous certificate"
                    ));
                }
            }
        }
    }

    /// Returns the settings from which the current certificates were read, and the number of times
    /// that certificates have been replaced (the generation).
    fn current_settings(&self) -> (Arc<TlsSettings>, u64) {
        // The two values change together under this lock.
        let file_watch = self.file_watch();
        (self.0.current.load_full(), file_watch.generation())
    }

    fn file_watch(&self) -> MutexGuard<'_, FileWatch> {
        self.0.file_watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes new connections use `built`, the TLS configuration that was built from `settings` and
    /// from files with the hashes `found`.
    fn install(
        &self,
        file_watch: &mut FileWatch,
        settings: &TlsSettings,
        found: &Contents,
        built: Built,
    ) {
        let Store { config, names, dates, challenge_config, .. } = &*self.0;
        self.0.binds_names.store(settings.binds_names(), Ordering::Relaxed);
        let (built, by_name, validities) = built;
        challenge_config.store(Arc::new(challenge_config_of(&built, settings, &by_name)));
        config.store(Arc::new(built));
        names.store(by_name);
        *dates.lock().unwrap_or_else(PoisonError::into_inner) =
            Dates { all: validities, warned_at: SystemTime::now() };
        file_watch.on_served(found);
    }

    /// Logs warnings about certificates that expire soon or are not valid, at most once a day.
    pub(crate) fn warn_about_dates(&self, now: SystemTime) {
        let mut dates = self.0.dates.lock().unwrap_or_else(PoisonError::into_inner);
        // If the clock was set back, the warnings are logged again.
        if now.duration_since(dates.warned_at).is_ok_and(|passed| passed < DATE_WARNING_INTERVAL) {
            return;
        }
        dates.warned_at = now;
        let notice = self.0.notice;
        for validity in &dates.all {
            validity.warn(now, &mut |line| notice(&format!("TLS: {line}")));
        }
    }

    /// Returns the certificates that new connections use, for reports.
    pub fn certificates(&self) -> Vec<ServedCertificate> {
        let dates = self.0.dates.lock().unwrap_or_else(PoisonError::into_inner);
        dates.all.iter().map(Validity::served).collect()
    }

    /// Returns true if a connection may only serve requests for the host that the client named in
    /// its TLS handshake. This is the case if clients authenticate by certificates, or if hosts
    /// have separate certificates.
    pub(crate) fn binds_names(&self) -> bool {
        self.0.binds_names.load(Ordering::Relaxed)
    }

    /// Returns true if there is a certificate for `host`, or if ACME is to obtain one. Also returns
    /// true if no certificate contains a host name, because the first one is then used for every
    /// host.
    pub(crate) fn covers_host(&self, host: &str) -> bool {
        self.0.names.load().covers(host) || self.is_expected(host)
    }

    /// Returns true if one of the certificates contains `host`, which is a host name or IP address,
    /// or if ACME is to obtain a certificate for it.
    pub(crate) fn names_host(&self, host: &str) -> bool {
        self.0.names.load().names(host) || self.is_expected(host)
    }

    /// Returns true if the server expects ACME to provide the certificate for `host`.
    fn is_expected(&self, host: &str) -> bool {
        self.0.settings.challenges.as_ref().is_some_and(|challenges| challenges.has_host(host))
    }

    /// Returns the response to an ACME challenge over plaintext HTTP, or `None` if `path` belongs
    /// to no pending challenge.
    pub(crate) fn challenge(&self, path: &str) -> Option<String> {
        self.0.settings.challenges.as_ref()?.response_for_path(path)
    }

    /// Returns the value of the header `Strict-Transport-Security` for responses, or `None` if the
    /// header is omitted.
    pub(crate) fn hsts(&self) -> Option<&HeaderValue> {
        self.0.hsts.as_ref()
    }

    /// Returns the TLS configuration for a new connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        match &self.0.settings.challenges {
            Some(challenges) if challenges.has_tls_responses() => {
                self.0.challenge_config.load_full()
            }
            _ => self.0.config.load_full(),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.settings).finish()
    }
}

impl TlsSettings {
    /// Makes the relative paths of certificates and keys absolute, so that they do not depend on
    /// the working directory.
    fn make_paths_absolute(&mut self) {
        for pair in &mut self.pairs {
            pair.certificate.make_paths_absolute();
            pair.key.make_paths_absolute();
        }
        if let Some(ca) = &mut self.client_ca {
            ca.make_paths_absolute();
        }
    }

    fn binds_names(&self) -> bool {
        self.client_ca.is_some() || (self.pairs.len() > 1 && self.challenges.is_none())
    }

    fn pems(&self) -> impl Iterator<Item = &Pem> {
        self.pairs.iter().flat_map(|pair| [&pair.certificate, &pair.key]).chain(&self.client_ca)
    }
}

fn contents(settings: &TlsSettings) -> Contents {
    settings.pems().map(Pem::digest).collect()
}

/// Returns the certificate and key pairs to serve. Without ACME, these are all pairs. With ACME,
/// the first pair of the settings is the one that ACME obtains. Once its files exist, only this
/// pair is served. Until then, the other pairs are served if their files exist.
fn usable_pairs(settings: &TlsSettings) -> impl Iterator<Item = &CertificatePair> {
    let is_issued = settings.challenges.is_some();
    let is_there =
        |pair: &CertificatePair| pair.certificate.path().is_none_or(std::path::Path::exists);
    let is_complete = is_issued && settings.pairs.first().is_some_and(is_there);
    let count = if is_complete { 1 } else { settings.pairs.len() };
    settings.pairs.iter().take(count).filter(move |pair| !is_issued || is_there(pair))
}

/// The result of reading the certificate files: the TLS configuration for new connections, the
/// resolver that chooses the certificate for a host name, and the validity dates of the
/// certificates.
type Built = (ServerConfig, Arc<CertificateResolver>, Vec<Validity>);

/// Reads the certificate files and builds the TLS configuration for new connections. Returns the
/// hashes of the files, and either the configuration that was built from them or an error. Blocks.
fn load(settings: &TlsSettings, notice: fn(&str)) -> (Contents, Result<Built, TlsError>) {
    let mut warnings = Vec::new();
    let (found, built) = build_unchanged(
        || contents(settings),
        || {
            warnings.clear();
            build(settings, &mut |line| warnings.push(line))
        },
    );
    let changing = || {
        let file = settings.pems().next().expect("a change was detected in one of the files");
        Err(file.malformed(TlsPart::Certificate, &"the files changed while they were read"))
    };
    for line in built.iter().flat_map(|_| &warnings) {
        notice(&format!("TLS: {line}"));
    }
    (found, built.unwrap_or_else(changing))
}

fn build(settings: &TlsSettings, warn: &mut dyn FnMut(String)) -> Result<Built, TlsError> {
    // The provider is passed explicitly, because the process may use another one by default.
    let provider = Arc::new(default_provider());
    let identities: Result<Vec<_>, _> =
        usable_pairs(settings).map(|pair| Identity::read(pair, &provider, warn)).collect();
    let identities = identities?;
    if identities.is_empty() && settings.challenges.is_none() {
        return Err(TlsError::NoCertificate);
    }
    let by_name = Arc::new(CertificateResolver::new(&identities));
    let dates = identities.into_iter().map(|identity| identity.validity).collect();
    let versions: &[&SupportedProtocolVersion] = match settings.minimum {
        TlsVersion::Tls12 => &[&version::TLS13, &version::TLS12],
        TlsVersion::Tls13 => &[&version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .expect("ring supports both versions");
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            builder.with_client_cert_verifier(verifier(ca, settings.client_is_optional, &provider)?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::clone(&by_name) as _);
    // `curl --http1.0` offers only the second protocol (RFC 7301, 6).
    config.alpn_protocols = vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()];
    if !settings.only_http1 {
        config.alpn_protocols.insert(0, HTTP2.to_vec());
    }
    // The server's order of cipher suites is used, so that a client which prefers the weakest suite
    // gets the strongest common one. For all other parameters rustls uses the server's order
    // anyway.
    config.ignore_client_order = true;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if let Ok(ticketer) = Ticketer::new() {
        config.ticketer = ticketer;
    }
    Ok((config, by_name, dates))
}

/// Returns the TLS configuration for clients that offer the protocol `acme-tls/1`. It is the normal
/// configuration, extended by the responses to ACME challenges. If client certificates are
/// required, challenges fail, because the certificate authority presents no client certificate.
fn challenge_config_of(
    config: &ServerConfig,
    settings: &TlsSettings,
    names: &Arc<CertificateResolver>,
) -> ServerConfig {
    let mut config = config.clone();
    if let Some(challenges) = &settings.challenges {
        let names = Arc::clone(names);
        config.cert_resolver =
            Arc::new(ChallengeResolver { challenges: challenges.clone(), names });
        config.alpn_protocols.push(ACME_TLS.to_vec());
    }
    config
}

fn verifier(
    ca: &Pem,
    is_optional: bool,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in ca.certificates(TlsPart::ClientCa)? {
        roots.add(certificate).map_err(|error| ca.malformed(TlsPart::ClientCa, &error))?;
    }
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = if is_optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| ca.malformed(TlsPart::ClientCa, &error))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rookery_test_support::tls_file;

    use super::*;
    use crate::net::tls::settings::CertificatePair;

    #[test]
    fn reads_files_until_their_contents_are_served() {
        static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let put = |name: &str, to: &str| {
            let bytes = std::fs::read(tls_file(name)).unwrap();
            std::fs::write(path(to), bytes).unwrap();
            // All files have the same modification time, because only their contents count.
            let times = std::fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
            std::fs::File::options().write(true).open(path(to)).unwrap().set_times(times).unwrap();
        };
        put("localhost.pem", "c.pem");
        put("localhost.key", "c.key");
        let pair = CertificatePair {
            certificate: Pem::File(path("c.pem")),
            key: Pem::File(path("c.key")),
        };
        let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
        let tls = Tls::new(settings, |line| LOGGED.lock().unwrap().push(line.to_owned())).unwrap();
        let logged =
            |text: &str| LOGGED.lock().unwrap().iter().filter(|line| line.contains(text)).count();
        let serves = |host: &str| tls.names_host(host);
        assert!(serves("localhost"));
        let now = Instant::now();
        // Only one of the two files is new, which is logged once. An explicit reload returns the
        // error each time.
        put("other.pem", "c.pem");
        for seconds in [0, 5, 10, 40] {
            tls.check_files(now + Duration::from_secs(seconds));
        }
        assert!(tls.reload().is_err());
        assert_eq!((logged("previous certificate"), logged("has changed")), (1, 0));
        assert!(serves("localhost"));
        // A file is missing for a while. The names and modification times of the files are the same
        // afterwards.
        let key = std::fs::read(path("c.key")).unwrap();
        std::fs::remove_file(path("c.key")).unwrap();
        tls.check_files(now + Duration::from_secs(50));
        assert_eq!((logged("previous certificate"), logged("has changed")), (2, 0));
        std::fs::write(path("c.key"), key).unwrap();
        put("localhost.pem", "c.pem");
        // The files have the contents that are served, so nothing is logged.
        tls.check_files(now + Duration::from_secs(60));
        assert_eq!((logged("previous certificate"), logged("has changed")), (2, 0));
        put("other.pem", "c.pem");
        put("other.key", "c.key");
        tls.check_files(now + Duration::from_secs(61));
        assert_eq!((logged("previous certificate"), logged("has changed")), (2, 1));
        assert!(!serves("localhost"));
    }

    #[test]
    fn warns_about_dates_once_a_day() {
        static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let file = |name: &str| Pem::File(tls_file(name));
        let pair =
            CertificatePair { certificate: file("localhost.pem"), key: file("localhost.key") };
        let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
        let tls = Tls::new(settings, |line| LOGGED.lock().unwrap().push(line.to_owned())).unwrap();
        let ends = tls.0.dates.lock().unwrap().all[0].ends;
        let day = Duration::from_secs(86_400);
        let about_dates = |now: SystemTime| {
            tls.warn_about_dates(now);
            let warnings = std::mem::take(&mut *LOGGED.lock().unwrap());
            warnings.into_iter().filter(|line| line.contains("expire")).collect::<Vec<_>>()
        };
        LOGGED.lock().unwrap().clear();
        assert_eq!(about_dates(ends - 20 * day), [""; 0]);
        let [soon] = &about_dates(ends - 10 * day)[..] else { panic!("once") };
        assert!(
            soon.starts_with("TLS: the certificate in ") && soon.contains(" expires on "),
            "{soon}"
        );
        // There is one warning per day, and one after the clock has been set back.
        assert_eq!(about_dates(ends - 10 * day + day / 2), [""; 0]);
        assert_eq!(about_dates(ends - 9 * day).len(), 1);
        assert_eq!(about_dates(ends - 10 * day).len(), 1);
        assert!(about_dates(ends + day)[0].contains(" expired on "));
    }
}
