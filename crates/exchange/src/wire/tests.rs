//! Tests of the records.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::sync::Arc;

use super::*;
use crate::exchange::response::{ResponseBody, WebSocketCompression};
use crate::exchange::{ClientCertificate, Exchange, Version};
use crate::stream_flow_control::{StreamEnd, StreamOptions, StreamedBody};
use crate::{BodyBufferPool, BodySource, MessageKind};

fn request() -> Box<Exchange> {
    let mut exchange = Exchange::new();
    exchange.begin(77, 1, 3);
    exchange.set_request_line(b"POST", b"/a/b?c=d", Version::Http10);
    exchange.push_header(b"x-mine", b"1");
    exchange.push_header(b"host", b"example.org");
    exchange.push_header(b"connection", b"close");
    let [remote, local] = ["192.0.2.1:5", "[::1]:80"].map(|end| Some(end.parse().unwrap()));
    exchange.end_head(remote, local, true);
    let client = ClientCertificate { subject: "CN=Ada".into(), fingerprint: "00ff".into() };
    exchange.set_transport(true, Some(Arc::new(client)));
    exchange
}

fn written(exchange: &Exchange) -> Vec<u8> {
    let mut bytes = Vec::new();
    let added: [(&[u8], &[u8]); 1] = [(b"a-first", b"0")];
    write_request(exchange, exchange.query(), (9, 8), &mut bytes, &added, |name, value, keep| {
        if name != b"connection" {
            keep(value);
        }
    });
    bytes
}

fn read(bytes: &[u8], file: Option<File>, exchange: &mut Exchange) -> Result<(), Malformed> {
    read_request(
        bytes,
        5,
        |id| id + 1,
        exchange,
        (file, true),
        &Arc::new(BodyBufferPool::default()),
    )
}

fn file(text: &str) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    file
}

#[test]
fn a_request_arrives_as_it_was_sent() {
    let mut sent = request();
    sent.push_body(b"the ");
    sent.push_body(b"body");
    let mut arrived = Exchange::new();
    read(&written(&sent), None, &mut arrived).unwrap();
    assert_eq!((arrived.id(), arrived.listener(), arrived.ticket()), (78, 5, 9));
    assert_eq!(arrived.queue_and_start_times(), (8, 0));
    assert_eq!((arrived.method(), arrived.path()), (&b"POST"[..], &b"/a/b"[..]));
    assert_eq!((arrived.query(), arrived.version()), (&b"?c=d"[..], Version::Http10));
    assert_eq!((arrived.remote(), arrived.local()), (sent.remote(), sent.local()));
    assert!(arrived.is_https() && arrived.is_upgrade() && !arrived.is_head_seen());
    assert_eq!((arrived.client(), arrived.client().is_some()), (sent.client(), true));
    assert_eq!(arrived.request_id().as_bytes(), sent.request_id().as_bytes());
    let headers: Vec<_> = arrived.headers().map(|line| (line.name, line.value)).collect();
    let expected: [(&[u8], &[u8]); 3] =
        [(b"a-first", b"0"), (b"host", b"example.org"), (b"x-mine", b"1")];
    assert_eq!(headers, expected);
    assert_eq!(arrived.body().segments().collect::<Vec<_>>().concat(), b"the body");
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn bodies_arrive_in_the_arena_in_a_block_or_as_a_file() {
    let large = vec![b'x'; MAX_ARENA_BODY + 1];
    let mut sent = request();
    sent.push_body(&large);
    let mut arrived = Exchange::new();
    read(&written(&sent), None, &mut arrived).unwrap();
    assert_eq!(arrived.body().block().map(|block| block.bytes() == large), Some(true));
    assert_eq!(read(&written(&sent), Some(file("")), &mut arrived), Err(Malformed));

    let mut sent = request();
    sent.body_mut().set_file(file("spooled"), 7, None);
    read(&written(&sent), Some(file("spooled")), &mut arrived).unwrap();
    let BodySource::File(mut file) = arrived.body().source() else { panic!("a file") };
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((arrived.body().len(), &*text), (7, "spooled"));
    assert_eq!(read(&written(&sent), None, &mut arrived), Err(Malformed));
}

/// Writes a response and reads it into the exchange of its request.
fn response(sent: &Exchange, body: Option<(u64, File)>) -> Result<Box<Exchange>, Malformed> {
    let (len, file) = body.unzip();
    let mut bytes = Vec::new();
    let kind = Up::write_response(sent, (77, 9), len, &mut bytes);
    bytes.extend_from_slice(response_body(sent));
    let Ok(Up::Response { exchange: 77, ticket: 9, content }) = Up::read(kind, &bytes) else {
        panic!("a response");
    };
    let mut arrived = request();
    let content = ResponseContent::Borrowed(content);
    read_response(content, &mut arrived, file, 1 << 20).map(|()| arrived)
}

#[test]
fn a_response_arrives_as_it_was_sent() {
    let mut sent = request();
    sent.begin_response(201);
    sent.push_response_header(b"Content-Type", b"text/plain").unwrap();
    sent.set_response_body(b"hello");
    sent.response_mut().set_failure();
    let compression = WebSocketCompression { level: 3, threshold: 1000, keeps_window: true };
    sent.response_mut().set_compression(compression);
    let arrived = response(&sent, None).unwrap();
    let it = arrived.response();
    assert_eq!((it.status(), it.is_failure()), (201, true));
    assert_eq!(
        (it.compression(), arrived.response_copy()),
        (Some(compression), Some(&b"hello"[..]))
    );
    let headers: Vec<_> = arrived.response_headers().collect();
    assert_eq!(headers, [(&b"Content-Type"[..], &b"text/plain"[..])]);
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn bodies_of_responses_keep_their_form() {
    let mut sent = request();
    sent.begin_response(200);
    assert!(matches!(response(&sent, None).unwrap().response().body(), ResponseBody::None));
    let arrived = response(&sent, Some((7, file("spooled")))).unwrap();
    assert!(matches!(arrived.response().body(), ResponseBody::File { len: 7, .. }));
    let rules = StreamOptions {
        is_pulled: true,
        is_events: true,
        heartbeat: 300,
        ..StreamOptions::default()
    };
    sent.push_response_header(b"content-length", b"12").unwrap();
    sent.set_response_stream(StreamedBody::new(rules, 1));
    let arrived = response(&sent, None).unwrap();
    let ResponseBody::Stream(stream) = arrived.response().body() else { panic!("a stream") };
    assert_eq!((stream.rules, stream.flow.length()), (rules, Some(12)));
    // A worker that passes a socket could make the server wait.
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let socket = File::from(std::os::fd::OwnedFd::from(socket));
    assert_eq!(response(&sent, Some((7, socket))).err(), Some(Malformed));
}

#[test]
fn the_body_of_a_long_response_stays_where_it_has_arrived() {
    let body = vec![b'x'; 100_000];
    let mut sent = request();
    sent.begin_response(200);
    sent.push_response_header(b"a", b"b").unwrap();
    sent.set_response_body(&body);
    let mut record = Vec::new();
    Up::write_response(&sent, (77, 9), None, &mut record);
    record.extend_from_slice(response_body(&sent));
    let (end, len) = (record.as_ptr_range().end, record.len());
    let mut arrived = request();
    read_response(ResponseContent::Owned(record), &mut arrived, None, 1).unwrap();
    let body = response_body(&arrived);
    assert_eq!((body.len(), body.as_ptr_range().end), (100_000, end));
    // The response can be passed on without a copy of its body.
    let mut again = Vec::new();
    Up::write_response(&arrived, (77, 9), None, &mut again);
    assert_eq!(again.len() + body.len(), len);
    let short = ResponseContent::Owned(vec![0; 15]);
    assert_eq!(read_response(short, &mut arrived, None, 1), Err(Malformed));
}

#[test]
fn the_response_to_an_accepted_handshake_has_no_stream() {
    for (status, is_valid) in [(101, false), (200, true)] {
        let mut sent = request();
        sent.begin_response(status);
        sent.set_response_stream(StreamedBody::new(StreamOptions::default(), 1 << 20));
        // The request is an upgrade.
        assert_eq!(response(&sent, None).is_ok(), is_valid, "{status}");
    }
}

#[test]
fn records_round_trip_and_others_are_refused() {
    let ups = [
        Up::Unsendable { exchange: 1, ticket: 2 },
        Up::Declined { exchange: 1, ticket: 2 },
        Up::ReadBody { exchange: 1, ticket: 2, is_head_seen: true },
        Up::Message { socket: 1, kind: MessageKind::Text, is_waiting: true, content: b"a" },
        Up::Message { socket: 1, kind: MessageKind::Binary, is_waiting: false, content: b"\xFF" },
        Up::Ping { socket: u64::MAX },
        Up::Close { socket: 1, code: 4000, reason: b"bye" },
        Up::Abort { socket: 1 },
        Up::Chunk { stream: 1, is_pushing: true, is_waiting: false, content: b"" },
        Up::ResumePulls { stream: 1 },
        Up::SendHead { stream: 1 },
        Up::EndStream { stream: 1 },
        Up::AbortStream { stream: 1, reason: StreamEnd::Slow, page: b"p" },
    ];
    for up in ups {
        let mut bytes = Vec::new();
        let kind = up.write(&mut bytes);
        assert_eq!(Up::read(kind, &bytes), Ok(up));
        assert_eq!(Up::read(kind, &bytes[..7]), Err(Malformed));
    }
    let downs = [
        Down::Request { form: RequestForm::Complete, content: b"r" },
        Down::Request { form: RequestForm::HeadFirst, content: b"r" },
        Down::Request { form: RequestForm::HeadOnly, content: b"" },
        Down::Message { socket: 1, kind: MessageKind::Text, content: b"a" },
        Down::Closed { socket: 1, code: 1006, is_clean: true, reason: b"bye" },
        Down::Drained { socket: 1, sent: 3 },
        Down::Sent { socket: 1, sent: 3 },
        Down::Pull { stream: 1, written: 9 },
        Down::Written { stream: 1, written: 9 },
        Down::StreamEnded { stream: 1, reason: StreamEnd::Timeout },
    ];
    for down in downs {
        let mut bytes = Vec::new();
        let kind = down.write(&mut bytes);
        assert_eq!(Down::read(kind, &bytes), Ok(down));
    }
    let close = |reason: &[u8]| {
        let mut bytes = Vec::new();
        let kind = Up::Close { socket: 1, code: 1000, reason }.write(&mut bytes);
        Up::read(kind, &bytes).is_ok()
    };
    assert!(close(&[b'x'; 123]) && !close(&[b'x'; 124]) && !close(b"\xFF"));
    let text = [&[0; 8][..], b"\0\xFF"].concat();
    assert!(Up::read(kind::TEXT, &text).is_err() && Up::read(kind::BINARY, &text).is_ok());
    assert!((0..=u8::MAX).filter(|kind| Up::read(*kind, &[0; 16]).is_ok()).count() < 13);
}

#[test]
fn a_record_with_bytes_after_its_end_is_refused() {
    let ups = [
        Up::Unsendable { exchange: 1, ticket: 2 },
        Up::Ping { socket: 1 },
        Up::Abort { socket: 1 },
        Up::SendHead { stream: 1 },
    ];
    for up in ups {
        let mut bytes = Vec::new();
        let kind = up.write(&mut bytes);
        bytes.push(0);
        assert_eq!(Up::read(kind, &bytes), Err(Malformed), "{up:?}");
    }
    for down in [Down::Drained { socket: 1, sent: 3 }, Down::Written { stream: 1, written: 9 }] {
        let mut bytes = Vec::new();
        let kind = down.write(&mut bytes);
        bytes.push(0);
        assert_eq!(Down::read(kind, &bytes), Err(Malformed), "{down:?}");
    }
}

#[test]
fn truncated_and_changed_bytes_never_panic() {
    let mut sent = request();
    sent.push_body(b"body");
    let request = written(&sent);
    sent.begin_response(200);
    sent.push_response_header(b"a", b"b").unwrap();
    sent.set_response_body(b"hello");
    let mut response = Vec::new();
    response::write(&sent, None, &mut response);
    response.extend_from_slice(response_body(&sent));
    let mut exchange = Exchange::new();
    let read_response = |bytes: &[u8], exchange: &mut Exchange| {
        super::read_response(ResponseContent::Borrowed(bytes), exchange, None, 1)
    };
    for len in 0..request.len() {
        assert_eq!(read(&request[..len], None, &mut exchange), Err(Malformed), "{len}");
    }
    let head = response.len() - b"hello".len();
    for len in 0..response.len() {
        let result = read_response(&response[..len], &mut exchange);
        assert_eq!(result.is_ok(), len >= head, "{len}");
    }
    for at in 0..response.len() {
        for byte in [0, 1, 0x7F, 0xFF] {
            let mut changed = response.clone();
            changed[at] = byte;
            let _ = read_response(&changed, &mut exchange);
        }
    }
}
