//! A certificate from an authority, with its settings, its storage and the store of responses to
//! challenges.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use rookery_server::tls::{CertificatePair, Challenges, Pem, Tls, TlsError, TlsSettings};
use rookery_websocket_client::tls_config;

use crate::http::HttpClient;
use crate::settings::{BadSettings, Challenge, Settings};
use crate::storage::Storage;

/// A certificate that is ordered and renewed through ACME, and that may still have to be issued.
#[derive(Debug, Clone)]
pub struct Acme {
    pub(crate) settings: Settings,
    pub(crate) storage: Storage,
    pub(crate) http: HttpClient,
    pub(crate) challenges: Challenges,
    /// The paths of stored certificates that are valid for only some of the hosts. They are served
    /// until the certificate for all hosts has been issued.
    pub(crate) partial_certificates: Vec<PathBuf>,
    /// The number of failed attempts to get a certificate since the start of this process.
    pub(crate) failures: Arc<AtomicU64>,
}

impl Acme {
    /// Checks the ACME settings, and creates the folder in which the ACME account and the
    /// certificate are stored. Blocks while it accesses files, but sends no request to the
    /// certificate authority.
    ///
    /// # Errors
    /// Returns [`BadSettings`] if a setting is invalid, or if the root certificates or the folder
    /// cannot be used.
    pub fn prepare(settings: Settings) -> Result<Acme, BadSettings> {
        let mut acme = Acme::new(settings, Storage::open)?;
        let existing = acme.storage.certificate();
        if !acme.is_servable(&existing)? {
            // A certificate that is damaged cannot be served, so a new one is ordered.
            match std::fs::rename(&existing, existing.with_extension("unusable")) {
                // Another process that shares the folder may have renamed it.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let folder = acme.settings.folder.clone();
                    return Err(BadSettings::Folder(folder, error.to_string()));
                }
                _ => {}
            }
        }
        if !existing.exists() {
            let partial_certificates =
                acme.storage.partial_certificates(&acme.settings.domains, SystemTime::now());
            acme.partial_certificates = partial_certificates
                .into_iter()
                .filter(|other| load_tls(pair(other)).is_ok())
                .collect();
        }
        Ok(acme)
    }

    /// Checks the ACME settings as [`prepare`](Self::prepare) does, but changes no file.
    ///
    /// # Errors
    /// Returns [`BadSettings`] if a setting is invalid, or if the root certificates or the folder
    /// cannot be used.
    pub fn check(settings: Settings) -> Result<Acme, BadSettings> {
        let acme = Acme::new(settings, Storage::check)?;
        acme.is_servable(&acme.storage.certificate())?;
        Ok(acme)
    }

    /// Returns false if there is a certificate that is damaged.
    fn is_servable(&self, existing: &Path) -> Result<bool, BadSettings> {
        if !existing.exists() {
            return Ok(true);
        }
        match load_tls(pair(existing)) {
            Ok(_) => Ok(true),
            // The certificate may be valid once it can be read, so it is kept.
            Err(error @ TlsError::Unreadable { .. }) => {
                Err(BadSettings::Folder(self.settings.folder.clone(), error.to_string()))
            }
            Err(_) => Ok(false),
        }
    }

    fn new(
        settings: Settings,
        open: fn(&Settings) -> io::Result<Storage>,
    ) -> Result<Acme, BadSettings> {
        let settings = settings.validate()?;
        let http = HttpClient(
            tls_config(&settings.roots).map_err(|error| BadSettings::Roots(error.to_string()))?,
        );
        let storage = open(&settings)
            .map_err(|error| BadSettings::Folder(settings.folder.clone(), error.to_string()))?;
        let challenges = Challenges::new(settings.domains.clone());
        let (partial_certificates, failures) = (Vec::new(), Arc::default());
        Ok(Acme { settings, storage, http, challenges, partial_certificates, failures })
    }

    /// Returns the number of failed attempts to get a certificate since the start of this process,
    /// which the renewer keeps up to date.
    pub fn failures(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.failures)
    }

    /// Returns the files of the certificates to serve, for
    /// [`TlsSettings::pairs`](rookery_server::tls::TlsSettings::pairs). The first file is for the
    /// certificate for all hosts. Until that certificate has been issued, stored certificates for
    /// some of the hosts follow, so that TLS works for these hosts.
    pub fn pairs(&self) -> Vec<CertificatePair> {
        let own = self.storage.certificate();
        [&own].into_iter().chain(&self.partial_certificates).map(|file| pair(file)).collect()
    }

    /// Returns the store that contains the responses to the authority's challenges, for
    /// [`TlsSettings::challenges`](rookery_server::tls::TlsSettings::challenges).
    pub fn challenges(&self) -> Challenges {
        self.challenges.clone()
    }

    /// Returns the host names for which the certificate is issued.
    pub fn domains(&self) -> &[String] {
        &self.settings.domains
    }

    /// Returns the kinds of ACME challenges that the server can respond to. `over_http` is true if
    /// the server has an HTTP port that redirects to HTTPS. `over_tls` is true if clients can
    /// connect with TLS without a client certificate.
    ///
    /// # Errors
    /// Returns [`BadSettings::Unanswerable`] if the server can respond to none.
    pub fn usable_challenges(
        &self,
        over_http: bool,
        over_tls: bool,
    ) -> Result<Vec<Challenge>, BadSettings> {
        let challenges: Vec<Challenge> = [(Challenge::Http, over_http), (Challenge::Tls, over_tls)]
            .into_iter()
            .filter_map(|(challenge, is_available)| is_available.then_some(challenge))
            .collect();
        if challenges.is_empty() { Err(BadSettings::Unanswerable) } else { Ok(challenges) }
    }
}

fn pair(file: &Path) -> CertificatePair {
    CertificatePair { certificate: Pem::File(file.to_owned()), key: Pem::File(file.to_owned()) }
}

/// Loads a certificate with its key for TLS. Fails if the certificate cannot be served.
pub(crate) fn load_tls(pair: CertificatePair) -> Result<Tls, TlsError> {
    Tls::new(TlsSettings { pairs: vec![pair], ..TlsSettings::default() }, |_| ())
}
