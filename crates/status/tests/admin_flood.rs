//! Tests of the admin listener while very many clients connect: a probe always gets its response.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rookery_status::{
    AdminAddress, AdminHandler, AdminListener, NotReady, RecentErrors, Report, StatusSource,
};

/// A status source without a server.
#[derive(Default)]
struct Source(RecentErrors);

impl StatusSource for Source {
    fn report(&self) -> Report {
        Report::default()
    }

    fn not_live(&self) -> Option<&'static str> {
        None
    }

    fn not_ready(&self) -> Option<NotReady> {
        None
    }

    fn not_started(&self) -> Option<&'static str> {
        None
    }

    fn errors(&self) -> &RecentErrors {
        &self.0
    }
}

/// Connects, sends a request, and returns what comes until the server closes the connection.
fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// The number of probes during each flood.
const PROBES: usize = 20;

/// The number of clients that connect again and again, which is greater than the maximum number of
/// the listener's connections.
const CLIENTS: usize = 120;

/// The time for which each client waits before it connects again. The clients connect about a
/// thousand times per second together, so that a probe has some time to send its request.
const PAUSE: Duration = Duration::from_millis(100);

#[test]
fn every_probe_is_answered_while_clients_flood_the_listener() {
    let at = AdminAddress::Tcp("127.0.0.1:0".parse().unwrap());
    let handler = AdminHandler::new(Arc::new(Source::default())).unwrap();
    let listener = AdminListener::start(handler, Some(&at)).unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for sent in ["", "GET /met", metrics, "\x01\r\n\r\n"] {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let Ok(mut stream) = TcpStream::connect(address) else { continue };
                        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
                        let _ = stream.write_all(sent.as_bytes());
                        let _ = stream.read(&mut [0]);
                        std::thread::sleep(PAUSE);
                    }
                });
            }
            let answers: Vec<_> = (0..PROBES)
                .map(|_| {
                    std::thread::sleep(PAUSE / 5);
                    ask(address, "/-/live")
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            for answer in answers {
                let is_ok = answer.as_ref().is_ok_and(|text| text.starts_with("HTTP/1.1 200"));
                assert!(is_ok, "{sent:?}: {answer:?}");
            }
        });
    }
}
