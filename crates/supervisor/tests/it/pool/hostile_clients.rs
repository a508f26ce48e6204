//! Tests of hostile clients, which send requests that two servers in a row could interpret
//! differently, or which send and read slowly.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::frontend::Frontend;

/// The bytes that an attacker wants the worker to interpret as a separate request.
const HIDDEN: &str = "GET /status/299 HTTP/1.1\r\nHost: hidden\r\nX-Rest: ";

/// Heads that are ambiguous or invalid about where their request ends. The hidden request follows
/// as the body.
const AMBIGUOUS: [&str; 22] = [
    "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    "Content-Length: 4\r\nContent-Length: 60\r\n",
    "Content-Length: 4, 60\r\n",
    "Content-Length: +4\r\n",
    "Content-Length: 0x4\r\n",
    "Content-Length: 4 4\r\n",
    "Content-Length: -1\r\n",
    "Content-Length: 18446744073709551620\r\n",
    "Content-Length : 4\r\n",
    " Content-Length: 4\r\n",
    "X-A: b\r\n Content-Length: 4\r\n",
    "X-A: b\nContent-Length: 4\r\n",
    "X-A: b\rContent-Length: 4\r\n",
    "X-A: b\0Content-Length: 4\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding:\x0bchunked\r\n",
    "Transfer_Encoding: chunked\r\nContent-Length: 4\r\n",
    "Connection: content-length\r\nContent-Length: 4\r\n",
    "Connection: transfer-encoding, host\r\nTransfer-Encoding: chunked\r\n",
];

/// Bodies that are empty, chunked bodies that end before the hidden request, and invalid chunked
/// bodies.
const BODIES: [&str; 6] = [
    "",
    "0\r\n\r\n",
    "1\r\nZ\r\n0\r\n\r\n",
    "1;x=\n\r\nZ\r\n0\r\n\r\n",
    "00000000000000000001\r\nZ\r\n0\r\n\r\n",
    "1 \r\nZ\r\n0\r\n\r\n",
];

/// Sends bytes and a FIN, and returns what the server sends.
fn exchange(front: &Frontend, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(front.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may refuse the request before all bytes have been sent.
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    let mut said = Vec::new();
    let _ = socket.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn both_hops_see_the_same_requests() {
    let front = Frontend::new(1);
    let begun = || front.workers[0].gate.begun.load(Ordering::Relaxed);
    let mut answered = 0;
    for method in ["POST", "GET"] {
        for head in AMBIGUOUS {
            for body in BODIES {
                let before = begun();
                let bytes = format!(
                    "{method} /echo/ HTTP/1.1\r\nHost: a\r\n{head}\r\n{body}{HIDDEN}\r\n\r\n"
                );
                let said = exchange(&front, bytes.as_bytes());
                // Responses of the worker have this header, and requests that were refused here
                // have not reached the worker. If the worker had taken the hidden bytes for a
                // request, it would have begun one more request, and another client would get that
                // response.
                let replies = said.matches("\r\nX-Slot: 0\r\n").count();
                assert_eq!(begun() - before, replies, "{bytes:?}: {said}");
                answered += replies;
                assert!(!said.is_empty(), "{bytes:?}");
            }
        }
    }
    // Some requests must be accepted, since otherwise the worker would not have been tested.
    assert!(answered > 0);
    // The connection to the worker still has matching requests and responses.
    for _ in 0..10 {
        assert_eq!(front.connect().get("/slot").text(), "0");
    }
}

#[test]
fn requests_with_two_lengths_reach_no_worker() {
    let front = Frontend::new(1);
    for head in [2, 3, 4, 5, 6, 7, 8, 9, 14, 15].map(|at: usize| AMBIGUOUS[at]) {
        let said = exchange(
            &front,
            format!("POST /echo/ HTTP/1.1\r\nHost: a\r\n{head}\r\nabcd").as_bytes(),
        );
        assert!(
            said.starts_with("HTTP/1.1 400 ") || said.starts_with("HTTP/1.1 501 "),
            "{head:?}: {said}"
        );
    }
    assert_eq!(front.workers[0].gate.begun.load(Ordering::Relaxed), 0);
}

#[test]
fn a_slow_client_occupies_no_worker() {
    let front = Frontend::new(1);
    let slow: Vec<_> = (0..300)
        .map(|at| {
            let mut socket = TcpStream::connect(front.address).unwrap();
            let sent: &[u8] = match at % 3 {
                0 => b"GET /slot HTTP/1.1\r\nHost: a\r\nX-",
                1 => b"POST /echo/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc",
                _ => b"POST /echo/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            };
            socket.write_all(sent).unwrap();
            socket
        })
        .collect();
    let mut client = front.connect();
    for _ in 0..100 {
        assert_eq!(client.get("/slot").status, 200);
    }
    // None of the incomplete requests has reached the worker.
    assert_eq!(front.workers[0].gate.begun.load(Ordering::Relaxed), 100);
    assert_eq!(front.workers[0].backend.load().0, 0);
    drop(slow);
}
