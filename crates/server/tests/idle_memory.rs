//! The heap memory of an idle WebSocket and of an idle keep-alive connection.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_server::tls::{CertificatePair, Pem, Tls, TlsSettings};
use rookery_server::{Config, Limits, ListenerConfig, Server};
use rookery_test_support::allocator::{self, CountingAllocator};
use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const UPGRADE: &[u8] =
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";

const LARGE: &[u8] = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Connects, sends a request, and reads the head of the response.
fn ask(address: SocketAddr, request: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request).unwrap();
    let (mut head, mut byte) = ([0; 4], [0]);
    while head != *b"\r\n\r\n" {
        socket.read_exact(&mut byte).unwrap();
        head.rotate_left(1);
        head[3] = byte[0];
    }
    socket
}

/// Returns the bytes that are allocated, once their number no longer changes.
fn settled() -> usize {
    let until = Instant::now() + Duration::from_secs(60);
    let mut seen = (0, Instant::now());
    loop {
        let live = allocator::process::live_bytes();
        if live != seen.0 {
            seen = (live, Instant::now());
        }
        if seen.1.elapsed() > Duration::from_millis(200) {
            return live;
        }
        assert!(Instant::now() < until, "the heap does not come to rest");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Opens and closes many connections. Returns the bytes that each holds, and those that remain of
/// each.
fn measure(open: impl Fn() -> TcpStream) -> (usize, usize) {
    const COUNT: usize = 500;
    drop(open());
    let before = settled();
    let sockets: Vec<TcpStream> = (0..COUNT).map(|_| open()).collect();
    let each = (settled() - before) / COUNT;
    drop(sockets);
    (each, settled().saturating_sub(before) / COUNT)
}

fn certificates(name: &str) -> std::path::PathBuf {
    rookery_test_support::tls_file(name)
}

/// Returns the TLS configurations of the server and of a client.
fn tls() -> (Tls, Arc<ClientConfig>) {
    let pair = CertificatePair {
        certificate: Pem::File(certificates("localhost.pem")),
        key: Pem::File(certificates("localhost.key")),
    };
    let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates("ca.pem")).unwrap()).unwrap();
    let mut client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.resumption = rustls::client::Resumption::disabled();
    (Tls::new(settings, |_| ()).unwrap(), Arc::new(client))
}

/// Connects with TLS and sends a request. The client's session is leaked before the measurement, so
/// that only the server's memory is measured.
fn ask_over_tls(address: SocketAddr, config: &Arc<ClientConfig>, request: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = rustls::ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    stream.write_all(request).unwrap();
    let (mut head, mut byte) = ([0; 4], [0]);
    while head != *b"\r\n\r\n" {
        stream.read_exact(&mut byte).unwrap();
        head.rotate_left(1);
        head[3] = byte[0];
    }
    socket
}

/// Sends the first half of a TLS handshake.
fn half_a_hello(address: SocketAddr, config: &Arc<ClientConfig>) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut hello = Vec::new();
    rustls::ClientConnection::new(Arc::clone(config), name).unwrap().write_tls(&mut hello).unwrap();
    socket.write_all(&hello[..hello.len() / 2]).unwrap();
    socket
}

#[test]
fn what_is_idle_holds_little_and_what_has_gone_nothing() {
    // A tick lasts 10 ms, and a connection releases its buffers after two ticks. The pool of
    // exchanges is bounded and not measured.
    let limits =
        Limits { ws_close_timeout: Duration::from_millis(40), pool_bytes: 0, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let large = vec![7; 4_000_000];
    let server = Server::with_closure_and_echo(config, move |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(if exchange.path() == b"/large" { &large } else { b"" });
    });
    let listener =
        server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
    let address = listener.local_addr().unwrap();
    // The limits have reasons: a WebSocket that kept the memory of its HTTP task would hold 2,400
    // bytes, and a connection with hyper's buffers 13,000 bytes.
    for (what, request, allowed) in [("WebSocket", UPGRADE, 1_400), ("connection", REQUEST, 2_000)]
    {
        let (each, left) = measure(|| ask(address, request));
        println!("an idle {what} holds {each} bytes");
        assert!(each < allowed, "an idle {what} holds {each} bytes");
        // Only the connection's part of the tables remains.
        assert!(left < 100, "a {what} that has gone holds {left} bytes");
    }
    let (tls, client) = tls();
    let site = ListenerConfig { tls: Some(tls), ..ListenerConfig::default() };
    let secure = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
    let address_of_tls = secure.local_addr().unwrap();
    let over_tls = |request: &'static [u8]| {
        let client = &client;
        measure(move || ask_over_tls(address_of_tls, client, request))
    };
    for (what, (each, left), allowed) in [
        ("WebSocket over TLS", over_tls(UPGRADE), 12_000),
        ("connection over TLS", over_tls(REQUEST), 12_000),
        ("half of a handshake", measure(|| half_a_hello(address_of_tls, &client)), 12_000),
    ] {
        println!("an idle {what} holds {each} bytes");
        assert!(each < allowed, "an idle {what} holds {each} bytes");
        assert!(left < 100, "a {what} that has gone holds {left} bytes");
    }
    // The responses exceed what the sockets buffer, so that all of them wait at the same time.
    let before = settled();
    let sockets: Vec<TcpStream> = (0..16).map(|_| ask(address, LARGE)).collect();
    settled();
    drop(sockets);
    let left = settled().saturating_sub(before);
    assert!(left < 1_000_000, "large replies that have gone hold {left} bytes");
}
