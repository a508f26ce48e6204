//! Tests of responses that a worker may send, byte for byte. The workers here are sockets with a
//! script.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rookery_server::{Config, Limits};
use rookery_supervisor::{Backend, PoolLimits, WorkerId};
use rookery_test_support::TEST_TIMEOUT;
use rookery_worker_protocol::{RState, SharedScoreboard, now};
use tempfile::TempDir;

use crate::support::frontend::Frontend;

/// A worker whose script is a closure that gets each request's head and the connection on which the
/// head arrived.
struct Script {
    front: Frontend,
    connections: Arc<AtomicUsize>,
    _folder: TempDir,
}

impl Script {
    fn new(serve: fn(&mut UnixStream, &str)) -> Script {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("worker");
        let listener = UnixListener::bind(&socket).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        // The thread ends with the process.
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                counted.fetch_add(1, Ordering::Relaxed);
                let mut connection = connection.unwrap();
                std::thread::spawn(move || {
                    while let Some(head) = head(&mut connection) {
                        serve(&mut connection, &head);
                    }
                });
            }
        });
        let (scoreboard, memory) = SharedScoreboard::create().unwrap();
        let theirs = SharedScoreboard::attach(&memory).unwrap();
        let is_alive = Arc::downgrade(&connections);
        std::thread::spawn(move || {
            while is_alive.strong_count() > 1 {
                theirs.set_r_state(RState::Idle, now());
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        scoreboard.set_r_state(RState::Idle, now());
        // Larger bodies are written to temporary files.
        let limits = Limits { body_buffer_size: 64 << 10, ..Limits::default() };
        let front =
            Frontend::with(0, PoolLimits::default(), Config { limits, ..Config::default() });
        front.registry.add(&Backend::new(
            (0, 1),
            4711,
            WorkerId::new().unwrap(),
            socket,
            scoreboard,
        ));
        Script { front, connections, _folder: folder }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Reads the head of a request; `None` at the end of the connection.
fn head(connection: &mut UnixStream) -> Option<String> {
    connection.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match connection.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(head).unwrap())
}

/// Sends the response that the path names.
fn say(connection: &mut UnixStream, head: &str) {
    let path = head.split(' ').nth(1).unwrap();
    let said = match path {
        "/chunks" => {
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nx-sum: 1\r\n\r\n"
        }
        "/interim" => {
            "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
        }
        "/lines" => {
            "HTTP/1.1 200 OK\r\nset-cookie: a=b\r\nX-Mixed: c\r\nset-cookie: d=e\r\nkeep-alive: 5\r\ncontent-length: 2\r\n\r\nok"
        }
        "/behind" => {
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad"
        }
        "/behind-nothing" => "HTTP/1.1 204 No Content\r\n\r\nbad",
        "/close" => "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "/head" => "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n",
        "/garbage" => "SSH-2.0-OpenSSH_9.2\r\n",
        "/endless" => "HTTP/1.1 200 OK\r\n\r\nuntil I die",
        "/two" => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!",
        "/upgraded" => "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "/bad-chunks" => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcdef",
        _ => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    };
    // The response is sent in parts of a few bytes, as a network may deliver it.
    for piece in said.as_bytes().chunks(if path.len() % 2 == 0 { 7 } else { 1000 }) {
        connection.write_all(piece).unwrap();
    }
}

#[test]
fn connections_are_reused_after_unambiguous_responses() {
    let script = Script::new(say);
    let mut client = script.front.connect();
    for _ in 0..3 {
        for (path, body) in
            [("/ok", "ok"), ("/interim", "ok"), ("/chunks", "abcde"), ("/lines", "ok")]
        {
            let reply = client.get(path);
            assert_eq!(
                (reply.status, reply.text()),
                (200, body.to_owned()),
                "{path}: {}",
                reply.head
            );
        }
        let head = client.request("HEAD", "/head", b"");
        assert_eq!((head.status, head.header("content-length")), (200, Some("1000")));
    }
    let reply = client.get("/lines");
    let cookies =
        reply.head.lines().filter(|line| line.to_ascii_lowercase().starts_with("set-cookie: "));
    assert_eq!(cookies.count(), 2, "{}", reply.head);
    assert_eq!((reply.header("x-mixed"), reply.header("keep-alive")), (Some("c"), None));
    assert_eq!(script.connections(), 1);
}

#[test]
fn bytes_after_a_response_are_discarded() {
    let script = Script::new(say);
    let mut client = script.front.connect();
    for (at, path) in ["/behind", "/close", "/behind-nothing", "/close"].into_iter().enumerate() {
        let reply = client.get(path);
        assert!([200, 204].contains(&reply.status), "{path}: {}", reply.head);
        assert_eq!(client.get("/ok").text(), "ok");
        // That request used a new connection, which stays open and is used for the next request.
        assert_eq!(script.connections(), at + 2, "{path}");
    }
}

#[test]
fn an_invalid_response_is_a_502() {
    let script = Script::new(say);
    let mut client = script.front.connect();
    for path in ["/garbage", "/endless", "/two", "/upgraded", "/bad-chunks"] {
        let reply = client.get(path);
        assert!(
            reply.status == 502 && reply.text().contains("sent an invalid response"),
            "{path}: {}",
            reply.head
        );
    }
    assert_eq!(script.front.connect().get("/ok").text(), "ok");
}

#[test]
fn a_worker_that_ends_within_a_response_has_not_answered() {
    let script = Script::new(|connection, head| {
        let length: usize = if head.starts_with("GET /large") { 100_000 } else { 20_000 };
        let _ = connection.write_all(
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\nabc").as_bytes(),
        );
        let _ = connection.shutdown(std::net::Shutdown::Both);
    });
    let mut statuses = Vec::new();
    for path in ["/large", "/small"].into_iter().cycle().take(40) {
        let mut client = script.front.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let head = client.head();
        statuses.push((path, head.status));
        match head.status {
            502 => assert!(
                client.read_through(b"\n").starts_with(b"502 Bad Gateway: the worker ended"),
                "{path}"
            ),
            // A part of the response had been sent, so the client notices that the response is
            // incomplete.
            200 => while client.fill() {},
            status => panic!("{status} for {path}"),
        }
        assert!(client.read.len() < 10, "{path}");
    }
    assert!(
        statuses.iter().all(|(path, status)| *path == "/large" || *status == 502),
        "{statuses:?}"
    );
}

#[test]
fn a_response_can_precede_the_end_of_the_request_body() {
    // The script sends as much as it has read, so each side must read while it writes.
    let script = Script::new(|connection, head| {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut left: usize = length.parse().unwrap();
        connection
            .write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {left}\r\n\r\n").as_bytes())
            .unwrap();
        let mut buffer = [0; 10_000];
        while left > 0 {
            let len = left.min(buffer.len());
            connection.read_exact(&mut buffer[..len]).unwrap();
            connection.write_all(&buffer[..len]).unwrap();
            left -= len;
        }
    });
    // The bodies are in a file and in memory.
    for len in [5_000_000, 60_000] {
        let body: Vec<u8> = (0..len).map(|at: u32| (at % 251) as u8).collect();
        let reply = script.front.connect().request("POST", "/echo", &body);
        assert!(reply.status == 200 && reply.body == body, "{}", reply.head);
    }
    assert_eq!(script.connections(), 1);
}

#[test]
fn an_unread_request_body_ends_with_the_response() {
    let script = Script::new(|connection, _| {
        connection
            .write_all(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno")
            .unwrap();
        std::thread::sleep(Duration::from_millis(1));
    });
    let reply = script.front.connect().request("POST", "/", &vec![b'x'; 3_000_000]);
    assert_eq!((reply.status, reply.text()), (413, "no".to_owned()));
    // The rest of the body has not been taken for another request.
    assert_eq!(script.front.connect().get("/").status, 413);
    assert_eq!(script.connections(), 2);
}
