//! Attacks on the buffers of the library hyper.

use crate::{assert_charged, send_while_taken};

/// Returns a request head with `lines` different header lines.
fn head(path: &str, lines: usize) -> String {
    let mut head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n");
    for at in 0..lines {
        head.extend(["x", &at.to_string(), ": 1\r\n"]);
    }
    head + "\r\n"
}

#[test]
fn a_kept_request_with_many_lines() {
    for lines in [100, 1990] {
        let head = head("/keep", lines);
        assert_charged(&format!("a kept request of {lines} lines"), 20, 10_000, |victim| {
            let mut client = victim.connect();
            client.send(&head);
            client
        });
    }
}

#[test]
fn requests_with_few_lines_after_one_with_many() {
    let head = head("/", 1990);
    assert_charged("a kept request after one of 1,990 lines", 20, 10_000, |victim| {
        let mut client = victim.connect();
        client.send([head.as_bytes(), b"GET /keep HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
        client
    });
}

#[test]
fn an_unended_body_in_chunks() {
    for (what, body) in [
        ("small chunks", b"1\r\nx\r\n".repeat(4000)),
        ("a chunk", [b"2000\r\n", &[b'x'; 8191][..]].concat()),
        ("chunks of 1 KiB", [b"400\r\n", &[b'x'; 1024][..], b"\r\n"].concat().repeat(7)),
    ] {
        assert_charged(&format!("a body in {what}"), 20, 10_000, |victim| {
            let mut client = victim.connect();
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            client.send(&body);
            client
        });
    }
}

#[test]
fn a_long_head_and_its_unended_body() {
    for (value, chunks) in [(10_000, 3), (60_000, 20), (90_000, 40)] {
        let what = format!("a head of {value} bytes and {chunks} KiB of its body");
        assert_charged(&what, 20, 10_000, |victim| {
            let mut client = victim.connect();
            let value = "v".repeat(value);
            client.send(format!(
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\nx: {value}\r\n\r\n"
            ));
            for _ in 0..chunks {
                client.send([7; 1024]);
            }
            client
        });
    }
}

#[test]
fn an_unended_head() {
    for (line, count) in [(60, 1500), (90_000, 1)] {
        let what = format!("{count} lines of {line} bytes of a head");
        assert_charged(&what, 20, 10_000, |victim| {
            let mut client = victim.connect();
            let line = format!("x: {}\r\n", "v".repeat(line - 5));
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}", line.repeat(count)));
            client
        });
    }
}

#[test]
fn short_responses_that_nobody_reads() {
    let requests = b"GET /short HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20_000);
    assert_charged("unread short responses", 8, 10_000, |victim| {
        let mut client = victim.connect();
        client.shrink_receive_buffer();
        send_while_taken(&mut client, &requests);
        client
    });
}
