//! Attacks by HTTP/2 clients that send raw frames (docs/SECURITY-MODEL.md). The server ends the
//! stream or the connection, the memory that it holds stays bounded, and another connection is
//! served.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rookery_exchange::{Command, Event, Exchange, Share};
use rookery_server::{Config, Limits, ListenerConfig, Rejection};

use crate::support::http2::{
    ACK, END_HEADERS, END_STREAM, Frame, GET, Heard, PREFACE, Peer, block, code, frame, get, kind,
    ordinary, post, setting,
};
use crate::support::tls::{app, settings, site};
use crate::support::{App, Handler, SLOWED_DOWN, TEST_TIMEOUT, hello, in_own_process, wait_until};

/// The limit of the I/O thread's processor time for a response on another connection during an
/// attack, as a multiple of that without an attack. In an optimised build a response takes at most
/// 0.1 ms, so no client waits for 20 ms. The slowest attack is one by frames of one byte, of which
/// 800 are read at a time; it takes 70 times as long.
const TIMES: u32 = 200;

/// The KiB by which the process may grow during an attack, for its windows and buffers. The clients
/// of the process hold a few hundred KiB. Most attacks send or request several times this amount if
/// the server lets them; no attack was seen to take more than 1,500 KiB.
const GROWTH: usize = 6 << 10;

/// Returns the KiB of memory that the process uses.
fn resident() -> usize {
    // Only Linux has this file.
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Returns the processor time that the I/O thread has used. Unlike the elapsed time, it does not
/// depend on what else the machine does. The process must have only one server.
#[cfg(target_os = "linux")]
fn worked() -> Duration {
    let threads =
        std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
    let is_io = |thread: &std::path::Path| {
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name == "rookery-io\n")
    };
    let thread = threads.into_iter().find(|thread| is_io(thread)).expect("an I/O thread");
    let id: libc::clockid_t = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
    // The clock of a thread of this process is derived from the thread's id (linux/posix-timers.h).
    let clock = (!id << 3) | 6;
    // SAFETY: The struct contains only integers.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: The pointer is that of a local variable.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

/// Returns zero on systems on which this test cannot read the processor time of a thread.
#[cfg(not(target_os = "linux"))]
fn worked() -> Duration {
    Duration::ZERO
}

/// Returns the processor time that the I/O thread uses until it has responded on an open
/// connection.
fn exchange(other: &mut crate::support::Client) -> Duration {
    let began = worked();
    assert_eq!(other.get("/").status, 200);
    worked().saturating_sub(began)
}

/// Runs an attack, and sends requests on another connection until the attack ends. Asserts that the
/// responses are not much slower than on an idle server, and that memory stays bounded. The calling
/// test must run in its own process.
pub(crate) fn beside<T: Send + 'static>(
    app: &App,
    attack: impl FnOnce(Peer) -> T + Send + 'static,
) -> T {
    let mut other = app.secure();
    let idle = (0..20).map(|_| exchange(&mut other)).max().unwrap();
    let peer = Peer::new(app);
    let before = resident();
    let attacking = std::thread::spawn(move || attack(peer));
    let (mut worst, mut most) = (Duration::ZERO, before);
    while !attacking.is_finished() {
        worst = worst.max(exchange(&mut other));
        most = most.max(resident());
    }
    let growth = most - before;
    println!("the process has grown by {growth} KiB");
    // The address sanitizer keeps freed memory for a while, so memory use has no meaning under it
    // (`scripts/soundness`).
    let is_sanitized = std::env::var_os("ASAN_OPTIONS").is_some();
    assert!(growth < GROWTH || is_sanitized, "{growth} KiB");
    println!("another waited for {worst:?} of work, and usually for {idle:?}");
    assert!(
        worst < idle * TIMES || cfg!(not(target_os = "linux")),
        "{worst:?}, and {idle:?} {SLOWED_DOWN}"
    );
    attacking.join().unwrap()
}

/// Returns an application that keeps requests until it receives a message, and then responds to all
/// of them.
pub(crate) fn keeping(limits: Limits) -> (App, Sender<()>, Receiver<()>) {
    let (answer, told) = channel();
    let (came, comes) = channel();
    let mut kept: Vec<Box<Exchange>> = Vec::new();
    let handler: Handler = Box::new(move |link, event| {
        if let Event::Request(mut exchange) = event {
            if exchange.path() == b"/plain" {
                hello(&mut exchange);
                link.send(Command::Respond(exchange));
            } else {
                kept.push(exchange);
                let _ = came.send(());
            }
        }
        if told.try_recv().is_ok() {
            for mut exchange in kept.drain(..) {
                hello(&mut exchange);
                link.send(Command::Respond(exchange));
            }
        }
    });
    let config = Config { limits, ..Config::default() };
    (App::with(config, site(settings(&["localhost"])), handler), answer, comes)
}

#[test]
fn requests_that_are_reset_at_once() {
    if !in_own_process!() {
        return;
    }
    let app = app(Limits::default(), hello);
    let goodbye = beside(&app, |mut peer| {
        for at in 0..1000 {
            let stream = 2 * at + 1;
            let both = [
                frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block(GET)),
                frame(kind::RST_STREAM, 0, stream, &code::CANCEL.to_be_bytes()),
            ];
            if !peer.try_send(both.concat()) {
                break;
            }
        }
        peer.goodbye()
    });
    assert_eq!(goodbye, Some(code::ENHANCE_YOUR_CALM));
    assert!(app.server.reports().count(Rejection::Http2) >= 1);
    wait_until("it has gone", || app.listener().connections() <= 1);
}

#[test]
fn requests_that_are_reset_when_the_application_has_them() {
    let (app, answer, comes) =
        keeping(Limits { http2_max_concurrent_streams: 20, ..Limits::default() });
    let mut peer = Peer::new(&app);
    let mut stream = 1;
    for _ in 0..20 {
        peer.ask(stream, GET);
        comes.recv_timeout(TEST_TIMEOUT).expect("the request");
        peer.reset(stream);
        stream += 2;
    }
    // No stream is open, but the application still has as many requests as a connection may have.
    // The next request is refused with a code that allows a retry.
    peer.ask(stream, GET);
    assert_eq!(peer.outcome(stream), Heard::Reset(code::REFUSED_STREAM));
    // Another connection is not affected.
    let mut other = Peer::new(&app);
    other.ask(1, &get("/plain"));
    assert_eq!(other.outcome(1), Heard::Status(200));
    // Once the application has responded, the connection can send requests again.
    answer.send(()).unwrap();
    other.ask(3, &get("/plain"));
    assert_eq!(other.outcome(3), Heard::Status(200));
    stream += 2;
    wait_until("there is room", || {
        stream += 2;
        peer.ask(stream, &get("/plain"));
        peer.outcome(stream) == Heard::Status(200)
    });
}

#[test]
fn a_peer_that_resets_all_it_asks_for_is_sent_off() {
    let (app, answer, comes) =
        keeping(Limits { http2_max_concurrent_streams: 1000, ..Limits::default() });
    let mut peer = Peer::new(&app);
    let mut stream = 1;
    while stream < 1000 {
        if !peer.try_send(frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block(GET))) {
            break;
        }
        let is_over = || app.server.reports().count(Rejection::Http2) > 0;
        wait_until("it comes, or the end", || comes.try_recv().is_ok() || is_over());
        if is_over() {
            break;
        }
        peer.try_send(frame(kind::RST_STREAM, 0, stream, &code::CANCEL.to_be_bytes()));
        stream += 2;
    }
    assert_eq!(peer.goodbye(), Some(code::ENHANCE_YOUR_CALM));
    assert!((100..120).contains(&app.requests()), "{}", app.requests());
    drop(answer);
}

#[test]
fn a_head_that_goes_on_and_on() {
    if !in_own_process!() {
        return;
    }
    let app = app(Limits::default(), hello);
    let goodbye = beside(&app, |mut peer| {
        peer.send(frame(kind::HEADERS, END_STREAM, 1, &block(GET)));
        for _ in 0..20_000 {
            if !peer.try_send(frame(kind::CONTINUATION, 0, 1, &block(&[("a", "b")]))) {
                break;
            }
        }
        peer.goodbye()
    });
    assert_eq!(goodbye, Some(code::ENHANCE_YOUR_CALM));
}

#[test]
fn a_head_that_does_not_end_has_the_time_of_a_head() {
    let limits = Limits { header_timeout: Duration::from_millis(400), ..Limits::default() };
    let app = app(limits, hello);
    let whole = frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &block(GET));
    for (sent, what) in [
        (frame(kind::HEADERS, END_STREAM, 1, &block(GET)), "no CONTINUATION"),
        (whole[..5].to_vec(), "half the header of a frame"),
        (whole[..whole.len() - 1].to_vec(), "all but the last byte"),
    ] {
        let mut peer = Peer::new(&app);
        peer.send(sent);
        let began = Instant::now();
        assert!(matches!(peer.goodbye(), None | Some(code::NO_ERROR)), "{what}");
        assert!(began.elapsed() > Duration::from_millis(300), "{what}: sooner than that");
    }
    assert_eq!(app.requests(), 0);
    wait_until("all have gone", || app.listener().connections() == 0);
}

#[test]
fn heads_that_are_too_large() {
    let limits = Limits { max_headers: 200, ..Limits::default() };
    let app = app(limits, hello);
    let lines = |count: usize, value: &'static str| [GET, &vec![("a", value); count]].concat();
    let mut peer = Peer::new(&app);
    let mut ask = |stream: u32, fields: &[(&str, &str)]| {
        let block = block(fields);
        let mut pieces = block.chunks(16 << 10);
        let first = pieces.next().unwrap();
        let rest: Vec<_> = pieces.collect();
        let end = |is_last: bool| if is_last { END_HEADERS } else { 0 };
        peer.send(frame(kind::HEADERS, END_STREAM | end(rest.is_empty()), stream, first));
        for (at, piece) in rest.iter().enumerate() {
            if !peer.try_send(frame(kind::CONTINUATION, end(at + 1 == rest.len()), stream, piece)) {
                break;
            }
        }
        peer.outcome(stream)
    };
    // Each line counts with 32 additional bytes, so that many short lines exceed the limit.
    assert_eq!(ask(1, &lines(190, "b")), Heard::Status(200));
    assert_eq!(ask(3, &lines(210, "b")), Heard::Status(431));
    assert_eq!(ask(5, &lines(1000, "b")), Heard::Status(431));
    assert_eq!(ask(7, &[GET, &[("a", &*"b".repeat(31_000))]].concat()), Heard::Status(200));
    assert_eq!(ask(9, &[GET, &[("a", &*"b".repeat(40_000))]].concat()), Heard::Status(431));
    // Two values that are each larger than the limit, in all frames of the head.
    let large = "b".repeat(33 << 10);
    assert_eq!(ask(11, &[GET, &[("a", &*large), ("b", &*large)]].concat()), Heard::Status(431));
    assert_eq!(ask(13, &lines(10, "b")), Heard::Status(200));
    assert_eq!(
        ask(15, &[GET, &[("a", &*"b".repeat(300_000))]].concat()),
        Heard::Goaway(code::ENHANCE_YOUR_CALM)
    );
}

/// A line that takes one byte on the wire, because it refers to the header table, counts with the
/// size of what it refers to (RFC 9113, 10.5.1).
#[test]
fn a_line_of_one_byte_counts_as_what_it_stands_for() {
    if !in_own_process!() {
        return;
    }
    let app = app(Limits::default(), hello);
    let goodbye = beside(&app, |mut peer| {
        // Adds a field of 4,000 bytes to the header table; the next head refers to the field.
        let mut fields = block(GET);
        fields.extend_from_slice(&[0x40, 1, b'a', 0x7F, 0xA1, 0x1E]);
        fields.extend_from_slice(&[b'b'; 127 + 0x21 + 0x1E * 128]);
        peer.send(frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &fields));
        assert_eq!(peer.outcome(1), Heard::Status(200));
        let bomb = [&block(GET)[..], &[0xBE; 15_000]].concat();
        peer.send(frame(kind::HEADERS, END_HEADERS | END_STREAM, 3, &bomb));
        peer.goodbye()
    });
    assert_eq!(goodbye, Some(code::ENHANCE_YOUR_CALM));
}

#[test]
fn the_table_of_headers_does_not_grow_past_what_was_agreed_on() {
    let app = app(Limits::default(), hello);
    let mut peer = Peer::new(&app);
    // The block begins with an update of the table size to 5,000.
    let fields = [&[0x3F, 0xE9, 0x26][..], &block(GET)].concat();
    peer.send(frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &fields));
    assert!(matches!(peer.goodbye(), Some(code::COMPRESSION_ERROR | code::PROTOCOL_ERROR)));
}

#[test]
fn heads_that_are_held_are_charged() {
    // The share of connections is two fifths of 2.5 MiB. A connection takes 80 KiB of it, and each
    // stream 32 KiB.
    let limits =
        Limits { max_client_memory: Some(5 << 19), max_connections: 9, ..Limits::default() };
    let app = app(limits, hello);
    let room = 1 << 20;
    let mut peer = Peer::new(&app);
    let large = "b".repeat(15_000);
    let fields = [&post("/")[..], &[("a", &*large)]].concat();
    let mut refused = 0;
    for at in 0..90 {
        peer.begin(2 * at + 1, &fields);
    }
    peer.send(frame(kind::PING, 0, 0, &[7; 8]));
    assert!(peer.frame_of(kind::PING).is_some());
    assert!(app.server.budget().used(Share::Connections) <= room);
    let budget = app.server.budget();
    assert!(budget.used(Share::Incoming) <= budget.limit(Share::Incoming));
    let mut heard = std::mem::take(&mut peer.heard).into_iter();
    while refused < 10 {
        let frame = heard.next().or_else(|| peer.frame()).expect("more refusals");
        refused += usize::from(matches!(frame.kind, kind::RST_STREAM | kind::HEADERS));
    }
    drop(peer);
    let used = |share| app.server.budget().used(share);
    wait_until("all is given back", || used(Share::Connections) == 0 && used(Share::Incoming) == 0);
}

#[test]
fn data_that_is_none() {
    if !in_own_process!() {
        return;
    }
    let app = app(Limits::default(), hello);
    let goodbye = beside(&app, |mut peer| {
        peer.begin(1, &post("/"));
        let nothing = frame(kind::DATA, 0, 1, b"").repeat(1000);
        for _ in 0..1000 {
            if !peer.try_send(&nothing) {
                break;
            }
        }
        peer.goodbye()
    });
    assert_eq!(goodbye, Some(code::ENHANCE_YOUR_CALM));
}

#[test]
fn empty_data_frames_of_a_connection_that_has_long_been_open_are_no_attack() {
    let app = app(Limits::default(), hello);
    let mut peer = Peer::new(&app);
    for at in 0..60 {
        let stream = 2 * at + 1;
        peer.begin(stream, &post("/"));
        peer.send(frame(kind::DATA, 0, stream, b"").repeat(2));
        peer.send(frame(kind::DATA, 0, stream, b"data"));
        peer.send(frame(kind::DATA, END_STREAM, stream, b""));
        assert_eq!(peer.outcome(stream), Heard::Status(200));
    }
}

#[test]
fn a_body_in_small_pieces_is_none() {
    if !in_own_process!() {
        return;
    }
    let app = app(Limits::default(), |exchange| {
        exchange.begin_response(200);
        let length = exchange.body().len().to_string();
        exchange.set_response_body(length.as_bytes());
    });
    let data = beside(&app, |mut peer| {
        peer.begin(1, &post("/"));
        for _ in 0..200 {
            peer.send(frame(kind::DATA, 0, 1, b"x").repeat(100));
        }
        peer.send(frame(kind::DATA, END_STREAM, 1, b""));
        assert_eq!(peer.outcome(1), Heard::Status(200));
        peer.data(1)
    });
    assert_eq!(data, b"20000");
}

#[test]
fn frames_that_carry_nothing() {
    if !in_own_process!() {
        return;
    }
    let app = app(Limits::default(), hello);
    // The frames have an unknown type, which RFC 9113 (4.1) requires endpoints to ignore.
    let unknown = beside(&app, |mut peer| {
        let large = frame(0x77, 0, 0, &[0; 16 << 10]);
        let mut sent = 0;
        while sent < 64 << 20 && peer.try_send(&large) {
            sent += large.len();
        }
        (sent, peer.goodbye())
    });
    // A client that keeps sending may not receive the reason.
    assert!(matches!(unknown.1, None | Some(code::ENHANCE_YOUR_CALM)), "{unknown:?}");
    wait_until("it is reported", || app.server.reports().count(Rejection::Http2) == 1);
    // The limits include what the system buffers, and what the server reads so that the client can
    // receive the reason.
    assert!((8 << 20..48 << 20).contains(&unknown.0), "{unknown:?}");
    // A client may send as many pings as one that is connected for days, and also settings.
    let mut peer = Peer::new(&app);
    for round in 0..20 {
        peer.send(frame(kind::PING, 0, 0, &[round; 8]).repeat(50));
        for _ in 0..50 {
            let Frame { flags, payload, .. } = peer.frame_of(kind::PING).expect("an answer");
            assert_eq!((flags, payload), (ACK, vec![round; 8]));
        }
    }
    peer.ask(1, GET);
    assert_eq!(peer.outcome(1), Heard::Status(200));
}

#[test]
fn a_peer_that_pings_and_does_not_read_is_not_read_either() {
    if !in_own_process!() {
        return;
    }
    let app = app(Limits::default(), hello);
    let before = beside(&app, |mut peer| {
        let pings = frame(kind::PING, 0, 0, &[7; 8]).repeat(1000);
        // Pings that the server does not read stay in the system's buffers.
        let (done, sent) = channel();
        std::thread::spawn(move || {
            let mut all = 0;
            while all < 64 << 20 && peer.try_send(&pings) {
                all += pings.len();
                let _ = done.send(all);
            }
        });
        let mut all = 0;
        while let Ok(more) = sent.recv_timeout(Duration::from_secs(2)) {
            all = more;
        }
        all
    });
    assert!(before < 64 << 20, "all of it was taken");
}

#[test]
fn settings_without_end() {
    if !in_own_process!() {
        return;
    }
    let app = app(Limits::default(), hello);
    let (acknowledged, goodbye) = beside(&app, |mut peer| {
        let settings = frame(kind::SETTINGS, 0, 0, &setting(4, 65_535).repeat(2000));
        let mut acknowledged = 0;
        while acknowledged < 10_000 && peer.try_send(&settings) {
            if peer.frame_of(kind::SETTINGS).is_none() {
                break;
            }
            acknowledged += 1;
        }
        (acknowledged, peer.goodbye())
    });
    assert_eq!(goodbye, Some(code::ENHANCE_YOUR_CALM));
    // The expected number corresponds to 8 MiB and the frames that were in transit.
    assert!((650..1500).contains(&acknowledged), "{acknowledged}");
}

#[test]
fn windows_past_their_end() {
    const MOST: u32 = (1 << 31) - 1;
    let app = app(Limits::default(), |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(&vec![b'a'; 100_000]);
    });
    // If the window of a stream overflows, the stream ends and the connection continues.
    let mut peer = Peer::new(&app);
    peer.ask(1, GET);
    assert_eq!(peer.outcome(1), Heard::Status(200));
    peer.heard.retain(|frame| frame.kind != kind::HEADERS);
    // The response has used the whole window, so that only the second update makes it overflow.
    peer.send(frame(kind::WINDOW_UPDATE, 0, 1, &MOST.to_be_bytes()).repeat(2));
    assert_eq!(peer.outcome(1), Heard::Reset(code::FLOW_CONTROL_ERROR));
    peer.ask(3, GET);
    assert_eq!(peer.outcome(3), Heard::Status(200));
    // The window of the connection may overflow by an update or by a setting.
    peer.send(frame(kind::WINDOW_UPDATE, 0, 0, &MOST.to_be_bytes()).repeat(2));
    assert_eq!(peer.goodbye(), Some(code::FLOW_CONTROL_ERROR));
    let mut peer = Peer::with(&app, &setting(4, MOST + 1));
    // RFC 9113 (6.5.2) requires the first of the two codes.
    assert!(matches!(peer.goodbye(), Some(code::FLOW_CONTROL_ERROR | code::PROTOCOL_ERROR)));
    wait_until("all is given back", || app.server.budget().used(Share::Outgoing) == 0);
}

#[test]
fn a_window_that_is_never_opened() {
    let limits = Limits { idle_timeout: Duration::from_millis(800), ..Limits::default() };
    let app = app(limits, |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(&vec![b'a'; 1 << 20]);
    });
    let mut peer = Peer::with(&app, &setting(4, 0));
    peer.ask(1, GET);
    assert_eq!(peer.outcome(1), Heard::Status(200));
    // The stream is given up, and the connection continues.
    peer.heard.retain(|frame| frame.kind != kind::HEADERS);
    assert_eq!(peer.outcome(1), Heard::Reset(code::CANCEL));
    peer.ask(3, &ordinary("HEAD", "/"));
    assert_eq!(peer.outcome(3), Heard::Status(200));
    wait_until("nothing of it is held", || app.server.budget().used(Share::Outgoing) == 0);
}

#[test]
fn a_window_that_is_opened_byte_by_byte() {
    let limits = Limits {
        min_response_rate: 1000,
        idle_timeout: Duration::from_millis(800),
        ..Limits::default()
    };
    let app = app(limits, |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(&vec![b'a'; 1 << 20]);
    });
    let mut peer = Peer::with(&app, &setting(4, 0));
    peer.ask(1, GET);
    let began = Instant::now();
    while began.elapsed() < TEST_TIMEOUT {
        peer.send(frame(kind::WINDOW_UPDATE, 0, 1, &1u32.to_be_bytes()));
        // Each byte arrives in a frame of its own, until the end of the body.
        match peer.frame() {
            Some(Frame { kind: kind::RST_STREAM, payload, .. }) => {
                assert_eq!(payload, code::CANCEL.to_be_bytes());
                return;
            }
            Some(_) => std::thread::sleep(Duration::from_millis(20)),
            None => panic!("the connection has ended"),
        }
    }
    panic!("it was waited for");
}

#[test]
fn streams_past_the_limit_are_refused() {
    let (app, answer, comes) =
        keeping(Limits { http2_max_concurrent_streams: 10, ..Limits::default() });
    let mut peer = Peer::new(&app);
    let max = peer.frame_of(kind::SETTINGS).unwrap().payload;
    assert!(max.windows(6).any(|entry| entry == setting(3, 10)), "{max:?}");
    for at in 0..10 {
        peer.ask(2 * at + 1, GET);
        comes.recv_timeout(TEST_TIMEOUT).expect("the request");
    }
    for at in 10..20 {
        peer.ask(2 * at + 1, GET);
        assert_eq!(peer.outcome(2 * at + 1), Heard::Reset(code::REFUSED_STREAM));
    }
    // A client that goes on is disconnected.
    for at in 20..400 {
        if !peer.try_send(frame(kind::HEADERS, END_HEADERS | END_STREAM, 2 * at + 1, &block(GET))) {
            break;
        }
    }
    assert_eq!(peer.goodbye(), Some(code::ENHANCE_YOUR_CALM));
    assert_eq!(app.requests(), 10);
    drop(answer);
}

#[test]
fn a_preface_has_the_time_of_the_handshake() {
    let time = Duration::from_millis(400);
    // The rejected client is not told the reason, so that its connection need not linger.
    let limits =
        Limits { tls_handshake_timeout: time, ws_close_timeout: time, ..Limits::default() };
    let app = app(limits, hello);
    for sent in [&b""[..], &PREFACE[..10]] {
        let mut peer = Peer::silent(app.address);
        peer.send(sent);
        let began = Instant::now();
        assert_eq!(peer.goodbye(), None);
        assert!(began.elapsed() > Duration::from_millis(200), "sooner than that");
    }
    let mut wrong = Peer::silent(app.address);
    wrong.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(wrong.goodbye(), None);
    wait_until("it is reported", || app.server.reports().count(Rejection::Http2) == 1);
    wait_until("all have gone", || app.listener().connections() == 0);
}

#[test]
fn a_connection_without_a_stream_is_closed_after_its_time() {
    let limits = Limits { idle_timeout: Duration::from_millis(800), ..Limits::default() };
    let app = app(limits, hello);
    let mut peer = Peer::new(&app);
    peer.ask(1, GET);
    assert_eq!(peer.outcome(1), Heard::Status(200));
    let began = Instant::now();
    // Pings do not extend the time.
    while began.elapsed() < TEST_TIMEOUT {
        if !peer.try_send(frame(kind::PING, 0, 0, &[7; 8])) || peer.frame_of(kind::PING).is_none() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(peer.goodbye(), Some(code::NO_ERROR));
    assert!(began.elapsed() > Duration::from_millis(700), "sooner than that");
}

#[test]
fn a_body_that_stops_is_given_up() {
    let limits = Limits { idle_timeout: Duration::from_millis(800), ..Limits::default() };
    let app = app(limits, hello);
    let mut peer = Peer::new(&app);
    peer.begin(1, &post("/"));
    peer.send(frame(kind::DATA, 0, 1, b"Hello"));
    assert_eq!(peer.outcome(1), Heard::Status(408));
    assert_eq!(peer.data(1), b"408 Request Timeout\n");
    peer.ask(3, GET);
    assert_eq!(peer.outcome(3), Heard::Status(200));
    assert_eq!(app.requests(), 1);
}

#[test]
fn bodies_that_are_not_read_are_held_within_their_window() {
    // The application gets heads first, and delays its decision.
    let (came, comes) = channel();
    let mut kept = Vec::new();
    let handler: Handler = Box::new(move |_, event| {
        if let Event::Head(exchange) = event {
            kept.push(exchange);
            let _ = came.send(());
        }
    });
    let limits = Limits { max_client_memory: Some(64 << 20), ..Limits::default() };
    let site = ListenerConfig { sees_heads: true, ..site(settings(&["localhost"])) };
    let app = App::with(Config { limits, ..Config::default() }, site, handler);
    let mut peer = Peer::new(&app);
    for at in 0..8 {
        peer.begin(2 * at + 1, &post("/"));
        comes.recv_timeout(TEST_TIMEOUT).expect("the head");
    }
    // The bytes that may arrive are charged in advance: at most the window of the connection.
    assert_eq!(app.server.budget().used(Share::Incoming), 1 << 20);
    for at in 0..4u32 {
        for _ in 0..16 {
            peer.send(frame(kind::DATA, 0, 2 * at + 1, &[7; 16 << 10]));
        }
    }
    // The server grants no further window for bytes that it has not read, so that the next byte
    // violates the protocol.
    peer.send(frame(kind::DATA, 0, 9, &[7; 1]));
    assert_eq!(peer.goodbye(), Some(code::FLOW_CONTROL_ERROR));
    drop(peer);
    wait_until("it is given back", || app.server.budget().used(Share::Incoming) == 0);
}
