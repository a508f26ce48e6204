//! Starting and stopping listeners, and the kinds of listeners.

use std::io::{Read as _, Write as _};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rookery_server::{Config, Limits, ListenError, ListenerConfig, Server};

use crate::application::NoWaker;
use crate::support::{App, Client, TEST_TIMEOUT, hello, in_own_process, masked_frame};

#[cfg(target_os = "linux")]
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter(|task| {
            let name = std::fs::read_to_string(task.as_ref().unwrap().path().join("comm"))
                .unwrap_or_default();
            name.starts_with("rookery")
        })
        .count()
}

/// Returns the number of this server's threads, once it is `wanted` or a minute has passed. The
/// kernel lists a thread for a moment after it was joined, and for longer on a busy machine.
#[cfg(target_os = "linux")]
fn threads_settle_at(wanted: usize) -> usize {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while threads() != wanted && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    threads()
}

#[test]
fn stopping_frees_the_port_and_ends_what_is_idle() {
    let mut app = App::new(Limits::default(), hello);
    let mut client = app.connect();
    assert_eq!(client.get("/").status, 200);
    let mut socket = app.connect();
    socket.upgrade("/ws");
    let began = Instant::now();
    let stopping = std::thread::spawn(move || {
        // The client replies to the close frame, as browsers do.
        let close = socket.frame().unwrap();
        socket.send(masked_frame(0x88, &close.1));
        assert!(socket.wait_for_close());
        close
    });
    app.stop();
    assert!(began.elapsed() < TEST_TIMEOUT);
    assert_eq!(stopping.join().unwrap(), (8, 1001u16.to_be_bytes().to_vec()));
    assert!(client.wait_for_close());
    std::net::TcpListener::bind(app.address).unwrap();
    app.await_event("closed 1001");
}

#[test]
fn a_reply_on_its_way_is_finished_before_the_end() {
    let page = vec![b'x'; 3_000_000];
    let mut app = App::new(Limits::default(), move |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(&page);
    });
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    app.await_event("request");
    let reader = std::thread::spawn(move || {
        (client.response().unwrap().body.len(), client.wait_for_close())
    });
    std::thread::sleep(Duration::from_millis(20));
    app.stop();
    assert_eq!(reader.join().unwrap(), (3_000_000, true));
}

#[test]
fn a_request_that_the_application_has_is_answered_after_the_stop() {
    let (goes, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (go, waiting) = (Arc::clone(&goes), Arc::clone(&waits));
    let mut app = App::new(Limits::default(), move |exchange| {
        waiting.store(true, Ordering::Relaxed);
        while !go.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        hello(exchange);
    });
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    while !waits.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    app.stop();
    goes.store(true, Ordering::Relaxed);
    let reply = client.response().unwrap();
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert!(client.wait_for_close());
}

#[test]
fn draining_refuses_the_new_and_finishes_the_old() {
    let goes = Arc::new(AtomicBool::new(false));
    let go = Arc::clone(&goes);
    let app = App::new(Limits::default(), move |exchange| {
        while !go.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        hello(exchange);
    });
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    app.await_event("request");
    app.listener().drain();
    assert!(std::net::TcpStream::connect(app.address).is_err());
    goes.store(true, Ordering::Relaxed);
    assert_eq!(client.response().unwrap().header("connection"), Some("close"));
    assert!(client.wait_for_close());
    let until = Instant::now() + TEST_TIMEOUT;
    while app.listener().connections() > 0 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn draining_waits_for_a_request_body_until_it_is_cut() {
    for is_cut in [false, true] {
        let app = App::new(Limits::default(), hello);
        let mut client = app.connect();
        client.send(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nExpect: 100-continue\r\n\r\n",
        );
        // The server has read the head.
        let mut line = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
        client.socket.read_exact(&mut line).unwrap();
        client.send("abc");
        app.listener().drain();
        if is_cut {
            app.listener().cut();
        } else {
            client.send("def");
            let reply = client.response().unwrap();
            assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
        }
        assert!(client.wait_for_close());
        let until = Instant::now() + TEST_TIMEOUT;
        while app.listener().connections() > 0 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_busy_port_says_what_to_do() {
    let app = App::new(Limits::default(), hello);
    let error = app.server.listen_tcp(app.address, ListenerConfig::default()).unwrap_err();
    assert!(matches!(error, ListenError::Bind { .. }));
    assert!(error.to_string().starts_with("address already in use: "), "{error}");
    assert!(error.to_string().contains("choose another port"), "{error}");
    let elsewhere = "203.0.113.1:8000".parse().unwrap();
    let error = app.server.listen_tcp(elsewhere, ListenerConfig::default()).unwrap_err();
    assert!(error.to_string().contains("address not available"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_unix_socket_is_served_replaced_when_stale_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    // The socket file has no listener any more.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let app = App::new(Limits::default(), hello);
    let listener = app.server.listen_unix(&path, Some(0o077), ListenerConfig::default()).unwrap();
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nHello, World!"), "{answer}");
    // A socket file with a listener is not replaced.
    assert!(app.server.listen_unix(&path, None, ListenerConfig::default()).is_err());
    listener.stop();
    assert!(!path.exists());
    // A file that is no socket is not replaced.
    std::fs::write(&path, "mine").unwrap();
    assert!(app.server.listen_unix(&path, None, ListenerConfig::default()).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn ipv6_is_served() {
    let app = App::new(Limits::default(), |exchange| {
        let remote = exchange.remote().unwrap();
        exchange.begin_response(200);
        exchange.set_response_body(remote.ip().to_string().as_bytes());
    });
    let Ok(listener) = app.server.listen_tcp("[::1]:0".parse().unwrap(), ListenerConfig::default())
    else {
        eprintln!("no IPv6 on this machine: not tested");
        return;
    };
    let mut client = crate::support::Client::connect(listener.local_addr().unwrap());
    assert_eq!(client.get("/").body, b"::1");
}

#[cfg(target_os = "linux")]
#[test]
fn a_hundred_starts_and_stops_leave_no_thread() {
    // The test runs in its own process because other tests run servers at the same time.
    if !in_own_process!() {
        return;
    }
    let server = Server::new(Config::default(), Box::new(NoWaker));
    for _ in 0..100 {
        let listener =
            server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
        let mut client = crate::support::Client::connect(listener.local_addr().unwrap());
        client.send("nonsense\r\n\r\n");
        assert_eq!(client.response().unwrap().status, 400);
        // The I/O thread, and the thread for operations that may block.
        assert_eq!(threads_settle_at(2), 2);
        drop(client);
        listener.stop();
    }
    drop(server);
    assert_eq!(threads_settle_at(0), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn running_out_of_descriptors_does_not_spin() {
    // The test runs in its own process because it lowers a limit.
    if !in_own_process!() {
        return;
    }
    let hour = Duration::from_secs(3600);
    let app = App::new(Limits { header_timeout: hour, ..Limits::default() }, hello);
    // All others come from another address, whose connections make place for a newcomer.
    let connect_from_elsewhere = || Client::connect_from([127, 0, 0, 2].into(), app.address);
    let mut seated = connect_from_elsewhere();
    assert_eq!(seated.get("/").status, 200);
    let spare = std::fs::File::open("/dev/null").unwrap();
    // The clients are in this process as well, and have more sockets than the server has
    // descriptors left.
    let socket = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let mut clients: Vec<_> = (0..40).map(|_| socket().unwrap()).collect();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let limit = libc::rlimit { rlim_cur: open + 20, rlim_max: open + 20 };
    // SAFETY: The pointer is that of a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    for client in &clients {
        client.connect(&app.address.into()).unwrap();
    }
    let before = cpu_ticks();
    std::thread::sleep(Duration::from_secs(1));
    let spent = cpu_ticks() - before;
    // A thread that spins would use about 100 ticks of 10 ms.
    assert!(spent < 50, "{spent} ticks of processor time while out of descriptors");
    assert_eq!(seated.get("/").status, 200);
    drop(spare);
    // The newcomer's own socket takes the last descriptor.
    assert_eq!(connect_from_elsewhere().get("/").status, 200);
    clients.clear();
    assert_eq!(app.connect().get("/").status, 200);
}

/// Returns the processor time of this process in hundredths of a second. No descriptor is left to
/// read it from a file.
#[cfg(target_os = "linux")]
fn cpu_ticks() -> i64 {
    // SAFETY: A struct of zeros is valid, and getrusage fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let hundredths = |time: libc::timeval| time.tv_sec * 100 + time.tv_usec / 10_000;
    hundredths(usage.ru_utime) + hundredths(usage.ru_stime)
}

/// `select()` can watch descriptors below 1,024, and the server uses a quarter of them at most.
#[cfg(target_os = "linux")]
#[test]
fn most_numbers_that_select_can_watch_are_left_to_r() {
    let app = App::new(Limits::default(), hello);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: The pointer is that of a limit, which may be written.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if limit.rlim_cur <= 2048 {
        return;
    }
    let mut clients: Vec<_> = (0..300).map(|_| app.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    let ports: Vec<u16> =
        clients.iter().map(|client| client.socket.local_addr().unwrap().port()).collect();
    let served: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok())
        // A client of another test may have the same port at another address.
        .filter(|fd| port_of(*fd, libc::getsockname) == Some(app.address.port()))
        .filter(|fd| port_of(*fd, libc::getpeername).is_some_and(|port| ports.contains(&port)))
        .collect();
    assert_eq!(served.len(), clients.len());
    assert!(!served.iter().any(|fd| (256..1024).contains(fd)), "{served:?}");
    assert!(served.iter().any(|fd| *fd >= 1024), "{served:?}");
}

/// A function of the system that writes an address of a socket.
#[cfg(target_os = "linux")]
type GetAddress =
    unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

/// Returns the port in an address of a TCP socket, its own or its peer's.
#[cfg(target_os = "linux")]
fn port_of(fd: i32, get: GetAddress) -> Option<u16> {
    // SAFETY: An address of zeros is valid, and the functions fail for a descriptor that is no
    // socket.
    unsafe {
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        let mut len = libc::socklen_t::try_from(size_of::<libc::sockaddr_in>()).unwrap();
        (get(fd, (&raw mut address).cast(), &raw mut len) == 0
            && i32::from(address.sin_family) == libc::AF_INET)
            .then(|| u16::from_be(address.sin_port))
    }
}
