//! Attacks on the buffers of the library h2.

use std::sync::PoisonError;

use rookery_test_support::client::{Client, masked_frame};
use rookery_test_support::wait_until;

use crate::{TURN, Victim, assert_charged, send_while_taken};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
/// A type of frames that no standard defines.
const UNKNOWN: u8 = 0x42;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// A size update which empties the dynamic table of HPACK (RFC 7541, 6.3).
const EMPTY_TABLE: u8 = 0x20;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the header block of a GET or POST of this path.
fn block(method: u8, path: &str) -> Vec<u8> {
    [&[method, 0x87, 0x04, path.len() as u8][..], path.as_bytes(), &[0x01, 1, b'a']].concat()
}

const GET: u8 = 0x82;
const POST: u8 = 0x83;

/// Returns the header block of the opening handshake of a WebSocket (RFC 8441).
fn connect(path: &str) -> Vec<u8> {
    let field = |name: &[u8], value: &[u8]| {
        [&[0, name.len() as u8], name, &[value.len() as u8], value].concat()
    };
    [
        field(b":method", b"CONNECT"),
        field(b":protocol", b"websocket"),
        vec![0x87],
        field(b":path", path.as_bytes()),
        field(b":authority", b"a"),
        field(b"sec-websocket-version", b"13"),
    ]
    .concat()
}

/// Returns `count` literal fields with different names of three letters.
fn fields(count: usize) -> Vec<u8> {
    let letter = |at: usize| b'a' + (at % 26) as u8;
    (0..count)
        .flat_map(|at| [0, 3, letter(at), letter(at / 26), letter(at / 676), 1, b'v'])
        .collect()
}

/// Connects and sends the preface of HTTP/2.
fn begin(victim: &Victim) -> Client {
    let mut client = victim.connect_http2();
    client.send([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, b"")[..]].concat());
    client
}

/// Connects, and empties the dynamic table as the server's settings require.
fn begin_with_empty_table(victim: &Victim) -> Client {
    let mut client = begin(victim);
    let block = [&[EMPTY_TABLE][..], &block(GET, "/")].concat();
    client.send(frame(SETTINGS, ACK, 0, b""));
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &block));
    client
}

/// Sends requests of which each adds an entry to the dynamic table, and fills h2's read buffer
/// behind each entry.
fn fill_table(client: &mut Client, acknowledges: bool) {
    // With these lengths, h2 allocates a buffer of almost 32 KiB for each request.
    let padding = frame(UNKNOWN, 0, 0, &[0; 8000]);
    let long = [&[0, 1, b'x', 0x7F, 0x81, 0x7C][..], &[b'v'; 16_000]].concat();
    if acknowledges {
        client.send(frame(SETTINGS, ACK, 0, b""));
    }
    for at in 0..130 {
        // h2 copies the values of other fields than those of the request line.
        let block = [&[GET, 0x87, 0x44, 1, b'/', 0x01, 1, b'a'][..], &long].concat();
        client.send(frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &block));
        client.send(&padding);
    }
}

#[test]
fn entries_of_the_header_table_keep_read_buffers() {
    assert_charged("a header table", 4, 1 << 20, |victim| {
        let mut client = begin(victim);
        fill_table(&mut client, false);
        client
    });
}

#[test]
fn a_client_that_acknowledges_the_settings_keeps_its_header_table() {
    assert_charged("an acknowledged header table", 4, 1 << 20, |victim| {
        let mut client = begin(victim);
        fill_table(&mut client, true);
        client
    });
}

#[test]
fn entries_of_short_requests_keep_few_buffers_and_of_split_ones_many() {
    // h2 copies the value of the first field, and not that of `:path`.
    let entry = |at: u32| [GET, 0x87, 0x44, 2, b'/', at as u8, 0x01, 1, b'a'];
    assert_charged("a header table of short requests", 4, 8_000, |victim| {
        let mut client = begin(victim);
        for at in 0..110 {
            client.send(frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &entry(at)));
        }
        client
    });
    assert_charged("a header table of split requests", 4, 800_000, |victim| {
        let mut client = begin(victim);
        for at in 0..110 {
            client.send(frame(HEADERS, END_STREAM, 2 * at + 1, &entry(at)[..4]));
            client.send(frame(CONTINUATION, END_HEADERS, 2 * at + 1, &entry(at)[4..]));
        }
        client
    });
    // The rest of each buffer is one byte too short for the frame that follows a request.
    let (rest, padding) = ((8 << 10) - 2 * 9 - 9, 8 << 10);
    assert_charged("a header table of requests before long frames", 4, 800_000, |victim| {
        let mut client = begin(victim);
        for at in 0..110 {
            client.send(frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &entry(at)));
            client.send(frame(UNKNOWN, 0, 0, &vec![0; if at % 2 == 0 { rest } else { padding }]));
        }
        client
    });
}

#[test]
fn a_client_that_empties_its_header_table_is_charged_no_longer() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let victim = Victim::start();
    let mut client = begin(&victim);
    fill_table(&mut client, true);
    wait_until("the table is charged", || victim.charged() > 3 << 20);
    let block = [&[EMPTY_TABLE][..], &block(GET, "/")].concat();
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1001, &block));
    // A connection that has not read its responses may count 120 KiB.
    wait_until("the table is empty", || victim.charged() < 150_000);
}

#[test]
fn kept_requests_with_many_lines() {
    assert_charged("100 kept requests of 200 lines", 4, 1 << 20, |victim| {
        let mut client = begin_with_empty_table(victim);
        let block = [block(GET, "/keep"), fields(200)].concat();
        for at in 1..=99 {
            client.send(frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &block));
        }
        client
    });
}

#[test]
fn an_unended_header_block() {
    for (what, fields, rest) in [
        ("many fields", fields(1800), 0),
        ("a long field", Vec::new(), 4),
        ("many fields and a long one", fields(1800), 4),
    ] {
        assert_charged(&format!("an unended block with {what}"), 10, 60_000, |victim| {
            let mut client = begin_with_empty_table(victim);
            // A value of 100,000 bytes follows.
            let long: &[u8] = &[0, 1, b'x', 0x7F, 0xA1, 0x8C, 0x06];
            let payload = [block(GET, "/"), fields.clone(), long.to_vec()].concat();
            client.send(frame(HEADERS, END_STREAM, 3, &payload));
            for _ in 0..rest {
                client.send(frame(CONTINUATION, 0, 3, &[b'v'; 16_000]));
            }
            client
        });
    }
}

#[test]
fn a_client_that_reads_no_acknowledgement() {
    for (what, frame) in
        [("pings", frame(PING, 0, 0, &[0; 8])), ("settings", frame(SETTINGS, 0, 0, b""))]
    {
        let frames = frame.repeat(8_000_000 / frame.len());
        assert_charged(&format!("unread {what}"), 4, 60_000, |victim| {
            let mut client = begin_with_empty_table(victim);
            client.shrink_receive_buffer();
            send_while_taken(&mut client, &frames);
            client
        });
    }
}

#[test]
fn streams_that_have_ended() {
    for (what, method, frames) in
        [("GETs", GET, 0), ("POSTs", POST, 1), ("POSTs of frames", POST, 8)]
    {
        assert_charged(&format!("99 ended {what}"), 10, 20_000, |victim| {
            let mut client = begin_with_empty_table(victim);
            let streams = (1..=99).map(|at| 2 * at + 1);
            let (end, block) = (if frames == 0 { END_STREAM } else { 0 }, block(method, "/"));
            let heads = streams.clone().map(|id| frame(HEADERS, end | END_HEADERS, id, &block));
            client.send(heads.flatten().collect::<Vec<u8>>());
            let data = streams.clone().flat_map(|id| frame(DATA, 0, id, b"x").repeat(frames));
            client.send(data.collect::<Vec<u8>>());
            if frames > 0 {
                let ends = streams.flat_map(|id| frame(DATA, END_STREAM, id, b"x"));
                client.send(ends.collect::<Vec<u8>>());
            }
            client
        });
    }
}

#[test]
fn a_body_of_tiny_frames() {
    assert_charged("a body of tiny frames", 10, 20_000, |victim| {
        let mut client = begin_with_empty_table(victim);
        let body = frame(DATA, 0, 3, b"x").repeat(3000);
        client.send([frame(HEADERS, END_HEADERS, 3, &block(POST, "/")), body].concat());
        client.send(frame(DATA, END_STREAM, 3, b"x"));
        client
    });
}

#[test]
fn malformed_requests() {
    assert_charged("90 malformed requests", 10, 20_000, |victim| {
        let mut client = begin_with_empty_table(victim);
        for at in 1..=90 {
            // A pseudo-header after an ordinary field.
            let block = [&[0, 1, b'x', 0][..], &block(GET, "/")].concat();
            client.send(frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &block));
        }
        client
    });
}

#[test]
fn websockets_that_nobody_reads() {
    assert_charged("90 unread WebSockets", 10, 700_000, |victim| {
        let mut client = begin_with_empty_table(victim);
        // The server may send nothing on the streams.
        client.send(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        let block = connect("/ws");
        for at in 1..=90 {
            client.send(frame(HEADERS, END_HEADERS, 2 * at + 1, &block));
            client.send(frame(DATA, 0, 2 * at + 1, &masked_frame(0x82, b"x")));
        }
        client
    });
}

#[test]
fn trailers_that_wait_for_the_application() {
    for (what, fields) in [("literal fields", fields(1800)), ("indexed fields", vec![0x95; 1800])] {
        assert_charged(&format!("90 trailers of {what}"), 4, 5_000_000, |victim| {
            let mut client = begin_with_empty_table(victim);
            for at in 1..=90 {
                client.send(frame(HEADERS, END_HEADERS, 2 * at + 1, &connect("/keep")));
                client.send(frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &fields));
            }
            client
        });
    }
}

#[test]
fn streams_that_the_client_resets() {
    assert_charged("90 reset streams", 10, 20_000, |victim| {
        let mut client = begin_with_empty_table(victim);
        let block = [block(POST, "/"), fields(40)].concat();
        for at in 1..=90 {
            client.send(frame(HEADERS, END_HEADERS, 2 * at + 1, &block));
            client.send(frame(DATA, 0, 2 * at + 1, &[b'x'; 1000]));
        }
        for at in 1..=90 {
            client.send(frame(RST_STREAM, 0, 2 * at + 1, &[0, 0, 0, 8]));
        }
        client
    });
}

#[test]
fn rejections_that_nobody_reads() {
    for (what, fields) in [("of large heads", fields(1200)), ("of bad hosts", fields(40))] {
        assert_charged(&format!("90 unread rejections {what}"), 4, 100_000, |victim| {
            let mut client = begin_with_empty_table(victim);
            client.send(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
            let host = [&[0, 4][..], b"host", &[1, b'b']].concat();
            let block = [block(GET, "/"), host, fields.clone()].concat();
            for at in 1..=90 {
                client.send(frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &block));
            }
            client
        });
    }
}

#[test]
fn uploads_that_have_not_ended() {
    assert_charged("90 uploads of 2 KiB with 48 lines", 4, 500_000, |victim| {
        let mut client = begin_with_empty_table(victim);
        let block = [block(POST, "/"), fields(46)].concat();
        for at in 1..=90 {
            client.send(frame(HEADERS, END_HEADERS, 2 * at + 1, &block));
            client.send(frame(DATA, 0, 2 * at + 1, &[b'x'; 2000]));
        }
        client
    });
}
