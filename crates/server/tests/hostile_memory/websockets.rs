//! Attacks on the buffers of WebSockets.

use rookery_test_support::client::{Client, masked_frame};

use crate::{Victim, assert_charged, send_while_taken};

fn open(victim: &Victim, has_tls: bool) -> Client {
    let mut client = if has_tls { victim.connect_tls() } else { victim.connect() };
    assert_eq!(client.upgrade("/").status, 101);
    client
}

#[test]
fn an_unfinished_message() {
    for has_tls in [false, true] {
        for len in [1000, 8000] {
            let message = masked_frame(0x82, &vec![7; len]);
            let part = &message[..message.len() - 1];
            let what = format!("all but a byte of a message of {len} bytes, TLS: {has_tls}");
            assert_charged(&what, 20, 1000, |victim| {
                let mut client = open(victim, has_tls);
                client.send(part);
                client
            });
        }
    }
}

#[test]
fn pongs_that_nobody_reads() {
    let pings = masked_frame(0x89, &[b'x'; 100]).repeat(30_000);
    for has_tls in [false, true] {
        assert_charged(&format!("unread pongs, TLS: {has_tls}"), 16, 1000, |victim| {
            let mut client = open(victim, has_tls);
            client.shrink_receive_buffer();
            send_while_taken(&mut client, &pings);
            client
        });
    }
}
