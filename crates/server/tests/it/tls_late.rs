//! TLS and time: peers that read late and catch up, and ends at every moment.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::{Command, Event, Link, Payload};
use rookery_server::{Config, Limits, Listener, Server};

use crate::application::{Application, NoWaker};
use crate::support::{PATIENCE, masked};
use crate::tls_support::{client_config, session, settings, site};

/// Bytes sent to clients that read late, a client each. A Unix socket takes the same every time: for some of them it takes all
/// but the last record.
fn sizes() -> impl Iterator<Item = usize> {
    (0..24).map(|at| (64 << 10) + at * (12 << 10))
}

/// What they are sent: neither in a head nor in what frames it.
const FILL: u8 = 0xFE;

/// A client over a Unix socket.
type Local = rustls::StreamOwned<rustls::ClientConnection, UnixStream>;

/// A server on a Unix socket, with `handle` for an application, and clients of it that have sent `request` with the size
/// that each is for.
fn late(
    limits: Limits,
    mut handle: impl FnMut(&Link, Event) + Send + 'static,
    request: impl Fn(usize) -> Vec<u8>,
) -> (tempfile::TempDir, (Server, Listener, Application), Vec<Local>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = Server::new(Config { limits, ..Config::default() }, Box::new(NoWaker));
    let listener = server.listen_unix(&path, None, site(settings(&["localhost"]))).unwrap();
    let application = Application::start(&server, move |link, event| handle(link, event));
    let clients = sizes()
        .map(|size| {
            let socket = UnixStream::connect(&path).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut client = Local::new(session(&Arc::new(client_config(None)), "localhost"), socket);
            client.write_all(&request(size)).unwrap();
            client
        })
        .collect();
    (folder, (server, listener, application), clients)
}

#[test]
fn a_websocket_may_be_idle_when_it_has_caught_up() {
    let limits = Limits { stall_time: Duration::from_millis(800), ..Limits::default() };
    let (_folder, server, mut clients) = late(
        limits,
        |link, event| match event {
            Event::Request(mut exchange) => {
                exchange.begin_reply(101);
                link.send(Command::Respond(exchange));
            }
            Event::Message { socket, kind, payload, .. } => {
                let size: usize = std::str::from_utf8(payload.as_bytes()).unwrap().parse().unwrap();
                link.send(Command::Send { socket, kind, payload: Payload::Pooled(vec![FILL; size]) });
            }
            _ => {}
        },
        |size| {
            let mut bytes = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
                .to_vec();
            bytes.extend(masked(0x82, size.to_string().as_bytes()));
            bytes
        },
    );
    std::thread::sleep(Duration::from_millis(300));
    for (client, size) in clients.iter_mut().zip(sizes()) {
        let mut left = size;
        while left > 0 {
            let mut buffer = [0; 65536];
            let n = client.read(&mut buffer).unwrap();
            left -= buffer[..n].iter().filter(|byte| **byte == FILL).count();
        }
    }
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(server.1.connections(), clients.len(), "dropped while nothing waited for it");
}
