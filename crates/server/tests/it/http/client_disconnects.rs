//! Clients that disconnect while the application works, and clients that only close their sending
//! side.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rookery_server::{Config, Limits, ListenerConfig};

use crate::support::{App, TEST_TIMEOUT, echo, hello, wait_until};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Starts an application that works until its client has disconnected, or until it is told to
/// respond.
fn worker(answers: &Arc<AtomicBool>) -> App {
    let answers = Arc::clone(answers);
    // With this timeout the system sends keep-alive probes every second.
    let limits = Limits { idle_timeout: Duration::from_secs(8), ..Limits::default() };
    App::with(
        Config { limits, ..Config::default() },
        ListenerConfig::default(),
        echo(move |exchange| {
            let until = Instant::now() + TEST_TIMEOUT;
            while !exchange.is_client_disconnected() && !answers.load(Ordering::Relaxed) {
                assert!(Instant::now() < until, "nobody told that the client has gone");
                std::thread::sleep(Duration::from_millis(2));
            }
            hello(exchange);
        }),
    )
}

#[cfg(unix)]
fn until_idle(app: &App) {
    wait_until("the connection is let go", || app.listener().connections() == 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_close_is_noticed_when_the_peers_system_has_forgotten_the_connection() {
    let app = worker(&Arc::default());
    let mut client = app.connect();
    // The system forgets the closed connection after a minute, unless a client sets a shorter time.
    {
        let second: libc::c_int = 1;
        let (fd, value) = (client.socket.as_raw_fd(), (&raw const second).cast());
        let size = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap();
        // SAFETY: The descriptor is an open socket, and the size is that of the option's value.
        let set =
            unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_LINGER2, value, size) };
        assert_eq!(set, 0);
    }
    client.send(REQUEST);
    app.await_event("request");
    // The client has read everything, so that its close is a FIN and no reset.
    drop(client);
    until_idle(&app);
}

#[test]
fn a_client_that_half_closes_is_answered_however_long_it_takes() {
    let answers = Arc::new(AtomicBool::new(false));
    let app = worker(&answers);
    let mut client = app.connect();
    client.send(REQUEST);
    client.socket.shutdown(Shutdown::Write).unwrap();
    app.await_event("request");
    // The system of the client responds to the keep-alive probes meanwhile.
    std::thread::sleep(Duration::from_secs(5));
    answers.store(true, Ordering::Relaxed);
    assert_eq!(client.response().unwrap().body, b"Hello, World!");
    assert!(client.wait_for_close());
}

#[cfg(unix)]
#[test]
fn on_a_unix_socket_a_close_is_told_from_a_half_close() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let answers = Arc::new(AtomicBool::new(false));
    let app = worker(&answers);
    let listener = app.server.listen_unix(&path, None, ListenerConfig::default()).unwrap();
    // The client closes at once, or after a half-close.
    for half_closes in [false, true] {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(REQUEST).unwrap();
        if half_closes {
            client.shutdown(Shutdown::Write).unwrap();
            app.advance(Duration::from_secs(2));
        }
        drop(client);
        let until = Instant::now() + TEST_TIMEOUT;
        while listener.connections() > 0 {
            assert!(Instant::now() < until, "half closed: {half_closes}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(REQUEST).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    app.advance(Duration::from_secs(5));
    answers.store(true, Ordering::Relaxed);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("Hello, World!"), "{answer:?}");
}
