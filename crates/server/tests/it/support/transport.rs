//! The transports over which a client reaches a server, and a client that uses any of them.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use rookery_exchange::Exchange;
use rookery_server::{Config, Limits, ListenerConfig};
use rookery_test_support::tls::client_config_with_versions;
use rustls::version::{TLS12, TLS13};
use rustls::{ProtocolVersion, SupportedProtocolVersion};
use tokio::task::{JoinHandle, yield_now};

use crate::http2::websocket::{Ended, Sockets};
use crate::support::http2::{Answer, Two, ask, to};
use crate::support::tls::{settings, site};
use crate::support::{
    App, Client, Handler, Response, TEST_TIMEOUT, echo, masked_frame, wait_until,
};

/// A transport between a client and the server. HTTP/2 without TLS is missing, because the server
/// does not support it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Http1,
    /// HTTP/1.1 over TLS 1.2.
    Https12,
    /// HTTP/1.1 over TLS 1.3.
    Https13,
    /// HTTP/2 over TLS 1.3.
    Http2,
}

impl Transport {
    pub(crate) fn is_tls(self) -> bool {
        self != Transport::Http1
    }

    /// Starts a server. `respond` fills in the response to each request.
    pub(crate) fn app(
        self,
        limits: Limits,
        respond: impl FnMut(&mut Exchange) + Send + 'static,
    ) -> App {
        let config = Config { limits, ..Config::default() };
        self.app_with(config, ListenerConfig::default(), echo(respond))
    }

    /// Starts a server with a handler and a listener, to which TLS is added where the transport
    /// needs it.
    pub(crate) fn app_with(
        self,
        config: Config,
        listener: ListenerConfig,
        handler: Handler,
    ) -> App {
        let tls = if self.is_tls() { site(settings(&["localhost"])).tls } else { None };
        App::with(config, ListenerConfig { tls, ..listener }, handler)
    }

    /// Connects a client that sends HTTP/1.1.
    ///
    /// # Panics
    /// Panics if the transport is HTTP/2.
    pub(crate) fn client(self, app: &App) -> Client {
        let over = |version: &'static SupportedProtocolVersion, expected| {
            let config = Arc::new(client_config_with_versions(None, &[version]));
            let client = Client::connect_tls(app.address, &config, "localhost").unwrap();
            assert_eq!(client.tls.as_ref().unwrap().protocol_version(), Some(expected));
            client
        };
        match self {
            Transport::Http1 => app.connect(),
            Transport::Https12 => over(&TLS12, ProtocolVersion::TLSv1_2),
            Transport::Https13 => over(&TLS13, ProtocolVersion::TLSv1_3),
            Transport::Http2 => panic!("HTTP/2 has another client"),
        }
    }

    pub(crate) fn connect(self, app: &App) -> Connection {
        match self {
            Transport::Http2 => Connection::Two(Two::new(app)),
            _ => Connection::One(self.client(app)),
        }
    }

    /// Opens a WebSocket.
    pub(crate) fn open(self, app: &App) -> Socket {
        if self == Transport::Http2 {
            let mut sockets = Sockets::at(app.address);
            sockets.open(1);
            return Socket::Two(Box::new(sockets));
        }
        let mut client = self.client(app);
        assert_eq!(client.upgrade("/ws").status, 101);
        Socket::One(client)
    }
}

/// The way in which a request announces the length of its body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Framing {
    /// By a `Content-Length`.
    Length,
    /// By the chunked coding, or over HTTP/2 by the end of the stream.
    End,
}

/// A connection to the server, over any transport.
pub(crate) enum Connection {
    One(Client),
    Two(Two),
}

/// A request whose response is read later.
pub(crate) enum Pending {
    One,
    Two(JoinHandle<Result<Answer, h2::Error>>),
}

impl Connection {
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.request("GET", path, &[])
    }

    /// Sends a request without a body, and reads the response as far as it arrives.
    pub(crate) fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        match self {
            Connection::One(client) => {
                client.send(head(method, path, headers));
                let (response, is_whole) = client.partial_response_to(method).expect("a response");
                answer(response, is_whole)
            }
            Connection::Two(two) => {
                two.request(to(method, path, headers).body(Vec::new()).unwrap()).unwrap()
            }
        }
    }

    /// Sends a POST request with a body, and reads the response.
    pub(crate) fn post(&mut self, body: &[u8], framing: Framing) -> Answer {
        let len = body.len().to_string();
        match self {
            Connection::One(client) => {
                match framing {
                    Framing::Length => {
                        client.send(head("POST", "/", &[("Content-Length", &len)]));
                        client.send(body);
                    }
                    Framing::End => {
                        client.send(head("POST", "/", &[("Transfer-Encoding", "chunked")]));
                        for chunk in body.chunks(70_000) {
                            client.send(format!("{:x}\r\n", chunk.len()));
                            client.send(chunk);
                            client.send("\r\n");
                        }
                        client.send("0\r\nX-Trailer: dropped\r\n\r\n");
                    }
                }
                answer(client.response().expect("a response"), true)
            }
            Connection::Two(two) => {
                let headers = [("content-length", &*len)];
                let headers = if matches!(framing, Framing::Length) { &headers[..] } else { &[] };
                two.request(to("POST", "/", headers).body(body.to_vec()).unwrap()).unwrap()
            }
        }
    }

    /// Sends a GET request, and reads nothing. Returns when `has_arrived` is true.
    pub(crate) fn begin(&mut self, path: &str, has_arrived: impl Fn() -> bool) -> Pending {
        let pending = match self {
            Connection::One(client) => {
                client.send(head("GET", path, &[]));
                Pending::One
            }
            Connection::Two(two) => {
                let request = to("GET", path, &[]).body(Vec::new()).unwrap();
                Pending::Two(two.runtime.spawn(ask(two.requests.clone(), request)))
            }
        };
        wait_until("the request arrives", || {
            if let Connection::Two(two) = self {
                two.runtime.block_on(yield_now());
            }
            has_arrived()
        });
        pending
    }

    /// Reads the response to a request that was begun.
    pub(crate) fn finish(&mut self, pending: Pending) -> Answer {
        match (self, pending) {
            (Connection::One(client), Pending::One) => {
                answer(client.response().expect("a response"), true)
            }
            (Connection::Two(two), Pending::Two(task)) => two
                .runtime
                .block_on(async { tokio::time::timeout(TEST_TIMEOUT, task).await })
                .expect("a response in time")
                .unwrap()
                .unwrap(),
            _ => unreachable!("the request was begun on another connection"),
        }
    }

    /// Closes the connection, over HTTP/1.1 with a reset.
    pub(crate) fn leave(self) {
        if let Connection::One(client) = self {
            client.reset();
        }
    }
}

/// Returns the head of an HTTP/1.1 request.
pub(crate) fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head + "\r\n"
}

/// Converts a response over HTTP/1.1 to what the client for HTTP/2 returns.
fn answer(response: Response, is_whole: bool) -> Answer {
    let mut headers = HeaderMap::new();
    for line in response.head.lines().skip(1).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value.trim()).unwrap(),
        );
    }
    Answer { status: response.status, headers, body: response.body, is_whole }
}

/// A WebSocket, over any transport.
pub(crate) enum Socket {
    One(Client),
    Two(Box<Sockets>),
}

impl Socket {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match self {
            Socket::One(client) => client.send(bytes),
            Socket::Two(sockets) => sockets.send(1, bytes),
        }
    }

    /// Reads the next frame that is no ping, because a busy machine gives the server the time to
    /// send pings. Returns the frame's opcode and payload.
    pub(crate) fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let frame = match self {
                Socket::One(client) => client.frame(),
                Socket::Two(sockets) => {
                    sockets.frame(1).map(|(first, payload)| (first & 0xF, payload))
                }
            };
            match frame {
                Some((9, _)) => {}
                frame => return frame,
            }
        }
    }

    /// Sends a close frame.
    pub(crate) fn close(&mut self, payload: &[u8]) {
        self.send(&masked_frame(0x88, payload));
    }

    /// Waits until the server closes the connection, or over HTTP/2 the stream. Returns false if
    /// the end is not clean.
    pub(crate) fn wait_for_close(&mut self) -> bool {
        match self {
            Socket::One(client) => client.wait_for_close(),
            Socket::Two(sockets) => sockets.end(1) == Some(Ended::Whole),
        }
    }
}
