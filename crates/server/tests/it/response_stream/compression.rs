//! Compressed streams: which streams are compressed, and that compression delays no chunk.

use std::io::Write as _;
use std::sync::mpsc::Receiver;

use flate2::write::GzDecoder;
use rookery_exchange::{ChunkAdmission, Exchange, HIGH_MARK, Share, StreamEnd, StreamOptions};
use rookery_server::Config;

use super::{Open, PULLED, PUSHED, ask, ok, read_to, streaming, ten};
use crate::support::{App, Client, wait_until};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
const COMPRESSED: StreamOptions = StreamOptions { is_compressible: true, ..PUSHED };

fn pushing(rules: StreamOptions, head: fn(&mut Exchange)) -> (App, Receiver<Open>) {
    streaming(Config::default(), rules, head, Box::new(|_, _| ()))
}

fn events(exchange: &mut Exchange) {
    exchange.begin_response(200);
    exchange.push_response_header(b"Content-Type", b"text/event-stream").unwrap();
}

fn image(exchange: &mut Exchange) {
    exchange.begin_response(200);
    exchange.push_response_header(b"Content-Type", b"image/png").unwrap();
}

/// Returns what a client can decode of the head and the chunks that it has received.
fn decoded(read: &[u8]) -> Vec<u8> {
    let start = read.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    let mut rest = &read[start..];
    let mut decoder = GzDecoder::new(Vec::new());
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        let piece = &rest[end + 2..];
        if len == 0 || piece.len() < len + 2 {
            break;
        }
        decoder.write_all(&piece[..len]).unwrap();
        rest = &piece[len + 2..];
    }
    decoder.flush().unwrap();
    decoder.get_ref().clone()
}

fn read_decoded(client: &mut Client, text: &[u8]) {
    read_to(client, "\r\n\r\n");
    while decoded(&client.read) != text {
        assert!(client.fill(), "{:?}", String::from_utf8_lossy(&decoded(&client.read)));
    }
}

#[test]
fn a_piece_can_be_decoded_before_the_next_is_made() {
    for (rules, head) in [
        (COMPRESSED, ok as fn(&mut Exchange)),
        (StreamOptions { is_events: true, sends_head_first: true, ..COMPRESSED }, events),
    ] {
        let (app, opened) = pushing(rules, head);
        let (mut client, open) = ask(&app, &opened, GET);
        let mut whole = Vec::new();
        if rules.is_events {
            // The comment precedes the first event.
            whole.extend_from_slice(b":\n\n");
            read_decoded(&mut client, &whole);
        }
        for n in 0..5 {
            let piece = format!("data: piece {n}\n\n");
            open.give(piece.as_bytes());
            whole.extend_from_slice(piece.as_bytes());
            read_decoded(&mut client, &whole);
        }
        let head = String::from_utf8_lossy(&client.read).to_lowercase();
        assert!(
            head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"),
            "{head}"
        );
        // Larger chunks are compressed on another thread.
        let large: Vec<u8> = (0..300_000u32).map(|n| (n % 91) as u8).collect();
        open.give(large.clone());
        whole.extend_from_slice(&large);
        read_decoded(&mut client, &whole);
        open.end();
        let reply = client.response().unwrap();
        let mut decoder = GzDecoder::new(Vec::new());
        decoder.write_all(&reply.body).unwrap();
        assert_eq!(decoder.finish().unwrap(), whole, "with its end");
        app.await_event("departed Done");
        assert_eq!(open.stream.flow.waiting(), 0);
        assert_eq!(client.get("/plain").status, 200);
        wait_until("nothing is charged", || app.server.budget().used(Share::Outgoing) == 0);
    }
}

#[test]
fn what_is_pulled_is_compressed_in_bounded_memory() {
    const PIECES: usize = 200;
    let rules = StreamOptions { is_compressible: true, ..PULLED };
    let pull = |open: &Open, n: usize| {
        if n < PIECES {
            // The bytes are neither all equal nor random.
            let piece: Vec<u8> = (0..HIGH_MARK).map(|at| ((at * (n + 7)) >> 3) as u8).collect();
            assert!(matches!(open.give(piece), ChunkAdmission::Continue | ChunkAdmission::Pause));
        } else {
            open.end();
        }
    };
    let (app, _opened) = streaming(Config::default(), rules, ok, Box::new(pull));
    let mut client = app.connect();
    client.send(GET);
    let reply = client.response().unwrap();
    assert!(reply.body.len() < PIECES * HIGH_MARK / 2, "{}", reply.body.len());
    let mut decoder = GzDecoder::new(Vec::new());
    decoder.write_all(&reply.body).unwrap();
    let whole = decoder.finish().unwrap();
    assert_eq!(whole.len(), PIECES * HIGH_MARK);
    assert!(
        whole
            .chunks(HIGH_MARK)
            .enumerate()
            .all(|(n, piece)| piece[800] == ((800 * (n + 7)) >> 3) as u8)
    );
    assert_eq!(app.log.lock().unwrap().iter().filter(|line| *line == "want").count(), PIECES + 1);
}

#[test]
fn what_was_given_before_an_error_arrives() {
    let (app, opened) = pushing(COMPRESSED, ok);
    let (mut client, open) = ask(&app, &opened, GET);
    let mut whole = b"first ".to_vec();
    open.give(whole.clone());
    read_decoded(&mut client, &whole);
    let large = vec![b'x'; 3 << 20];
    open.give(large.clone());
    open.give("last");
    open.cut(StreamEnd::Error, "unseen");
    let (read, is_fin) = client.read_to_end();
    assert!(!is_fin, "a clean end was faked");
    whole.extend_from_slice(&large);
    whole.extend_from_slice(b"last");
    assert!(decoded(&read) == whole, "{} of {} bytes", decoded(&read).len(), whole.len());
    app.await_event("departed Error");
}

#[test]
fn what_is_not_to_be_compressed_is_not() {
    let plain = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let old = "GET / HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n";
    let ok = ok as fn(&mut Exchange);
    for (rules, head, request) in [
        (PUSHED, ok, GET),
        (COMPRESSED, ok, plain),
        (COMPRESSED, ok, old),
        (COMPRESSED, image, GET),
        (COMPRESSED, events, GET),
        // The response has a Content-Length.
        (COMPRESSED, ten, GET),
    ] {
        let (app, opened) = pushing(rules, head);
        let (mut client, open) = ask(&app, &opened, request);
        open.give("0123456789");
        open.end();
        read_to(&mut client, "0123456789");
        assert!(!String::from_utf8_lossy(&client.read).to_lowercase().contains("content-encoding"));
    }
}

#[test]
fn no_more_than_32_streams_are_compressed_at_a_time() {
    let (app, opened) = pushing(COMPRESSED, ok);
    let mut open: Vec<_> = (0..33).map(|_| ask(&app, &opened, GET)).collect();
    let is_compressed = |(client, stream): &mut (Client, Open)| {
        stream.give("piece");
        read_to(client, "\r\n\r\n");
        String::from_utf8_lossy(&client.read).to_lowercase().contains("content-encoding: gzip")
    };
    let compressed: Vec<bool> = open.iter_mut().map(is_compressed).collect();
    assert_eq!(compressed.iter().filter(|is| **is).count(), 32);
    // When a stream ends, another one can be compressed.
    for (_, stream) in open.drain(..) {
        stream.end();
    }
    wait_until("told of each end", || super::departures(&app).len() == 33);
    assert!(is_compressed(&mut ask(&app, &opened, GET)));
}
