//! Minimum rates: clients that would meet each deadline by single bytes, and clients that are
//! merely slow.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use rookery_exchange::{Command, Event, Payload};
use rookery_server::{Limits, Rejection};

use crate::support::{App, Client, TEST_TIMEOUT, hello, masked_frame};

/// Sends `piece` every 20 ms until the server closes the connection. Returns true if it does.
fn trickle(client: &mut Client, piece: &[u8], is_over: impl Fn() -> bool) -> bool {
    let until = Instant::now() + TEST_TIMEOUT;
    while Instant::now() < until {
        if is_over() || client.socket.write_all(piece).is_err() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn the_deadline_of_a_head_starts_when_the_connection_is_accepted() {
    let limits = Limits {
        header_timeout: Duration::from_secs(1),
        idle_timeout: 10 * TEST_TIMEOUT,
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    // The client has sent nothing, as browsers do that open connections in advance. The connection
    // is closed without a response.
    assert!(app.connect().wait_for_close());
    // After a response a connection may be idle for longer than a head may take.
    let mut client = app.connect();
    assert_eq!(client.get("/").status, 200);
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn a_head_has_a_rate() {
    let limits = Limits {
        min_header_rate: 20_000,
        header_grace: Duration::from_millis(200),
        header_timeout: 10 * TEST_TIMEOUT,
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\n");
    let is_over = || app.server.reports().count(Rejection::HeadTimeout) > 0;
    assert!(trickle(&mut client, b"X: a\r\n", is_over), "the head went on");
    assert_eq!(client.response().unwrap().status, 408);
}

#[test]
fn the_rate_of_a_head_counts_from_its_first_byte_on() {
    let limits = Limits {
        header_grace: Duration::from_millis(200),
        header_timeout: 10 * TEST_TIMEOUT,
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    // The minimum rate does not apply to a connection without any byte of a head, which has all of
    // the time for a head.
    let (mut spare, mut slow) = (app.connect(), app.connect());
    slow.send("G");
    assert_eq!(slow.response().unwrap().status, 408);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(spare.get("/").status, 200);
}

#[test]
fn a_body_has_a_rate() {
    let limits = Limits {
        min_body_rate: 100_000,
        idle_timeout: Duration::from_millis(400),
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    let mut client = app.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    let is_over = || app.server.reports().count(Rejection::BodyTimeout) > 0;
    assert!(trickle(&mut client, b"a", is_over), "the body went on");
    assert_eq!(client.response().unwrap().status, 408);
    assert_eq!(app.requests(), 0);
}

/// Reads `piece` bytes every 20 ms, with a small receive buffer. Returns the number of bytes, and
/// the longest time in which nothing could be read.
fn sip(client: &mut Client, piece: usize) -> (usize, Duration) {
    let (mut buffer, mut total) = (vec![0; piece], 0);
    let (mut since, mut longest) = (Instant::now(), Duration::ZERO);
    loop {
        longest = longest.max(since.elapsed());
        since = Instant::now();
        match client.socket.read(&mut buffer) {
            Ok(0) | Err(_) => return (total, longest),
            Ok(n) => total += n,
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn page(limits: Limits, len: usize) -> App {
    let page = vec![0u8; len];
    App::new(limits, move |exchange| {
        exchange.begin_response(200);
        exchange.push_response_header(b"Connection", b"close").unwrap();
        exchange.set_response_body(&page);
    })
}

#[test]
fn reading_has_a_rate() {
    let limits = Limits {
        min_response_rate: 50_000_000,
        idle_timeout: Duration::from_millis(400),
        ..Limits::default()
    };
    let app = page(limits, 100_000_000);
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let until = Instant::now() + TEST_TIMEOUT;
    let mut buffer = [0; 10_000];
    // The client reads far below the minimum rate, but always makes progress.
    while app.listener().connections() > 0 {
        assert!(Instant::now() < until, "still there");
        let _ = client.socket.read(&mut buffer);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_keeps_the_rate_of_reading_is_served_although_the_sockets_buffer_stands_still_for_long() {
    // The client reads about 400 KB/s. The socket's buffer has 2.5 to 4 MB, and accepts more only
    // when a third of it is free, so that nothing is written for seconds at a time.
    let limits = Limits {
        min_response_rate: 1000,
        idle_timeout: Duration::from_millis(1500),
        ..Limits::default()
    };
    let idle_time = limits.idle_timeout;
    let app = page(limits, 6_000_000);
    for _ in 0..20 {
        let mut client = app.connect();
        client.shrink_receive_buffer();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (read, longest) = sip(&mut client, 8000);
        if read > 6_000_000 {
            return;
        }
        // On a busy machine the client may not be scheduled for so long that it misses the rate.
        assert!(
            longest > idle_time / 2,
            "cut off after {read} bytes, of which each came within {longest:?}"
        );
    }
    panic!("the machine is too busy to read anything");
}

#[test]
fn a_message_has_a_rate_and_a_websocket_between_two_has_all_the_time() {
    let limits = Limits {
        ws_min_rate: 100_000,
        ws_stall_timeout: Duration::from_millis(400),
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    let mut idle = app.connect();
    idle.upgrade("/ws");
    let mut client = app.connect();
    client.upgrade("/ws");
    let message = masked_frame(0x82, &vec![7; 100_000]);
    client.send(&message[..1000]);
    let is_over = || app.server.reports().count(Rejection::MessageTimeout) > 0;
    assert!(trickle(&mut client, &message[1000..1001], is_over), "the message went on");
    assert_eq!(client.frame().unwrap().1[..2], 1008u16.to_be_bytes());
    std::thread::sleep(Duration::from_secs(1));
    idle.send(masked_frame(0x81, b"still here"));
    assert_eq!(idle.frame().unwrap(), (1, b"still here".to_vec()));
}

#[test]
fn a_websocket_that_reads_nothing_has_its_own_time() {
    let minutes = Duration::from_secs(15 * 60);
    assert_eq!(Limits::default().ws_stall_timeout, minutes, "a laptop with its lid closed");
    let limits = Limits {
        idle_timeout: Duration::from_millis(100),
        ws_stall_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    let mut client = app.connect();
    client.upgrade("/ws");
    let sent = Instant::now();
    client.send(masked_frame(0x82, &vec![7; 20_000_000]));
    // The pause is longer than `idle_timeout`, and the message exceeds what the sockets buffer.
    std::thread::sleep(Duration::from_secs(1));
    let unread = app.server.reports().count(Rejection::Unread);
    assert!(unread == 0 || sent.elapsed() > Duration::from_secs(2));
    app.await_event("closed 1006");
    assert!(sent.elapsed() > Duration::from_secs(2));
    assert_eq!(app.server.reports().count(Rejection::Unread), 1);
}

/// Starts an application that sends 6 MB over a WebSocket for each message, and closes it when the
/// message says so.
fn sender(limits: Limits) -> App {
    App::with(
        rookery_server::Config { limits, ..rookery_server::Config::default() },
        rookery_server::ListenerConfig::default(),
        Box::new(|link, event| match event {
            Event::Request(mut exchange) => {
                exchange.begin_response(101);
                link.send(Command::Respond(exchange));
            }
            Event::Message { socket, payload, kind, .. } => {
                let closes = payload.as_bytes() == b"close";
                link.send(Command::Send {
                    socket,
                    kind,
                    payload: Payload::Pooled(vec![0; 6_000_000]),
                });
                if closes {
                    link.send(Command::Close { socket, code: 4000, reason: Vec::new() });
                }
            }
            _ => {}
        }),
    )
}

#[test]
fn a_websocket_that_keeps_the_rate_is_sent_all_although_the_sockets_buffer_stands_still_for_long() {
    for (message, limits) in [
        (
            &b"send"[..],
            Limits {
                ws_min_rate: 1000,
                ws_stall_timeout: Duration::from_millis(1500),
                ..Limits::default()
            },
        ),
        // The client reads what was sent before the close frame before it replies to that frame.
        (b"close", Limits { ws_close_timeout: Duration::from_millis(1500), ..Limits::default() }),
    ] {
        let app = sender(limits);
        let mut client = app.connect();
        client.shrink_receive_buffer();
        client.upgrade("/ws");
        client.send(masked_frame(0x82, message));
        let (mut buffer, mut total) = (vec![0; 8000], 0);
        while total < 6_000_010 {
            let n = client.socket.read(&mut buffer).unwrap_or(0);
            assert!(n > 0, "cut off after {total} bytes");
            total += n;
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
