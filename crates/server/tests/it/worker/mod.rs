//! A server in a worker, which has a control channel to its supervisor and inherited sockets.

mod announcements;
mod public_listener;

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rookery_exchange::{Command, Event, Exchange, QueueLimits};
use rookery_server::{
    Config, Limits, Listener, ListenerConfig, Server, Supervision, SupervisorRequest,
    TrustedProxies,
};
use rookery_worker_protocol::{
    BodyLength, BodyState, ClientCertificate as Certificate, ControlChannel, HEAD_ACCEPTED,
    HEAD_UNDECIDED, Inherited, Message, PublicSockets, Received, SharedScoreboard, Ticket,
    WORKER_HEADER, WorkerHeader,
};

use crate::application::{Application, NoWaker};
use crate::support::{App, Client, TEST_TIMEOUT, echo, wait_until};

/// A worker, and its supervisor's side.
pub(crate) struct Worker {
    // The application is dropped before the server.
    application: Option<Application>,
    pub(crate) listener: Option<Listener>,
    pub(crate) server: Server,
    supervision: Arc<Supervision>,
    path: PathBuf,
    pub(crate) control: ControlChannel,
    pub(crate) board: SharedScoreboard,
    pub(crate) asked: Receiver<SupervisorRequest>,
    _folder: tempfile::TempDir,
}

impl Worker {
    fn new(
        config: Config,
        handler: impl FnMut(&rookery_exchange::Link, Event) + Send + 'static,
    ) -> Worker {
        Worker::with(config, handler, PublicSockets::default())
    }

    /// Starts a worker that has inherited public listeners.
    pub(crate) fn with(
        config: Config,
        handler: impl FnMut(&rookery_exchange::Link, Event) + Send + 'static,
        public: PublicSockets,
    ) -> Worker {
        Worker::on_channel(config, handler, public, ControlChannel::pair().unwrap())
    }

    /// Starts a worker with this control channel and its worker's end.
    fn on_channel(
        config: Config,
        handler: impl FnMut(&rookery_exchange::Link, Event) + Send + 'static,
        public: PublicSockets,
        (control, theirs): (ControlChannel, OwnedFd),
    ) -> Worker {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (board, memory) = SharedScoreboard::create().unwrap();
        let (asks, asked) = mpsc::channel();
        let inherited = Inherited {
            listener,
            control: ControlChannel::attach(theirs).unwrap(),
            scoreboard: SharedScoreboard::attach(&memory).unwrap(),
            public,
            log: None,
            cookie: None,
            rings: None,
        };
        let supervision = Arc::new(Supervision::new(inherited, None, move |request| {
            // The receiver no longer exists when the test is over.
            let _ = asks.send(request);
        }));
        let server = Server::new(config, Box::new(NoWaker));
        server.watch_supervisor(Arc::clone(&supervision)).unwrap();
        let application = Some(Application::start(&server, handler));
        let mut worker = Worker {
            application,
            listener: None,
            server,
            supervision,
            path,
            control,
            board,
            asked,
            _folder: folder,
        };
        worker.listen(ListenerConfig::default());
        worker
    }

    pub(crate) fn listen(&mut self, site: ListenerConfig) {
        self.listener = Some(self.server.listen_supervised(&self.supervision, site).unwrap());
    }

    pub(crate) fn connect(&self) -> Client {
        let socket = UnixStream::connect(&self.path).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        // `Client` has a TCP socket, which is read and written in the same way as a Unix socket.
        Client { socket: TcpStream::from(OwnedFd::from(socket)), tls: None, read: Vec::new() }
    }

    /// Receives the next message or end of the control channel.
    pub(crate) fn told(&self) -> Received {
        let mut told = Received::Nothing;
        wait_until("nothing is told", || {
            told = self.control.receive();
            told != Received::Nothing
        });
        told
    }

    fn is_pinged(&self, number: u64) {
        self.control.send(Message::Ping(number)).unwrap();
        assert_eq!(self.told(), Received::Message(Message::Pong(number)));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.application.take());
        drop(self.listener.take());
    }
}

/// Responds with the client, the request id, and the headers that the application sees.
fn whose(exchange: &mut Exchange) {
    let end = |end: Option<SocketAddr>| end.map_or_else(|| "-".to_owned(), |end| end.to_string());
    let client =
        exchange.client().map_or_else(String::new, |client| format!(" {}", client.subject));
    let names: Vec<_> = exchange
        .headers()
        .map(|header| String::from_utf8_lossy(header.name).into_owned())
        .collect();
    let text = format!(
        "{} {} {} {} {}{client}\n{}",
        end(exchange.remote()),
        end(exchange.local()),
        exchange.is_https(),
        exchange.ticket(),
        String::from_utf8_lossy(exchange.request_id().as_bytes()),
        names.join(" "),
    );
    exchange.begin_response(200);
    exchange.set_response_body(text.as_bytes());
}

fn get(client: &mut Client, lines: &str) -> (u16, String) {
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    let reply = client.response().expect("a reply");
    (reply.status, String::from_utf8(reply.body).unwrap())
}

fn call() -> WorkerHeader {
    WorkerHeader {
        ticket: Ticket::new(3, 1),
        is_https: true,
        remote: Some("192.0.2.7:12345".parse().unwrap()),
        local: Some("[2001:db8::1]:443".parse().unwrap()),
        id: Some("abc-1".to_owned()),
        client: Some(Certificate {
            fingerprint: "a".repeat(64),
            subject: "CN=Ada \u{e9}".to_owned(),
        }),
        body: BodyState::Included,
    }
}

#[test]
fn the_supervisor_says_of_each_request_whose_it_is() {
    let worker = Worker::new(Config::default(), echo(whose));
    let mut client = worker.connect();
    // The client's own headers are in the request as well, but are not trusted.
    let lines = "X-Forwarded-Proto: http\r\nX-Request-Id: theirs\r\n";
    let said = format!("{WORKER_HEADER}: {}\r\n{lines}", call());
    let word = Ticket::new(3, 1).unwrap().word();
    assert_eq!(
        get(&mut client, &said),
        (
            200,
            format!(
                "192.0.2.7:12345 [2001:db8::1]:443 true {word} abc-1 CN=Ada \u{e9}\nhost x-forwarded-proto x-request-id"
            )
        )
    );
    // The next request on the same connection is from another client, and has nothing of the first.
    let (_, body) = get(&mut client, &format!("{WORKER_HEADER}: {}\r\n", WorkerHeader::default()));
    assert!(body.starts_with("- - false 0 ") && !body.contains("abc-1"), "{body}");
    assert!(body.ends_with("\nhost"), "{body}");
    // Without a worker header the request is from a person who uses the socket directly.
    let (_, body) = get(&mut client, "X-Request-Id: theirs\r\nX-Forwarded-Proto: https\r\n");
    assert!(body.starts_with("- - false 0 ") && !body.contains("theirs"), "{body}");
}

#[test]
fn what_no_supervisor_says_is_refused() {
    let worker = Worker::new(Config::default(), echo(whose));
    for lines in [
        format!("{WORKER_HEADER}: 1 - http\r\n"),
        format!("{WORKER_HEADER}: \r\n"),
        format!("{WORKER_HEADER}: {}\r\n{WORKER_HEADER}: {}\r\n", call(), call()),
    ] {
        let (status, body) = get(&mut worker.connect(), &lines);
        assert_eq!(status, 400, "{body}");
    }
}

#[test]
fn nobody_else_is_believed() {
    let app = App::with(Config::default(), ListenerConfig::default(), echo(whose));
    let (_, body) = get(&mut app.connect(), &format!("{WORKER_HEADER}: {}\r\n", call()));
    assert!(body.starts_with("127.0.0.1:") && body.contains(" false 0 "), "{body}");
    assert!(body.ends_with("\nhost rookery-call"), "{body}");
    // A proxy that connects by a Unix socket is no supervisor.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let site = ListenerConfig {
        proxies: TrustedProxies::parse(["unix"]).unwrap(),
        ..ListenerConfig::default()
    };
    let _listener = app.server.listen_unix(&path, None, site).unwrap();
    let socket = UnixStream::connect(&path).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut client =
        Client { socket: TcpStream::from(OwnedFd::from(socket)), tls: None, read: Vec::new() };
    let (_, body) = get(&mut client, &format!("{WORKER_HEADER}: {}\r\n", call()));
    assert!(body.starts_with("- - false 0 "), "{body}");
}

/// The worker header does not count against the maximum size of a head.
#[test]
fn a_head_may_be_larger_by_what_the_supervisor_says() {
    let limits = Limits { max_header_size: 16 << 10, max_headers: 120, ..Limits::default() };
    let long = Certificate { fingerprint: "a".repeat(64), subject: "\u{e9}".repeat(2000) };
    let said = WorkerHeader { client: Some(long), ..call() };
    let lines = (0..119)
        .fold(String::new(), |lines, line| format!("{lines}x-{line}: {}\r\n", "y".repeat(120)));
    assert!(
        lines.len() < limits.max_header_size
            && lines.len() + said.to_string().len() > limits.max_header_size
    );
    let worker = Worker::new(Config { limits: limits.clone(), ..Config::default() }, echo(whose));
    let (status, body) = get(&mut worker.connect(), &format!("{lines}{WORKER_HEADER}: {said}\r\n"));
    assert_eq!(status, 200, "{body}");
    assert!(body.starts_with("192.0.2.7:12345 "), "{body}");
    // The same header from a client counts, so that the head is rejected.
    let app =
        App::with(Config { limits, ..Config::default() }, ListenerConfig::default(), echo(whose));
    assert_eq!(get(&mut app.connect(), &format!("{lines}{WORKER_HEADER}: {said}\r\n")).0, 431);
}

/// Connections of the supervisor have no idle timeout, because the supervisor keeps them for the
/// next request.
#[test]
fn an_idle_connection_of_the_supervisor_is_kept() {
    let short = Duration::from_millis(50);
    let limits = Limits { idle_timeout: short, header_timeout: short, ..Limits::default() };
    let worker = Worker::new(Config { limits: limits.clone(), ..Config::default() }, echo(whose));
    let mut kept = worker.connect();
    get(&mut kept, "");
    let mut new = worker.connect();
    // A client's idle connection is closed.
    let app =
        App::with(Config { limits, ..Config::default() }, ListenerConfig::default(), echo(whose));
    let mut client = app.connect();
    get(&mut client, "");
    assert!(client.wait_for_close());
    worker.server.advance_clock(Duration::from_secs(10));
    assert_eq!(get(&mut kept, "").0, 200);
    assert_eq!(get(&mut new, "").0, 200);
}

#[test]
fn a_ping_is_answered_while_the_application_is_busy() {
    let (begun, has_begun) = mpsc::channel();
    let (go_on, goes_on): (Sender<()>, Receiver<()>) = mpsc::channel();
    let worker = Worker::new(
        Config::default(),
        echo(move |exchange| {
            begun.send(()).unwrap();
            goes_on.recv().unwrap();
            exchange.begin_response(204);
        }),
    );
    worker.is_pinged(1);
    let mut clients = [worker.connect(), worker.connect()];
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    has_begun.recv_timeout(TEST_TIMEOUT).unwrap();
    wait_until("both are handed over", || worker.board.read().handed == 2);
    for number in 2..20 {
        worker.is_pinged(number);
    }
    for client in &mut clients {
        go_on.send(()).unwrap();
        assert_eq!(client.response().unwrap().status, 204);
    }
}

#[test]
fn what_the_supervisor_asks_is_heard_with_and_without_listeners() {
    let mut worker = Worker::new(Config::default(), echo(whose));
    let ask = |worker: &Worker, message, expected| {
        worker.control.send(message).unwrap();
        assert_eq!(worker.asked.recv_timeout(TEST_TIMEOUT), Ok(expected));
    };
    ask(&worker, Message::Drain, SupervisorRequest::Drain);
    ask(&worker, Message::Interrupt, SupervisorRequest::Interrupt);
    ask(&worker, Message::Collect, SupervisorRequest::Collect);
    worker.listener.take().unwrap().stop();
    ask(&worker, Message::Stop, SupervisorRequest::Stop);
    worker.is_pinged(7);
    // A message that only a worker may send ends the control channel.
    worker.control.send(Message::Leaving).unwrap();
    worker.is_pinged(8);
    // The end of the channel is reported once.
    let (nobody, _) = ControlChannel::pair().unwrap();
    drop(std::mem::replace(&mut worker.control, nobody));
    assert_eq!(worker.asked.recv_timeout(TEST_TIMEOUT), Ok(SupervisorRequest::Disconnected));
    worker.listen(ListenerConfig::default());
    assert_eq!(get(&mut worker.connect(), "").0, 200);
    assert!(worker.asked.try_recv().is_err());
}

#[test]
fn who_is_not_attended_any_more_is_not_answered() {
    let worker = Worker::new(Config::default(), echo(whose));
    worker.is_pinged(1);
    worker.server.unwatch_supervisor();
    worker.control.send(Message::Ping(2)).unwrap();
    assert_eq!(get(&mut worker.connect(), "").0, 200);
    assert_eq!(worker.control.receive(), Received::Nothing);
    // The thread that has a listener receives the messages that were sent meanwhile.
    worker.server.watch_supervisor(Arc::clone(&worker.supervision)).unwrap();
    assert_eq!(worker.told(), Received::Message(Message::Pong(2)));
}

/// Connections that arrive while nobody accepts wait for the next listener.
#[test]
fn the_socket_outlives_a_listener() {
    let mut worker = Worker::new(Config::default(), echo(whose));
    assert_eq!(get(&mut worker.connect(), "").0, 200);
    worker.listener.take().unwrap().stop();
    let mut waits = worker.connect();
    waits.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    worker.listen(ListenerConfig::default());
    assert_eq!(waits.response().unwrap().status, 200);
    assert!(worker.path.exists());
}

#[test]
fn the_scoreboard_counts_what_is_handed_over_and_the_open_websockets() {
    // The requests wait until the test continues.
    let held = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let held = Arc::clone(&held);
        let mut echo = echo(whose);
        move |link: &rookery_exchange::Link, event: Event| match event {
            Event::Request(exchange) if !exchange.is_upgrade() => {
                held.lock().unwrap().push(exchange);
            }
            event => echo(link, event),
        }
    };
    let queue = QueueLimits { max_queued_requests: 1, ..QueueLimits::default() };
    let mut worker = Worker::new(Config { queue, ..Config::default() }, handler);
    assert_eq!((worker.board.read().handed, worker.board.read().sessions), (0, 0));
    let mut sockets = [worker.connect(), worker.connect()];
    for socket in &mut sockets {
        assert_eq!(socket.upgrade("/ws").status, 101);
    }
    assert_eq!((worker.board.read().handed, worker.board.read().sessions), (2, 2));
    let [first, second] = sockets;
    drop(first);
    wait_until("one has ended", || worker.board.read().sessions == 1);
    drop(second);
    wait_until("both have ended", || worker.board.read().sessions == 0);

    let mut client = worker.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it is there", || held.lock().unwrap().len() == 1);
    let exchange = held.lock().unwrap().pop().unwrap();
    assert_eq!(worker.board.read().handed, 3);
    // The application takes no requests any more. One request waits, and the other is rejected and
    // not counted.
    drop(worker.application.take());
    let mut waits = worker.connect();
    waits.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it waits", || worker.board.read().handed == 4);
    assert_eq!(get(&mut worker.connect(), "").0, 503);
    assert_eq!(worker.board.read().handed, 4);
    worker.server.link().send(Command::Respond(exchange));
}

/// Returns a handler that records what the application sees of requests with bodies, one line for
/// each event. It rejects bodies of more than 100 bytes and chunked bodies, and streams those that
/// are sent to `/pieces`.
fn with_heads(
    seen: Arc<Mutex<Vec<String>>>,
) -> impl FnMut(&rookery_exchange::Link, Event) + Send + 'static {
    let mut held = Vec::new();
    move |link, event| {
        let line = match &event {
            Event::Head(exchange) | Event::Request(exchange) => {
                let header = |name: &[u8]| {
                    exchange
                        .header(name)
                        .map_or("-".into(), |it| String::from_utf8_lossy(it).into_owned())
                };
                let kind = if matches!(event, Event::Head(_)) { "head" } else { "request" };
                format!(
                    "{kind} {} {} {}",
                    header(b"content-length"),
                    header(b"transfer-encoding"),
                    exchange.body().len()
                )
            }
            Event::BodyEnd { reason, .. } => format!("end {reason:?}"),
            _ => return,
        };
        seen.lock().unwrap().push(line);
        match event {
            Event::Head(exchange) if exchange.path() == b"/pieces" => {
                let (call, listener, slot) = (exchange.id(), exchange.listener(), exchange.slot());
                held.push(exchange);
                link.send(Command::StreamBody { exchange: call, listener, slot });
            }
            Event::Head(mut exchange) => {
                let len = exchange
                    .header(b"content-length")
                    .map(|it| String::from_utf8_lossy(it).parse());
                let is_large = len.is_some_and(|len| len.is_ok_and(|len: u64| len > 100));
                if is_large || exchange.header(b"transfer-encoding").is_some() {
                    exchange.begin_response(413);
                    exchange.set_response_body(b"too large");
                    link.send(Command::Respond(exchange));
                } else {
                    link.send(Command::ReadBody(exchange));
                }
            }
            Event::Request(mut exchange) => {
                exchange.begin_response(200);
                link.send(Command::Respond(exchange));
            }
            _ => held.drain(..).for_each(|exchange| link.send(Command::Respond(exchange))),
        }
    }
}

/// Starts a worker whose application sees heads. Returns it with the recorded events.
fn worker_with_heads() -> (Worker, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::default();
    let limits = Limits { max_body_size: 10 << 30, ..Limits::default() };
    let mut worker =
        Worker::new(Config { limits, ..Config::default() }, with_heads(Arc::clone(&seen)));
    worker.listener.take().unwrap().stop();
    worker.listen(ListenerConfig { sees_heads: true, ..ListenerConfig::default() });
    (worker, seen)
}

/// Sends a request, and returns the status and the worker's header about the body.
fn post(client: &mut Client, path: &str, body: BodyState, lines: &str) -> (u16, Option<String>) {
    let said = WorkerHeader { body, ..call() };
    client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{WORKER_HEADER}: {said}\r\n{lines}"));
    let reply = client.response().expect("a reply");
    (reply.status, reply.header(WORKER_HEADER).map(str::to_owned))
}

#[test]
fn a_head_is_shown_alone_and_once() {
    let (worker, seen) = worker_with_heads();
    let mut client = worker.connect();
    let seen = || std::mem::take(&mut *seen.lock().unwrap());
    let later = |announced| BodyState::Deferred(announced);
    for (announced, status, said, line) in [
        (BodyLength::Bytes(7), 204, Some(HEAD_ACCEPTED), "head 7 - 0"),
        (BodyLength::Unknown, 204, Some(HEAD_ACCEPTED), "head - - 0"),
        (BodyLength::Bytes(101), 413, None, "head 101 - 0"),
        (BodyLength::Bytes(5 << 30), 413, None, "head 5368709120 - 0"),
        (BodyLength::Chunked, 413, None, "head - chunked 0"),
    ] {
        let answer = post(&mut client, "/", later(announced), "\r\n");
        assert_eq!(answer, (status, said.map(str::to_owned)), "{announced:?}");
        assert_eq!(seen(), [line]);
    }
    // A request that arrives with its body is not shown as a head first, unless the header says
    // that the application has not seen the head.
    let with = "Content-Length: 7\r\n\r\n1234567";
    assert_eq!(post(&mut client, "/", BodyState::HeadSeen, with), (200, None));
    assert_eq!(seen(), ["request 7 - 7"]);
    assert_eq!(post(&mut client, "/", BodyState::Included, with), (200, None));
    assert_eq!(seen(), ["head 7 - 0", "request 7 - 7"]);
    // A body that exceeds the server's own limit is not shown to the application.
    let most = later(BodyLength::Bytes(11 << 30));
    assert_eq!(post(&mut worker.connect(), "/", most, "\r\n"), (413, None));
    assert_eq!(seen(), [""; 0]);
}

#[test]
fn a_head_whose_body_is_to_come_in_pieces_is_shown_again_with_it() {
    let (worker, seen) = worker_with_heads();
    let mut client = worker.connect();
    let alone = BodyState::Deferred(BodyLength::Bytes(7));
    assert_eq!(post(&mut client, "/pieces", alone, "\r\n"), (204, Some(HEAD_UNDECIDED.to_owned())));
    wait_until("its end is not told", || seen.lock().unwrap().len() == 2);
    assert_eq!(*seen.lock().unwrap(), ["head 7 - 0", "end Client"]);
    // The connection is usable, and the exchange was returned to the pool.
    assert_eq!(post(&mut client, "/", alone, "\r\n"), (204, Some(HEAD_ACCEPTED.to_owned())));
}

#[test]
fn a_head_alone_has_no_body_and_one_that_nobody_wants_to_see_goes_on() {
    let (worker, seen) = worker_with_heads();
    let alone = BodyState::Deferred(BodyLength::Bytes(7));
    let with = "Content-Length: 7\r\n\r\n1234567";
    assert_eq!(post(&mut worker.connect(), "/", alone, with), (400, None));
    assert!(seen.lock().unwrap().is_empty());
    let worker = Worker::new(Config::default(), with_heads(Arc::clone(&seen)));
    assert_eq!(
        post(&mut worker.connect(), "/", alone, "\r\n"),
        (204, Some(HEAD_ACCEPTED.to_owned()))
    );
    assert!(seen.lock().unwrap().is_empty());
}
