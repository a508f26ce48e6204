//! Replies that come in pieces: each rule of theirs over a real socket.

use std::io::{ErrorKind, Read as _};
use std::net::Shutdown;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rookery_exchange::{
    Command, Departure, Event, Exchange, Given, HIGH_MARK, Link, Payload, Share, Stream, StreamId,
    StreamRules,
};
use rookery_server::{Config, Limits, Site};

use crate::support::{App, Client, Handler, PATIENCE, hello, until};

const PUSHED: StreamRules =
    StreamRules { is_pulled: false, is_prompt: false, is_events: false, heartbeat: 0 };
const PULLED: StreamRules = StreamRules { is_pulled: true, is_prompt: false, is_events: false, heartbeat: 0 };

/// A stream as the application has it.
#[derive(Clone)]
struct Open {
    id: StreamId,
    stream: Stream,
    link: Arc<Link>,
}

impl Open {
    /// As an application gives a piece: counted first, and sent if it is to be.
    fn give(&self, bytes: impl Into<Vec<u8>>) -> Given {
        let bytes = bytes.into();
        let given = self.stream.flow.give(bytes.len());
        match given {
            Given::More | Given::Enough => {
                self.tell(Command::Piece { stream: self.id, payload: Payload::Pooled(bytes) });
            }
            Given::Slow => self.cut(Departure::Slow, ""),
            Given::TooLong => self.cut(Departure::Error, ""),
            Given::Over => {}
        }
        given
    }

    fn cut(&self, reason: Departure, page: &str) {
        self.tell(Command::Cut { stream: self.id, reason, page: page.into() });
    }

    fn end(&self) {
        self.tell(Command::End { stream: self.id });
    }

    fn tell(&self, command: Command) {
        self.link.send(command);
        self.link.flush();
    }
}

/// What is answered to the `n`th question for a piece, from 0 on.
type Pull = Box<dyn FnMut(&Open, usize) + Send>;

/// An application whose replies are streams, but that of `/plain`. `head` begins the reply.
fn streaming(
    config: Config,
    rules: StreamRules,
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
            exchange.set_reply_stream(stream.clone());
            let link = Arc::clone(theirs.lock().unwrap().as_ref().unwrap());
            let open = Open { id: exchange.id(), stream, link };
            streams.push((open.clone(), 0));
            open.link.send(Command::Respond(exchange));
            let _ = sender.send(open);
        }
        Event::Want { stream, .. } => {
            let (open, n) = streams.iter_mut().find(|(open, _)| open.id == stream).unwrap();
            pull(open, *n);
            *n += 1;
        }
        _ => {}
    });
    let app = App::with(config, Site::default(), handler);
    link.lock().unwrap().replace(Arc::clone(app.server.link()));
    (app, opened)
}

fn ok(exchange: &mut Exchange) {
    exchange.begin_reply(200);
    exchange.push_reply_header(b"Content-Type", b"text/plain").unwrap();
}

fn pushing(limits: Limits) -> (App, Receiver<Open>) {
    streaming(Config { limits, ..Config::default() }, PUSHED, ok, Box::new(|_, _| unreachable!()))
}

fn pulling(limits: Limits, pull: impl FnMut(&Open, usize) + Send + 'static) -> (App, Receiver<Open>) {
    streaming(Config { limits, ..Config::default() }, PULLED, ok, Box::new(pull))
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_10: &str = "GET / HTTP/1.0\r\n\r\n";

/// Asks for a stream, which the application has opened when this returns.
fn ask(app: &App, opened: &Receiver<Open>, request: &str) -> (Client, Open) {
    let mut client = app.connect();
    client.send(request);
    let open = opened.recv_timeout(PATIENCE).unwrap();
    (client, open)
}

/// Everything up to the end, and whether that was a FIN.
fn rest(client: &mut Client) -> (Vec<u8>, bool) {
    let mut all = std::mem::take(&mut client.read);
    let mut buffer = vec![0; 65536];
    loop {
        match client.socket.read(&mut buffer) {
            Ok(0) => return (all, true),
            Ok(n) => all.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (all, false),
            Err(error) => panic!("{error} after {} bytes", all.len()),
        }
    }
}

/// Reads until `text` has come.
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

// ---- pieces ----

#[test]
fn pieces_come_in_their_order_and_the_connection_goes_on() {
    let (app, _opened) = pulling(Limits::default(), |open, n| {
        if n < 5 {
            open.give(n.to_string());
        } else {
            open.end();
        }
    });
    let mut client = app.connect();
    for _ in 0..3 {
        let reply = client.get("/");
        assert_eq!(
            (reply.header("transfer-encoding"), reply.body.as_slice()),
            (Some("chunked"), &b"01234"[..])
        );
    }
    assert_eq!(client.get("/plain").body, b"Hello, World!");
    until("told of each end", || departures(&app) == ["departed Done"; 3]);
}

#[test]
fn a_pipelined_request_waits_for_the_end_of_a_stream() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, &(GET.to_owned() + "GET /plain HTTP/1.1\r\nHost: a\r\n\r\n"));
    open.give("one");
    read_to(&mut client, "one");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(app.requests(), 1);
    open.end();
    assert_eq!(client.reply().unwrap().body, b"one");
    assert_eq!(client.reply().unwrap().body, b"Hello, World!");
}

#[test]
fn pipelined_streams_come_one_after_the_other_to_a_client_that_reads_byte_by_byte() {
    let (app, opened) = pulling(Limits::default(), |open, n| {
        if n < 3 {
            open.give(format!("<{n}>"));
        } else {
            open.end();
        }
    });
    let mut client = app.connect();
    client.send(GET.repeat(5));
    let mut text = Vec::new();
    while text.windows(5).filter(|window| *window == b"0\r\n\r\n").count() < 5 {
        let mut byte = [0];
        assert_eq!(client.socket.read(&mut byte).unwrap(), 1);
        text.push(byte[0]);
    }
    client.read = text;
    for _ in 0..5 {
        assert_eq!(client.reply().unwrap().body, b"<0><1><2>");
    }
    assert_eq!(opened.iter().take(5).count(), 5);
    until("told of each end", || departures(&app) == ["departed Done"; 5]);
}

#[test]
fn nothing_yet_is_asked_again_after_a_while() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&asked);
    let (app, _opened) = pulling(Limits::default(), move |open, n| {
        times.lock().unwrap().push(Instant::now());
        match n {
            0..5 => drop(open.give("")),
            5 => drop(open.give("x")),
            _ => open.end(),
        }
    });
    assert_eq!(app.connect().get("/").body, b"x");
    let times = asked.lock().unwrap();
    assert_eq!(times.len(), 7);
    assert!(times[..6].windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(9)), "{times:?}");
}

#[test]
fn who_is_pulled_is_not_asked_while_64_kib_wait() {
    const PIECES: usize = 600;
    let (app, _opened) = pulling(Limits::default(), |open, n| {
        if n < PIECES {
            open.give(vec![n as u8; HIGH_MARK]);
        } else {
            open.end();
        }
    });
    let mut client = app.connect();
    client.send(GET);
    let wants = || app.log.lock().unwrap().iter().filter(|line| *line == "want").count();
    // The sockets' buffers take some megabytes; then nothing is asked for any more.
    let mut before = 0;
    until("it stops asking", || {
        std::thread::sleep(Duration::from_millis(100));
        std::mem::replace(&mut before, wants()) == wants()
    });
    assert!(wants() < PIECES / 2, "{}", wants());
    let body = client.reply().unwrap().body;
    assert_eq!(body.len(), PIECES * HIGH_MARK);
    assert!(body.chunks(HIGH_MARK).enumerate().all(|(n, piece)| piece.iter().all(|byte| *byte == n as u8)));
}

#[test]
fn a_large_piece_is_not_copied_or_reordered() {
    let (app, _opened) = pulling(Limits::default(), |open, n| match n {
        0 => drop(open.give((0..5_000_000u32).map(|at| (at % 251) as u8).collect::<Vec<u8>>())),
        1 => drop(open.give("end")),
        _ => open.end(),
    });
    let body = app.connect().get("/").body;
    assert_eq!(body.len(), 5_000_003);
    assert!(body[..5_000_000].iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    assert_eq!(&body[5_000_000..], b"end");
}

// ---- the head ----

#[test]
fn the_head_leaves_with_the_first_piece() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    std::thread::sleep(Duration::from_millis(200));
    client.socket.set_nonblocking(true).unwrap();
    assert_eq!(client.socket.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock, "not before");
    client.socket.set_nonblocking(false).unwrap();
    open.give("first");
    assert!(client.fill());
    assert!(ends_with(&client.read, "\r\n\r\n5\r\nfirst\r\n"), "in one write");
}

#[test]
fn a_head_waits_for_a_second_at_most() {
    let (app, opened) = pushing(Limits::default());
    let since = Instant::now();
    let (mut client, open) = ask(&app, &opened, GET);
    assert!(client.fill());
    assert!(ends_with(&client.read, "\r\n\r\n"));
    assert!(since.elapsed() >= Duration::from_millis(900), "{:?}", since.elapsed());
    open.give("late");
    open.end();
    assert_eq!(client.reply().unwrap().body, b"late");
}

#[test]
fn a_head_leaves_when_it_is_told_to_and_at_once_where_that_is_the_rule() {
    let (app, opened) = pushing(Limits::default());
    let since = Instant::now();
    let (mut client, open) = ask(&app, &opened, GET);
    open.tell(Command::SendHead { stream: open.id });
    assert!(client.fill());
    assert!(ends_with(&client.read, "\r\n\r\n"));
    let rules = StreamRules { is_prompt: true, ..PUSHED };
    let (app, opened) = streaming(Config::default(), rules, ok, Box::new(|_, _| unreachable!()));
    let (mut client, _open) = ask(&app, &opened, GET);
    assert!(client.fill());
    assert!(ends_with(&client.read, "\r\n\r\n"));
    assert!(since.elapsed() < Duration::from_millis(900), "{:?}", since.elapsed());
}

// ---- marks ----

#[test]
fn marks_tell_the_application_to_wait_and_to_go_on() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    assert_eq!(open.give(vec![1; 1000]), Given::More);
    let mut given = 1000;
    // Until neither sockets nor server take more: what was given in one go waits, whatever they took of it.
    while open.stream.flow.waiting() < (1 << 20) {
        assert_eq!(open.give(vec![1; 1 << 20]), Given::Enough);
        given += 1 << 20;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(departures(&app), [""; 0]);
    let rooms = || app.log.lock().unwrap().iter().filter(|line| *line == "room").count();
    let before = rooms();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            app.await_event("room");
            until("there is room again", || rooms() > before);
            open.end();
        });
        assert_eq!(client.reply().unwrap().body.len(), given);
    });
    assert_eq!(open.stream.flow.waiting(), 0);
    app.await_event("departed Done");
    assert_eq!(open.give("more"), Given::Over);
}

#[test]
fn who_takes_less_than_is_made_is_cut() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    while open.give(vec![1; 1 << 20]) != Given::Slow {
        assert!(open.stream.flow.waiting() <= 16 << 20);
        std::thread::sleep(Duration::from_millis(1));
    }
    app.await_event("departed Slow");
    let (_, is_fin) = rest(&mut client);
    assert!(!is_fin, "a clean end was faked");
    assert_eq!(app.server.budget().used(Share::Queues), 0);
}

#[test]
fn small_pieces_cost_no_more_than_their_bytes() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    // First what the sockets take.
    while open.stream.flow.waiting() < (1 << 20) {
        open.give(vec![1; 1 << 20]);
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..100_000 {
        assert_eq!(open.give("0123456789"), Given::Enough);
    }
    open.end();
    let body = client.reply().unwrap().body;
    assert!(ends_with(&body, &"0123456789".repeat(100_000)));
}

// ---- errors ----

#[test]
fn an_error_before_the_head_is_an_ordinary_500() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    open.cut(Departure::Error, "ERROR: no such table");
    let reply = client.reply().unwrap();
    assert_eq!((reply.status, reply.body.as_slice()), (500, &b"ERROR: no such table"[..]));
    assert_eq!(reply.header("content-type"), Some("text/plain; charset=UTF-8"));
    app.await_event("departed Error");
    assert_eq!(client.get("/plain").status, 200);
    let open = {
        client.send(GET);
        opened.recv_timeout(PATIENCE).unwrap()
    };
    open.cut(Departure::Error, "");
    assert_eq!(client.reply().unwrap().body, b"500 Internal Server Error\n");
}

#[test]
fn an_error_after_the_head_is_a_cut_behind_what_was_written() {
    fn with_length(exchange: &mut Exchange) {
        ok(exchange);
        exchange.push_reply_header(b"Content-Length", b"10000000").unwrap();
    }
    for (request, head) in [(GET, ok as fn(&mut Exchange)), (GET, with_length), (GET_10, ok)] {
        let (app, opened) = streaming(Config::default(), PUSHED, head, Box::new(|_, _| unreachable!()));
        let (mut client, open) = ask(&app, &opened, request);
        // More than the socket takes at once: it is written first, all of it.
        assert_eq!(open.give(vec![b'x'; 6 << 20]), Given::Enough);
        read_to(&mut client, "\r\n\r\n");
        open.give("last");
        open.cut(Departure::Error, "unseen");
        let (bytes, is_fin) = rest(&mut client);
        assert!(!is_fin, "a clean end was faked");
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(
            text.matches('x').count() - text[..text.find("\r\n\r\n").unwrap()].matches('x').count(),
            6 << 20
        );
        assert!(
            text.trim_end().ends_with("last") && !text.contains("unseen"),
            "{:?}",
            &text[text.len() - 40..]
        );
        app.await_event("departed Error");
        until("nothing is charged", || app.server.budget().used(Share::Queues) == 0);
    }
}

#[test]
fn an_error_waits_no_longer_for_a_client_that_does_not_read() {
    let limits = Limits {
        idle_time: Duration::from_millis(300),
        close_time: Duration::from_millis(200),
        ..Limits::default()
    };
    let (app, opened) = pushing(limits);
    let (_client, open) = ask(&app, &opened, GET);
    open.give(vec![b'x'; 15 << 20]);
    open.cut(Departure::Error, "");
    app.await_event("departed Error");
    until("the connection is gone", || app.listener().connections() == 0);
}

// ---- clients that go ----

#[test]
fn a_client_that_goes_is_noticed() {
    // What is left of the client: a FIN alone leaves the socket.
    type Go = fn(Client) -> Option<Client>;
    let ways: [Go; 3] = [
        |client| {
            client.socket.shutdown(Shutdown::Write).unwrap();
            Some(client)
        },
        |_| None,
        // Behind the next request, which is not read before the stream has ended.
        |mut client| {
            client.send(GET);
            client.socket.shutdown(Shutdown::Write).unwrap();
            Some(client)
        },
    ];
    for go in ways {
        for has_head in [true, false] {
            let (app, opened) = pushing(Limits::default());
            let (mut client, open) = ask(&app, &opened, GET);
            if has_head {
                open.give("begun");
                read_to(&mut client, "begun");
            }
            let keeps = go(client);
            app.await_event("departed Client");
            assert_eq!(open.give("x"), Given::Over);
            drop(keeps);
            until("the connection is gone", || app.listener().connections() == 0);
            assert_eq!(departures(&app).len(), 1);
        }
    }
}

#[test]
fn a_reset_is_noticed_while_much_waits() {
    let (app, opened) = pushing(Limits::default());
    let (client, open) = ask(&app, &opened, GET);
    open.give(vec![1; 10 << 20]);
    until("the socket is full", || app.server.budget().used(Share::Queues) > 0);
    // With unread bytes a close is a reset.
    drop(client);
    app.await_event("departed Client");
    until("nothing is charged", || app.server.budget().used(Share::Queues) == 0);
}

#[test]
fn a_client_that_went_before_the_answer_is_told_of_once() {
    let (goes, gone) = channel();
    let gone = Mutex::new(gone);
    let (sender, opened) = channel();
    let app = App::with(
        Config::default(),
        Site::default(),
        Box::new(move |link, event| {
            if let Event::Request(mut exchange) = event {
                sender.send(()).unwrap();
                gone.lock().unwrap().recv().unwrap();
                ok(&mut exchange);
                let stream = link.stream(PUSHED);
                exchange.set_reply_stream(stream.clone());
                let id = exchange.id();
                link.send(Command::Respond(exchange));
                assert_eq!(stream.flow.give(1), Given::More);
                link.send(Command::Piece { stream: id, payload: Payload::Pooled(vec![1]) });
            }
        }),
    );
    let mut client = app.connect();
    client.send(GET);
    opened.recv_timeout(PATIENCE).unwrap();
    client.socket.set_linger_to_reset();
    drop(client);
    until("the connection is gone", || app.listener().connections() == 0);
    goes.send(()).unwrap();
    app.await_event("departed Client");
    assert_eq!(departures(&app).len(), 1);
}

trait Reset {
    fn set_linger_to_reset(&self);
}

impl Reset for std::net::TcpStream {
    fn set_linger_to_reset(&self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let size = size_of::<libc::linger>() as libc::socklen_t;
        let fd = std::os::fd::AsRawFd::as_raw_fd(self);
        // SAFETY: the descriptor is open, and the value as long as said.
        let set = unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size)
        };
        assert_eq!(set, 0);
    }
}

// ---- framing ----

#[test]
fn without_a_body_nobody_is_asked() {
    fn of_path(exchange: &mut Exchange) {
        let status = match exchange.path() {
            b"/204" => 204,
            b"/304" => 304,
            _ => 200,
        };
        exchange.begin_reply(status);
        exchange.push_reply_header(b"X-Kept", b"yes").unwrap();
    }
    let (app, _opened) = streaming(Config::default(), PULLED, of_path, Box::new(|_, _| unreachable!()));
    let mut client = app.connect();
    for (method, path, status) in [("HEAD", "/", 200), ("GET", "/204", 204), ("GET", "/304", 304)] {
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let reply = client.reply_to(method).unwrap();
        assert_eq!((reply.status, reply.header("x-kept")), (status, Some("yes")));
        assert_eq!(reply.header("content-length"), None, "what is not known is not told");
    }
    until("told of each end", || departures(&app) == ["departed Done"; 3]);
}

fn ten(exchange: &mut Exchange) {
    ok(exchange);
    exchange.push_reply_header(b"content-LENGTH", b" 10 ").unwrap();
}

#[test]
fn a_length_that_is_told_is_kept() {
    let (app, opened) = streaming(Config::default(), PUSHED, ten, Box::new(|_, _| unreachable!()));
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("01234");
    open.give("56789");
    open.end();
    let reply = client.reply().unwrap();
    assert_eq!((reply.header("content-length"), reply.header("transfer-encoding")), (Some("10"), None));
    assert_eq!(reply.body, b"0123456789");
    assert_eq!(client.get("/plain").status, 200);
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.reply_to("HEAD").unwrap();
    assert_eq!(head.header("content-length"), Some("10"));
}

#[test]
fn a_length_that_is_not_kept_is_an_error() {
    let (app, opened) = streaming(Config::default(), PUSHED, ten, Box::new(|_, _| unreachable!()));
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("01234");
    read_to(&mut client, "01234");
    assert_eq!(open.give("567890"), Given::TooLong);
    let (bytes, is_fin) = rest(&mut client);
    assert!(ends_with(&bytes, "\r\n\r\n01234") && !is_fin);
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("01234");
    read_to(&mut client, "01234");
    open.end();
    let (bytes, is_fin) = rest(&mut client);
    assert!(ends_with(&bytes, "\r\n\r\n01234") && !is_fin);
    until("both were errors", || departures(&app) == ["departed Error"; 2]);
}

#[test]
fn http_10_reads_until_the_close() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) =
        ask(&app, &opened, "GET / HTTP/1.0\r\nConnection: keep-alive\r\nAccept-Encoding: gzip\r\n\r\n");
    open.give("one");
    open.give("two");
    open.end();
    let (bytes, is_fin) = rest(&mut client);
    let text = String::from_utf8(bytes).unwrap();
    assert!(is_fin && text.ends_with("\r\n\r\nonetwo"), "{text}");
    assert!(
        text.to_lowercase().contains("connection: close")
            && !text.to_lowercase().contains("transfer-encoding")
    );
    app.await_event("departed Done");
}

// ---- time ----

#[test]
fn an_application_may_be_silent_and_a_client_must_read() {
    let limits = Limits { idle_time: Duration::from_millis(200), ..Limits::default() };
    let (app, opened) = pushing(limits);
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("one");
    std::thread::sleep(Duration::from_secs(1));
    open.give("two");
    open.end();
    assert_eq!(client.reply().unwrap().body, b"onetwo");
    let (mut client, open) = ask(&app, &opened, GET);
    open.give(vec![1; 10 << 20]);
    app.await_event("departed Timeout");
    assert!(!rest(&mut client).1, "a clean end was faked");
}

// ---- stopping ----

#[test]
fn a_stop_ends_what_is_pushed_and_cuts_what_is_pulled() {
    let (mut app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("one");
    read_to(&mut client, "one");
    app.stop();
    assert_eq!(client.reply().unwrap().body, b"one", "ended in order");
    assert!(client.is_closed());
    app.await_event("departed Stop");

    let (mut app, opened) = pulling(Limits::default(), |open, n| {
        if n == 0 {
            open.give("one");
        }
    });
    let (mut client, _open) = ask(&app, &opened, GET);
    read_to(&mut client, "one");
    let since = Instant::now();
    app.stop();
    assert!(since.elapsed() < Duration::from_millis(900), "the application cannot go on meanwhile");
    assert!(!rest(&mut client).1, "a clean end was faked");
    app.await_event("departed Stop");
}

#[test]
fn a_stop_is_told_as_one_where_bytes_of_a_length_are_missing() {
    for has_begun in [true, false] {
        let (mut app, opened) = streaming(Config::default(), PUSHED, ten, Box::new(|_, _| unreachable!()));
        let (mut client, open) = ask(&app, &opened, GET);
        if has_begun {
            open.give("01234");
            read_to(&mut client, "01234");
        }
        app.stop();
        let (bytes, is_fin) = rest(&mut client);
        assert!(bytes.starts_with(b"HTTP/1.1 500") || (has_begun && !is_fin), "a clean end was faked");
        app.await_event("departed Stop");
    }
}

#[test]
fn a_drain_waits_for_what_is_pulled() {
    let (app, opened) = pulling(Limits::default(), |open, n| {
        if n == 0 {
            open.give("one");
        }
    });
    let (mut client, open) = ask(&app, &opened, GET);
    read_to(&mut client, "one");
    app.listener().drain();
    std::thread::sleep(Duration::from_millis(100));
    open.give("two");
    open.end();
    assert_eq!(client.reply().unwrap().body, b"onetwo");
    assert!(client.is_closed());
    app.await_event("departed Done");
}

// ---- room ----

#[test]
fn what_waits_is_charged_and_the_largest_goes_when_there_is_no_room() {
    // A fifth of it is for what waits: 12.8 MiB.
    let limits = Limits { memory: Some(64 << 20), ..Limits::default() };
    let (app, opened) = pushing(limits);
    let budget = Arc::clone(app.server.budget());
    let (_one, large) = ask(&app, &opened, GET);
    large.give(vec![1; 11 << 20]);
    until("it is charged", || budget.used(Share::Queues) > 0);
    let (mut two, small) = ask(&app, &opened, GET);
    for _ in 0..10 {
        assert_eq!(small.give(vec![2; 1 << 20]), Given::Enough);
    }
    small.end();
    app.await_event("departed Slow");
    assert!(budget.used(Share::Queues) <= budget.limit(Share::Queues));
    assert_eq!(two.reply().unwrap().body.len(), 10 << 20, "who holds less goes on");
    app.await_event("departed Done");
    until("nothing is charged", || budget.used(Share::Queues) == 0);
}

// ---- events ----

const EVENTS: StreamRules = StreamRules { is_pulled: false, is_prompt: true, is_events: true, heartbeat: 1 };

#[test]
fn events_begin_at_once_and_are_kept_alive_without_the_application() {
    let (app, opened) = streaming(Config::default(), EVENTS, ok, Box::new(|_, _| unreachable!()));
    let (mut client, open) = ask(&app, &opened, GET);
    // A head, and what makes a proxy pass it on.
    read_to(&mut client, "\r\n\r\n3\r\n:\n\n\r\n");
    let since = Instant::now();
    read_to(&mut client, ":\n\n\r\n3\r\n:\n\n\r\n3\r\n:\n\n\r\n");
    assert!(since.elapsed() >= Duration::from_millis(1500), "{:?}", since.elapsed());
    open.give("data: a\n\n");
    open.end();
    let body = client.reply().unwrap().body;
    assert!(ends_with(&body, ":\n\ndata: a\n\n"));
    app.await_event("departed Done");
    assert_eq!(open.stream.flow.waiting(), 0);
}

#[test]
fn no_comment_lands_within_an_event() {
    let (app, opened) = streaming(Config::default(), EVENTS, ok, Box::new(|_, _| unreachable!()));
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("data: half");
    std::thread::sleep(Duration::from_millis(2500));
    open.give(" and half\n\n");
    open.end();
    let body = client.reply().unwrap().body;
    assert!(ends_with(&body, "data: half and half\n\n"), "{:?}", String::from_utf8_lossy(&body));
}

#[test]
fn a_stop_tells_clients_of_events_when_to_come_again() {
    for is_pulled in [false, true] {
        let rules = StreamRules { is_pulled, ..EVENTS };
        let (mut app, opened) = streaming(Config::default(), rules, ok, Box::new(|_, _| ()));
        let (mut client, _open) = ask(&app, &opened, GET);
        read_to(&mut client, ":\n\n");
        app.stop();
        let body = String::from_utf8(client.reply().unwrap().body).unwrap();
        let retry =
            body.strip_prefix(":\n\nretry: ").and_then(|rest| rest.strip_suffix("\n\n")).expect(&body);
        assert!((3000..8000).contains(&retry.parse::<u32>().unwrap()), "{retry}");
        app.await_event("departed Stop");
    }
}

#[test]
fn a_full_queue_does_not_end_a_pages_events_for_good() {
    let queue = rookery_exchange::QueueLimits { requests: 0, ..Default::default() };
    let app = App::with(Config { queue, ..Config::default() }, Site::default(), crate::support::echo(hello));
    let mut client = app.connect();
    assert_eq!(client.get("/").status, 503);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n");
    let reply = client.reply().unwrap();
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!((reply.body.as_slice(), reply.header("retry-after")), (&b"retry: 5000\n\n"[..], None));
}

// ---- what is left behind ----

#[test]
fn a_client_that_goes_while_the_head_waits_leaves_no_place_taken() {
    let (sender, slots) = channel();
    let app = App::with(
        Config::default(),
        Site::default(),
        Box::new(move |link, event| {
            if let Event::Request(mut exchange) = event {
                sender.send(exchange.slot()).unwrap();
                ok(&mut exchange);
                exchange.set_reply_stream(link.stream(PUSHED));
                link.send(Command::Respond(exchange));
            }
        }),
    );
    for n in 1..=5 {
        let mut client = app.connect();
        client.send(GET);
        assert_eq!(slots.recv_timeout(PATIENCE).unwrap(), 0, "the place of the one before is free");
        drop(client);
        until("told", || departures(&app).len() == n);
    }
}

#[test]
fn nothing_is_waited_for_where_the_length_is_none() {
    fn none(exchange: &mut Exchange) {
        ok(exchange);
        exchange.push_reply_header(b"Content-Length", b"0").unwrap();
    }
    for rules in [PULLED, PUSHED] {
        let (app, _opened) = streaming(Config::default(), rules, none, Box::new(|_, _| unreachable!()));
        let mut client = app.connect();
        let since = Instant::now();
        let reply = client.get("/");
        assert_eq!((reply.header("content-length"), reply.body.len()), (Some("0"), 0));
        assert!(since.elapsed() < Duration::from_millis(900), "{:?}", since.elapsed());
        assert_eq!(client.get("/plain").status, 200);
        app.await_event("departed Done");
    }
}

#[test]
fn a_piece_that_was_asked_for_is_taken_however_large_it_is() {
    const LARGE: usize = 16 << 20;
    let total = Arc::new(Mutex::new(0));
    let given = Arc::clone(&total);
    let (app, _opened) = pulling(Limits::default(), move |open, n| {
        let waits = open.stream.flow.waiting() > 0;
        let mut total = given.lock().unwrap();
        if *total > LARGE {
            return open.end();
        }
        // Small ones until the client is behind.
        let len = if waits && n > 0 { LARGE } else { 40 << 10 };
        assert_ne!(open.give(vec![0; len]), Given::Slow);
        *total += len;
    });
    let mut client = app.connect();
    client.send(GET);
    until("it has been given", || *total.lock().unwrap() > LARGE);
    assert_eq!(client.reply().unwrap().body.len(), *total.lock().unwrap());
    app.await_event("departed Done");
}

#[test]
fn a_reset_behind_the_next_request_is_noticed() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("begun");
    read_to(&mut client, "begun");
    client.send(GET);
    std::thread::sleep(Duration::from_millis(50));
    client.socket.set_linger_to_reset();
    drop(client);
    app.await_event("departed Client");
}

#[test]
fn a_stream_that_is_the_answer_to_a_head_is_whole() {
    let site = Site { sees_heads: true, ..Site::default() };
    for (len, is_stream) in [(5 << 20, false), (5 << 20, true)] {
        let app = App::with(
            Config::default(),
            site.clone(),
            Box::new(move |link, event| {
                if let Event::Head(mut exchange) = event {
                    ok(&mut exchange);
                    if !is_stream {
                        exchange.set_reply_body(&vec![b'x'; len]);
                        return link.send(Command::Respond(exchange));
                    }
                    let stream = link.stream(PUSHED);
                    exchange.set_reply_stream(stream.clone());
                    let id = exchange.id();
                    link.send(Command::Respond(exchange));
                    stream.flow.give(len);
                    link.send(Command::Piece { stream: id, payload: Payload::Pooled(vec![b'x'; len]) });
                    link.send(Command::End { stream: id });
                    link.flush();
                }
            }),
        );
        let mut client = app.connect();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
        client.send(vec![b'y'; 1000]);
        std::thread::sleep(Duration::from_millis(300));
        let body = client.reply().unwrap().body;
        assert_eq!(body.len(), len);
        if is_stream {
            app.await_event("departed Done");
        }
    }
}

#[test]
fn many_streams_that_end_in_every_way_leave_nothing_charged() {
    let (app, opened) = pushing(Limits::default());
    let budget = Arc::clone(app.server.budget());
    for n in 0..300usize {
        let request = [GET, GET_10, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"][n % 3];
        let (mut client, open) = ask(&app, &opened, request);
        match n / 3 % 10 {
            0 => drop(client),
            1 => {
                open.give(vec![1; 3 << 20]);
                client.socket.set_linger_to_reset();
                drop(client);
            }
            2 => {
                open.give(vec![1; 1 << 20]);
                open.end();
                rest_by_line(&mut client);
            }
            3 => {
                open.give("x");
                open.cut(Departure::Error, "page");
                rest_by_line(&mut client);
            }
            4 => {
                open.cut(Departure::Error, "page");
                drop(client);
            }
            5 => {
                open.end();
                open.give("x");
                open.end();
                client.socket.shutdown(Shutdown::Write).unwrap();
                rest_by_line(&mut client);
            }
            6 => {
                open.cut(Departure::Slow, "");
                rest_by_line(&mut client);
            }
            7 => {
                open.give(vec![1; 10 << 20]);
                open.cut(Departure::Slow, "");
                rest_by_line(&mut client);
            }
            8 => {
                open.give("x");
                client.send(GET);
                client.socket.shutdown(Shutdown::Both).unwrap();
            }
            _ => {
                open.tell(Command::SendHead { stream: open.id });
                drop(client);
                open.give(vec![1; 1 << 20]);
            }
        }
    }
    until("all are gone", || app.listener().connections() == 0);
    until("each is told of", || {
        let streams = app.requests();
        departures(&app).len() == streams
    });
    for share in Share::ALL {
        if share != Share::Pool {
            assert_eq!(budget.used(share), 0, "{share:?}");
        }
    }
}

/// Reads on until the server ends the connection, or has nothing more to say.
fn rest_by_line(client: &mut Client) {
    client.socket.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    let mut buffer = vec![0; 1 << 20];
    while matches!(client.socket.read(&mut buffer), Ok(1..)) {}
}
