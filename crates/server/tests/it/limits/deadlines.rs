//! Deadlines hold for every connection, whatever other connections do, and whatever a client sends
//! in place of a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rookery_exchange::{Event, QueueLimits, Share};
use rookery_server::{Config, Limits, ListenerConfig};

use crate::http2::websocket::Sockets;
use crate::support::http2::{GET, Heard, Peer, frame, kind, setting};
use crate::support::tls::{settings, site};
use crate::support::{App, Client, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

/// An application that takes no messages while it is busy. A message makes it busy.
struct Busy {
    app: App,
    is_busy: Arc<AtomicBool>,
}

impl Busy {
    fn new(limits: Limits) -> Busy {
        Busy::at(limits, site(settings(&["localhost"])))
    }

    fn at(limits: Limits, site: ListenerConfig) -> Busy {
        let is_busy = Arc::new(AtomicBool::new(true));
        let busy = Arc::clone(&is_busy);
        let mut answer = echo(hello);
        let queue = QueueLimits { ws_max_receive_queue_messages: 1, ..QueueLimits::default() };
        let handler = Box::new(move |link: &rookery_exchange::Link, event| {
            while matches!(event, Event::Message { .. }) && busy.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            answer(link, event);
        });
        let app = App::with(Config { limits, queue, ..Config::default() }, site, handler);
        Busy { app, is_busy }
    }

    fn be(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Ordering::Relaxed);
    }

    /// Asserts that an incomplete head on a new connection is rejected in time.
    fn assert_deadlines(&self) {
        let mut late = self.app.secure();
        late.send("GET / HTTP/1.1\r\n");
        late.wait_until_server_has_read();
        self.app.advance(2 * short_heads().header_timeout);
        assert_eq!(late.response().expect("it is told").status, 408);
    }

    fn is_empty(&self) -> bool {
        let budget = self.app.server.budget();
        self.app.listener().connections() == 0
            && Share::ALL.iter().all(|share| budget.used(*share) == 0)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.be(false);
    }
}

fn short_heads() -> Limits {
    Limits { header_timeout: Duration::from_millis(400), ..Limits::default() }
}

/// Returns messages for a WebSocket, of which the application does not take the second.
fn messages(count: usize) -> Vec<u8> {
    masked_frame(0x81, b"x").repeat(count)
}

#[test]
fn a_websocket_over_http2_that_is_paused_when_its_connection_goes_leaves_deadlines_in_force() {
    let busy = Busy::new(short_heads());
    let mut sockets = Sockets::at(busy.app.address);
    sockets.open(1);
    for _ in 0..5 {
        sockets.send(1, &messages(3000));
    }
    wait_until("it is paused", || busy.app.server.budget().used(Share::Incoming) > 0);
    drop(sockets);
    wait_until("its connection goes", || busy.app.listener().connections() == 0);
    let _another = busy.app.secure();
    // The table is swept without the WebSocket's connection.
    busy.app.advance(Duration::from_millis(500));
    busy.assert_deadlines();
    wait_until("the stream has gone", || busy.app.server.budget().used(Share::Incoming) == 0);
    busy.be(false);
    assert_eq!(busy.app.await_event("closed"), "closed 1006");
}

#[test]
fn a_websocket_that_is_paused_is_noticed_to_be_reset() {
    let busy = Busy::at(Limits::default(), ListenerConfig::default());
    let mut client = busy.app.connect();
    client.upgrade("/ws");
    for _ in 0..10 {
        client.send(messages(20_000));
    }
    busy.app.await_event("message");
    assert_eq!(busy.app.listener().connections(), 1);
    client.reset();
    wait_until("it is noticed", || busy.app.listener().connections() == 0);
    busy.be(false);
    assert_eq!(busy.app.await_event("closed"), "closed 1006");
}

#[test]
fn what_came_before_the_end_of_a_paused_websocket_is_delivered_for_as_long_as_it_may_stall() {
    const COUNT: usize = 3000;
    let received =
        |app: &App| app.log.lock().unwrap().iter().filter(|line| *line == "message 1").count();
    let busy = Busy::new(short_heads());
    let mut client = busy.app.secure();
    client.upgrade("/ws");
    client.send(messages(COUNT));
    busy.app.await_event("message");
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    // The WebSocket is swept at some ticks.
    busy.assert_deadlines();
    busy.be(false);
    assert_eq!(busy.app.await_event("closed"), "closed 1006");
    assert_eq!(received(&busy.app), COUNT);

    // The server sends pings meanwhile, which are no progress.
    let limits = Limits {
        ws_stall_timeout: Duration::from_secs(60),
        ws_ping_interval: Duration::from_secs(20),
        ..Limits::default()
    };
    let busy = Busy::new(limits);
    let mut client = busy.app.secure();
    client.upgrade("/ws");
    for _ in 0..10 {
        client.send(messages(1000));
    }
    busy.app.await_event("message");
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    wait_until("it is given up", || {
        busy.app.advance(Duration::from_secs(5));
        busy.app.listener().connections() == 0
    });
}

#[test]
fn an_http2_connection_without_a_stream_is_idle_whatever_frames_it_sends() {
    let frames: [Vec<u8>; 4] = [
        frame(kind::PING, 0, 0, b"12345678"),
        frame(kind::SETTINGS, 0, 0, &setting(3, 100)),
        frame(kind::WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()),
        frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 0, 16]),
    ];
    let busy = Busy::new(Limits::default());
    for (at, bytes) in frames.iter().enumerate() {
        let mut peer = Peer::new(&busy.app);
        peer.ask(1, GET);
        assert_eq!(peer.outcome(1), Heard::Status(200));
        wait_until(&format!("frame {at} does not keep it"), || {
            peer.try_send(bytes);
            busy.app.advance(Duration::from_secs(5));
            busy.app.listener().connections() == 0
        });
    }
}

#[test]
fn a_newcomer_gets_the_place_of_a_connection_that_only_pings() {
    let busy = Busy::new(Limits { max_connections: 3, ..Limits::default() });
    let mut pinging: Vec<Peer> = (0..3).map(|_| Peer::new(&busy.app)).collect();
    for peer in &mut pinging {
        peer.ask(1, GET);
        assert_eq!(peer.outcome(1), Heard::Status(200));
    }
    for _ in 0..20 {
        for peer in &mut pinging {
            peer.send(frame(kind::PING, 0, 0, b"12345678"));
        }
        busy.app.advance(Duration::from_secs(1));
    }
    assert_eq!(busy.app.secure().get("/").status, 200);
}

#[test]
fn an_http1_connection_is_idle_whatever_blank_lines_it_sends() {
    let limits = Limits { header_timeout: 100 * TEST_TIMEOUT, ..Limits::default() };
    let app = App::new(limits, hello);
    let mut client = app.connect();
    assert_eq!(client.get("/").status, 200);
    wait_until("blank lines do not keep it", || {
        // Writing fails if the server has closed the connection.
        let _ = std::io::Write::write_all(&mut client.socket, b"\r\n");
        app.advance(Duration::from_secs(5));
        app.listener().connections() == 0
    });
    // The client sent no request, so that the server closes the connection without a response.
    assert!(client.wait_for_close());
}

#[test]
fn a_request_behind_blank_lines_is_answered_whenever_it_comes() {
    // A tick lasts 10 ms, and connections release their buffers after two ticks.
    let app = App::new(
        Limits { ws_close_timeout: Duration::from_millis(40), ..Limits::default() },
        hello,
    );
    for pause in [0, 5, 50, 200] {
        let mut client: Client = app.connect();
        for lines in ["\r\n", "\r\n\r\n", "\n", "\r\n\r\n\r\n"] {
            assert_eq!(client.get("/").status, 200);
            client.send(lines);
            app.advance(Duration::from_millis(pause));
            client.send(lines);
            app.advance(Duration::from_millis(pause));
            // The empty lines precede the next request, and may be in its segment.
            client.send(format!("{lines}GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(client.response().expect("an answer").status, 200, "{pause} {lines:?}");
        }
    }
}

/// A client of the model.
enum Open {
    Http1(Client),
    Http2(Peer),
    Socket1(Client),
    Socket2(Sockets),
}

/// Opens, pauses and closes connections and lets ticks pass in an order that depends on `seed`.
/// Asserts that deadlines hold at any time, and that nothing remains at the end.
fn in_any_order(seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut below = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    };
    let busy = Busy::new(short_heads());
    let mut open: Vec<Open> = Vec::new();
    for _ in 0..12 {
        match below(9) {
            0 => {
                busy.be(false);
                let mut client = busy.app.secure();
                assert_eq!(client.get("/").status, 200);
                open.push(Open::Http1(client));
            }
            1 => open.push(Open::Http2(Peer::new(&busy.app))),
            2 => {
                busy.be(false);
                let mut client = busy.app.secure();
                client.upgrade("/ws");
                open.push(Open::Socket1(client));
            }
            3 => {
                busy.be(false);
                let mut sockets = Sockets::at(busy.app.address);
                sockets.open(1);
                open.push(Open::Socket2(sockets));
            }
            4 => {
                busy.be(true);
                for _ in 0..3 {
                    for peer in &mut open {
                        match peer {
                            Open::Socket1(client) => client.send(messages(300)),
                            Open::Socket2(sockets) => sockets.send(1, &messages(300)),
                            // The time that has passed may have ended the connection.
                            Open::Http2(peer) => {
                                peer.try_send(frame(kind::PING, 0, 0, b"12345678"));
                            }
                            Open::Http1(_) => {}
                        }
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            5 | 6 if !open.is_empty() => match open.swap_remove(below(open.len())) {
                Open::Http1(client) | Open::Socket1(client) if below(2) == 0 => client.reset(),
                _ => {}
            },
            // A tick lasts 100 ms.
            7 => busy.app.advance(Duration::from_millis(below(250) as u64)),
            _ => busy.assert_deadlines(),
        }
    }
    busy.assert_deadlines();
    open.clear();
    busy.assert_deadlines();
    busy.be(false);
    wait_until("nothing is left", || busy.is_empty());
}

#[test]
fn deadlines_hold_in_any_order_of_opens_pauses_closes_and_ticks() {
    for seed in 1..=12 {
        eprintln!("seed {seed}");
        in_any_order(seed);
    }
}
