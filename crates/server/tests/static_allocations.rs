//! Requests for static files allocate nothing if the application responds, or if the file is in
//! memory.

#![cfg_attr(not(unix), allow(unused_imports))] // Tests on Unix systems use them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use http::HeaderMap;
use rookery_server::static_files::{
    BodyFraming, Overrides, RequestHead, Route, StaticFiles, StaticPath,
};
use rookery_server::{Config, ListenerConfig, Server};
use rookery_test_support::allocator::{self, CountingAllocator};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns the path of a folder, which need not exist.
fn srv() -> std::path::PathBuf {
    if cfg!(windows) { "C:/srv".into() } else { "/srv".into() }
}

#[test]
fn requests_for_the_application_allocate_nothing() {
    let files = StaticFiles::new();
    let headers = HeaderMap::new();
    let decide = |target: &str| {
        let body = BodyFraming::Absent;
        let request = RequestHead {
            method: "GET",
            target: target.as_bytes(),
            is_upgrade: false,
            body,
            headers: &headers,
        };
        let before = allocator::thread::allocations();
        let decision = files.route(&request);
        (decision, allocator::thread::allocations() - before)
    };
    let targets = ["/", "/api/items/17?x=%20", "/a%20b/c%C3%A9", "/static/private/x", "/lib/../x"];
    for target in targets {
        assert!(matches!(decide(target), (Route::Application, 0)), "{target}");
    }
    let exclude = Overrides { exclude: Some(true), ..Overrides::default() };
    let fallthrough = Overrides { fallthrough: Some(true), ..Overrides::default() };
    files
        .set([
            ("/static".into(), StaticPath { path: srv(), overrides: Overrides::default() }),
            ("/static/private".into(), StaticPath { path: "".into(), overrides: exclude }),
            ("/lib".into(), StaticPath { path: srv(), overrides: fallthrough }),
        ])
        .unwrap();
    // The first access of a thread to the map of static paths allocates the thread's own slot.
    decide("/");
    for target in targets {
        assert!(matches!(decide(target), (Route::Application, 0)), "{target}");
    }
    assert!(matches!(decide("/static/a.js"), (Route::Open(_), 0)));
    let (decision, allocations) = decide(&format!("/static/{}", "a".repeat(300)));
    assert!(matches!(decision, Route::Open(_)));
    assert_eq!(allocations, 1, "a long path, which shows that the count counts");
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_in_memory_allocates_nothing() {
    allocator::process::exclude_current_thread();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    std::fs::write(&path, "0123456789".repeat(1000)).unwrap();
    let files = StaticFiles::new();
    files
        .set([(
            "/s".to_owned(),
            StaticPath { path: folder.path().into(), ..StaticPath::default() },
        )])
        .unwrap();
    let server =
        Server::with_closure_and_echo(Config::default(), |_: &mut rookery_exchange::Exchange| {
            unreachable!("every request is for a file")
        });
    let site = ListenerConfig { files, ..ListenerConfig::default() };
    let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket.set_nodelay(true).unwrap();
    let request = |more: &str| format!("GET /s/a.txt HTTP/1.1\r\nHost: a\r\n{more}\r\n");
    let mut ask = |request: &str, n: usize| {
        for _ in 0..n {
            socket.write_all(request.as_bytes()).unwrap();
            read_reply(&mut socket);
        }
    };
    ask(&request(""), 1);
    // The file is then old enough to be cached.
    std::thread::sleep(Duration::from_millis(2500));
    for more in
        ["", "Accept-Encoding: gzip\r\n", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n"]
    {
        ask(&request(more), 200);
        let before = allocator::process::allocations();
        ask(&request(more), 1000);
        let spent = allocator::process::allocations() - before;
        // The server checks each minute whether the device is local, and a timer wheel may grow.
        assert!(spent <= 32, "{more:?}: {spent} allocations in 1,000");
    }
}

/// Reads a response, which has a Content-Length unless it is a 304.
#[cfg(target_os = "linux")]
fn read_reply(socket: &mut TcpStream) {
    let mut buffer = [0; 16384];
    let mut got = 0;
    loop {
        let read = socket.read(&mut buffer[got..]).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&buffer[..got]));
        got += read;
        let Some(head) = buffer[..got].windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let text = std::str::from_utf8(&buffer[..head]).unwrap();
        let told = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        if got == head + 4 + told.map_or(0, |len| len.parse().unwrap()) {
            return;
        }
    }
}
