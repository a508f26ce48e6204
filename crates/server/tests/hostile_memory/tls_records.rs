//! Attacks on the input buffer of the library rustls.

use std::io::Write as _;

use rookery_test_support::client::Client;

use crate::assert_charged;

const RECORD: usize = 16_000;

/// Sends the first part of a TLS record.
fn send_part(client: &mut Client) {
    let len = u16::try_from(RECORD).unwrap().to_be_bytes();
    client.socket.write_all(&[&[0x17, 3, 3][..], &len, &[0; RECORD - 1]].concat()).unwrap();
}

#[test]
fn an_unfinished_record_on_an_idle_connection() {
    for (what, asks) in [("without a request", false), ("after a request", true)] {
        assert_charged(&format!("an unfinished record {what}"), 20, 20_000, |victim| {
            let mut client = victim.connect_tls();
            if asks {
                assert_eq!(client.get("/").status, 200);
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            send_part(&mut client);
            client
        });
    }
}

#[test]
fn an_unfinished_record_on_a_websocket() {
    assert_charged("an unfinished record on a WebSocket", 20, 20_000, |victim| {
        let mut client = victim.connect_tls();
        assert_eq!(client.upgrade("/").status, 101);
        send_part(&mut client);
        client
    });
}

#[test]
fn an_unfinished_record_behind_http2() {
    assert_charged("an unfinished record behind HTTP/2", 20, 20_000, |victim| {
        let mut client = victim.connect_http2();
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        send_part(&mut client);
        client
    });
}
