//! Clients that keep the I/O thread busy for ever do not delay the responses of the application,
//! which runs on another thread.

use rookery_server::static_files::{Overrides, StaticFiles, StaticPath};
use rookery_server::{Config, Limits, ListenerConfig};
use rookery_test_support::flood::Flood;

use crate::support::http2::{Heard, Peer, frame, get, kind};
use crate::support::transport::{Socket, Transport, head};
use crate::support::{App, echo, hello, masked_frame};

super::matrix! {
    http1: Http1, https13: Https13, http2: Http2;
    {
        pongs_without_end,
        requests_for_a_file_without_end,
    }
}

/// The number of requests of one client that are under way at once.
const BATCH: usize = 32;

/// The number of bytes that a client may send on an HTTP/2 connection, and on a stream of it,
/// before the server updates the windows (RFC 9113, 6.9). The server's settings contain the second
/// number.
const FIRST_WINDOWS: [usize; 2] = [65_535, 256 << 10];

/// Asserts that the application responds to another client, and receives and sends messages, while
/// these clients send without pause.
fn assert_served(on: Transport, app: &App, clients: Vec<impl FnMut() + Send + 'static>) {
    let (mut client, mut socket) = (on.connect(app), on.open(app));
    let flood = Flood::start(clients);
    for _ in 0..2 {
        assert_eq!(client.get("/").status, 200);
        socket.send(&masked_frame(0x81, b"hello"));
        assert_eq!(socket.frame(), Some((1, b"hello".to_vec())));
    }
    assert!(flood.goes_on());
}

fn pongs_without_end(on: Transport) {
    let app = on.app(Limits::default(), hello);
    let pongs = masked_frame(0x8A, &[0; 100]).repeat(100);
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let (mut socket, mut windows, pongs) = (on.open(&app), FIRST_WINDOWS, pongs.clone());
            move || {
                if let Socket::Two(sockets) = &mut socket {
                    await_windows(&mut sockets.peer, &mut windows, pongs.len());
                }
                socket.send(&pongs);
            }
        })
        .collect();
    assert_served(on, &app, clients);
}

/// Waits until the windows of an HTTP/2 connection and of its first stream permit sending `len`
/// bytes, and subtracts these bytes from `windows`.
fn await_windows(peer: &mut Peer, windows: &mut [usize; 2], len: usize) {
    while windows.iter().any(|window| *window < len) {
        let frame = peer.frame_of(kind::WINDOW_UPDATE).expect("a window update");
        let more = u32::from_be_bytes(frame.payload[..4].try_into().unwrap());
        windows[usize::from(frame.stream > 0)] += more as usize;
    }
    *windows = windows.map(|window| window - len);
}

fn requests_for_a_file_without_end(on: Transport) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("x.txt"), "~").unwrap();
    let files = StaticFiles::new();
    let path = StaticPath { path: dir.path().into(), overrides: Overrides::default() };
    files.set([("/files".to_owned(), path)]).unwrap();
    let listener = ListenerConfig { files, ..ListenerConfig::default() };
    let app = on.app_with(Config::default(), listener, echo(hello));
    assert_served(on, &app, (0..4).map(|_| requesting(on, &app)).collect());
}

/// Returns a function that requests a small file [`BATCH`] times on a connection of its own.
fn requesting(on: Transport, app: &App) -> Box<dyn FnMut() + Send> {
    if on == Transport::Http2 {
        let (mut peer, mut stream) = (Peer::new(app), 1);
        return Box::new(move || {
            let streams = (0..BATCH as u32).map(|at| stream + 2 * at);
            streams.clone().for_each(|stream| peer.ask(stream, &get("/files/x.txt")));
            for stream in streams {
                assert_eq!(peer.outcome(stream), Heard::Status(200));
            }
            peer.heard.clear();
            peer.send(frame(kind::WINDOW_UPDATE, 0, 0, &(BATCH as u32).to_be_bytes()));
            stream += 2 * BATCH as u32;
        });
    }
    let (mut client, requests) = (on.client(app), head("GET", "/files/x.txt", &[]).repeat(BATCH));
    Box::new(move || {
        client.send(&requests);
        client.read_bodies(b'~', BATCH);
    })
}
