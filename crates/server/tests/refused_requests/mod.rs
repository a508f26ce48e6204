//! The access log of requests that the server refuses before the application sees them.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rookery_server::access_log::{AccessLog, OwnedRecord};
use rookery_test_support::Lines;

use super::{FORMATS, Fixture, LARGE, records, text};

/// A request that the server refuses, and the method, path and query that the access log has of it.
/// The last value is true if hyper drops the head before the server sees it.
type Refused = (&'static [u8], &'static str, &'static [u8], &'static str, bool);

/// Requests that are refused for their target, or for another part of their head.
const REFUSED: &[Refused] = &[
    (b"GET foo HTTP/1.1\r\nHost: h\r\n\r\n", "GET", b"foo", "", false),
    (b"GET u:pw@foo HTTP/1.1\r\nHost: h\r\n\r\n", "GET", b"<...>@foo", "", false),
    (b"CONNECT foo:80 HTTP/1.1\r\nHost: h\r\n\r\n", "CONNECT", b"foo:80", "", false),
    (b"GET /a\x01b HTTP/1.1\r\nHost: h\r\n\r\n", "GET", b"/a\x01b", "", false),
    (b"GET /\xe9 HTTP/1.1\r\nHost: h\r\n\r\n", "GET", b"/\xe9", "", false),
    (b"GET /\x7f HTTP/1.1\r\nHost: h\r\n\r\n", "GET", b"/\x7f", "", false),
    (b"GET /?a b HTTP/1.1\r\nHost: h\r\n\r\n", "GET", b"/", "?a b", false),
    (b"POST /a b?c=d HTTP/1.1\r\nHost: h\r\n\r\n", "POST", b"/a b", "?c=d", false),
    (b"GET /a HTTP/9.9\r\nHost: h\r\n\r\n", "GET", b"/a", "", false),
    (b"GET /?token=secret&\x01 HTTP/1.1\r\n\r\n", "GET", b"/", "?token=<...>&\x01", false),
    (b"GET /a HTTP/1.1\r\nHost : h\r\n\r\n", "GET", b"/a", "", false),
    (b"GET /a<b HTTP/1.1\r\nHost: h\r\n\r\n", "GET", b"/a<b", "", true),
    (b"GET http://[a/b HTTP/1.1\r\nHost: h\r\n\r\n", "GET", b"http://[a/b", "", true),
    (b"POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", "POST", b"/c", "", true),
    (b"POST /t HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: x\r\n\r\n", "POST", b"/t", "", true),
];

/// Asserts that the last of `records` is that of a refused request.
fn assert_refused(record: &OwnedRecord, refused: &Refused, how: &str) {
    let (head, method, path, query, _) = *refused;
    let logged = (text(&record.method), record.path.as_slice(), text(&record.query));
    let shown = String::from_utf8_lossy(head);
    assert_eq!(logged, (method, path, query), "{how}: {shown:?}");
    assert_eq!(record.status, 400, "{how}: {shown:?}");
}

const ORDINARY: &str = "GET /ordinary HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn a_refused_request_is_logged_with_its_method_and_target() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    for refused in REFUSED {
        // Bytes behind a head are never taken for the head.
        for rest in ["", "GET /c HTTP/1.1\r\nHost: h\r\n\r\n", "GET /\u{1} HTTP/1.1\r\n"] {
            let answer = fixture.send_pieces(&[refused.0, rest.as_bytes()].concat(), &[]);
            assert!(answer.contains("HTTP/1.1 400 "), "{answer}");
            assert_refused(&records(&log, 1)[0], refused, "whole");
        }
    }
    assert_eq!(log.take(), None);
}

#[test]
fn a_refused_request_that_arrives_in_pieces_is_logged_with_its_method_and_target() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    for refused in REFUSED {
        for at in [2, 6, refused.0.len() - 2] {
            fixture.send_pieces(refused.0, &[at]);
            assert_refused(&records(&log, 1)[0], refused, "in pieces");
        }
    }
}

#[test]
fn a_refused_request_after_another_is_logged_with_its_method_and_target() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    let posted = "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    for refused in REFUSED {
        for first in [ORDINARY, posted] {
            let (both, len) = ([first.as_bytes(), refused.0].concat(), first.len());
            for (how, pieces) in
                [("later", &[len][..]), ("pipelined", &[]), ("pipelined in pieces", &[len + 2])]
            {
                fixture.send_pieces(&both, pieces);
                let record = &records(&log, 2)[1];
                if refused.4 && how != "later" {
                    // Nothing is known about a head that hyper has dropped, except for one whose
                    // bytes arrived on their own.
                    assert_eq!((&*record.path, record.status), (&b""[..], 400), "{how}");
                } else {
                    assert_refused(record, refused, how);
                }
            }
        }
    }
}

#[test]
fn a_refused_request_behind_a_response_that_waits_for_the_client_is_logged() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    let mut stream = fixture.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\nGET /\x01 HTTP/1.1\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() > LARGE.len());
    let records = records(&log, 2);
    assert_eq!((records[0].status, records[0].bytes), (200, LARGE.len() as u64));
    assert_eq!((text(&records[1].path), records[1].status), ("/\u{1}", 400));
}

#[test]
fn no_format_shows_the_bytes_of_a_refused_target_unescaped() {
    for format in FORMATS {
        let lines = Lines::default();
        let log = Arc::new(AccessLog::written(lines.clone(), format).unwrap());
        let fixture = Fixture::new(&log);
        let long = [&b"GET /a\x1b[2J\"\\\xe9\xc2\x85\0"[..], &[b'l'; 9000]].concat();
        fixture.send_pieces(&[&long, &b" HTTP/1.1\r\n\r\n"[..]].concat(), &[]);
        drop(fixture);
        log.close();
        let text = lines.text();
        assert_eq!(text.lines().count(), 1, "{text:?}");
        let shown = text.replace("\u{1b}[", "");
        assert!(shown.contains("GET") && shown.contains("/a") && text.len() < 9000, "{text:?}");
        assert!(!text.contains("\u{1b}[2J") && !text.contains('\u{85}'), "{text:?}");
        assert!(shown.trim_end().chars().all(|char| !char.is_control()), "{text:?}");
    }
}
