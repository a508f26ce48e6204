//! Tests of `wss`, including servers that must not be trusted. The certificates are those of the
//! server's tests.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rookery_server::tls::{CertificatePair, Pem, Tls, TlsSettings};
use rookery_server::{Config, Listener, ListenerConfig, Server};
use rookery_test_support::tls_file;
use rookery_websocket_client::{Clients, Content, Event, OpenError, Roots, RootsError, Settings};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::support::{Bench, Peer, SHORT, drain};

fn roots(name: &str) -> Roots {
    Roots::Custom(tls_file(name).display().to_string())
}

/// Starts a server that returns each message and has the certificate with this name; returns its
/// port.
fn secure_echo(name: &str) -> (Server, Listener, u16) {
    let pair = CertificatePair {
        certificate: Pem::File(tls_file(&format!("{name}.pem"))),
        key: Pem::File(tls_file(&format!("{name}.key"))),
    };
    let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
    let site = ListenerConfig {
        tls: Some(Tls::new(settings, |_| ()).unwrap()),
        ..ListenerConfig::default()
    };
    let server = Server::with_closure_and_echo(Config::default(), |_| ());
    let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
    let port = listener.local_addr().unwrap().port();
    (server, listener, port)
}

fn failed(url: &str, roots: &Roots) -> String {
    let mut bench = Bench::new();
    bench.open_with(url, Settings::default(), roots);
    bench.failed().0
}

#[test]
fn wss_works_with_a_private_authority() {
    let (_server, _listener, port) = secure_echo("localhost");
    let text = std::fs::read_to_string(tls_file("ca.pem")).unwrap();
    for roots in [roots("ca.pem"), Roots::Custom(text)] {
        let mut bench = Bench::new();
        let client =
            bench.open_with(&format!("wss://localhost:{port}/"), Settings::default(), &roots);
        assert!(matches!(bench.next(), Event::Opened { .. }));
        for len in [0, 10, 100_000, 3_000_000] {
            let content = Content::Binary(vec![9; len]);
            bench.clients.send(client, content.clone());
            assert_eq!(bench.message(), content);
        }
        bench.clients.close(client, 1000, "");
        assert_eq!(bench.closed(), (1000, String::new(), true));
    }
}

#[test]
fn the_error_for_an_untrusted_authority_names_a_remedy() {
    let (_server, _listener, port) = secure_echo("localhost");
    let message = failed(&format!("wss://localhost:{port}/"), &roots("stranger.pem"));
    assert!(
        message.contains(
            "its certificate authority is not trusted here; give the authority's certificate as \
             `ca`"
        ),
        "{message}"
    );
}

#[test]
fn a_certificate_for_another_name_is_rejected() {
    let (_server, _listener, port) = secure_echo("other");
    let message = failed(&format!("wss://localhost:{port}/"), &roots("ca.pem"));
    assert!(
        message.contains("not valid for name") || message.contains("NotValidForName"),
        "{message}"
    );
}

#[test]
fn an_expired_certificate_is_rejected() {
    // The project's own server does not start with such a certificate.
    let peer = Peer::new(|socket: TcpStream| {
        let certificate = CertificateDer::from_pem_file(tls_file("expired.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(tls_file("expired.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let session = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::StreamOwned::new(session, socket);
        // No part of a request arrives.
        stream.read(&mut [0; 100]).unwrap_or(0)
    });
    let port = peer.url().trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    // The certificate is its own trusted root, so that the expiry is the only problem.
    let message = failed(&format!("wss://localhost:{port}/"), &roots("expired.pem"));
    assert!(message.contains("expired"), "{message}");
    assert_eq!(peer.end(), 0);
}

#[test]
fn the_error_for_a_server_without_tls_suggests_ws() {
    let peer = Peer::new(|mut socket: TcpStream| {
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        drain(&mut socket);
    });
    let url = peer.url().replace("ws://127.0.0.1", "wss://localhost");
    let message = failed(&url, &roots("ca.pem"));
    assert!(message.contains("the server may not use TLS on this port;"), "{message}");
    peer.end();
}

#[test]
fn a_tls_handshake_without_response_times_out() {
    let peer = Peer::new(|mut socket: TcpStream| drain(&mut socket));
    let url = peer.url().replace("ws://127.0.0.1", "wss://localhost");
    let mut bench = Bench::new();
    let settings = Settings { connect_timeout: SHORT, ..Settings::default() };
    bench.open_with(&url, settings, &roots("ca.pem"));
    assert!(bench.failed().0.ends_with("did not respond within 0.3 s"));
    peer.end();
}

#[test]
fn invalid_roots_are_an_error_at_once() {
    let mut clients = Clients::new(Box::new(|_| ()));
    let mut open = |roots: Roots| {
        let address = rookery_websocket_client::Address::parse("wss://localhost:1/").unwrap();
        match clients.open(address, Settings::default(), &roots) {
            Err(OpenError::Roots(bad)) => bad,
            other => panic!("{other:?}"),
        }
    };
    let missing = open(Roots::Custom("/no/such/file.pem".to_owned()));
    assert_eq!(
        missing.to_string(),
        "/no/such/file.pem cannot be read: No such file or directory (os error 2)"
    );
    assert!(matches!(open(roots("localhost.key")), RootsError::Empty(_)));
    assert!(matches!(open(Roots::Custom("/dev/zero".to_owned())), RootsError::Unreadable(..)));
    assert!(matches!(
        open(Roots::Custom("-----BEGIN CERTIFICATE-----".to_owned())),
        RootsError::Empty(_)
    ));
}
