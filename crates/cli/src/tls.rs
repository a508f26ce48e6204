//! What HTTPS is spoken with.

use std::path::{Path, PathBuf};

use rookery_server::tls::{CertificatePair, DevelopmentCertificate, Pem, Tls, TlsSettings};

use crate::failure::{Failure, say, tell};
use crate::path::settle;
use crate::settings::{AskedTls, ClientAuth, TlsFiles};

/// Reads certificates and keys. The one to develop with is made if it is not there, and its fingerprint is printed, to be
/// compared with what a browser shows.
///
/// # Errors
/// When they cannot be read, or do not belong together.
pub(crate) fn open(asked: &AskedTls) -> Result<Tls, Failure> {
    let settings = match asked {
        AskedTls::Files(files) => settings(files),
        AskedTls::Development => {
            let folder = data_folder().join("tls");
            let made = DevelopmentCertificate::keep(&folder).map_err(|error| {
                let folder = folder.display();
                Failure::Serving(format!("No certificate to develop with can be kept in {folder}: {error}."))
            })?;
            let what = if made.is_new {
                "Made a certificate for localhost"
            } else {
                "The certificate for localhost"
            };
            say(&format!(
                "{what}: {}\nIts SHA-256 fingerprint, as the browser shows it: {}",
                made.file.display(),
                spaced(&made.fingerprint)
            ));
            TlsSettings { pairs: vec![pair(&made.file, &made.file)], ..TlsSettings::default() }
        }
    };
    read(settings, tell)
}

/// Whether files can be used, for an R that is to read them: it takes a while to start.
///
/// # Errors
/// When they cannot.
pub(crate) fn check(asked: Option<&AskedTls>) -> Result<(), Failure> {
    match asked {
        Some(AskedTls::Files(files)) => read(settings(files), |_| ()).map(drop),
        _ => Ok(()),
    }
}

fn settings(files: &TlsFiles) -> TlsSettings {
    TlsSettings {
        pairs: files.pairs.iter().map(|(certificate, key)| pair(certificate, key)).collect(),
        client_ca: files.client_ca.as_deref().map(|path| Pem::File(settle(path))),
        client_is_optional: files.client_auth == ClientAuth::Optional,
        minimum: files.minimum,
        only_http1: files.only_http1,
        only_http1_websockets: files.only_http1_websockets,
        hsts: files.hsts,
    }
}

fn pair(certificate: &Path, key: &Path) -> CertificatePair {
    CertificatePair { certificate: Pem::File(settle(certificate)), key: Pem::File(settle(key)) }
}

fn read(settings: TlsSettings, notice: fn(&str)) -> Result<Tls, Failure> {
    Tls::new(settings, notice).map_err(|error| Failure::Serving(format!("{error}")))
}

/// Where R keeps data of the package: `tools::R_user_dir("rookery", "data")`.
fn data_folder() -> PathBuf {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = if cfg!(target_os = "macos") {
        "~/Library/Application Support/org.R-project.R"
    } else {
        "~/.local/share"
    };
    let base = folder("R_USER_DATA_DIR").or_else(|| folder("XDG_DATA_HOME")).unwrap_or_else(|| own.into());
    settle(&base).join("R").join("rookery")
}

/// `AB:CD:...`
fn spaced(fingerprint: &str) -> String {
    let upper = fingerprint.to_uppercase();
    let pairs: Vec<&str> = (0..upper.len()).step_by(2).filter_map(|at| upper.get(at..at + 2)).collect();
    pairs.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_shown_as_browsers_do() {
        assert_eq!(spaced("00ab9f"), "00:AB:9F");
    }

    #[test]
    fn a_certificate_that_is_not_there_is_said_at_once() {
        let none = PathBuf::from("/nowhere/cert.pem");
        let asked = AskedTls::Files(TlsFiles { pairs: vec![(none.clone(), none)], ..TlsFiles::default() });
        let Err(Failure::Serving(said)) = check(Some(&asked)) else { panic!("there is none") };
        assert!(said.contains("there is no file /nowhere/cert.pem"), "{said}");
        check(Some(&AskedTls::Development)).unwrap();
        check(None).unwrap();
    }
}
