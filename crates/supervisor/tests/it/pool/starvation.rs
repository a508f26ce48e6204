//! Clients that keep the front end busy for ever do not delay what workers send.

use rookery_server::static_files::Overrides;
use rookery_test_support::client::masked_frame;
use rookery_test_support::flood::Flood;

use super::static_paths::{announce_all, folder, path};
use crate::support::frontend::Frontend;

/// The number of requests of one client that are under way at once.
const BATCH: usize = 32;

/// Asserts that workers respond to another client, and receive and send messages, while these
/// clients send without pause.
fn assert_served(front: &Frontend, clients: Vec<impl FnMut() + Send + 'static>) {
    let (mut client, mut socket) = (front.connect(), front.connect());
    assert_eq!(socket.upgrade("/ws").status, 101);
    let flood = Flood::start(clients);
    for _ in 0..2 {
        assert_eq!(client.get("/slot").status, 200);
        socket.message(1, b"hello");
        assert_eq!(socket.frame_after_pings(), (1, b"hello".to_vec()));
    }
    assert!(flood.goes_on());
}

#[test]
fn pongs_without_end() {
    for workers in [1, 2] {
        let front = Frontend::new(workers);
        let pongs = masked_frame(0x8A, &[0; 100]).repeat(100);
        let flooding = |_| {
            let (mut client, pongs) = (front.connect(), pongs.clone());
            assert_eq!(client.upgrade("/ws").status, 101);
            move || client.send(&pongs)
        };
        assert_served(&front, (0..2).map(flooding).collect());
    }
}

#[test]
fn requests_for_a_file_without_end() {
    for workers in [1, 2] {
        let (front, files) = (Frontend::new(workers), folder("~"));
        announce_all(&front, &[("/static", path(files.path(), Overrides::default()))]);
        let requesting = |_| {
            let mut client = front.connect();
            let requests = "GET /static/a.txt HTTP/1.1\r\nHost: a\r\n\r\n".repeat(BATCH);
            move || {
                client.send(&requests);
                client.read_bodies(b'~', BATCH);
            }
        };
        assert_served(&front, (0..4).map(requesting).collect());
    }
}
