//! Streamed responses, whose bodies the application sends in chunks.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use rookery_exchange::{
    ChunkAdmission, Command, Event, Exchange, Link, Payload, StreamEnd, StreamId, StreamOptions,
    StreamedBody,
};
use rookery_server::{Config, Limits, ListenerConfig};

use crate::support::{App, Client, Handler, TEST_TIMEOUT, hello};

mod back_pressure;
mod compression;
mod framing;
mod server_sent_events;
mod stream_ends;

const PUSHED: StreamOptions = StreamOptions {
    is_pulled: false,
    sends_head_first: false,
    is_events: false,
    heartbeat: 0,
    is_compressible: false,
};
const PULLED: StreamOptions = StreamOptions { is_pulled: true, ..PUSHED };

/// The application's side of a stream.
#[derive(Clone)]
struct Open {
    id: StreamId,
    stream: StreamedBody,
    link: Arc<Link>,
}

impl Open {
    /// Sends a chunk as an application does: it is counted first, and sent if the result allows
    /// that.
    fn give(&self, bytes: impl Into<Vec<u8>>) -> ChunkAdmission {
        self.give_and(bytes, false)
    }

    /// Sends a chunk. `goes_on` says that the application will push another one without being
    /// asked.
    fn give_and(&self, bytes: impl Into<Vec<u8>>, goes_on: bool) -> ChunkAdmission {
        let bytes = bytes.into();
        let given = self.stream.flow.admit(bytes.len());
        match given {
            ChunkAdmission::Continue | ChunkAdmission::Pause => {
                self.tell(Command::Chunk {
                    stream: self.id,
                    payload: Payload::Pooled(bytes),
                    is_pushing: goes_on,
                });
            }
            ChunkAdmission::ClientTooSlow => self.cut(StreamEnd::Slow, ""),
            ChunkAdmission::ExceedsLength => self.cut(StreamEnd::Error, ""),
            ChunkAdmission::Ended => {}
        }
        given
    }

    fn cut(&self, reason: StreamEnd, page: &str) {
        self.tell(Command::AbortStream { stream: self.id, reason, page: page.into() });
    }

    fn end(&self) {
        self.tell(Command::EndStream { stream: self.id });
    }

    fn tell(&self, command: Command) {
        self.link.send(command);
        self.link.flush();
    }
}

/// A function that responds to the `n`th pull, counted from 0.
type Pull = Box<dyn FnMut(&Open, usize) + Send>;

/// Starts an application that responds with streams, except to `/plain`. `head` begins each
/// response.
fn streaming(
    config: Config,
    rules: StreamOptions,
    head: fn(&mut Exchange),
    mut pull: Pull,
) -> (App, Receiver<Open>) {
    let (sender, opened) = channel();
    let mut streams: Vec<(Open, usize)> = Vec::new();
    let link: Arc<Mutex<Option<Arc<Link>>>> = Arc::default();
    let theirs = Arc::clone(&link);
    let handler: Handler = Box::new(move |link, event| match event {
        Event::Request(mut exchange) => {
            if exchange.path() == b"/plain" {
                hello(&mut exchange);
                return link.send(Command::Respond(exchange));
            }
            head(&mut exchange);
            let stream = link.stream(rules);
            exchange.set_response_stream(stream.clone());
            let link = Arc::clone(theirs.lock().unwrap().as_ref().unwrap());
            let open = Open { id: exchange.id(), stream, link };
            streams.push((open.clone(), 0));
            open.link.send(Command::Respond(exchange));
            let _ = sender.send(open);
        }
        Event::Pull { stream, .. } => {
            let (open, n) = streams.iter_mut().find(|(open, _)| open.id == stream).unwrap();
            pull(open, *n);
            *n += 1;
        }
        _ => {}
    });
    let app = App::with(config, ListenerConfig::default(), handler);
    link.lock().unwrap().replace(Arc::clone(app.server.link()));
    (app, opened)
}

fn ok(exchange: &mut Exchange) {
    exchange.begin_response(200);
    exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
}

fn pushing(limits: Limits) -> (App, Receiver<Open>) {
    streaming(Config { limits, ..Config::default() }, PUSHED, ok, Box::new(|_, _| unreachable!()))
}

fn pulling(
    limits: Limits,
    pull: impl FnMut(&Open, usize) + Send + 'static,
) -> (App, Receiver<Open>) {
    streaming(Config { limits, ..Config::default() }, PULLED, ok, Box::new(pull))
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_10: &str = "GET / HTTP/1.0\r\n\r\n";

/// Sends a request for a stream. When this returns, the application has opened the stream.
fn ask(app: &App, opened: &Receiver<Open>, request: &str) -> (Client, Open) {
    let mut client = app.connect();
    client.send(request);
    let open = opened.recv_timeout(TEST_TIMEOUT).unwrap();
    (client, open)
}

/// Reads until `text` was received.
fn read_to(client: &mut Client, text: &str) {
    while !client.read.windows(text.len()).any(|window| window == text.as_bytes()) {
        assert!(client.fill(), "no {text:?} in {:?}", String::from_utf8_lossy(&client.read));
    }
}

fn ends_with(bytes: &[u8], text: &str) -> bool {
    bytes.ends_with(text.as_bytes())
}

fn departures(app: &App) -> Vec<String> {
    app.log.lock().unwrap().iter().filter(|line| line.starts_with("departed")).cloned().collect()
}

fn ten(exchange: &mut Exchange) {
    ok(exchange);
    exchange.push_response_header(b"content-LENGTH", b" 10 ").unwrap();
}
