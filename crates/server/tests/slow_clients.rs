//! Clients that behave well are served although 10,000 slow clients occupy all connection slots,
//! with and without TLS.
//!
//! `cargo test --release -p rookery-server --test slow_clients -- --nocapture` prints how long they
//! wait.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod application;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command as Process, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rookery_exchange::{Command, Event};
use rookery_server::tls::{CertificatePair, Pem, Tls, TlsSettings};
use rookery_server::{Config, Limits, ListenerConfig, Server};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use self::application::{Application, NoWaker};

/// The variable that tells the attacking process the address of the server and the number of
/// connections.
const TARGET: &str = "ROOKERY_SLOW_PEERS";

/// The tests run one after the other, because the process may not have enough descriptors for both.
static TURN: Mutex<()> = Mutex::new(());

/// The number of requests of the well-behaved client, each on a connection of its own.
const REQUESTS: usize = 300;

/// Raises the limit on descriptors to its maximum, and returns the maximum. Windows has no such
/// limit.
fn descriptors() -> usize {
    #[cfg(unix)]
    {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: The pointers are those of a limit that may be read and written.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
        usize::try_from(limit.rlim_max).unwrap_or(usize::MAX)
    }
    // Windows has no limit, but the tests need not open all its ports.
    #[cfg(not(unix))]
    4096
}

fn file(name: &str) -> Pem {
    Pem::File(rookery_test_support::tls_file(name))
}

fn secure() -> ListenerConfig {
    let pairs =
        vec![CertificatePair { certificate: file("localhost.pem"), key: file("localhost.key") }];
    let tls = Tls::new(TlsSettings { pairs, ..TlsSettings::default() }, |_| ()).unwrap();
    ListenerConfig { tls: Some(tls), ..ListenerConfig::default() }
}

fn client_config() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let Pem::File(ca) = file("ca.pem") else { unreachable!("it is a file") };
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// Returns the first message of a TLS client.
fn hello() -> Vec<u8> {
    let mut hello = Vec::new();
    session(&client_config()).write_tls(&mut hello).unwrap();
    hello
}

/// Sends a request on a new connection, with TLS if there is a configuration. Returns how long the
/// response took.
fn ask(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Duration {
    let began = Instant::now();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let answer = match tls {
        None => exchange(socket),
        Some(config) => exchange(StreamOwned::new(session(config), socket)),
    };
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
    began.elapsed()
}

fn exchange(mut stream: impl Read + Write) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the median and the 99th percentile of the response times.
fn quantiles(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..REQUESTS)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            ask(address, tls)
        })
        .collect();
    times.sort_unstable();
    (times[REQUESTS / 2], times[REQUESTS * 99 / 100])
}

/// The attacking process. It is killed when the test ends in any way.
struct Attackers(Child);

impl Drop for Attackers {
    fn drop(&mut self) {
        // The call fails if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_honest_client_is_answered_among_10_000_slow_ones() {
    among_slow_ones(ListenerConfig::default(), None);
}

#[test]
fn an_honest_client_is_answered_among_10_000_handshakes_that_never_end() {
    among_slow_ones(secure(), Some(&client_config()));
}

fn among_slow_ones(site: ListenerConfig, tls: Option<&Arc<ClientConfig>>) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // The limit is that of the server's process; the attackers have a process of their own.
    let seats = Limits::default().max_connections.min(descriptors().saturating_sub(200));
    // A small machine has memory for fewer connections, and evicts them for that reason, which this
    // test is not about. It is not about the cost of handshakes by returning clients either.
    let handshake_time = Duration::from_secs(120);
    let limits = Limits {
        max_connections: seats,
        max_client_memory: Some(4 << 30),
        tls_handshake_timeout: handshake_time,
        ..Limits::default()
    };
    let server = Server::new(Config { limits, ..Config::default() }, Box::new(NoWaker));
    let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
    let address = listener.local_addr().unwrap();
    let app = Application::start(&server, |link, event| {
        let Event::Request(mut exchange) = event else { return };
        exchange.begin_response(200);
        exchange.set_response_body(b"Hello, World!");
        link.send(Command::Respond(exchange));
    });
    let alone = quantiles(address, tls);

    let attackers = Process::new(std::env::current_exe().unwrap())
        .args(["--exact", "attack", "--ignored", "--nocapture"])
        .env(TARGET, format!("{address} {seats} {}", if tls.is_some() { "tls" } else { "plain" }))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let attackers = Attackers(attackers);
    let until = Instant::now() + Duration::from_secs(120);
    while listener.connections() < seats {
        assert!(Instant::now() < until, "{} of {seats} came", listener.connections());
        std::thread::sleep(Duration::from_millis(50));
    }
    let crowded = quantiles(address, tls);
    let held = listener.connections();
    drop(attackers);
    drop(app);

    println!("slow connections: {seats}, held at the end: {held}");
    println!("alone:         median {:?}, p99 {:?} of {REQUESTS}", alone.0, alone.1);
    println!("among the slow: median {:?}, p99 {:?} of {REQUESTS}", crowded.0, crowded.1);
    assert!(held + held / 10 >= seats, "the slow ones have left: nothing was shown");
    // On a quiet machine the response takes 250 ms, which is printed. The test only asserts that no
    // request waits until the timeout of slow clients.
    assert!(crowded.1 < Limits::default().header_timeout, "p99 {:?}", crowded.1);
}

/// Attacks the server: a third of the connections send nothing, a third send a byte of a head each
/// second, and a third a byte of a body. With TLS the second third sends its first handshake
/// message byte by byte, and the last third does not respond to the server's. Connections that are
/// closed are opened again.
#[test]
#[ignore = "a part of the test above, in a process of its own"]
fn attack() {
    let Ok(target) = std::env::var(TARGET) else { return };
    let [address, count, kind] = target.split(' ').collect::<Vec<_>>()[..] else {
        unreachable!("the test says so")
    };
    let (address, count): (SocketAddr, usize) = (address.parse().unwrap(), count.parse().unwrap());
    descriptors();
    let is_tls = kind == "tls";
    let hello = hello();
    let begins: [&[u8]; 3] = if is_tls {
        [b"", &hello[..8], &hello]
    } else {
        [
            b"",
            b"GET / HTTP/1.1\r\nX: ",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
        ]
    };
    let goes_on = |at: usize| if is_tls { at % 3 == 1 } else { at % 3 != 0 };
    let connect = |at: usize| {
        let mut socket = TcpStream::connect(address).ok()?;
        socket.write_all(begins[at % 3]).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(socket)
    };
    let mut sockets: Vec<Option<TcpStream>> = (0..count).map(connect).collect();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        for (at, place) in sockets.iter_mut().enumerate() {
            let is_open = place.as_mut().is_some_and(|socket| {
                let mut bytes = [0; 4096];
                let is_there = match socket.read(&mut bytes) {
                    // The server has sent its handshake message. Any other bytes announce the end
                    // of the connection.
                    Ok(n) => n > 0 && is_tls && at % 3 == 2,
                    Err(error) => error.kind() == ErrorKind::WouldBlock,
                };
                is_there && (!goes_on(at) || socket.write_all(b"a").is_ok())
            });
            if !is_open {
                *place = connect(at);
            }
        }
    }
}
