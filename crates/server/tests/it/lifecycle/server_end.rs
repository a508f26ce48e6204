//! The ends of servers and of their I/O thread: by a stop, by a panic, and if the thread cannot be
//! started.

use std::io::{ErrorKind, Read as _};
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt as _;
#[cfg(unix)]
use std::os::unix::net::{UnixListener, UnixStream};
#[cfg(unix)]
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rookery_exchange::{AppWaker, Command, Event};
use rookery_server::{Config, Limits, ListenError, ListenerConfig, Server};

use crate::application::NoWaker;
use crate::support::{App, Client, TEST_TIMEOUT, hello, in_own_process, wait_until};

/// A waker that is called on the I/O thread, a millisecond after a request has found the
/// application busy.
struct OnIoThread(Box<dyn Fn() + Send + Sync>);

impl AppWaker for OnIoThread {
    fn wake(&self) {
        (self.0)();
    }
}

#[cfg(unix)]
fn limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: The pointer is that of a limit, which may be written.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    limit
}

#[cfg(unix)]
fn set_limit(soft: u64, hard: u64) {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: The pointer is that of a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

#[test]
fn a_dropped_server_closes_what_the_application_owes() {
    for keeps_listener in [false, true] {
        let server = Server::new(Config::default(), Box::new(NoWaker));
        let listener =
            server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
        let mut client = Client::connect(listener.local_addr().unwrap());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("the request", || !server.link().is_empty());
        let kept = keeps_listener.then_some(listener);
        drop(server);
        assert!(client.wait_for_close(), "keeps its listener: {keeps_listener}");
        drop(kept);
    }
}

#[test]
fn stopping_does_not_wait_for_who_was_refused_and_does_not_read() {
    let limits = Limits {
        stop_timeout: Duration::from_millis(100),
        ws_close_timeout: Duration::from_secs(600),
        ..Limits::default()
    };
    let page = vec![b'x'; 50_000_000];
    let mut app = App::with(
        Config { limits, ..Config::default() },
        ListenerConfig { sees_heads: true, ..ListenerConfig::default() },
        Box::new(move |link, event| {
            if let Event::Head(mut exchange) = event {
                exchange.begin_response(403);
                exchange.set_response_body(&page);
                link.send(Command::Respond(exchange));
            }
        }),
    );
    let mut client = app.connect();
    // The request is rejected by its head. The server does not read the body, and the client does
    // not read the response.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    client.socket.read_exact(&mut [0; 12]).unwrap();
    let began = Instant::now();
    app.stop();
    assert!(began.elapsed() < TEST_TIMEOUT, "{:?}", began.elapsed());
}

#[test]
fn a_connection_that_gave_its_buffers_up_is_served_again_and_ends_when_it_is_told() {
    // A tick lasts 10 ms, and two ticks are enough.
    let limits = Limits { ws_close_timeout: Duration::from_millis(40), ..Limits::default() };
    let mut app = App::new(limits, hello);
    let (mut one, mut other) = (app.connect(), app.connect());
    for pause in [0, 100, 5, 30, 100] {
        for client in [&mut one, &mut other] {
            assert_eq!(client.get("/").status, 200);
        }
        app.advance(Duration::from_millis(pause));
    }
    // The request arrives in two parts, and another request follows.
    one.send("GET /a HT");
    app.advance(Duration::from_millis(100));
    one.send("TP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!([one.response().unwrap().status, one.response().unwrap().status], [200, 200]);
    drop(other);
    app.advance(Duration::from_millis(100));
    app.stop();
    assert!(one.wait_for_close());
}

#[test]
fn connections_are_counted_when_they_are_accepted() {
    let (goes, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (go, wait) = (Arc::clone(&goes), Arc::clone(&waits));
    let waker = OnIoThread(Box::new(move || {
        wait.store(true, Ordering::Relaxed);
        while !go.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }));
    let limits = Limits { max_connections: 10, ..Limits::default() };
    let server = Server::new(Config { limits, ..Config::default() }, Box::new(waker));
    let listener =
        server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut first = Client::connect(address);
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the I/O thread is held", || waits.load(Ordering::Relaxed));
    // All clients wait to be accepted.
    let clients: Vec<Client> = (0..60).map(|_| Client::connect(address)).collect();
    goes.store(true, Ordering::Relaxed);
    for client in &clients {
        client.socket.set_nonblocking(true).unwrap();
    }
    // None of them has sent a request, so each newcomer replaces the oldest of them.
    let has_ended = |client: &Client| {
        let peeked = client.socket.peek(&mut [0]);
        !peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    let ended = || clients.iter().filter(|client| has_ended(client)).count();
    wait_until("nine of them are left", || ended() >= 51);
    server.advance_clock(Duration::from_secs(5));
    assert_eq!(ended(), 51);
}

#[cfg(target_os = "linux")]
#[test]
fn a_thread_that_cannot_start_is_an_error() {
    if !in_own_process!() {
        return;
    }
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
    set_limit(open + 16, open + 16);
    let mut heard = String::new();
    for left in 0..16 {
        let server = Server::new(Config::default(), Box::new(NoWaker));
        let mut taken: Vec<std::fs::File> = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        taken.truncate(taken.len() - left);
        let result = server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default());
        drop(taken);
        match result {
            // The socket could be bound, but another resource of the thread was not available.
            Err(error @ ListenError::Thread(_)) => heard = error.to_string(),
            Err(_) => assert!(left < 2, "with {left} descriptors left"),
            Ok(listener) => {
                assert!(left > 2, "with {left} descriptors left");
                let mut client = Client::connect(listener.local_addr().unwrap());
                client.send("nonsense\r\n\r\n");
                assert_eq!(client.response().unwrap().status, 400);
            }
        }
    }
    assert!(
        heard.contains("cannot start the I/O thread") && heard.contains("ulimit -n"),
        "{heard:?}"
    );
}

#[test]
fn a_thread_that_dies_is_told_to_the_application_and_closes_its_sockets() {
    let breaks = Arc::new(AtomicBool::new(false));
    let does = Arc::clone(&breaks);
    let waker =
        OnIoThread(Box::new(move || assert!(!does.load(Ordering::Relaxed), "broken for a test")));
    let server = Server::new(Config::default(), Box::new(waker));
    let link = Arc::clone(server.link());
    let listen =
        || server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
    let listener = listen();
    let address = listener.local_addr().unwrap();
    let mut socket = Client::connect(address);
    let handshake = std::thread::spawn(move || {
        assert_eq!(socket.upgrade("/ws").status, 101);
        socket
    });
    wait_until("the handshake", || link.wait(Duration::from_millis(1)));
    let Some(Event::Request(mut exchange)) = link.next() else { panic!("no handshake") };
    exchange.begin_response(101);
    link.send(Command::Respond(exchange));
    link.flush();
    let mut socket = handshake.join().unwrap();
    assert!(!link.has_failed());

    breaks.store(true, Ordering::Relaxed);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // The application does not take the request, so that the application's waker is called on the
    // I/O thread.
    wait_until("the failure", || link.has_failed());
    assert!(socket.wait_for_close() && client.wait_for_close());
    let began = Instant::now();
    let mut closed = Vec::new();
    while let Some(event) = link.next() {
        match event {
            Event::Request(exchange) => assert!(exchange.is_client_disconnected()),
            Event::Closed { code, .. } => closed.push(code),
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(closed, [1006]);
    assert!(!link.wait(Duration::from_secs(600)) && !link.try_park());
    assert_eq!(listener.connections(), 0);
    listener.drain();
    listener.stop();
    assert!(began.elapsed() < TEST_TIMEOUT);
    assert_eq!(link.take_failure().as_deref(), Some("broken for a test"));
    assert_eq!((link.take_failure(), link.has_failed()), (None, false));

    // Another listener gets another thread.
    breaks.store(false, Ordering::Relaxed);
    let listener = listen();
    let mut client = Client::connect(listener.local_addr().unwrap());
    client.send("nonsense\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 400);
}

#[cfg(unix)]
#[test]
fn the_limit_on_descriptors_is_raised_as_far_as_the_connections_need() {
    if !in_own_process!() {
        return;
    }
    let hard = limit().rlim_max;
    set_limit(256, hard);
    let server = |connections| {
        let limits = Limits { max_connections: connections, ..Limits::default() };
        let server = Server::new(Config { limits, ..Config::default() }, Box::new(NoWaker));
        let _listener =
            server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
        limit().rlim_cur
    };
    assert_eq!(server(100), (1024 + 256 + 1000 + 200).min(hard));
    assert_eq!(server(1000), (1024 + 256 + 1000 + 2000).min(hard));
    // The limit is never lowered, and is raised up to the hard limit.
    assert_eq!(server(10), (1024 + 256 + 1000 + 2000).min(hard));
    assert_eq!(server(usize::MAX), hard);
}

#[cfg(unix)]
fn mode(path: &Path) -> Option<u32> {
    std::fs::symlink_metadata(path).ok().map(|found| found.permissions().mode() & 0o777)
}

#[cfg(unix)]
#[test]
fn a_unix_socket_never_has_wider_permissions_than_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let is_over = Arc::new(AtomicBool::new(false));
    let watch = std::thread::spawn({
        let (path, is_over) = (path.clone(), Arc::clone(&is_over));
        move || {
            let mut widest = 0;
            while !is_over.load(Ordering::Relaxed) {
                widest |= mode(&path).unwrap_or(0);
            }
            widest
        }
    });
    let server = Server::new(Config::default(), Box::new(NoWaker));
    for _ in 0..300 {
        server.listen_unix(&path, Some(0o077), ListenerConfig::default()).unwrap().stop();
    }
    is_over.store(true, Ordering::Relaxed);
    assert_eq!(watch.join().unwrap() & 0o077, 0);
    // The socket file has the requested mode, whatever the umask of the process.
    for mask in [0, 0o022, 0o117, 0o777] {
        let listener = server.listen_unix(&path, Some(mask), ListenerConfig::default()).unwrap();
        assert_eq!(mode(&path), Some(0o777 & !mask));
        listener.stop();
    }
}

#[cfg(unix)]
#[test]
fn a_unix_socket_of_somebody_else_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let app = App::new(Limits::default(), hello);
    let listener = app.server.listen_unix(&path, None, ListenerConfig::default()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    listener.stop();
    assert!(path.exists(), "the other's socket is gone");
    UnixStream::connect(&path).unwrap();
    drop(other);
}
