//! The ends of HTTP/2 streams and connections: which ends the application is notified of, and that
//! all memory is released.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use rookery_exchange::{Command, Event, Payload, Share, StreamEnd, StreamOptions};
use rookery_server::{Config, Limits};

use crate::http::streamed_request_bodies::{ends, receiving_at, rules};
use crate::support::http2::{
    END_STREAM, GET, Heard, Peer, code, frame, get, kind, ordinary, post, setting,
};
use crate::support::tls::{app, settings, site};
use crate::support::{App, Handler, TEST_TIMEOUT, hello, wait_until};

/// Connects a client whose flow control never stops the server.
fn greedy(app: &App) -> Peer {
    let mut peer = Peer::with(app, &setting(4, 1 << 20));
    peer.send(frame(kind::WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes()));
    peer
}

#[test]
fn replies_that_h2_has_whole_end_with_their_connection() {
    let app = app(Limits::default(), |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(&vec![b'a'; 60_000]);
    });
    let mut peer = greedy(&app);
    peer.shrink_receive_buffer();
    // The responses exceed what the systems buffer for a client that does not read.
    for at in 0..200 {
        peer.ask(2 * at + 1, GET);
    }
    wait_until("some have been answered", || app.requests() >= 90);
    // Waits until the application has got the last requests.
    app.advance(Duration::from_secs(5));
    drop(peer);
    wait_until("the connection has gone", || app.listener().connections() == 0);
    for share in Share::ALL {
        wait_until("all is given back", || app.server.budget().used(share) == 0);
    }
}

#[test]
fn a_drain_waits_for_a_slow_stream_and_says_goodbye_before() {
    let (opened, opens) = channel();
    let handler: Handler = Box::new(move |link, event| {
        if let Event::Request(mut exchange) = event {
            let stream = link.stream(StreamOptions { is_pulled: true, ..StreamOptions::default() });
            exchange.begin_response(200);
            exchange.set_response_stream(stream.clone());
            let id = exchange.id();
            link.send(Command::Respond(exchange));
            let _ = opened.send((id, stream));
        }
    });
    let app = App::with(Config::default(), site(settings(&["localhost"])), handler);
    let mut peer = Peer::new(&app);
    peer.ask(1, GET);
    let (id, stream) = opens.recv_timeout(TEST_TIMEOUT).unwrap();
    let say = |command| {
        app.server.link().send(command);
        app.server.link().flush();
    };
    let piece = || {
        stream.flow.admit(5);
        say(Command::Chunk {
            stream: id,
            payload: Payload::Pooled(b"piece".to_vec()),
            is_pushing: false,
        });
    };
    piece();
    assert_eq!(peer.outcome(1), Heard::Status(200));
    app.listener().drain();
    let goaway = peer.frame_of(kind::GOAWAY).expect("GOAWAY");
    assert_eq!(goaway.payload[4..8], code::NO_ERROR.to_be_bytes());
    let ping = peer.frame_of(kind::PING).expect("PING");
    peer.send(frame(kind::PING, 1, 0, &ping.payload));
    // The last GOAWAY frame names the last stream that is served.
    let goaway = peer.frame_of(kind::GOAWAY).expect("GOAWAY");
    assert_eq!(goaway.payload[..4], 1u32.to_be_bytes());
    app.advance(Duration::from_secs(2));
    piece();
    say(Command::EndStream { stream: id });
    assert_eq!(peer.data(1), b"piecepiece");
    assert_eq!(peer.goodbye(), None);
    wait_until("it has gone", || app.listener().connections() == 0);
}

#[test]
fn a_stop_does_not_wait_for_who_has_nothing_under_way() {
    // A client that does not read would delay the end by this time.
    let limits = Limits {
        stop_timeout: TEST_TIMEOUT * 10,
        ws_close_timeout: TEST_TIMEOUT * 10,
        ..Limits::default()
    };
    let mut app = app(limits, hello);
    let mut peer = Peer::new(&app);
    peer.ask(1, GET);
    assert_eq!(peer.outcome(1), Heard::Status(200));
    assert_eq!(peer.data(1), b"Hello, World!");
    let silent = Peer::silent(app.address);
    app.stop();
    assert_eq!(peer.goodbye(), Some(code::NO_ERROR));
    drop(silent);
}

#[test]
fn a_stop_resets_a_response_that_the_application_has_not_ended() {
    let limits = Limits {
        stop_timeout: TEST_TIMEOUT * 10,
        ws_close_timeout: Duration::from_millis(400),
        ..Limits::default()
    };
    let handler: Handler = Box::new(move |link, event| {
        if let Event::Request(mut exchange) = event {
            let (id, stream) = (exchange.id(), link.stream(StreamOptions::default()));
            exchange.begin_response(200);
            exchange.set_response_stream(stream.clone());
            link.send(Command::Respond(exchange));
            stream.flow.admit(3);
            let payload = Payload::Pooled(b"one".to_vec());
            link.send(Command::Chunk { stream: id, payload, is_pushing: false });
        }
    });
    let config = Config { limits, ..Config::default() };
    let mut app = App::with(config, site(settings(&["localhost"])), handler);
    let mut peer = Peer::new(&app);
    peer.ask(1, GET);
    assert_eq!(peer.frame_of(kind::DATA).map(|frame| frame.payload), Some(b"one".to_vec()));
    app.stop();
    let reset = peer.frame_of(kind::RST_STREAM).expect("no END_STREAM");
    assert_eq!(reset.stream, 1);
    app.await_event("departed Stop");
}

#[test]
fn a_stop_ends_a_body_that_is_on_its_way() {
    let close_time = Duration::from_millis(400);
    let limits = Limits {
        stop_timeout: TEST_TIMEOUT * 10,
        ws_close_timeout: close_time,
        ..Limits::default()
    };
    let mut app = receiving_at(limits, &rules(), site(settings(&["localhost"])));
    let mut peer = Peer::new(&app);
    peer.begin(1, &post("/"));
    peer.send(frame(kind::DATA, 0, 1, b"abc"));
    app.await_event("body 3");
    app.stop();
    assert_eq!(peer.outcome_past_goaway(1), Heard::Reset(code::CANCEL));
    app.await_event("body ended Stop");
    assert_eq!(ends(&app).len(), 1);
}

#[test]
fn a_body_comes_in_pieces() {
    let rules = rules();
    let app = receiving_at(Limits::default(), &rules, site(settings(&["localhost"])));
    let mut peer = Peer::new(&app);
    for stream in [1, 3] {
        peer.begin(stream, &post("/"));
        peer.send(frame(kind::DATA, 0, stream, b"abc"));
        app.await_event("body 3");
        peer.send(frame(kind::DATA, END_STREAM, stream, b"def"));
        assert_eq!(peer.data(stream), b"6 597");
    }
    assert_eq!(ends(&app), ["body ended Done"; 2]);
    // The application does not consume the body, so that the server grants only what it reads ahead
    // and a window.
    rules.holds.store(true, Ordering::Relaxed);
    peer.begin(5, &post("/"));
    let mut sent = 0u32;
    while sent < 256 << 10 {
        peer.send(frame(kind::DATA, 0, 5, &[1; 16 << 10]));
        sent += 16 << 10;
    }
    // The client cancels the body, and the application is notified.
    peer.reset(5);
    app.await_event("body ended Client");
    assert_eq!(ends(&app).len(), 3);
    // The application is also notified when the connection ends.
    peer.begin(7, &post("/"));
    peer.send(frame(kind::DATA, 0, 7, b"abcd"));
    app.await_event("body 4");
    drop(peer);
    wait_until("both are told", || ends(&app).len() == 4);
    assert_eq!(ends(&app)[2..], ["body ended Client"; 2]);
    wait_until("all is given back", || app.server.budget().used(Share::Incoming) == 0);
}

#[test]
fn what_is_ahead_of_the_application_is_bounded() {
    let rules = rules();
    rules.holds.store(true, Ordering::Relaxed);
    let app = receiving_at(Limits::default(), &rules, site(settings(&["localhost"])));
    let mut peer = Peer::new(&app);
    peer.begin(1, &post("/"));
    // The client may send what the server reads ahead, the window, and what the server grants
    // before it notices.
    let (mut granted, mut sent) = (256u64 << 10, 0);
    while sent < granted.min(4 << 20) {
        let len = (granted - sent).min(16 << 10);
        peer.send(frame(kind::DATA, 0, 1, &vec![1; usize::try_from(len).unwrap()]));
        sent += len;
        // The acknowledgement of the ping shows that the client has received everything that the
        // server has sent before it.
        peer.send(frame(kind::PING, 0, 0, &[7; 8]));
        assert!(peer.frame_of(kind::PING).is_some());
        for update in std::mem::take(&mut peer.heard) {
            if update.kind == kind::WINDOW_UPDATE && update.stream == 1 {
                granted += u64::from(u32::from_be_bytes(update.payload[..4].try_into().unwrap()));
            }
        }
    }
    assert!((256 << 10..=1 << 20).contains(&sent), "{sent}");
}

#[test]
fn a_reply_without_a_body_has_none() {
    let app = app(Limits::default(), |exchange| {
        let status = std::str::from_utf8(&exchange.path()[1..]).unwrap().parse().unwrap_or(200);
        exchange.begin_response(status);
        for name in
            ["TE", "Keep-Alive", "Upgrade", "Transfer-Encoding", "Proxy-Connection", "Trailer"]
        {
            exchange.push_response_header(name.as_bytes(), b"chunked").unwrap();
        }
        exchange.set_response_body(b"a body all the same");
    });
    let mut peer = Peer::new(&app);
    for (stream, path, status) in [
        (1, "/204", 204),
        (3, "/304", 304),
        // The status cannot end a response, so that hyper sends a 500 over HTTP/1.1 as well.
        (5, "/100", 500),
        (7, "/101", 500),
        (9, "/103", 500),
    ] {
        peer.ask(stream, &get(path));
        assert_eq!(peer.outcome(stream), Heard::Status(status));
        assert_eq!(peer.data(stream), b"", "{path}");
    }
    let head = ordinary("HEAD", "/");
    peer.ask(15, &head);
    assert_eq!(peer.outcome(15), Heard::Status(200));
    assert_eq!(peer.data(15), b"");
    // The head is followed by a body that the server does not need.
    peer.begin(17, &head);
    peer.send(frame(kind::DATA, END_STREAM, 17, b"body"));
    assert_eq!(peer.outcome(17), Heard::Status(200));
    assert_eq!(peer.data(17), b"");
    peer.ask(19, GET);
    assert_eq!(peer.data(19), b"a body all the same");
}

#[test]
fn a_stream_that_is_given_up_while_its_reply_is_cut_is_told_once() {
    let (opened, opens) = channel();
    let handler: Handler = Box::new(move |link, event| {
        if let Event::Request(mut exchange) = event {
            let stream = link.stream(StreamOptions::default());
            exchange.begin_response(200);
            exchange.set_response_stream(stream.clone());
            let id = exchange.id();
            link.send(Command::Respond(exchange));
            stream.flow.admit(5);
            link.send(Command::Chunk {
                stream: id,
                payload: Payload::Pooled(b"first".to_vec()),
                is_pushing: false,
            });
            let _ = opened.send(id);
        }
    });
    let app = App::with(Config::default(), site(settings(&["localhost"])), handler);
    let mut peer = Peer::new(&app);
    for at in 0..20 {
        let stream = 2 * at + 1;
        peer.ask(stream, GET);
        let id = opens.recv_timeout(TEST_TIMEOUT).unwrap();
        assert_eq!(peer.outcome(stream), Heard::Status(200));
        peer.reset(stream);
        app.server.link().send(Command::AbortStream {
            stream: id,
            reason: StreamEnd::Error,
            page: Vec::new(),
        });
        app.server.link().flush();
    }
    let told =
        || app.log.lock().unwrap().iter().filter(|line| line.starts_with("departed")).count();
    wait_until("all are told", || told() >= 20);
    peer.ask(101, &get("/again"));
    opens.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(told(), 20);
}
