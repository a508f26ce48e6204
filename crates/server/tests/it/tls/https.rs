//! HTTP over TLS. The tests repeat over TLS what works over plaintext HTTP.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use rookery_exchange::{ChunkAdmission, Command, Event, Payload, StreamEnd, StreamOptions};
use rookery_server::static_files::{StaticFiles, StaticPath};
use rookery_server::tls::TlsVersion;
use rookery_server::{Config, Limits, ListenerConfig, Notice, Server, TrustedProxies};
use rookery_test_support::tls::{client_config, client_config_with_versions, roots};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ProtocolVersion};

use crate::support::tls::{app, settings, site};
use crate::support::{App, Client, Response, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

/// Returns bytes that do not repeat.
fn bytes(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(len)
    .collect()
}

/// Returns the configuration of a client that supports only one version of TLS.
fn only(version: &'static rustls::SupportedProtocolVersion) -> Arc<ClientConfig> {
    Arc::new(client_config_with_versions(None, &[version]))
}

#[test]
fn requests_over_both_versions_one_after_the_other() {
    let app = app(Limits::default(), |exchange| {
        assert!(exchange.is_https());
        hello(exchange);
    });
    for (config, version) in
        [(only(&TLS13), ProtocolVersion::TLSv1_3), (only(&TLS12), ProtocolVersion::TLSv1_2)]
    {
        let mut client = Client::connect_tls(app.address, &config, "localhost").unwrap();
        assert_eq!(client.tls.as_ref().unwrap().protocol_version(), Some(version));
        for _ in 0..3 {
            assert_eq!(client.get("/").body, b"Hello, World!");
        }
        // Two requests are sent in one TLS record.
        client.send(
            "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        );
        assert_eq!(client.response().unwrap().status, 200);
        assert_eq!(client.response().unwrap().status, 200);
        // rustls distinguishes a close with `close_notify` from a truncated connection.
        assert!(client.wait_for_close());
    }
    assert_eq!(app.requests(), 10);
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
fn large_bodies_both_ways() {
    let body = bytes(3_000_000);
    let app = app(Limits::default(), |exchange| {
        exchange.begin_response(200);
        let body = match exchange.body().source() {
            rookery_exchange::BodySource::File(file) => {
                let mut body = vec![0; exchange.body().len() as usize];
                std::os::unix::fs::FileExt::read_exact_at(file, &mut body, 0).unwrap();
                body
            }
            _ => {
                let mut body = vec![0; exchange.body().len() as usize];
                exchange.body().read_at(0, &mut body).unwrap();
                body
            }
        };
        exchange.set_response_body(&body);
    });
    let mut client = app.secure();
    // The bodies are kept in memory or spooled, depending on their length.
    for len in [1, 16_384, 200_000, body.len()] {
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
        client.send(&body[..len]);
        let reply = client.response().unwrap();
        assert!(reply.status == 200 && reply.body == body[..len], "{len}");
    }
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in body[..100_000].chunks(999) {
        client.send([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    assert!(client.response().unwrap().body == body[..100_000]);
}

#[test]
fn a_body_waits_until_it_is_asked_for() {
    let app = app(Limits::default(), hello);
    let mut client = app.secure();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 100);
    client.send("12345");
    assert_eq!(client.response().unwrap().status, 200);
}

#[test]
fn files_that_are_sent_by_the_system_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let large = bytes(5_000_000);
    std::fs::write(folder.path().join("large"), &large).unwrap();
    std::fs::write(folder.path().join("small.txt"), &large[..1000]).unwrap();
    let files = StaticFiles::default();
    let path = StaticPath {
        path: folder.path().into(),
        overrides: rookery_server::static_files::Overrides::default(),
    };
    files.set(vec![("/".to_owned(), path)]).unwrap();
    let app = App::with(
        Config::default(),
        ListenerConfig { files, ..site(settings(&["localhost"])) },
        echo(hello),
    );
    let mut client = app.secure();
    for _ in 0..2 {
        assert!(client.get("/large").body == large);
        assert_eq!(client.get("/small.txt").body, large[..1000]);
        client.send("GET /large HTTP/1.1\r\nHost: a\r\nRange: bytes=1000000-3999999\r\n\r\n");
        let part = client.response().unwrap();
        assert!(part.status == 206 && part.body == large[1_000_000..4_000_000]);
    }
    assert_eq!(app.requests(), 0);
}

#[test]
fn replies_in_pieces() {
    let pieces = bytes(50_000);
    let sent = pieces.clone();
    let rules = StreamOptions { sends_head_first: true, ..StreamOptions::default() };
    let app = App::with(
        Config::default(),
        site(settings(&["localhost"])),
        Box::new(move |link, event| {
            let Event::Request(mut exchange) = event else { return };
            exchange.begin_response(200);
            let stream = link.stream(rules);
            exchange.set_response_stream(stream.clone());
            let (id, is_cut) = (exchange.id(), exchange.path() == b"/cut");
            link.send(Command::Respond(exchange));
            for piece in sent.chunks(1000) {
                assert!(!matches!(stream.flow.admit(piece.len()), ChunkAdmission::Ended));
                link.send(Command::Chunk {
                    stream: id,
                    payload: Payload::Pooled(piece.to_vec()),
                    is_pushing: false,
                });
            }
            if is_cut {
                // A response that has not been begun becomes an error response.
                link.flush();
                wait_until("all has been written", || stream.flow.waiting() == 0);
            }
            link.send(if is_cut {
                Command::AbortStream {
                    stream: id,
                    reason: StreamEnd::Error,
                    page: String::new().into(),
                }
            } else {
                Command::EndStream { stream: id }
            });
        }),
    );
    let mut client = app.secure();
    for _ in 0..2 {
        assert!(client.get("/").body == pieces);
    }
    // A stream that fails ends without `close_notify`, so that the client does not take it for
    // complete.
    client.send("GET /cut HTTP/1.0\r\nHost: a\r\n\r\n");
    let mut tls = client.tls.take().unwrap();
    let mut stream = rustls::Stream::new(&mut *tls, &mut client.socket);
    let failed = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert!(
        matches!(failed.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset),
        "{failed}"
    );
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

#[test]
fn replies_are_compressed() {
    let app = app(Limits::default(), |exchange| {
        exchange.begin_response(200);
        exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
        exchange.set_response_body(&vec![b'a'; 300_000]);
    });
    let mut client = app.secure();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let reply = client.response().unwrap();
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&reply.body[..]).read_to_end(&mut plain).unwrap();
    assert!(plain == vec![b'a'; 300_000]);
}

#[test]
fn websockets() {
    let app = app(Limits::default(), hello);
    let mut client = app.secure();
    // The first message arrives in the TLS record of the handshake request.
    assert_eq!(client.upgrade_with("/ws", "", &masked_frame(0x81, b"first")).status, 101);
    assert_eq!(client.frame(), Some((1, b"first".to_vec())));
    let large = bytes(1_000_000);
    client.send(masked_frame(0x82, &large));
    assert_eq!(client.frame(), Some((2, large)));
    client.send(masked_frame(0x89, b"ping"));
    assert_eq!(client.frame(), Some((10, b"ping".to_vec())));
    client.send(masked_frame(0x81, b"close"));
    assert_eq!(client.frame(), Some((8, [&4000u16.to_be_bytes()[..], b"bye"].concat())));
    client.send(masked_frame(0x88, &4000u16.to_be_bytes()));
    assert!(client.wait_for_close());
    app.await_event("closed 4000");
}

#[test]
fn a_websocket_that_reads_late_gets_everything() {
    let app = App::with(
        Config::default(),
        site(settings(&["localhost"])),
        Box::new(|link, event| match event {
            Event::Request(mut exchange) => {
                exchange.begin_response(101);
                link.send(Command::Respond(exchange));
            }
            Event::Message { socket, kind, .. } => {
                for at in 0..200u8 {
                    let payload = Payload::Pooled(vec![at; 100_000]);
                    link.send(Command::Send { socket, kind, payload });
                }
            }
            _ => {}
        }),
    );
    let mut client = app.secure();
    client.upgrade_with("/ws", "", &masked_frame(0x82, b"go"));
    // The messages exceed what both sockets buffer.
    std::thread::sleep(Duration::from_millis(300));
    for at in 0..200u8 {
        assert!(client.frame() == Some((2, vec![at; 100_000])), "{at}");
    }
    app.await_event("drained");
}

#[test]
fn a_client_that_reads_late_gets_its_whole_reply() {
    let body = bytes(20_000_000);
    let reply = body.clone();
    let app = app(Limits::default(), move |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(&reply);
    });
    let mut client = app.secure();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    std::thread::sleep(Duration::from_millis(300));
    assert!(client.response().unwrap().body == body);
    assert!(client.wait_for_close());
}

#[test]
fn half_of_a_connection_may_be_closed() {
    for says_so in [true, false] {
        let app = app(Limits::default(), |exchange| {
            std::thread::sleep(Duration::from_millis(50));
            hello(exchange);
        });
        let mut client = app.secure();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        if says_so {
            let tls = client.tls.as_mut().unwrap();
            tls.send_close_notify();
            tls.write_tls(&mut client.socket).unwrap();
        }
        client.socket.shutdown(Shutdown::Write).unwrap();
        assert_eq!(
            client.response().unwrap().body,
            b"Hello, World!",
            "with close_notify: {says_so}"
        );
        assert!(client.wait_for_close());
    }
}

#[test]
fn a_client_that_goes_is_noticed_while_the_application_works() {
    let seen = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&seen);
    let app = App::with(
        Config::default(),
        site(settings(&["localhost"])),
        Box::new(move |link, event| {
            if let Event::Request(mut exchange) = event {
                let began = std::time::Instant::now();
                while !exchange.is_client_disconnected()
                    && began.elapsed() < crate::support::TEST_TIMEOUT
                {
                    std::thread::sleep(Duration::from_millis(2));
                }
                told.fetch_add(usize::from(exchange.is_client_disconnected()), Ordering::SeqCst);
                hello(&mut exchange);
                link.send(Command::Respond(exchange));
            }
        }),
    );
    let mut client = app.secure();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    app.await_event("request");
    // A linger time of zero seconds makes the close a reset.
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: The descriptor is an open socket, and the size is that of the linger struct.
    let set = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&client.socket),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
    drop(client);
    wait_until("the reset is noticed", || seen.load(Ordering::SeqCst) == 1);
}

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

#[test]
fn stopping_says_goodbye() {
    let mut app = app(Limits::default(), hello);
    let mut idle = app.secure();
    idle.get("/");
    let mut socket = app.secure();
    socket.upgrade("/ws");
    let stopping = std::thread::spawn(move || {
        app.stop();
        app
    });
    // The close has a `close_notify`, because rustls reports a truncation as an error.
    assert!(idle.wait_for_close());
    assert_eq!(socket.frame(), Some((8, 1001u16.to_be_bytes().to_vec())));
    socket.send(masked_frame(0x88, &1001u16.to_be_bytes()));
    assert!(socket.wait_for_close());
    drop(stopping.join().unwrap());
}
