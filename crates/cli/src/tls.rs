//! What HTTPS is spoken with.

use std::path::{Path, PathBuf};

use rookery_acme::{Acme, BadSettings, Challenge, Keeper, Settings};
use rookery_client::Roots;
use rookery_server::tls::{CertificatePair, DevelopmentCertificate, Pem, Tls, TlsSettings};

use crate::failure::{Failure, tell};
use crate::path::settle;
use crate::settings::{AskedAcme, AskedTls, ClientAuth, TlsFiles};

/// What HTTPS is spoken with, and who sees to its certificate.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) tls: Tls,
    /// The certificate for this machine only, if it is served with that.
    pub(crate) development: Option<DevelopmentCertificate>,
    acme: Option<(Acme, Vec<Challenge>)>,
}

impl Opened {
    /// Has the certificate ordered and renewed, where an authority issues it, until what it returns is dropped. The server listens
    /// by now.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn keep(&self) -> Result<Option<Keeper>, Failure> {
        let Some((acme, ways)) = &self.acme else { return Ok(None) };
        let keeper = acme.keep(self.tls.clone(), ways.clone(), tell);
        keeper.map(Some).map_err(|error| {
            Failure::Serving(format!("The thread that orders certificates cannot be started: {error}."))
        })
    }
}

/// Reads certificates and keys. The one to develop with is made if it is not there; the start-up screen
/// shows its fingerprint, to be compared with what a browser shows.
///
/// # Errors
/// When they cannot be read, or do not belong together.
pub(crate) fn open(asked: &AskedTls) -> Result<Opened, Failure> {
    let files = match asked {
        AskedTls::Files(files) => files,
        AskedTls::Development => {
            let folder = data_folder().join("tls");
            let made = DevelopmentCertificate::keep(&folder).map_err(|error| {
                let folder = folder.display();
                Failure::Serving(format!("No certificate to develop with can be kept in {folder}: {error}."))
            })?;
            let pairs = vec![pair(&made.file, &made.file)];
            let tls = read(TlsSettings { pairs, ..TlsSettings::default() }, tell)?;
            return Ok(Opened { tls, development: Some(made), acme: None });
        }
    };
    of_files(files, tell)
}

/// Reads certificates and keys anew, and says so.
pub(crate) fn reload(tls: &Tls) {
    match tls.reload() {
        Ok(()) => tell("TLS: the certificates have been read anew"),
        Err(error) => tell(&format!("TLS: {error}. New connections are given the certificate from before")),
    }
}

/// Reads certificates again, from the files that settings name now, and reports that.
///
/// # Errors
/// Fails when they cannot be used; those from before stay.
#[cfg(target_os = "linux")]
pub(crate) fn apply(tls: &Tls, asked: Option<&AskedTls>) -> Result<(), Failure> {
    match asked {
        Some(AskedTls::Files(files)) if files.acme.is_none() => {
            tls.replace(of_pairs(files)).map_err(|error| Failure::Serving(error.to_string()))?;
            tell("TLS: the certificates have been read anew");
        }
        _ => reload(tls),
    }
    Ok(())
}

/// Whether files can be used, for an R that is to read them: it takes a while to start.
///
/// # Errors
/// When they cannot.
pub(crate) fn check(asked: Option<&AskedTls>) -> Result<(), Failure> {
    match asked {
        Some(AskedTls::Files(files)) => of_files(files, |_| ()).map(drop),
        _ => Ok(()),
    }
}

/// The file with the certificate to develop with, and its key; `None` if it cannot be kept.
pub(crate) fn development_file() -> Option<PathBuf> {
    Some(DevelopmentCertificate::keep(&data_folder().join("tls")).ok()?.file)
}

fn of_pairs(files: &TlsFiles) -> TlsSettings {
    TlsSettings {
        pairs: files.pairs.iter().map(|(certificate, key)| pair(certificate, key)).collect(),
        client_ca: files.client_ca.as_deref().map(|path| Pem::File(settle(path))),
        client_is_optional: files.client_auth == ClientAuth::Optional,
        minimum: files.minimum,
        only_http1: files.only_http1,
        only_http1_websockets: files.only_http1_websockets,
        hsts: files.hsts,
        challenges: None,
    }
}

fn of_files(files: &TlsFiles, notice: fn(&str)) -> Result<Opened, Failure> {
    let mut settings = of_pairs(files);
    let opened = |tls, acme| Ok(Opened { tls, development: None, acme });
    let Some(asked) = &files.acme else {
        return opened(read(settings, notice)?, None);
    };
    let over_tls = settings.client_ca.is_none() || settings.client_is_optional;
    let prepared = Acme::prepare(of_authority(asked)).and_then(|acme| {
        let ways = acme.ways(files.redirect_from.is_some(), over_tls)?;
        Ok((acme, ways))
    });
    let acme = prepared.map_err(|error| refused(&error))?;
    settings.pairs = acme.0.pairs();
    settings.challenges = Some(acme.0.challenges());
    opened(read(settings, notice)?, Some(acme))
}

fn of_authority(asked: &AskedAcme) -> Settings {
    let folder = asked.folder.as_deref().map_or_else(|| data_folder().join("acme"), settle);
    let usual = Settings::new(asked.domains.clone(), folder);
    Settings {
        emails: asked.emails.clone(),
        agrees: asked.agrees,
        directory: asked.directory.clone().unwrap_or_else(|| usual.directory.clone()),
        roots: asked
            .ca
            .as_deref()
            .map_or(Roots::System, |path| Roots::These(settle(path).to_string_lossy().into_owned())),
        profile: asked.profile.clone(),
        challenge: asked.challenge,
        ..usual
    }
}

/// What is wrong with what an authority is asked for, with the option that mends it.
fn refused(error: &BadSettings) -> Failure {
    match error {
        BadSettings::Terms(_) => Failure::CommandLine(format!("`--domain`: {error}, with `--agree-tos`.")),
        BadSettings::Email(_) => Failure::CommandLine(format!("`--email`: {error}.")),
        BadSettings::Directory(_) => Failure::CommandLine(format!("`--acme-directory`: {error}.")),
        BadSettings::Roots(_) => Failure::Serving(format!("`--acme-ca`: {error}.")),
        BadSettings::Folder(..) => Failure::Serving(format!("`--acme-dir`: {error}.")),
        BadSettings::Unanswerable(_) => Failure::CommandLine(format!(
            "`--domain`: {error}: see `--redirect-from` and `--acme-challenge`."
        )),
        _ => Failure::CommandLine(format!("`--domain`: {error}.")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_authority_is_asked_for_is_checked_before_it_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let said = |change: &dyn Fn(&mut TlsFiles, &mut AskedAcme)| {
            let mut acme = AskedAcme {
                domains: vec!["app.example.org".to_owned()],
                agrees: true,
                folder: Some(folder.path().join("acme")),
                ..AskedAcme::default()
            };
            let mut files = TlsFiles::default();
            change(&mut files, &mut acme);
            files.acme = Some(acme);
            match check(Some(&AskedTls::Files(Box::new(files)))) {
                Ok(()) => "fine".to_owned(),
                Err(Failure::CommandLine(said) | Failure::Serving(said)) => said,
                Err(other) => panic!("{other:?}"),
            }
        };
        assert_eq!(said(&|_, _| ()), "fine");
        for (change, says) in [
            (
                &(|_: &mut TlsFiles, acme: &mut AskedAcme| acme.agrees = false)
                    as &dyn Fn(&mut TlsFiles, &mut AskedAcme),
                "`--domain`: certificates come from Let's Encrypt, whose terms of service are at \
                 https://letsencrypt.org/repository/: they have to be agreed to, with `--agree-tos`.",
            ),
            (&|_, acme| acme.emails = vec!["me".to_owned()], "`--email`: `me` is no address of mail."),
            (
                &|_, acme| acme.ca = Some("/nowhere/ca.pem".into()),
                "`--acme-ca`: the authority cannot be trusted: /nowhere/ca.pem cannot be read",
            ),
            (
                &|_, acme| acme.folder = Some("/proc/acme".into()),
                "`--acme-dir`: certificates cannot be kept in /proc/acme: ",
            ),
            (
                &|_, acme| acme.challenge = Some(Challenge::Http),
                "`--domain`: http-01 needs a port from which requests are sent on",
            ),
            (
                &|_, acme| acme.domains = vec!["*.a.org".to_owned()],
                "`--domain`: there is no certificate for `*.a.org`: ",
            ),
            (
                &|files, _| {
                    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/tls");
                    files.client_ca = Some(tests.join("ca.pem"));
                },
                "`--domain`: an authority, which has no certificate of a client, needs a port",
            ),
        ] {
            let said = said(change);
            assert!(said.starts_with(says), "{said}");
        }
    }

    #[test]
    fn a_certificate_that_is_not_there_is_said_at_once() {
        let none = PathBuf::from("/nowhere/cert.pem");
        let files = TlsFiles { pairs: vec![(none.clone(), none)], ..TlsFiles::default() };
        let asked = AskedTls::Files(Box::new(files));
        let Err(Failure::Serving(said)) = check(Some(&asked)) else { panic!("there is none") };
        assert!(said.contains("there is no file /nowhere/cert.pem"), "{said}");
        check(Some(&AskedTls::Development)).unwrap();
        check(None).unwrap();
    }
}
