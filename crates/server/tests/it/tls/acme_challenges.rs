//! TLS-ALPN-01 and HTTP-01 challenges: what an ACME authority gets, and what all other clients get
//! meanwhile.

use std::sync::Arc;

use rookery_server::tls::{CertificatePair, Challenges, Pem, Tls, TlsSettings};
use rookery_server::{Config, Listener, ListenerConfig, Redirect};
use rookery_test_support::tls::{accept_any_certificate, client_config};
use rookery_test_support::tls_file;
use rustls::ClientConfig;

use crate::support::tls::pair;
use crate::support::{App, Client, echo, hello};

/// Returns the configuration of a client that offers these protocols and, like an authority,
/// accepts any certificate.
fn offering(protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = accept_any_certificate();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

/// Starts an application whose certificate is issued by an authority and stored in a file in
/// `folder`, and a listener for plaintext HTTP.
fn served(folder: &tempfile::TempDir, challenges: &Challenges) -> (App, Listener, Tls) {
    let file = folder.path().join("certificate.pem");
    let pair = CertificatePair { certificate: Pem::File(file.clone()), key: Pem::File(file) };
    let settings = TlsSettings {
        pairs: vec![pair],
        challenges: Some(challenges.clone()),
        ..TlsSettings::default()
    };
    let tls = Tls::new(settings, |_| ()).unwrap();
    let app = App::with(
        Config::default(),
        ListenerConfig { tls: Some(tls.clone()), ..ListenerConfig::default() },
        echo(hello),
    );
    let redirect = Some(Arc::new(Redirect { tls: tls.clone(), port: 443 }));
    let site = ListenerConfig { redirect, ..ListenerConfig::default() };
    let listener = app.server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
    (app, listener, tls)
}

fn issue(folder: &tempfile::TempDir) {
    let both = ["localhost.pem", "localhost.key"]
        .map(|name| std::fs::read_to_string(tls_file(name)).unwrap());
    std::fs::write(folder.path().join("certificate.pem"), both.concat()).unwrap();
}

#[test]
fn there_is_no_tls_until_there_is_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let challenges = Challenges::new(vec!["app.example.org".to_owned()]);
    let (app, listener, tls) = served(&folder, &challenges);
    let trusting = Arc::new(client_config(None));
    let refused = Client::connect_tls(app.address, &trusting, "localhost").expect_err("an alert");
    assert!(refused.to_string().contains("AccessDenied"), "{refused}");
    // Requests over plaintext HTTP are redirected before the certificate exists, but only those for
    // hosts that will have one.
    for (host, status) in [("APP.example.org", 308), ("example.org", 421), ("127.0.0.1", 308)] {
        let mut client = Client::connect(listener.local_addr().unwrap());
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().unwrap().status, status, "{host}");
    }
    issue(&folder);
    tls.reload().unwrap();
    assert_eq!(
        Client::connect_tls(app.address, &trusting, "localhost").unwrap().get("/").status,
        200
    );
}

#[test]
fn an_authority_is_answered_over_tls_and_others_are_served_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    issue(&folder);
    let challenges = Challenges::new(vec!["app.example.org".to_owned()]);
    let (app, _listener, _) = served(&folder, &challenges);
    let asks = offering(&[b"acme-tls/1"]);
    let refused = |name: &str| {
        Client::connect_tls(app.address, &asks, name).expect_err("an alert").to_string()
    };
    assert!(refused("app.example.org").contains("NoApplicationProtocol"));
    challenges.set_tls_response("app.example.org", "token.thumbprint").unwrap();
    let mut shown = Client::connect_tls(app.address, &asks, "APP.example.org").unwrap();
    let tls = shown.tls.as_ref().unwrap();
    assert_eq!(tls.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    let der = tls.peer_certificates().unwrap()[0].clone();
    let folder_of_proof = tempfile::tempdir().unwrap();
    let path = folder_of_proof.path().join("proof.der");
    std::fs::write(&path, &der).unwrap();
    let openssl = std::process::Command::new("openssl")
        .args([
            "x509",
            "-inform",
            "DER",
            "-noout",
            "-ext",
            "subjectAltName,1.3.6.1.5.5.7.1.31",
            "-in",
        ])
        .arg(&path)
        .output();
    let text = String::from_utf8(openssl.unwrap().stdout).unwrap();
    assert!(text.contains("DNS:app.example.org"), "{text}");
    // No request is answered on a connection for a challenge.
    shown.send("GET / HTTP/1.1\r\nHost: app.example.org\r\n\r\n");
    assert!(shown.wait_for_close());
    assert_eq!(app.requests(), 0);
    assert!(refused("localhost").contains("AccessDenied"), "no answer for it");
    // A client that offers HTTP gets the ordinary certificate, whatever else it offers.
    for protocols in [&[&b"http/1.1"[..], b"acme-tls/1"][..], &[b"http/1.1"], &[]] {
        let mut client = Client::connect_tls(app.address, &offering(protocols), "localhost");
        if let Ok(client) = &mut client {
            assert_eq!(client.get("/").status, 200, "{protocols:?}");
        }
        // A client that offers only the challenge protocol and a second one is neither a browser
        // nor an authority.
        assert_eq!(client.is_ok(), protocols.len() < 2, "{protocols:?}");
    }
    assert_eq!(
        Client::connect_tls(app.address, &Arc::new(client_config(None)), "localhost")
            .unwrap()
            .get("/")
            .status,
        200
    );
    challenges.clear();
    assert!(refused("app.example.org").contains("NoApplicationProtocol"));
}

#[test]
fn an_authority_is_answered_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let challenges = Challenges::new(vec!["app.example.org".to_owned()]);
    let (app, listener, _) = served(&folder, &challenges);
    challenges.set_http_response("abc-_1", "abc-_1.thumbprint");
    let ask = |method: &str, path: &str| {
        let mut client = Client::connect(listener.local_addr().unwrap());
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: app.example.org\r\n\r\n"));
        client.response_to(method).unwrap()
    };
    let told = ask("GET", "/.well-known/acme-challenge/abc-_1");
    assert_eq!((told.status, told.body.as_slice()), (200, &b"abc-_1.thumbprint"[..]));
    assert_eq!(told.header("content-type"), Some("application/octet-stream"));
    assert_eq!(ask("HEAD", "/.well-known/acme-challenge/abc-_1").status, 200);
    assert_eq!(ask("GET", "/.well-known/acme-challenge/abc").status, 308);
    challenges.clear();
    assert_eq!(ask("GET", "/.well-known/acme-challenge/abc-_1").status, 308);
    assert_eq!(app.requests(), 0);
}

#[test]
fn what_stands_in_for_a_certificate_is_gone_when_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("certificate.pem");
    let own = CertificatePair { certificate: Pem::File(file.clone()), key: Pem::File(file) };
    let challenges = Some(Challenges::new(vec!["localhost".to_owned(), "example.test".to_owned()]));
    let settings =
        TlsSettings { pairs: vec![own, pair("other")], challenges, ..TlsSettings::default() };
    let tls = Tls::new(settings, |_| ()).unwrap();
    let app = App::with(
        Config::default(),
        ListenerConfig { tls: Some(tls.clone()), ..ListenerConfig::default() },
        echo(hello),
    );
    let trusting = Arc::new(client_config(None));
    let is_served = |name: &str| Client::connect_tls(app.address, &trusting, name).is_ok();
    assert!(is_served("example.test") && !is_served("localhost"));
    issue(&folder);
    tls.reload().unwrap();
    assert!(is_served("localhost") && !is_served("example.test"));
}
