//! Loads and reloads the certificates and settings for HTTPS.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, atomic::AtomicU64};

use rookery_acme::{Acme, BadSettings, Challenge, Renewer};
use rookery_server::tls::{
    CertificatePair, DevelopmentCertificate, Hsts, Pem, Tls, TlsError, TlsSettings, TlsVersion,
};
use rookery_settings::{GivenValue, Settings, Value};
use rookery_websocket_client::Roots;

use crate::failure::Failure;
use crate::settings::server::Https;
use crate::stderr::log_line;
use crate::user_paths::absolute;

/// The TLS configuration of the server, and the source of its certificates.
#[derive(Debug)]
pub struct TlsSetup {
    /// The TLS configuration.
    pub tls: Tls,
    /// The self-signed development certificate, if the server uses it.
    pub(crate) development: Option<DevelopmentCertificate>,
    acme: Option<(Acme, Vec<Challenge>)>,
}

impl TlsSetup {
    /// Returns the number of failed attempts to get a certificate, which the renewer keeps up to
    /// date. Returns `None` if the certificate does not come from an ACME authority.
    pub fn acme_failures(&self) -> Option<Arc<AtomicU64>> {
        self.acme.as_ref().map(|(acme, _)| acme.failures())
    }

    /// Starts the thread that orders and renews the certificate. Returns `None` if the certificate
    /// does not come from an ACME authority. Dropping the returned value stops the thread. The
    /// server must already be listening, so that it can respond to the authority's challenges.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn start_renewer(&self, notice: fn(&str)) -> io::Result<Option<Renewer>> {
        let Some((acme, challenges)) = &self.acme else { return Ok(None) };
        acme.start_renewer(self.tls.clone(), challenges.clone(), notice).map(Some)
    }
}

/// Starts the thread that orders and renews the certificate of the program, if there is one.
///
/// # Errors
/// Fails if the thread cannot be started.
pub(crate) fn start_renewer(setup: Option<&TlsSetup>) -> Result<Option<Renewer>, Failure> {
    let renewer = setup.map_or(Ok(None), |setup| setup.start_renewer(log_line));
    renewer.map_err(|error| {
        Failure::Unavailable(format!(
            "The thread that orders certificates cannot be started: {error}."
        ))
    })
}

/// The reason why HTTPS cannot be used.
#[derive(Debug)]
pub(crate) enum TlsFailure {
    /// A setting of the order of certificates is wrong. The text names the setting as the user has
    /// given it.
    Acme(BadSettings, String),
    Tls(TlsError),
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsFailure::Acme(error, _) => error.fmt(f),
            TlsFailure::Tls(error) => error.fmt(f),
        }
    }
}

/// Returns the failure of the program for a reason why HTTPS cannot be used.
impl From<TlsFailure> for Failure {
    fn from(failure: TlsFailure) -> Failure {
        match failure {
            TlsFailure::Acme(error, setting) => acme_failure(&error, &setting),
            TlsFailure::Tls(error) => Failure::Unavailable(error.to_string()),
        }
    }
}

/// Reads the certificates and keys. Creates the self-signed development certificate if the settings
/// ask for it. Returns `None` if the server does not use HTTPS.
///
/// # Errors
/// Fails if a file cannot be read, or if a certificate and its key do not match.
pub(crate) fn load(settings: &Settings) -> Result<Option<TlsSetup>, Failure> {
    if Https::of(settings) != Some(Https::Development) {
        return Ok(load_files(settings, Some(log_line), Acme::prepare)?);
    }
    let made = development_certificate()?;
    let pairs = vec![pair(&made.file, &made.file)];
    let tls = new_tls(TlsSettings { pairs, ..TlsSettings::default() }, log_line)?;
    Ok(Some(TlsSetup { tls, development: Some(made), acme: None }))
}

/// Reads the certificates and keys again from their files, and logs the result.
pub(crate) fn reload(tls: &Tls) {
    match tls.reload() {
        Ok(()) => log_line("TLS: the certificates have been read again"),
        Err(error) => {
            log_line(&format!("TLS: {error}. New connections keep using the previous certificate"));
        }
    }
}

/// Reads the certificates and keys from the files that the changed settings name, and logs the
/// change.
///
/// # Errors
/// Fails if the files cannot be used. The previous certificates stay in use.
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) fn apply(tls: &Tls, settings: &Settings) -> Result<(), Failure> {
    if Https::of(settings) != Some(Https::Files) {
        reload(tls);
        return Ok(());
    }
    tls.replace(tls_settings(settings)).map_err(|error| Failure::Unavailable(error.to_string()))?;
    log_line("TLS: the certificates have been read again");
    Ok(())
}

/// Checks the certificate and key files, or the folder of the development certificate, before R is
/// started, because a worker would report a wrong file only later. Changes no file.
///
/// # Errors
/// Fails if a file cannot be used.
pub(crate) fn check(settings: &Settings) -> Result<(), Failure> {
    if Https::of(settings) == Some(Https::Development) {
        let folder = development_folder();
        let checked = DevelopmentCertificate::check(&folder);
        return checked.map_err(|error| development_failure(&folder, &error));
    }
    load_files(settings, None, Acme::check)?;
    Ok(())
}

/// Returns the self-signed development certificate. Creates it if necessary.
///
/// # Errors
/// Fails if the certificate cannot be stored.
pub(crate) fn development_certificate() -> Result<DevelopmentCertificate, Failure> {
    let folder = development_folder();
    DevelopmentCertificate::load_or_create(&folder)
        .map_err(|error| development_failure(&folder, &error))
}

fn development_folder() -> PathBuf {
    data_folder().join("tls")
}

fn development_failure(folder: &Path, error: &io::Error) -> Failure {
    let folder = folder.display();
    Failure::Unavailable(format!(
        "The development certificate cannot be stored in {folder}: {error}."
    ))
}

fn tls_settings(all: &Settings) -> TlsSettings {
    let files = |name| all.value(name).and_then(|value| value.paths().map(<[PathBuf]>::to_vec));
    let certificates = files("tls_cert").unwrap_or_default();
    let keys = files("tls_key").unwrap_or_else(|| certificates.clone());
    let is_text = |name, text| all.text(name).is_some_and(|own| own == text);
    TlsSettings {
        pairs: certificates.iter().zip(&keys).map(|(cert, key)| pair(cert, key)).collect(),
        client_ca: all.value("tls_client_ca").as_ref().and_then(Value::path).map(pem),
        client_is_optional: is_text("tls_client_auth", "optional"),
        minimum: if is_text("tls_min_version", "1.3") {
            TlsVersion::Tls13
        } else {
            TlsVersion::Tls12
        },
        only_http1: !all.flag("http2"),
        hsts: all.value("hsts").as_ref().and_then(hsts),
        challenges: None,
    }
}

fn hsts(value: &Value) -> Option<Hsts> {
    let is_on = |name| value.field(name).and_then(Value::flag) == Some(true);
    #[expect(clippy::cast_sign_loss, reason = "it is from 0 to 2^31 - 1")]
    let max_age = value.field("max_age")?.number()? as u32;
    Some(Hsts {
        max_age,
        include_subdomains: is_on("include_subdomains"),
        preload: is_on("preload"),
    })
}

/// Reads the certificates and keys, except the development certificate. Returns `None` if the
/// server does not use HTTPS. `notice` is called with each line to log, and is `None` for a check.
/// `prepare` opens the storage of certificates from an authority, or only checks it.
pub(crate) fn load_files(
    settings: &Settings,
    notice: Option<fn(&str)>,
    prepare: fn(rookery_acme::Settings) -> Result<Acme, BadSettings>,
) -> Result<Option<TlsSetup>, TlsFailure> {
    let mut requested = tls_settings(settings);
    let (is_check, notice) = (notice.is_none(), notice.unwrap_or(|_| ()));
    let setup = |tls, acme| Ok(Some(TlsSetup { tls, development: None, acme }));
    match Https::of(settings) {
        None => return Ok(None),
        Some(Https::Authority) => {}
        Some(_) => return setup(new_tls(requested, notice)?, None),
    }
    let over_tls = requested.client_ca.is_none() || requested.client_is_optional;
    let prepared = prepare(acme_settings(settings)).and_then(|acme| {
        let challenges =
            acme.usable_challenges(settings.number("redirect_from").is_some(), over_tls)?;
        Ok((acme, challenges))
    });
    let acme = prepared.map_err(|error| {
        let setting = given_name(&error, settings);
        TlsFailure::Acme(error, setting)
    })?;
    // A server that starts orders a certificate in place of a damaged one, so it is no mistake.
    requested.pairs = if is_check { Vec::new() } else { acme.0.pairs() };
    requested.challenges = Some(acme.0.challenges());
    setup(new_tls(requested, notice)?, Some(acme))
}

pub(crate) fn acme_settings(all: &Settings) -> rookery_acme::Settings {
    let folder = all
        .value("acme_dir")
        .and_then(|folder| folder.path().map(absolute))
        .unwrap_or_else(|| data_folder().join("acme"));
    let defaults = rookery_acme::Settings::new(all.list("domain"), folder);
    rookery_acme::Settings {
        emails: all.list("email"),
        agrees_to_terms: all.flag("agree_tos"),
        directory: all.text("acme_directory").unwrap_or_else(|| defaults.directory.clone()),
        roots: match all.value("acme_ca").as_ref().and_then(Value::path).map(pem) {
            None => Roots::System,
            Some(Pem::Text(text)) => Roots::Custom(text),
            Some(Pem::File(path)) => Roots::Custom(path.to_string_lossy().into_owned()),
        },
        profile: all.text("acme_profile"),
        ..defaults
    }
}

/// Returns the name of a wrong ACME setting, as the user has given it.
fn given_name(error: &BadSettings, all: &Settings) -> String {
    let name = match error {
        BadSettings::Directory(_) => "acme_directory",
        BadSettings::Roots(_) => "acme_ca",
        BadSettings::Folder(..) => "acme_dir",
        BadSettings::Email(_) => return "`--email`".to_owned(),
        _ => return "`--domain`".to_owned(),
    };
    all.given(name).map_or_else(|| format!("`{name}`"), GivenValue::name)
}

/// Returns the failure for the wrong ACME setting with this name. Its message names the option that
/// corrects the setting.
fn acme_failure(error: &BadSettings, setting: &str) -> Failure {
    match error {
        BadSettings::Terms(_) => {
            Failure::CommandLine(format!("{setting}: {error} with `--agree-tos`."))
        }
        BadSettings::Directory(_) | BadSettings::Roots(_) | BadSettings::Folder(..) => {
            Failure::Unavailable(format!("{setting}: {error}."))
        }
        BadSettings::Unanswerable => {
            Failure::CommandLine(format!("{setting}: {error}: see `--redirect-from`."))
        }
        _ => Failure::CommandLine(format!("{setting}: {error}.")),
    }
}

fn pair(certificate: &Path, key: &Path) -> CertificatePair {
    CertificatePair { certificate: pem(certificate), key: pem(key) }
}

/// Returns the source of a certificate or key: the path of a file, or in R also the text itself.
fn pem(path: &Path) -> Pem {
    match Pem::from_text_or_path(&path.to_string_lossy()) {
        Pem::File(_) => Pem::File(absolute(path)),
        text @ Pem::Text(_) => text,
    }
}

fn new_tls(settings: TlsSettings, notice: fn(&str)) -> Result<Tls, TlsFailure> {
    Tls::new(settings, notice).map_err(TlsFailure::Tls)
}

/// Returns the folder for the user's data, which is `tools::R_user_dir("rookery", "data")` in R.
fn data_folder() -> PathBuf {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual = if cfg!(target_os = "macos") {
        "~/Library/Application Support/org.R-project.R"
    } else {
        "~/.local/share"
    };
    let base = folder("R_USER_DATA_DIR")
        .or_else(|| folder("XDG_DATA_HOME"))
        .unwrap_or_else(|| usual.into());
    absolute(&base).join("R").join("rookery")
}

#[cfg(test)]
mod tests {
    use rookery_acme::LETS_ENCRYPT;
    use rookery_settings::{Raw, Source, table};

    use super::*;
    use crate::command_line::tests::options_of;
    use crate::failure::message_of;

    fn settings(words: &[&str]) -> Settings {
        settings_with_file(words, &[])
    }

    /// Returns the settings of a command line and of a `_server.yml`.
    fn settings_with_file(words: &[&str], in_file: &[(&str, &str)]) -> Settings {
        let mut given = options_of(&[&["serve", "a"], words].concat()).given;
        given.extend(in_file.iter().map(|(name, text)| {
            GivenValue::parse(table::row(name), &Raw::from(*text), Source::File).unwrap()
        }));
        Settings::combine(given)
    }

    fn files(words: &[&str]) -> TlsSettings {
        tls_settings(&settings(words))
    }

    #[test]
    fn converts_settings_of_certificates_and_hsts() {
        let pairs = |requested: &TlsSettings| -> Vec<(Pem, Pem)> {
            let pairs = requested.pairs.iter();
            pairs.map(|pair| (pair.certificate.clone(), pair.key.clone())).collect()
        };
        let pem = |path| Pem::File(absolute(Path::new(path)));
        let one = files(&["--tls-cert", "c"]);
        assert_eq!(pairs(&one), [(pem("c"), pem("c"))]);
        assert_eq!((one.client_is_optional, one.minimum), (false, TlsVersion::Tls12));
        assert_eq!((one.only_http1, one.hsts), (false, None));
        assert_eq!(settings(&["--tls-cert", "c"]).number("redirect_from"), None);
        let two = files(&[
            "--tls-cert=c",
            "--tls-key=k",
            "--tls-cert=d",
            "--tls-key=l",
            "--tls-client-ca=r",
            "--tls-client-auth=optional",
            "--tls-min-version=1.3",
            "--no-http2",
        ]);
        assert_eq!(pairs(&two), [(pem("c"), pem("k")), (pem("d"), pem("l"))]);
        assert_eq!((two.client_is_optional, two.minimum), (true, TlsVersion::Tls13));
        assert!(two.client_ca == Some(pem("r")) && two.only_http1);
        let own = ["--tls-cert=c", "--hsts=60,subdomains", "--redirect-from", "80"];
        assert_eq!(settings(&own).number("redirect_from"), Some(80.0));
        let hsts = Hsts { max_age: 60, include_subdomains: true, preload: false };
        assert_eq!(files(&own).hsts, Some(hsts));
        assert_eq!(files(&["--tls-cert=c", "--hsts=off"]).hsts, None);
    }

    #[test]
    fn converts_acme_settings() {
        let requested =
            |words: &[&str]| acme_settings(&settings(&[&["--domain=b.org"], words].concat()));
        let plain = requested(&[]);
        assert!(
            !plain.agrees_to_terms && plain.directory == LETS_ENCRYPT && plain.emails.is_empty()
        );
        let own = requested(&["--domain=c.org", "--agree-tos", "--email=me@b.org"]);
        assert_eq!((own.domains.len(), own.emails.len(), own.agrees_to_terms), (2, 1, true));
        let in_file = [
            ("acme_directory", "https://ca/"),
            ("acme_profile", "shortlived"),
            ("acme_dir", "d"),
            ("acme_ca", "f"),
        ];
        let acme = acme_settings(&settings_with_file(&["--domain=b.org"], &in_file));
        assert_eq!(
            (acme.directory.as_str(), acme.profile.as_deref()),
            ("https://ca/", Some("shortlived"))
        );
        assert_eq!(acme.folder, absolute(Path::new("d")));
        assert!(matches!(acme.roots, Roots::Custom(path) if path.ends_with("/f")));
    }

    #[test]
    fn checks_acme_settings_before_sending_requests() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("acme");
        let client_ca =
            format!("--tls-client-ca={}", rookery_test_support::tls_file("ca.pem").display());
        // Without this option the redirect port would be 80.
        let defaults = ["--domain=app.example.org", "--redirect-from=none"];
        let checked = |words: &[&str], in_file: (&str, &str)| {
            let words = [&defaults[..], words].concat();
            check(&settings_with_file(&words, &[("acme_dir", dir.to_str().unwrap()), in_file]))
        };
        let nothing = ("port", "8000");
        checked(&["--agree-tos"], nothing).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a check changes nothing");
        for (words, in_file, expected) in [
            (
                &[][..],
                nothing,
                "`--domain`: certificates come from Let's Encrypt, whose terms of service are at \
                 https://letsencrypt.org/repository/: agree to these terms with `--agree-tos`.",
            ),
            (&["--agree-tos", "--email=me"], nothing, "`--email`: `me` is not an e-mail address."),
            (
                &["--agree-tos"],
                ("acme_ca", "/nowhere/ca.pem"),
                "`tls.acme.ca:`: the root certificates for the authority cannot be used: \
                 /nowhere/ca.pem cannot be read",
            ),
            (
                &["--agree-tos"],
                ("acme_dir", "/dev/null/acme"),
                "`tls.acme.dir:`: certificates cannot be stored in /dev/null/acme: ",
            ),
            (
                &["--agree-tos", "--domain=*.a.org"],
                nothing,
                "`--domain`: no certificate can be ordered for `*.a.org`: ",
            ),
            (
                &["--agree-tos", &client_ca],
                nothing,
                "`--domain`: the authority has no client certificate, so a redirect port is needed",
            ),
        ] {
            let message = message_of(checked(words, in_file));
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn a_missing_certificate_is_reported_at_once() {
        let message = message_of(check(&settings(&["--tls-cert=/nowhere/cert.pem"])));
        assert!(message.contains("there is no file /nowhere/cert.pem"), "{message}");
        check(&settings(&["--tls=dev"])).unwrap();
        check(&settings(&[])).unwrap();
    }
}
