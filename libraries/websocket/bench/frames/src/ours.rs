//! The scenarios with `rookery-websocket`. The cancellable ones have a token that can fire: the
//! connection's canceller for reading, and a notification that races with the send for writing.

use std::hint::black_box;
use std::pin::pin;

use rookery_websocket::protocol::{Decoded, Decoder, DecoderLimits, Header, Role};
use rookery_websocket::{Config, Connection, Parts};
use tokio::sync::Notify;

use crate::Run;
use crate::transports::{Replay, pipe};

/// Whether the scenario watches a token that can fire.
#[derive(Clone, Copy, PartialEq)]
pub enum Token {
    None,
    CanFire,
}

const EMPTY: [u8; 2] = [0x82, 0];

/// Only the protocol, from a buffer of 4 KiB.
pub fn header_parse(run: &mut Run) {
    let bytes = EMPTY.repeat(2048);
    let mut at = 0;
    run.measure(|| {
        let (header, n) = Header::parse(black_box(&bytes[at..])).unwrap().unwrap();
        assert!(header.fin && header.len == 0);
        at = (at + n) % bytes.len();
    });
}

pub fn header_decode(run: &mut Run) {
    let mut bytes = EMPTY.repeat(2048);
    let mut decoder = Decoder::new(Role::Client, DecoderLimits::default());
    let mut at = 0;
    run.measure(|| {
        let (n, event) = decoder.decode(black_box(&mut bytes[at..])).unwrap();
        assert!(matches!(event, Some(Decoded::Binary(_))));
        at = if at + n == 4096 { 0 } else { at + n };
    });
}

pub async fn header(run: &mut Run, token: Token) {
    reading(run, Parts::client(Replay::new(&EMPTY, 4096, true)).connection(config()), 0, token)
        .await;
}

/// A whole unmasked frame with its header; coder's scenario has only the payload.
pub async fn payload(run: &mut Run, token: Token) {
    let frame = [&[0x82, 126, 2, 0][..], &[0; 512]].concat();
    reading(run, Parts::client(Replay::new(&frame, 4128, true)).connection(config()), 512, token)
        .await;
}

pub fn payload_decode(run: &mut Run) {
    let frame = [&[0x82, 126, 2, 0][..], &[0; 512]].concat();
    let mut bytes = frame.repeat(8);
    let mut decoder = Decoder::new(Role::Client, DecoderLimits::default());
    let mut at = 0;
    run.measure(|| {
        let (n, event) = decoder.decode(black_box(&mut bytes[at..])).unwrap();
        let Some(Decoded::Binary(payload)) = event else { panic!("a message") };
        assert_eq!(payload.as_bytes().len(), 512);
        at = if at + n == 8 * 516 { 0 } else { at + n };
    });
}

pub async fn read_masked(run: &mut Run, token: Token) {
    let replay = Replay::new(&crate::masked_512(), 32 << 10, false);
    reading(run, Parts::server(replay).connection(config()), 512, token).await;
}

pub async fn write(run: &mut Run, token: Token) {
    let mut connection = Parts::server(Replay::new(&EMPTY, 2, false)).connection(config());
    let payload = [7; 512];
    let notify = Notify::new();
    let mut cancelled = pin!(notify.notified());
    let mut iterations = run.start();
    while iterations.advance() {
        if token == Token::CanFire {
            tokio::select! {
                biased;
                () = cancelled.as_mut() => panic!("nobody cancels"),
                sent = connection.send(&payload[..]) => { let _ = sent.unwrap(); }
            }
        } else {
            let _ = connection.send(black_box(&payload[..])).await.unwrap();
        }
    }
    run.stop(iterations);
}

pub async fn echo(run: &mut Run, token: Token) {
    let (here, there) = pipe();
    let mut client = Parts::client(here).connection(config());
    let mut server = Parts::server(there).connection(config());
    let _keep = (token == Token::CanFire).then(|| (client.canceller(), server.canceller()));
    let payload = [7; 512];
    let serve = async {
        while let Some((message, mut writer)) = server.receive().await.unwrap() {
            let _ = writer.reply(message).await.unwrap();
        }
    };
    let ask = async {
        let mut iterations = run.start();
        while iterations.advance() {
            let _ = client.send(&payload[..]).await.unwrap();
            assert_eq!(client.read().await.unwrap().unwrap().len(), 512);
        }
        run.stop(iterations);
    };
    // `biased`, because a randomly chosen branch gives another count in each run.
    tokio::select! { biased; () = ask => {} () = serve => panic!("the client goes on") }
}

async fn reading(run: &mut Run, mut connection: Connection<Replay>, len: usize, token: Token) {
    let _keep = (token == Token::CanFire).then(|| connection.canceller());
    let mut iterations = run.start();
    while iterations.advance() {
        let message = connection.read().await.unwrap().unwrap();
        assert_eq!(black_box(&message).len(), len);
    }
    run.stop(iterations);
}

fn config() -> Config {
    Config::default().keep_alive(None)
}
