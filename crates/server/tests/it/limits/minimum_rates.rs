//! Minimum rates: clients that would meet each deadline by single bytes, and clients that are
//! merely slow.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use rookery_exchange::{Command, Event, Payload, Share};
use rookery_server::{Limits, Rejection};

use crate::support::{App, Client, TEST_TIMEOUT, hello, masked_frame, wait_until};

/// Sends `piece` in each second of the server's clock, until the server has rejected the request or
/// message for the reason `rejection`. Returns the number of seconds.
pub(super) fn trickle(app: &App, client: &mut Client, piece: &[u8], rejection: Rejection) -> u32 {
    let until = Instant::now() + TEST_TIMEOUT;
    for second in 0.. {
        if app.server.reports().count(rejection) > 0 {
            return second;
        }
        assert!(Instant::now() < until, "{rejection:?}: the client went on");
        // Writing fails if the server has closed the connection.
        let _ = client.socket.write_all(piece);
        app.advance(Duration::from_secs(1));
    }
    unreachable!("the loop has no end")
}

#[test]
fn the_deadline_of_a_head_starts_when_the_connection_is_accepted() {
    let limits = Limits {
        header_timeout: Duration::from_secs(20),
        idle_timeout: 10 * TEST_TIMEOUT,
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    // The client has sent nothing, as browsers do that open connections in advance. The connection
    // is closed without a response.
    let mut silent = app.connect();
    wait_until("it is accepted", || app.listener().connections() == 1);
    app.advance(2 * limits.header_timeout);
    assert!(silent.wait_for_close());
    // After a response a connection may be idle for longer than a head may take.
    let mut client = app.connect();
    assert_eq!(client.get("/").status, 200);
    app.advance(2 * limits.header_timeout);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn a_head_has_a_rate() {
    let limits = Limits {
        min_header_rate: 20_000,
        header_grace: Duration::from_secs(20),
        header_timeout: 100 * TEST_TIMEOUT,
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\n");
    let seconds = trickle(&app, &mut client, b"X: a\r\n", Rejection::HeadTimeout);
    assert!((10..30).contains(&seconds), "{seconds}");
    assert_eq!(client.response().unwrap().status, 408);
}

#[test]
fn the_rate_of_a_head_counts_from_its_first_byte_on() {
    let limits = Limits {
        header_grace: Duration::from_secs(20),
        header_timeout: 100 * TEST_TIMEOUT,
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    // The minimum rate does not apply to a connection without any byte of a head, which has all of
    // the time for a head.
    let (mut spare, mut slow) = (app.connect(), app.connect());
    slow.send("G");
    slow.wait_until_server_has_read();
    app.advance(Duration::from_secs(100));
    assert_eq!(slow.response().unwrap().status, 408);
    assert_eq!(spare.get("/").status, 200);
}

#[test]
fn a_body_has_a_rate() {
    let limits = Limits {
        min_body_rate: 100_000,
        idle_timeout: Duration::from_secs(20),
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    let mut client = app.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    let seconds = trickle(&app, &mut client, b"a", Rejection::BodyTimeout);
    assert!((10..30).contains(&seconds), "{seconds}");
    assert_eq!(client.response().unwrap().status, 408);
    assert_eq!(app.requests(), 0);
}

/// Reads 100 KB in each second of the server's clock, up to the end of the connection or to `most`
/// bytes. Returns the number of bytes.
fn sip(app: &App, client: &mut Client, most: usize) -> usize {
    let (mut buffer, mut total, mut seconds) = (vec![0; 8000], 0, 0);
    while total < most {
        match client.socket.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(n) => total += n,
        }
        if total / 100_000 > seconds {
            seconds += 1;
            app.advance(Duration::from_secs(1));
        }
    }
    total
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
        idle_timeout: Duration::from_secs(20),
        ..Limits::default()
    };
    let app = page(limits, 100_000_000);
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // The client reads far below the minimum rate, but always makes progress.
    assert!(sip(&app, &mut client, usize::MAX) < 100_000_000);
    assert_eq!(app.listener().connections(), 0);
}

/// A time that is shorter than a socket's send buffer stands still in the tests below. The client
/// reads 100 KB/s. The buffer has 2.5 to 4 MB, and accepts more only when a third of it is free.
const SHORTER: Duration = Duration::from_secs(6);

#[test]
fn who_keeps_the_rate_of_reading_is_served_although_the_sockets_buffer_stands_still_for_long() {
    let limits = Limits { min_response_rate: 1000, idle_timeout: SHORTER, ..Limits::default() };
    let app = page(limits, 6_000_000);
    let mut client = app.connect();
    client.shrink_receive_buffer();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let read = sip(&app, &mut client, 6_000_000);
    assert!(read >= 6_000_000, "cut off after {read} bytes");
}

#[test]
fn a_message_has_a_rate_and_a_websocket_between_two_has_all_the_time() {
    let limits = Limits {
        ws_min_rate: 100_000,
        ws_stall_timeout: Duration::from_secs(20),
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    let mut idle = app.connect();
    idle.upgrade("/ws");
    let mut client = app.connect();
    client.upgrade("/ws");
    let message = masked_frame(0x82, &vec![7; 100_000]);
    client.send(&message[..1000]);
    let seconds = trickle(&app, &mut client, &message[1000..1001], Rejection::MessageTimeout);
    assert!((10..30).contains(&seconds), "{seconds}");
    assert_eq!(client.frame_after_pings().1[..2], 1008u16.to_be_bytes());
    idle.send(masked_frame(0x81, b"still here"));
    assert_eq!(idle.frame_after_pings(), (1, b"still here".to_vec()));
}

#[test]
fn a_websocket_that_reads_nothing_has_its_own_time() {
    let minutes = Duration::from_secs(15 * 60);
    assert_eq!(Limits::default().ws_stall_timeout, minutes, "a laptop with its lid closed");
    let limits = Limits {
        idle_timeout: Duration::from_secs(10),
        ws_stall_timeout: Duration::from_secs(600),
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    let mut client = app.connect();
    client.upgrade("/ws");
    client.send(masked_frame(0x82, &vec![7; 20_000_000]));
    // The message exceeds what the sockets buffer.
    wait_until("the client is behind", || app.server.budget().used(Share::Outgoing) > 0);
    app.advance(Duration::from_secs(400));
    assert_eq!(app.server.reports().count(Rejection::Unread), 0);
    app.advance(Duration::from_secs(400));
    app.await_event("closed 1006");
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
            Limits { ws_min_rate: 1000, ws_stall_timeout: SHORTER, ..Limits::default() },
        ),
        // The client reads what was sent before the close frame before it replies to that frame.
        (b"close", Limits { ws_close_timeout: SHORTER, ..Limits::default() }),
    ] {
        let app = sender(limits);
        let mut client = app.connect();
        client.shrink_receive_buffer();
        client.upgrade("/ws");
        client.send(masked_frame(0x82, message));
        let read = sip(&app, &mut client, 6_000_010);
        assert!(read >= 6_000_010, "cut off after {read} bytes");
    }
}
