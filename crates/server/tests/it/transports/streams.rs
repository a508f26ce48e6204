//! Streamed responses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rookery_exchange::{Command, Event, Link, Payload, StreamEnd, StreamOptions, StreamedBody};
use rookery_server::{Config, ListenerConfig};

use crate::support::transport::Transport;
use crate::support::{App, Handler, bytes, gunzip, hello, wait_until};

super::matrix! {
    http1: Http1, https12: Https12, https13: Https13, http2: Http2;
    {
        chunks_arrive_in_order_and_the_connection_stays_open,
        a_stream_without_a_body_is_not_pulled,
        a_stream_has_its_announced_length,
        a_stream_that_fails_has_no_clean_end,
        chunks_that_wait_and_compress_to_nothing_arrive,
    }
}

/// The stream with which the application responds.
#[derive(Clone)]
pub(super) enum Script {
    /// The chunks of the list, each after a pull.
    Pulled(Vec<Vec<u8>>),
    /// Two chunks of five bytes, after an announcement of ten bytes.
    Ten,
    /// The chunks of the list at once, compressed if the client accepts that.
    Compressed(Vec<Vec<u8>>),
    /// The chunk `first`, and the abort of the stream once that chunk was written.
    Cut(StreamEnd),
}

fn give(link: &Link, id: u64, stream: &StreamedBody, chunk: Vec<u8>) {
    stream.flow.admit(chunk.len());
    link.send(Command::Chunk { stream: id, payload: Payload::Pooled(chunk), is_pushing: false });
}

/// Starts an application that responds by a script, except to `/plain`. The path of a request may
/// be a status. Returns the pulls of each stream as well.
pub(super) fn streaming(on: Transport, script: Script) -> (App, Arc<Mutex<HashMap<u64, usize>>>) {
    let pulls: Arc<Mutex<HashMap<u64, usize>>> = Arc::default();
    let counts = Arc::clone(&pulls);
    let mut streams = HashMap::new();
    let handler: Handler = Box::new(move |link, event| match event {
        Event::Request(mut exchange) => {
            if exchange.path() == b"/plain" {
                hello(&mut exchange);
                return link.send(Command::Respond(exchange));
            }
            let path = std::str::from_utf8(exchange.path()).unwrap();
            exchange.begin_response(path[1..].parse().unwrap_or(200));
            exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
            if matches!(script, Script::Ten) {
                exchange.push_response_header(b"content-LENGTH", b" 10 ").unwrap();
            }
            let stream = link.stream(StreamOptions {
                is_pulled: matches!(script, Script::Pulled(_)),
                is_compressible: matches!(script, Script::Compressed(_)),
                ..StreamOptions::default()
            });
            exchange.set_response_stream(stream.clone());
            let id = exchange.id();
            let has_body = exchange.method() != b"HEAD";
            link.send(Command::Respond(exchange));
            match &script {
                Script::Pulled(_) => drop(streams.insert(id, stream)),
                Script::Ten if has_body => {
                    give(link, id, &stream, b"01234".to_vec());
                    give(link, id, &stream, b"56789".to_vec());
                    link.send(Command::EndStream { stream: id });
                }
                Script::Ten => {}
                Script::Compressed(chunks) => {
                    for chunk in chunks {
                        give(link, id, &stream, chunk.clone());
                    }
                    link.send(Command::EndStream { stream: id });
                }
                Script::Cut(reason) => {
                    give(link, id, &stream, b"first".to_vec());
                    link.flush();
                    // Before the head was sent, the response would become a 500.
                    wait_until("the chunk is written", || stream.flow.waiting() == 0);
                    link.send(Command::AbortStream {
                        stream: id,
                        reason: *reason,
                        page: String::new().into(),
                    });
                }
            }
        }
        Event::Pull { stream: id, .. } => {
            let Script::Pulled(chunks) = &script else { panic!("it is not pulled") };
            let mut counts = counts.lock().unwrap();
            let count = counts.entry(id).or_default();
            match chunks.get(*count) {
                Some(chunk) => give(link, id, &streams[&id], chunk.clone()),
                None => link.send(Command::EndStream { stream: id }),
            }
            *count += 1;
        }
        _ => {}
    });
    (on.app_with(Config::default(), ListenerConfig::default(), handler), pulls)
}

fn ends(app: &App, how: &str) -> usize {
    app.log.lock().unwrap().iter().filter(|line| *line == how).count()
}

fn chunks_arrive_in_order_and_the_connection_stays_open(on: Transport) {
    let many = (0..100u8).map(|at| vec![at; 10_000]).collect();
    for chunks in [vec![b"0".to_vec(), b"1".to_vec()], many, vec![bytes(5_000_000), b"end".into()]]
    {
        let (app, pulls) = streaming(on, Script::Pulled(chunks.clone()));
        let mut client = on.connect(&app);
        for round in 1..4 {
            let reply = client.get("/");
            assert!(reply.is_whole && reply.body == chunks.concat(), "{} chunks", chunks.len());
            let coding = if on == Transport::Http2 { None } else { Some("chunked") };
            assert_eq!(reply.header("transfer-encoding"), coding);
            assert_eq!(reply.header("content-length"), None);
            wait_until("its end is told", || ends(&app, "departed Done") == round);
        }
        assert!(pulls.lock().unwrap().values().all(|count| *count == chunks.len() + 1));
        assert_eq!(client.get("/plain").body, b"Hello, World!");
        assert_eq!(app.listener().connections(), 1);
    }
}

fn a_stream_without_a_body_is_not_pulled(on: Transport) {
    let (app, pulls) = streaming(on, Script::Pulled(Vec::new()));
    let mut client = on.connect(&app);
    for (method, path, status) in [("HEAD", "/", 200), ("GET", "/204", 204), ("GET", "/304", 304)] {
        let reply = client.request(method, path, &[]);
        assert_eq!((reply.status, reply.header("content-type")), (status, Some("text/plain")));
        assert_eq!(reply.header("content-length"), None, "an unknown length is not announced");
        assert!(reply.body.is_empty());
    }
    wait_until("each end is told", || ends(&app, "departed Done") == 3);
    assert!(pulls.lock().unwrap().is_empty());
}

fn a_stream_has_its_announced_length(on: Transport) {
    let (app, _) = streaming(on, Script::Ten);
    let mut client = on.connect(&app);
    for (method, body) in [("GET", &b"0123456789"[..]), ("HEAD", b""), ("GET", b"0123456789")] {
        let reply = client.request(method, "/", &[]);
        assert_eq!(reply.header("content-length"), Some("10"));
        assert_eq!(reply.header("transfer-encoding"), None);
        assert_eq!((reply.is_whole, &reply.body[..]), (true, body), "{method}");
    }
    assert_eq!(client.get("/plain").status, 200);
}

fn a_stream_that_fails_has_no_clean_end(on: Transport) {
    for (reason, ended) in
        [(StreamEnd::Error, "departed Error"), (StreamEnd::Stop, "departed Stop")]
    {
        let (app, _) = streaming(on, Script::Cut(reason));
        let cut = on.connect(&app).get("/cut");
        assert_eq!((cut.status, cut.is_whole, &cut.body[..]), (200, false, &b"first"[..]));
        app.await_event(ended);
    }
}

/// A compressor produces no output for a long time if the input compresses to nearly nothing.
/// Chunks must nevertheless count as written.
fn chunks_that_wait_and_compress_to_nothing_arrive(on: Transport) {
    let chunks = vec![vec![b'a'; 20_000]; 40];
    let (app, _) = streaming(on, Script::Compressed(chunks.clone()));
    let packed = on.connect(&app).request("GET", "/", &[("accept-encoding", "gzip")]);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(gunzip(&packed.body) == chunks.concat());
    app.await_event("departed Done");
}
