//! Tests with hosts that have several addresses.

use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use rookery_test_support::TEST_TIMEOUT;
use rookery_websocket_client::Settings;

use crate::support::{Bench, drain, head, response};

/// Makes a listener whose queue is full, so that the system drops further attempts to connect for
/// as long as both values live.
fn silent() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // SAFETY: `listener` is an open socket that listens already; only the length of its queue
    // changes.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
        waiting.push(stream);
        assert!(waiting.len() < 100, "a queue of no length takes only a few");
    }
    (listener, waiting)
}

/// Fails if addresses are tried one after the other, each until the system gives up.
#[test]
fn a_host_with_one_silent_address_is_reached_at_another() {
    let (silent, _waiting) = silent();
    let port = silent.local_addr().unwrap().port();
    let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, port)) else {
        eprintln!("NOT TESTED: this machine has no IPv6");
        return;
    };
    let served = std::thread::spawn(move || {
        let mut socket = listener.accept().unwrap().0;
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let head = head(&mut socket);
        socket.write_all(&response(&head, "")).unwrap();
        drain(&mut socket);
    });
    let mut bench = Bench::new();
    // The first address of `localhost` is 127.0.0.1, and the system retries a dropped SYN for two
    // minutes.
    let settings = Settings { connect_timeout: TEST_TIMEOUT, ..Settings::default() };
    let client = bench.opened(&format!("ws://localhost:{port}/"), settings);
    bench.clients.abandon(client);
    served.join().unwrap();
}
