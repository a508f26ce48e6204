//! The heap memory of an idle WebSocket and of an idle connection, and what the memory budget
//! counts for it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::Share;
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

/// The memory of many connections, divided by their number.
struct Held {
    each: usize,
    /// The bytes that the memory budget counts for each connection.
    charged: usize,
    /// The bytes that remain of each connection after its end.
    left: usize,
}

/// Opens and closes many connections, and returns what each holds.
fn measure(server: &Server, open: impl Fn() -> TcpStream) -> Held {
    const COUNT: usize = 500;
    drop(open());
    let before = allocator::process::settled_live_bytes();
    let sockets: Vec<TcpStream> = (0..COUNT).map(|_| open()).collect();
    let each = (allocator::process::settled_live_bytes() - before) / COUNT;
    let charged = server.budget().used(Share::Connections) / COUNT;
    drop(sockets);
    Held {
        each,
        charged,
        left: allocator::process::settled_live_bytes().saturating_sub(before) / COUNT,
    }
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

/// Connects with TLS, and sends nothing after the handshake.
fn greet(address: SocketAddr, config: &Arc<ClientConfig>) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = rustls::ClientConnection::new(Arc::clone(config), name).unwrap();
    while session.is_handshaking() || session.wants_write() {
        session.complete_io(&mut socket).unwrap();
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
    let check = |what: &str, held: &Held, allowed: usize| {
        let Held { each, charged, left } = held;
        println!("an idle {what} holds {each} bytes and is charged {charged}");
        assert!(*each < allowed, "an idle {what} holds {each} bytes");
        assert!(each <= charged, "an idle {what} holds {each} bytes and is charged {charged}");
        // Only the connection's part of the tables remains.
        assert!(*left < 100, "a {what} that has gone holds {left} bytes");
    };
    let connect = || TcpStream::connect(address).unwrap();
    check("WebSocket", &measure(&server, || ask(address, UPGRADE)), 1_400);
    check("connection", &measure(&server, || ask(address, REQUEST)), 2_000);
    check("connection without a request", &measure(&server, connect), 2_000);
    let (tls, client) = tls();
    let site = ListenerConfig { tls: Some(tls), ..ListenerConfig::default() };
    let secure = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
    let address_of_tls = secure.local_addr().unwrap();
    let over_tls = |request: &'static [u8]| {
        let client = &client;
        measure(&server, move || ask_over_tls(address_of_tls, client, request))
    };
    let idle = [
        ("connection over TLS", over_tls(REQUEST)),
        ("connection over TLS without a request", {
            measure(&server, || greet(address_of_tls, &client))
        }),
        ("connection that sends no TLS", {
            measure(&server, || TcpStream::connect(address_of_tls).unwrap())
        }),
    ];
    for (what, held) in idle {
        check(what, &held, 10_000);
        // The default of 10,000 connections fits into 40 % of a quarter of 1 GB.
        assert!(held.charged <= 10_000, "an idle {what} is charged {}", held.charged);
    }
    check("WebSocket over TLS", &over_tls(UPGRADE), 12_000);
    let half = measure(&server, || half_a_hello(address_of_tls, &client));
    check("half of a handshake", &half, 12_000);
    // The responses exceed what the sockets buffer, so that all of them wait at the same time.
    let before = allocator::process::settled_live_bytes();
    let sockets: Vec<TcpStream> = (0..16).map(|_| ask(address, LARGE)).collect();
    allocator::process::settled_live_bytes();
    drop(sockets);
    let left = allocator::process::settled_live_bytes().saturating_sub(before);
    assert!(left < 1_000_000, "large replies that have gone hold {left} bytes");
}
