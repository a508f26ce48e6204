//! The heap memory that each connection of a hostile client makes the server hold, which must not
//! exceed what the memory budget counts for it. The libraries hyper, h2 and rustls keep buffers
//! that the server cannot see, and for which it counts constants. Each test is an attack on one of
//! these constants.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

#[path = "../application/mod.rs"]
mod application;
mod http1;
mod http2;
mod tls_records;
mod websockets;

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rookery_exchange::{Command, Event, Link, Payload, Share};
use rookery_server::tls::{CertificatePair, Pem, Tls, TlsSettings};
use rookery_server::{Config, Limits, Listener, ListenerConfig, Server};
use rookery_test_support::allocator::{self, CountingAllocator};
use rookery_test_support::client::Client;
use rookery_test_support::tls::client_config;
use rookery_test_support::tls_file;
use rustls::ClientConfig;
use rustls::client::Resumption;

use self::application::{Application, NoWaker};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The bytes of tables that grow for all connections together.
const CONSTANT: usize = 16 << 10;

/// The allocator counts for the whole process, so that the tests run one after the other.
static TURN: Mutex<()> = Mutex::new(());

/// A server that hostile clients attack.
struct Victim {
    plain: Listener,
    secure: Listener,
    server: Server,
    /// The configurations of clients that speak HTTP/1.1 and HTTP/2 over TLS.
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    _application: Application,
}

/// Returns the configuration of a client that has no memory of earlier sessions.
fn forgetful(protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = client_config(None);
    config.resumption = Resumption::disabled();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

impl Victim {
    /// Starts a server with an application that responds to most requests at once, keeps requests
    /// for `/keep`, and responds to each message with one of 8,000 bytes.
    fn start() -> Victim {
        // A tick lasts 10 ms, so that idle connections free their buffers soon.
        let limits = Limits {
            ws_close_timeout: Duration::from_millis(40),
            max_client_memory: Some(4 << 30),
            pool_bytes: 0,
            ..Limits::default()
        };
        let server = Server::new(Config { limits, ..Config::default() }, Box::new(NoWaker));
        let mut kept = Vec::with_capacity(10_000);
        let application = Application::start(&server, move |link: &Link, event| match event {
            Event::Request(exchange) if exchange.path() == b"/keep" => kept.push(exchange),
            Event::Request(mut exchange) => {
                exchange.begin_response(if exchange.is_upgrade() { 101 } else { 200 });
                if exchange.path() == b"/short" {
                    exchange.set_response_body(&[b'a'; 4000]);
                }
                link.send(Command::Respond(exchange));
            }
            Event::Head(exchange) => link.send(Command::ReadBody(exchange)),
            Event::Message { socket, kind, .. } => {
                let payload = Payload::Pooled(vec![7; 8000]);
                link.send(Command::Send { socket, kind, payload });
            }
            _ => {}
        });
        let pair = CertificatePair {
            certificate: Pem::File(tls_file("localhost.pem")),
            key: Pem::File(tls_file("localhost.key")),
        };
        let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
        let site = ListenerConfig {
            tls: Some(Tls::new(settings, |_| ()).unwrap()),
            ..ListenerConfig::default()
        };
        let address = "127.0.0.1:0".parse().unwrap();
        Victim {
            plain: server.listen_tcp(address, ListenerConfig::default()).unwrap(),
            secure: server.listen_tcp(address, site).unwrap(),
            server,
            http1: forgetful(&[]),
            http2: forgetful(&[b"h2"]),
            _application: application,
        }
    }

    /// Connects without TLS.
    fn connect(&self) -> Client {
        Client::connect(self.plain.local_addr().unwrap())
    }

    /// Connects with TLS, to speak HTTP/1.1.
    fn connect_tls(&self) -> Client {
        self.connect_with(&self.http1)
    }

    /// Connects with TLS, to speak HTTP/2. Nothing has been sent after the handshake.
    fn connect_http2(&self) -> Client {
        self.connect_with(&self.http2)
    }

    fn connect_with(&self, config: &Arc<ClientConfig>) -> Client {
        let address: SocketAddr = self.secure.local_addr().unwrap();
        Client::connect_tls(address, config, "localhost").unwrap()
    }

    fn charged(&self) -> usize {
        Share::ALL.iter().map(|share| self.server.budget().used(*share)).sum()
    }
}

/// Opens `count` connections by `attack`, and asserts that the server holds at most as much memory
/// for each as the memory budget counts for it, and at least `least` bytes, so that the attack is
/// shown to work.
fn assert_charged(what: &str, count: usize, least: usize, attack: impl Fn(&Victim) -> Client) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let victim = Victim::start();
    // The first connection makes the server allocate what it keeps for its whole life.
    let mut sockets: Vec<TcpStream> = Vec::with_capacity(1 + count);
    sockets.push(attack(&victim).socket);
    let (before, charged_before) = (allocator::process::settled_live_bytes(), victim.charged());
    // The clients' own memory is freed before the measurement.
    sockets.extend((0..count).map(|_| attack(&victim).socket));
    let held = allocator::process::settled_live_bytes().saturating_sub(before + CONSTANT) / count;
    let charged = (victim.charged() - charged_before) / count;
    println!("{what}: {held} bytes are held, and {charged} are charged");
    let open = victim.plain.connections() + victim.secure.connections();
    assert_eq!(open, 1 + count, "{what}: connections were closed");
    assert!(held >= least, "{what}: only {held} bytes are held");
    assert!(held <= charged, "{what}: {held} bytes are held, and {charged} are charged");
}

/// Sends at most `bytes` until the server takes no more for a while.
fn send_while_taken(client: &mut Client, bytes: &[u8]) {
    client.socket.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let is_blocked = |error: &std::io::Error| {
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
    };
    for part in bytes.chunks(16 << 10) {
        let Some(tls) = &mut client.tls else {
            match client.socket.write(part) {
                Ok(n) if n == part.len() => continue,
                Ok(_) => return,
                Err(error) if is_blocked(&error) => return,
                Err(error) => panic!("sending failed: {error}"),
            }
        };
        tls.writer().write_all(part).unwrap();
        while tls.wants_write() {
            match tls.write_tls(&mut client.socket) {
                Ok(_) => {}
                Err(error) if is_blocked(&error) => return,
                Err(error) => panic!("sending failed: {error}"),
            }
        }
    }
}
