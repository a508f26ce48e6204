//! Attacks on the input buffer of the library rustls.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, PoisonError};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rookery_test_support::client::Client;
use rookery_test_support::wait_until;
use rustls::ConnectionTrafficSecrets;

use crate::{TURN, Victim, assert_charged};

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

/// A client that encrypts records by itself.
struct Sealing {
    socket: TcpStream,
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Sealing {
    fn connect(victim: &Victim) -> Sealing {
        let mut config = (*victim.http1).clone();
        config.enable_secret_extraction = true;
        let mut client = victim.connect_with(&Arc::new(config));
        assert_eq!(client.get("/").status, 200);
        let (sequence, secrets) = client.tls.unwrap().dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
            panic!("another cipher suite");
        };
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap());
        Sealing { socket: client.socket, key, iv: iv.as_ref().try_into().unwrap(), sequence }
    }

    /// Sends a record with a part of a handshake message. Returns false if the server has closed
    /// the connection.
    fn send_handshake(&mut self, part: &[u8]) -> bool {
        const HANDSHAKE: u8 = 22;
        let mut sealed = [part, &[HANDSHAKE]].concat();
        let len = u16::try_from(sealed.len() + 16).unwrap().to_be_bytes();
        let header = [0x17, 3, 3, len[0], len[1]];
        let mut nonce = self.iv;
        for (byte, sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= sequence;
        }
        self.sequence += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).unwrap();
        self.socket.write_all(&[&header[..], &sealed].concat()).is_ok()
    }
}

/// The beginning of a key update that announces 65,520 bytes.
const LONG_MESSAGE: &[u8] = &[24, 0, 0xFF, 0xF0];

#[test]
fn a_part_of_a_handshake_message_on_an_idle_connection() {
    assert_charged("a part of a handshake message", 20, 8000, |victim| {
        let mut client = Sealing::connect(victim);
        client.send_handshake(LONG_MESSAGE);
        for _ in 0..3 {
            client.send_handshake(&[0; 1200]);
        }
        Client { socket: client.socket, tls: None, read: Vec::new() }
    });
}

#[test]
fn a_long_handshake_message_ends_the_connection() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let victim = Victim::start();
    let mut client = Sealing::connect(&victim);
    client.send_handshake(LONG_MESSAGE);
    for _ in 0..60 {
        if !client.send_handshake(&[0; 1000]) {
            break;
        }
    }
    wait_until("the connection has ended", || victim.secure.connections() == 0);
}
