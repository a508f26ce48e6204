//! Certificates of the server: the choice by name, errors in the files, client certificates, and
//! changes while the server runs.

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rookery_server::tls::{CertificatePair, DevelopmentCertificate, Pem, Tls, TlsSettings};
use rookery_server::{Config, ListenerConfig};
use rookery_test_support::tls::{
    accept_any_certificate, client_config, client_config_with_versions,
};
use rookery_test_support::tls_file;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::support::tls::{pair, settings, site};
use crate::support::{App, Client, echo, hello, masked_frame, wait_until};

fn server(settings: TlsSettings) -> App {
    App::with(Config::default(), site(settings), echo(hello))
}

/// Returns the certificate that the server sent.
fn given(client: &Client) -> Vec<u8> {
    client.tls.as_ref().unwrap().peer_certificates().unwrap()[0].to_vec()
}

fn certificate(name: &str) -> Vec<u8> {
    CertificateDer::from_pem_file(tls_file(&format!("{name}.pem"))).unwrap().to_vec()
}

/// Returns the configuration of a client that accepts any certificate and resumes no sessions.
fn anything() -> Arc<ClientConfig> {
    let mut config = accept_any_certificate();
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

#[test]
fn a_certificate_is_chosen_by_the_name_that_is_asked_for() {
    let app = server(settings(&["localhost", "other", "rsa"]));
    for (name, expected) in [
        ("localhost", "localhost"),
        ("example.test", "other"),
        ("a.wild.test", "other"),
        ("rsa.test", "rsa"),
        // No certificate has the name, so the first one is used.
        ("wild.test", "localhost"),
        ("a.b.wild.test", "localhost"),
        ("unknown.test", "localhost"),
        ("127.0.0.1", "localhost"),
    ] {
        let mut client = Client::connect_tls(app.address, &anything(), name).unwrap();
        assert!(given(&client) == certificate(expected), "{name}");
        assert_eq!(client.get("/").status, 200);
    }
    // The chain is complete, so that clients that verify it accept the certificate.
    for name in ["localhost", "example.test", "a.wild.test", "rsa.test"] {
        let client =
            Client::connect_tls(app.address, &Arc::new(client_config(None)), name).unwrap();
        assert_eq!(client.tls.unwrap().peer_certificates().unwrap().len(), 2);
    }
    assert!(
        Client::connect_tls(app.address, &Arc::new(client_config(None)), "unknown.test").is_err()
    );
}

#[test]
fn certificate_and_key_may_be_text() {
    let text = |name: &str| Pem::from_text_or_path(&fs::read_to_string(tls_file(name)).unwrap());
    let pair = CertificatePair { certificate: text("rsa.pem"), key: text("rsa.key") };
    assert!(!format!("{pair:?}").contains("BEGIN"), "a key in a log");
    let app = server(TlsSettings { pairs: vec![pair], ..TlsSettings::default() });
    Client::connect_tls(app.address, &Arc::new(client_config(None)), "rsa.test").unwrap();
}

#[test]
fn pem_is_taken_as_other_programs_write_it() {
    let read = |name: &str| fs::read_to_string(tls_file(name)).unwrap();
    let (certificate, key) = (read("localhost.pem"), read("localhost.key"));
    let folder = tempfile::tempdir().unwrap();
    for (what, certificate, key) in [
        ("lines of Windows", certificate.replace('\n', "\r\n"), key.replace('\n', "\r\n")),
        ("a byte order mark", format!("\u{FEFF}{certificate}"), format!("\u{FEFF}{key}")),
        (
            "what openssl says of it before",
            format!("Bag Attributes\n    friendlyName: a\nsubject=CN = a\n{certificate}"),
            format!("Bag Attributes\n    localKeyID: 01\nKey Attributes: <No Attributes>\n{key}"),
        ),
        ("blanks before", format!(" \n\n{certificate}"), format!("\n{key}")),
        ("both in both", format!("{key}{certificate}"), format!("{certificate}{key}")),
        (
            "parameters, and another key behind",
            certificate.clone(),
            format!(
                "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n{key}{}",
                read("rsa.key")
            ),
        ),
        ("no end of line", certificate.trim_end().to_owned(), key.trim_end().to_owned()),
    ] {
        let paths = [folder.path().join("c.pem"), folder.path().join("k.pem")];
        fs::write(&paths[0], &certificate).unwrap();
        fs::write(&paths[1], &key).unwrap();
        let files = CertificatePair {
            certificate: Pem::from_text_or_path(paths[0].to_str().unwrap()),
            key: Pem::from_text_or_path(paths[1].to_str().unwrap()),
        };
        let text = CertificatePair {
            certificate: Pem::from_text_or_path(&certificate),
            key: Pem::from_text_or_path(&key),
        };
        for pair in [files, text] {
            let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
            let tls = Tls::new(settings, |_| ()).unwrap_or_else(|error| panic!("{what}: {error}"));
            let app = App::with(
                Config::default(),
                ListenerConfig { tls: Some(tls), ..ListenerConfig::default() },
                echo(hello),
            );
            let client =
                Client::connect_tls(app.address, &Arc::new(client_config(None)), "localhost")
                    .unwrap();
            assert_eq!(client.tls.unwrap().peer_certificates().unwrap().len(), 2, "{what}");
        }
    }
}

#[test]
fn the_text_of_a_key_is_never_said() {
    let key = fs::read_to_string(tls_file("localhost.key")).unwrap();
    let secret = key.lines().nth(1).unwrap();
    for text in [
        format!("Bag Attributes\n{key}"),
        format!("\u{FEFF}{key}"),
        key.replace("PRIVATE KEY", "SECRET KEY"),
        key.replace('\n', ""),
        key[..key.len() - 30].to_owned(),
    ] {
        let pair = CertificatePair {
            certificate: Pem::File(tls_file("other.pem")),
            key: Pem::from_text_or_path(&text),
        };
        let said = format!("{pair:?}");
        assert!(!said.contains(secret), "{said}");
        let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
        let error = Tls::new(settings, |_| ()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(secret), "{error}");
    }
}

#[test]
fn a_client_shows_who_it_is() {
    let who = |is_optional| {
        let settings = TlsSettings {
            client_ca: Some(Pem::File(tls_file("ca.pem"))),
            client_is_optional: is_optional,
            ..settings(&["localhost"])
        };
        App::with(
            Config::default(),
            site(settings),
            echo(|exchange| {
                let who = exchange.client().map_or_else(
                    || "nobody".to_owned(),
                    |client| format!("{} {}", client.subject, client.fingerprint),
                );
                exchange.begin_response(200);
                exchange.set_response_body(who.as_bytes());
            }),
        )
    };
    let ask = |app: &App, identity| -> Result<String, String> {
        // With TLS 1.3 a client receives the rejection of its certificate after the handshake.
        let mut client =
            Client::connect_tls(app.address, &Arc::new(client_config(identity)), "localhost")
                .map_err(|error| error.to_string())?;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut tls = client.tls.take().unwrap();
        let mut stream = rustls::Stream::new(&mut *tls, &mut client.socket);
        let mut answer = [0; 4096];
        let n = std::io::Read::read(&mut stream, &mut answer).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&answer[..n])
            .split("\r\n\r\n")
            .nth(1)
            .unwrap_or_default()
            .to_owned())
    };
    let required = who(false);
    let ada = ask(&required, Some("client")).unwrap();
    let (subject, fingerprint) = ada.rsplit_once(' ').unwrap();
    assert_eq!(subject, "CN=Ada,O=Engines\\, Analytical,C=GB");
    assert_eq!(
        fingerprint,
        hex(ring::digest::digest(&ring::digest::SHA256, &certificate("client")).as_ref())
    );
    let refused = ask(&required, None).unwrap_err();
    assert!(refused.contains("CertificateRequired"), "{refused}");
    let refused = ask(&required, Some("stranger")).unwrap_err();
    assert!(refused.contains("alert"), "{refused}");
    let optional = who(true);
    assert_eq!(ask(&optional, None).unwrap(), "nobody");
    assert_eq!(ask(&optional, Some("client")).unwrap(), ada);
    assert!(ask(&optional, Some("stranger")).is_err());
}

#[test]
fn a_client_that_comes_back_with_a_ticket_is_who_it_was() {
    let settings =
        TlsSettings { client_ca: Some(Pem::File(tls_file("ca.pem"))), ..settings(&["localhost"]) };
    let app = App::with(
        Config::default(),
        site(settings),
        echo(|exchange| {
            let who =
                exchange.client().map_or("nobody", |client| client.subject.as_str()).to_owned();
            exchange.begin_response(200);
            exchange.set_response_body(who.as_bytes());
        }),
    );
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = Arc::new(client_config_with_versions(Some("client"), &[version]));
        for kind in [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed] {
            let mut client = Client::connect_tls(app.address, &config, "localhost").unwrap();
            assert_eq!(client.get("/").body, b"CN=Ada,O=Engines\\, Analytical,C=GB");
            assert_eq!(client.tls.as_ref().unwrap().handshake_kind(), Some(kind));
        }
    }
    // The certificate has the right issuer, but is only for servers.
    let config = Arc::new(client_config(Some("other")));
    let refused = Client::connect_tls(app.address, &config, "localhost").and_then(|mut client| {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut tls = client.tls.take().unwrap();
        std::io::Read::read(&mut rustls::Stream::new(&mut *tls, &mut client.socket), &mut [0; 100])
    });
    assert!(refused.is_err(), "a certificate of a server was taken for a client's");
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

// ---- errors in the files ----

#[cfg(unix)]
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[cfg(unix)]
fn note(line: &str) {
    SAID.lock().unwrap().push(line.to_owned());
}

/// Returns the error for a pair of files, or an empty text.
fn fault(certificate: &Path, key: &Path) -> String {
    let pair =
        CertificatePair { certificate: Pem::File(certificate.into()), key: Pem::File(key.into()) };
    let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
    Tls::new(settings, |_| ()).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn every_fault_names_the_file_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    fs::write(&empty, "").unwrap();
    let broken = folder.path().join("broken.pem");
    fs::write(&broken, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let cut = folder.path().join("cut.pem");
    fs::write(&cut, "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    let (good, key) = (tls_file("localhost.pem"), tls_file("localhost.key"));
    let missing = folder.path().join("missing.pem");
    for (certificate, key, expected) in [
        (
            missing.clone(),
            key.clone(),
            &["the certificate cannot be read: there is no file", "missing.pem"][..],
        ),
        (good.clone(), missing, &["the key cannot be read: there is no file"]),
        (folder.path().into(), key.clone(), &["the certificate cannot be read", "is a folder"]),
        (empty.clone(), key.clone(), &["empty.pem contains no certificate", "it is not PEM"]),
        (good.clone(), empty, &["empty.pem contains no private key"]),
        (
            key.clone(),
            good.clone(),
            &[
                "contains no certificate, but: PRIVATE KEY",
                "have certificate and key been swapped?",
            ],
        ),
        (
            good.clone(),
            tls_file("other.pem"),
            &["other.pem contains no private key, but: CERTIFICATE", "swapped"],
        ),
        (
            good.clone(),
            tls_file("encrypted.key"),
            &["encrypted.key is encrypted", "openssl pkey -in"],
        ),
        (
            good.clone(),
            tls_file("encrypted-traditional.key"),
            &["is encrypted", "openssl pkey -in"],
        ),
        (
            tls_file("localhost.der"),
            key.clone(),
            &["is not PEM but DER", "openssl x509 -inform DER -in"],
        ),
        (tls_file("localhost.p12"), key.clone(), &["PKCS#12", "openssl pkcs12 -in"]),
        (
            good.clone(),
            tls_file("localhost-key.der"),
            &["is not PEM but DER", "openssl pkey -inform DER -in"],
        ),
        (
            good.clone(),
            tls_file("localhost.p12"),
            &["the key in", "PKCS#12", "openssl pkcs12 -in", "-nocerts"],
        ),
        (
            good.clone(),
            folder.path().into(),
            &["the key cannot be read", "is a folder; name the file in it"],
        ),
        (
            good.clone(),
            tls_file("other.key"),
            &["other.key is not that of the certificate in", "localhost.pem: has only one"],
        ),
        (broken, key.clone(), &["the certificate in", "broken.pem is malformed"]),
        (cut, key, &["the certificate in", "cut.pem is malformed"]),
    ] {
        let said = fault(&certificate, &key);
        for words in expected {
            assert!(said.contains(words), "{said}\nhas no {words:?}");
        }
    }
    let nothing = Tls::new(TlsSettings::default(), |_| ()).unwrap_err();
    assert_eq!(nothing.to_string(), "TLS needs a certificate and its key");
    let settings = TlsSettings {
        client_ca: Some(Pem::File(tls_file("client.key"))),
        ..settings(&["localhost"])
    };
    let said = Tls::new(settings, |_| ()).unwrap_err().to_string();
    assert!(said.contains("client.key contains no certificate, but: PRIVATE KEY"), "{said}");
}

/// On Linux a thread can have another file-system user than its process.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_may_not_be_read_is_named_with_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("secret.key");
    fs::copy(tls_file("localhost.key"), &key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o0)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let looking = std::thread::spawn(move || {
        // SAFETY: The call has only a number as its argument. It changes the file-system user of
        // this thread, because root could read every file.
        unsafe { libc::setfsuid(65_534) };
        assert!(fs::read(&key).is_err(), "this user reads everything");
        fault(&tls_file("localhost.pem"), &key)
    });
    let said = looking.join().unwrap();
    assert!(said.contains("secret.key") && said.contains("runs as the user with the id"), "{said}");
}

#[cfg(unix)]
#[test]
fn what_is_odd_and_no_error_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("open.key");
    fs::copy(tls_file("localhost.key"), &key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let swapped = folder.path().join("swapped.pem");
    let other = fs::read_to_string(tls_file("stranger.pem")).unwrap();
    let own = fs::read_to_string(tls_file("localhost.pem")).unwrap();
    let leaf = &own[..own.find("-----END CERTIFICATE-----\n").unwrap() + 26];
    fs::write(&swapped, [leaf, &other].concat()).unwrap();
    let alone = folder.path().join("alone.pem");
    fs::write(&alone, leaf).unwrap();
    for (certificate, key, expected) in [
        (
            tls_file("expired.pem"),
            tls_file("expired.key"),
            "expired.pem expired on Fri, 01 Jan 2021 00:00:00 GMT",
        ),
        (
            tls_file("future.pem"),
            tls_file("future.key"),
            "01 Jan 2090 00:00:00 GMT; is the clock right?",
        ),
        (
            tls_file("localhost.pem"),
            key,
            "open.key can be read by everybody (mode 0644): chmod g-w,o= ",
        ),
        (
            swapped,
            tls_file("localhost.key"),
            "is out of order: certificate 1 must be followed by that of CN=Rookery tests, not by that of CN=stranger",
        ),
        (
            alone,
            tls_file("localhost.key"),
            "contains only the server's own certificate: unless clients trust CN=Rookery tests as a root",
        ),
    ] {
        let pair = CertificatePair { certificate: Pem::File(certificate), key: Pem::File(key) };
        let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
        Tls::new(settings, note).unwrap();
        let said = SAID.lock().unwrap().clone();
        assert!(said.iter().any(|line| line.contains(expected)), "{said:?} has no {expected:?}");
    }
}

#[cfg(unix)]
static READERS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[cfg(unix)]
#[test]
fn a_key_that_others_read_or_change_is_spoken_of() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, expected) in [
        (0o600, None),
        (0o400, None),
        // Debian gives the servers in the group `ssl-cert` access in this way.
        (0o640, None),
        (0o644, Some("can be read by everybody (mode 0644)")),
        (0o604, Some("can be read by everybody (mode 0604)")),
        (0o660, Some("can be changed by others (mode 0660)")),
        (0o602, Some("can be changed by others (mode 0602)")),
    ] {
        let key = folder.path().join(format!("{mode:o}.key"));
        fs::copy(tls_file("localhost.key"), &key).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let pair = CertificatePair {
            certificate: Pem::File(tls_file("localhost.pem")),
            key: Pem::File(key),
        };
        let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
        READERS.lock().unwrap().clear();
        Tls::new(settings, |line| READERS.lock().unwrap().push(line.to_owned())).unwrap();
        let said = READERS.lock().unwrap().clone();
        assert_eq!(said.len(), usize::from(expected.is_some()), "{said:?}");
        assert!(
            said.iter().all(|line| line.contains(expected.unwrap())),
            "{said:?} has no {expected:?}"
        );
    }
}

// ---- changes of the files ----

/// A certificate and its key in a folder of their own, to be changed by the test.
struct Files {
    _folder: tempfile::TempDir,
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn new(name: &str) -> Files {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let files = Files { _folder: folder, certificate, key };
        files.become_pair(name);
        files
    }

    fn become_pair(&self, name: &str) {
        Files::replace(&self.certificate, &format!("{name}.pem"));
        Files::replace(&self.key, &format!("{name}.key"));
    }

    /// Replaces a file by renaming, as programs that renew certificates do.
    fn replace(path: &Path, name: &str) {
        let next = path.with_extension("next");
        fs::copy(tls_file(name), &next).unwrap();
        fs::rename(&next, path).unwrap();
    }

    fn settings(&self) -> TlsSettings {
        let pair = CertificatePair {
            certificate: Pem::File(self.certificate.clone()),
            key: Pem::File(self.key.clone()),
        };
        TlsSettings { pairs: vec![pair], ..TlsSettings::default() }
    }
}

#[test]
fn a_reload_changes_what_new_connections_are_given_and_drops_none() {
    let files = Files::new("localhost");
    let tls = Tls::new(files.settings(), |_| ()).unwrap();
    let site = ListenerConfig { tls: Some(tls.clone()), ..ListenerConfig::default() };
    let app = App::with(Config::default(), site, echo(hello));
    let connect = || Client::connect_tls(app.address, &anything(), "localhost").unwrap();
    let mut open = connect();
    let mut socket = connect();
    socket.upgrade("/ws");
    assert!(given(&open) == certificate("localhost"));
    files.become_pair("other");
    assert!(given(&connect()) == certificate("localhost"), "not before it is asked for");
    tls.reload().unwrap();
    assert!(given(&connect()) == certificate("other"));
    assert_eq!(open.get("/").status, 200);
    socket.send(masked_frame(0x81, b"still here"));
    assert_eq!(socket.frame(), Some((1, b"still here".to_vec())));
    // If only one of the two files was renewed, or a file is invalid or missing, the previous
    // certificate stays.
    Files::replace(&files.certificate, "rsa.pem");
    assert!(
        tls.reload().unwrap_err().to_string().contains("has only one of the two been renewed?")
    );
    assert!(given(&connect()) == certificate("other"));
    fs::write(&files.key, "rubbish").unwrap();
    assert!(tls.reload().unwrap_err().to_string().contains("contains no private key"));
    fs::remove_file(&files.key).unwrap();
    assert!(tls.reload().unwrap_err().to_string().contains("there is no file"));
    assert!(given(&connect()) == certificate("other"));
    files.become_pair("rsa");
    tls.reload().unwrap();
    assert!(given(&connect()) == certificate("rsa"));
    for client in [&mut open, &mut connect()] {
        assert_eq!(client.get("/").status, 200);
    }
}

#[test]
fn other_files_replace_those_that_were_served_unless_they_cannot_be_read() {
    let files = Files::new("localhost");
    let tls = Tls::new(settings(&["localhost"]), |_| ()).unwrap();
    let site = ListenerConfig { tls: Some(tls.clone()), ..ListenerConfig::default() };
    let app = App::with(Config::default(), site, echo(hello));
    let connect = || Client::connect_tls(app.address, &anything(), "localhost").unwrap();
    let mut open = connect();
    files.become_pair("other");
    tls.replace(files.settings()).unwrap();
    assert!(given(&connect()) == certificate("other"));
    assert_eq!(open.get("/").status, 200);
    // Later reloads read the new files.
    files.become_pair("rsa");
    tls.reload().unwrap();
    assert!(given(&connect()) == certificate("rsa"));
    let none = TlsSettings { pairs: vec![pair("nobody")], ..TlsSettings::default() };
    assert!(tls.replace(none).unwrap_err().to_string().contains("there is no file"));
    files.become_pair("localhost");
    tls.reload().unwrap();
    assert!(given(&connect()) == certificate("localhost"));
}

#[test]
fn a_reload_under_load_loses_no_request() {
    let files = Files::new("localhost");
    let tls = Tls::new(files.settings(), |_| ()).unwrap();
    let site = ListenerConfig { tls: Some(tls.clone()), ..ListenerConfig::default() };
    let app = App::with(Config::default(), site, echo(hello));
    let address = app.address;
    let clients: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..40 {
                    let mut client =
                        Client::connect_tls(address, &anything(), "localhost").unwrap();
                    for _ in 0..5 {
                        assert_eq!(client.get("/").status, 200);
                    }
                }
            })
        })
        .collect();
    for name in ["other", "rsa", "localhost"].repeat(4) {
        files.become_pair(name);
        tls.reload().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(app.requests(), 800);
}

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn files_that_change_are_noticed() {
    let files = Files::new("localhost");
    let tls =
        Tls::new(files.settings(), |line| TOLD.lock().unwrap().push(line.to_owned())).unwrap();
    let app = App::with(
        Config::default(),
        ListenerConfig { tls: Some(tls), ..ListenerConfig::default() },
        echo(hello),
    );
    let is = |name: &str| {
        let client = Client::connect_tls(app.address, &anything(), "localhost").unwrap();
        given(&client) == certificate(name)
    };
    let told =
        |words: &str| TOLD.lock().unwrap().iter().filter(|line| line.contains(words)).count();
    assert!(is("localhost"));
    // An invalid pair is reported once, and the next valid pair is used.
    Files::replace(&files.certificate, "other.pem");
    wait_until("the bad pair is told", || told("keep using the previous certificate") == 1);
    assert!(is("localhost"));
    Files::replace(&files.key, "other.key");
    wait_until("the good pair is told", || told("the certificate has changed") == 1);
    assert!(is("other"));
    assert_eq!(told("keep using the previous certificate"), 1);
}

/// certbot keeps the paths of the files, which are links to the newest files.
#[cfg(unix)]
#[test]
fn links_that_lead_elsewhere_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let link = |name: &str, to: &Path| {
        let (next, path) = (folder.path().join("next"), folder.path().join(name));
        symlink(to, &next).unwrap();
        fs::rename(&next, &path).unwrap();
        path
    };
    let paths = [("fullchain.pem", "localhost.pem"), ("privkey.pem", "localhost.key")];
    let [chain, key] = paths.map(|(name, to)| Pem::File(link(name, &tls_file(to))));
    let pair = CertificatePair { certificate: chain, key };
    let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
    let app = server(settings);
    let is = |name: &str| {
        given(&Client::connect_tls(app.address, &anything(), "localhost").unwrap())
            == certificate(name)
    };
    assert!(is("localhost"));
    link("fullchain.pem", &tls_file("other.pem"));
    link("privkey.pem", &tls_file("other.key"));
    wait_until("the new pair is given", || is("other"));
}

#[test]
fn who_is_not_trusted_any_more_does_not_come_back_with_a_ticket() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    fs::copy(tls_file("ca.pem"), &ca).unwrap();
    let settings =
        TlsSettings { client_ca: Some(Pem::File(ca.clone())), ..settings(&["localhost"]) };
    let tls = Tls::new(settings, |_| ()).unwrap();
    let site = ListenerConfig { tls: Some(tls.clone()), ..ListenerConfig::default() };
    let app = App::with(Config::default(), site, echo(hello));
    let config = Arc::new(client_config(Some("client")));
    let mut client = Client::connect_tls(app.address, &config, "localhost").unwrap();
    assert_eq!(client.get("/").status, 200);
    fs::copy(tls_file("stranger.pem"), &ca).unwrap();
    tls.reload().unwrap();
    assert_eq!(client.get("/").status, 200, "an open one goes on");
    let refused = Client::connect_tls(app.address, &config, "localhost").map(|mut client| {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut tls = client.tls.take().unwrap();
        let mut stream = rustls::Stream::new(&mut *tls, &mut client.socket);
        std::io::Read::read(&mut stream, &mut [0; 100])
    });
    assert!(matches!(refused, Err(_) | Ok(Err(_))), "it came back");
}

// ---- the development certificate ----

#[test]
fn the_certificate_to_develop_with_is_one_that_openssl_takes() {
    let folder = tempfile::tempdir().unwrap();
    let made = DevelopmentCertificate::load_or_create(&folder.path().join("kept")).unwrap();
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).arg(&made.file).output().ok()?;
        assert!(output.status.success(), "{output:?}");
        // Versions of OpenSSL before 3.2 write names with spaces around the equals sign.
        Some(String::from_utf8_lossy(&output.stdout).replace(" = ", "="))
    };
    let Some(text) = openssl(&["x509", "-noout", "-text", "-fingerprint", "-sha256", "-in"]) else {
        return println!("NOT TESTED: there is no openssl");
    };
    for words in [
        "Version: 3 (0x2)",
        "Signature Algorithm: ecdsa-with-SHA256",
        "Issuer: CN=localhost (rookery)",
        "ASN1 OID: prime256v1",
        "DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1",
        "CA:FALSE",
        "Digital Signature",
        "TLS Web Server Authentication",
    ] {
        assert!(text.contains(words), "{text}\nhas no {words:?}");
    }
    let fingerprint = text.lines().find_map(|line| line.split_once("Fingerprint=")).unwrap().1;
    assert_eq!(fingerprint.replace(':', "").to_ascii_lowercase(), made.fingerprint);
    let path = made.file.to_str().unwrap();
    openssl(&[
        "verify",
        "-x509_strict",
        "-purpose",
        "sslserver",
        "-verify_hostname",
        "localhost",
        "-CAfile",
        path,
    ]);
    openssl(&["pkey", "-noout", "-check", "-in"]);

    let pair = CertificatePair {
        certificate: Pem::File(made.file.clone()),
        key: Pem::File(made.file.clone()),
    };
    let app = server(TlsSettings { pairs: vec![pair], ..TlsSettings::default() });
    let url = format!("https://localhost:{}/", app.address.port());
    let resolve = format!("localhost:{}:127.0.0.1", app.address.port());
    let curl =
        Command::new("curl").args(["-sS", "--resolve", &resolve, "--cacert", path, &url]).output();
    if let Ok(output) = curl {
        assert_eq!(output.stdout, b"Hello, World!", "{output:?}");
    }
}

#[test]
fn a_pair_that_is_given_twice_is_one() {
    let app =
        server(TlsSettings { pairs: vec![pair("other"), pair("other")], ..TlsSettings::default() });
    Client::connect_tls(app.address, &Arc::new(client_config(None)), "example.test").unwrap();
}
