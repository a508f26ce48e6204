//! What TLS adds to HTTP: versions, cipher suites, protocol negotiation, sessions, and requests
//! that use the wrong protocol.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use rookery_exchange::{Command, Event, Payload, StreamOptions};
use rookery_server::tls::TlsVersion;
use rookery_server::{Config, Limits, ListenerConfig, Notice, Server, TrustedProxies};
use rookery_test_support::tls::{client_config, client_config_with_versions, roots};
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::version::{TLS12, TLS13};

use crate::support::tls::{app, settings, site};
use crate::support::{App, Client, Response, TEST_TIMEOUT, echo, hello, wait_until};

/// Returns the configuration of a client that supports only one version of TLS.
fn only(version: &'static rustls::SupportedProtocolVersion) -> Arc<ClientConfig> {
    Arc::new(client_config_with_versions(None, &[version]))
}

#[test]
fn only_the_versions_that_are_wanted() {
    let new = App::with(
        Config::default(),
        site(rookery_server::tls::TlsSettings {
            minimum: TlsVersion::Tls13,
            ..settings(&["localhost"])
        }),
        echo(hello),
    );
    Client::connect_tls(new.address, &only(&TLS13), "localhost").unwrap();
    let refused =
        Client::connect_tls(new.address, &only(&TLS12), "localhost").expect_err("an alert");
    assert!(refused.to_string().contains("ProtocolVersion"), "{refused}");
}

#[test]
fn the_servers_order_of_suites_counts() {
    let app = app(Limits::default(), hello);
    for version in [&TLS13, &TLS12] {
        let agreed = |provider: CryptoProvider| {
            let config = ClientConfig::builder_with_provider(Arc::new(provider))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots())
                .with_no_client_auth();
            let client = Client::connect_tls(app.address, &Arc::new(config), "localhost").unwrap();
            client.tls.as_ref().unwrap().negotiated_cipher_suite().unwrap().suite()
        };
        let mut backwards = default_provider();
        backwards.cipher_suites.reverse();
        assert_eq!(agreed(backwards), agreed(default_provider()));
    }
}

#[test]
fn http_1_1_is_what_is_agreed_on() {
    let app = app(Limits::default(), hello);
    let mut config = client_config(None);
    config.alpn_protocols = vec![b"spdy/3".to_vec(), b"http/1.1".to_vec()];
    let client = Client::connect_tls(app.address, &Arc::new(config.clone()), "localhost").unwrap();
    assert_eq!(client.tls.as_ref().unwrap().alpn_protocol(), Some(&b"http/1.1"[..]));
    config.alpn_protocols = vec![b"http/1.0".to_vec()];
    let mut client =
        Client::connect_tls(app.address, &Arc::new(config.clone()), "localhost").unwrap();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().unwrap().body, b"Hello, World!");
    config.alpn_protocols = vec![b"foo".to_vec()];
    let refused =
        Client::connect_tls(app.address, &Arc::new(config), "localhost").expect_err("an alert");
    assert!(refused.to_string().contains("NoApplicationProtocol"), "{refused}");
}

#[test]
fn an_application_may_be_silent_after_a_client_was_slow() {
    let rules = StreamOptions { sends_head_first: true, ..StreamOptions::default() };
    let ((sender, full), (go, goes)) = (channel(), channel());
    let app = App::with(
        Config::default(),
        site(settings(&["localhost"])),
        Box::new(move |link, event| {
            let Event::Request(mut exchange) = event else { return };
            exchange.begin_response(200);
            let stream = link.stream(rules);
            exchange.set_response_stream(stream.clone());
            let id = exchange.id();
            link.send(Command::Respond(exchange));
            let give = |piece: Vec<u8>| {
                stream.flow.admit(piece.len());
                link.send(Command::Chunk {
                    stream: id,
                    payload: Payload::Pooled(piece),
                    is_pushing: false,
                });
                link.flush();
                let since = std::time::Instant::now();
                while stream.flow.waiting() > 0 && since.elapsed() < Duration::from_millis(300) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            // The application sends until the server cannot write any more, because the client does
            // not read.
            while stream.flow.waiting() == 0 {
                give(vec![b'x'; 8 << 10]);
            }
            sender.send(()).unwrap();
            wait_until("the client has read all", || stream.flow.waiting() == 0);
            sender.send(()).unwrap();
            goes.recv_timeout(TEST_TIMEOUT).unwrap();
            give(b"last".to_vec());
            link.send(Command::EndStream { stream: id });
        }),
    );
    let mut client = app.secure();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    full.recv_timeout(TEST_TIMEOUT).unwrap();
    let reading = std::thread::spawn(move || client.response().unwrap().body);
    full.recv_timeout(TEST_TIMEOUT).unwrap();
    app.advance(2 * Limits::default().idle_timeout);
    go.send(()).unwrap();
    assert!(reading.join().unwrap().ends_with(b"xlast"));
}

#[cfg(unix)]
#[test]
fn over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::with_closure_and_echo(Config::default(), hello);
    let path = folder.path().join("socket");
    let _listener = server.listen_unix(&path, None, site(settings(&["localhost"]))).unwrap();
    let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut tls =
        rookery_test_support::client::tls_session(&Arc::new(client_config(None)), "localhost");
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("Hello, World!"), "{answer}");
}

#[test]
fn a_session_is_resumed() {
    let app = app(Limits::default(), hello);
    let config = Arc::new(client_config(None));
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect_tls(app.address, &config, "localhost").unwrap();
        // The session tickets arrive with the first response at the latest.
        client.get("/");
        kinds.push(client.tls.as_ref().unwrap().handshake_kind().unwrap());
    }
    assert_eq!(kinds, [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed]);
}

#[test]
fn a_request_in_the_clear_is_told_where_to_go() {
    let app = app(Limits::default(), hello);
    let answer = |request: &str| -> Response {
        let mut client = app.connect();
        client.send(request);
        let reply = client.response().expect("an answer");
        assert!(client.wait_for_close());
        reply
    };
    let reply = answer("GET /a?b HTTP/1.1\r\nHost: example.org:8443\r\nCookie: secret\r\n\r\n");
    assert_eq!(reply.status, 400);
    let body = String::from_utf8(reply.body).unwrap();
    assert_eq!(body, "400 Bad Request: this port speaks HTTPS: https://example.org:8443/a?b\n");
    let body = String::from_utf8(answer("GET / HTTP/1.0\r\n\r\n").body).unwrap();
    assert_eq!(
        body,
        format!("400 Bad Request: this port speaks HTTPS: https://{}/\n", app.address)
    );
    // The request arrives in parts, and is followed by a body that nobody reads.
    let mut client = app.connect();
    for piece in ["P", "OST /x HT", "TP/1.1\r\nHo", "st: b\r\n", "Content-Length: 100000\r\n\r\n"] {
        client.send(piece);
        std::thread::sleep(Duration::from_millis(20));
    }
    client.send(vec![b'x'; 100_000]);
    assert!(client.response().unwrap().body.ends_with(b"https://b/x\n"));
    assert_eq!(app.requests(), 0);
}

static NOTICES: AtomicUsize = AtomicUsize::new(0);

#[test]
fn tls_where_http_is_spoken_is_said_once() {
    let notice = Notice(|line| {
        assert!(
            line.starts_with("127.0.0.1 sent a TLS handshake to a plaintext HTTP port"),
            "{line}"
        );
        NOTICES.fetch_add(1, Ordering::SeqCst);
    });
    let app = App::with(
        Config::default(),
        ListenerConfig { notice, ..ListenerConfig::default() },
        echo(hello),
    );
    for _ in 0..5 {
        let refused =
            Client::connect_tls(app.address, &Arc::new(client_config(None)), "localhost").err();
        assert!(refused.is_some());
    }
    wait_until("it is said", || NOTICES.load(Ordering::SeqCst) > 0);
    assert_eq!(app.connect().get("/").status, 200);
    assert_eq!(NOTICES.load(Ordering::SeqCst), 1, "more than once a minute");
}

#[test]
fn a_proxy_is_believed_when_it_is_named() {
    let scheme = |site: ListenerConfig, secure: bool, header: &str| {
        let app = App::with(
            Config::default(),
            site,
            echo(|exchange| {
                let scheme = if exchange.is_https() { "https" } else { "http" };
                exchange.begin_response(200);
                exchange.set_response_body(scheme.as_bytes());
            }),
        );
        let mut client: Client = if secure { app.secure() } else { app.connect() };
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n"));
        String::from_utf8(client.response().unwrap().body).unwrap()
    };
    let believing = |proxy| ListenerConfig {
        proxies: TrustedProxies::parse([proxy]).unwrap(),
        ..ListenerConfig::default()
    };
    let https = "X-Forwarded-Proto: https\r\n";
    assert_eq!(scheme(ListenerConfig::default(), false, https), "http");
    assert_eq!(scheme(believing("192.0.2.1"), false, https), "http");
    assert_eq!(scheme(believing("127.0.0.0/8"), false, https), "https");
    assert_eq!(scheme(believing("127.0.0.0/8"), false, ""), "http");
    assert_eq!(
        scheme(site(settings(&["localhost"])), true, "X-Forwarded-Proto: http\r\n"),
        "https"
    );
}
