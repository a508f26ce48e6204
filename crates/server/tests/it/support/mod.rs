//! An application in place of R, and the client of the tests.

pub(crate) mod http2;
pub(crate) mod tls;
pub(crate) mod transport;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rookery_exchange::{Command, Event, Exchange, Link};
use rookery_server::{Config, Limits, Listener, ListenerConfig, Server};
pub(crate) use rookery_test_support::client::{Client, Response, masked_frame};
pub(crate) use rookery_test_support::{Lines, TEST_TIMEOUT, wait_until};

use crate::application::{Application, NoWaker};

/// A server, and an application that runs on another thread.
pub(crate) struct App {
    pub(crate) server: Server,
    listener: Option<Listener>,
    pub(crate) address: SocketAddr,
    application: Option<Application>,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
}

/// A function that handles an event of the application.
pub(crate) type Handler = Box<dyn FnMut(&Link, Event) + Send>;

impl App {
    /// Starts a server on a free port. `respond` fills in the response to each request.
    pub(crate) fn new(limits: Limits, respond: impl FnMut(&mut Exchange) + Send + 'static) -> App {
        App::with(Config { limits, ..Config::default() }, ListenerConfig::default(), echo(respond))
    }

    pub(crate) fn with(config: Config, site: ListenerConfig, mut handler: Handler) -> App {
        let server = Server::new(config, Box::new(NoWaker));
        let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let events = Arc::clone(&log);
        let application = Application::start(&server, move |link, event| {
            events.lock().unwrap().push(describe(&event));
            handler(link, event);
        });
        App { server, listener: Some(listener), address, application: Some(application), log }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn listener(&self) -> &Listener {
        self.listener.as_ref().unwrap()
    }

    /// Advances the clock by which the server measures time limits. When this function returns, the
    /// server has sent and received what it can.
    pub(crate) fn advance(&self, time: Duration) {
        self.server.advance_clock(time);
    }

    pub(crate) fn stop(&mut self) {
        self.listener.take().unwrap().stop();
    }

    /// Waits until the application has seen an event whose description starts with `start`.
    pub(crate) fn await_event(&self, start: &str) -> String {
        let find = || self.log.lock().unwrap().iter().find(|line| line.starts_with(start)).cloned();
        wait_until(start, || find().is_some());
        find().unwrap()
    }

    pub(crate) fn requests(&self) -> usize {
        self.log.lock().unwrap().iter().filter(|line| line.starts_with("request")).count()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        drop(self.application.take());
        drop(self.listener.take());
    }
}

fn describe(event: &Event) -> String {
    match event {
        Event::Request(exchange) => format!("request {}", String::from_utf8_lossy(exchange.path())),
        Event::Head(exchange) => format!("head {}", String::from_utf8_lossy(exchange.path())),
        Event::Message { payload, .. } => format!("message {}", payload.as_bytes().len()),
        Event::Closed { code, reason, .. } if reason.is_empty() => format!("closed {code}"),
        Event::Closed { code, reason, is_clean, .. } => {
            format!("closed {code} {reason:?} {is_clean}")
        }
        Event::Drained { .. } => "drained".to_owned(),
        Event::Body { payload, .. } => format!("body {}", payload.as_bytes().len()),
        Event::BodyEnd { reason, .. } => format!("body ended {reason:?}"),
        Event::Pull { .. } => "want".to_owned(),
        Event::Writable { .. } => "room".to_owned(),
        Event::StreamEnded { reason, .. } => format!("departed {reason:?}"),
    }
}

/// Returns a handler that responds to requests by `respond`, accepts WebSockets and echoes their
/// messages. The message `close` closes the WebSocket.
pub(crate) fn echo(mut respond: impl FnMut(&mut Exchange) + Send + 'static) -> Handler {
    Box::new(move |link, event| match event {
        Event::Request(mut exchange) => {
            if exchange.is_upgrade() {
                exchange.begin_response(101);
            } else {
                respond(&mut exchange);
            }
            link.send(Command::Respond(exchange));
        }
        Event::Head(exchange) => link.send(Command::ReadBody(exchange)),
        Event::Message { socket, kind, payload, .. } => {
            if payload.as_bytes() == b"close" {
                link.send(Command::Close { socket, code: 4000, reason: b"bye".to_vec() });
            } else {
                link.send(Command::Send { socket, kind, payload });
            }
        }
        _ => {}
    })
}

/// Returns true if the server has sent a client something that the client has not read.
pub(crate) fn has_heard(client: &Client) -> bool {
    client.socket.set_nonblocking(true).unwrap();
    let has_heard = client.socket.peek(&mut [0]).is_ok();
    client.socket.set_nonblocking(false).unwrap();
    has_heard
}

/// Runs the calling test in a process of its own, whose limits a test may change. Returns true in
/// that process, and false in the process that has started it, once the test has passed.
macro_rules! in_own_process {
    () => {{
        fn here() {}
        crate::support::run_in_own_process(std::any::type_name_of_val(&here))
    }};
}
pub(crate) use in_own_process;

/// Runs the test that contains the function with this type name in a process of its own.
pub(crate) fn run_in_own_process(function: &str) -> bool {
    const VARIABLE: &str = "ROOKERY_TEST_OWN_PROCESS";
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let (_, test) = function.split_once("::").unwrap();
    let test = test.strip_suffix("::here").unwrap();
    let mut attempts = 0;
    loop {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", test]).env(VARIABLE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        // The test would not run if its name were wrong.
        if output.status.success() && text.contains("1 passed") {
            return false;
        }
        // The system may not run the measuring client for as long as a short attack lasts. If it is
        // the server that makes the client wait, each attempt fails.
        attempts += 1;
        assert!(text.contains(SLOWED_DOWN) && attempts < 3, "{text}");
    }
}

/// The end of the message of a test which finds that an attack delays other clients.
pub(crate) const SLOWED_DOWN: &str = "while nobody attacked";

/// Fills in the response that most tests use.
pub(crate) fn hello(exchange: &mut Exchange) {
    exchange.begin_response(200);
    exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
    exchange.set_response_body(b"Hello, World!");
}

/// Returns bytes that do not repeat, which are always the same.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Decompresses a body.
pub(crate) fn gunzip(body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(body), &mut plain).unwrap();
    plain
}
