//! Attacks on the buffers of the library hyper.

use crate::assert_charged;

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
    for lines in [100, 1000, 1990] {
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
