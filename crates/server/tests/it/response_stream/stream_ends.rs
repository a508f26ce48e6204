//! The ends of streamed responses: errors, disconnected clients, timeouts and stops, and that all
//! memory is released.

use std::io::Read as _;
use std::net::Shutdown;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rookery_exchange::{ChunkAdmission, Command, Event, Exchange, Payload, Share, StreamEnd};
use rookery_server::{Config, Limits, ListenerConfig, Rejection};

use super::{
    GET, GET_10, PULLED, PUSHED, Pull, ask, departures, ok, pushing, read_to, streaming, ten,
};
use crate::support::{App, Client, TEST_TIMEOUT, wait_until};

#[test]
fn an_error_before_the_head_is_an_ordinary_500() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    open.cut(StreamEnd::Error, "ERROR: no such table");
    let reply = client.response().unwrap();
    assert_eq!((reply.status, reply.body.as_slice()), (500, &b"ERROR: no such table"[..]));
    assert_eq!(reply.header("content-type"), Some("text/plain; charset=UTF-8"));
    app.await_event("departed Error");
    assert_eq!(client.get("/plain").status, 200);
    let open = {
        client.send(GET);
        opened.recv_timeout(TEST_TIMEOUT).unwrap()
    };
    open.cut(StreamEnd::Error, "");
    assert_eq!(client.response().unwrap().body, b"500 Internal Server Error\n");
}

#[test]
fn an_application_may_have_another_status_for_that() {
    let (app, opened) = streaming(Config::default(), PUSHED, ok, Box::new(|_, _| unreachable!()));
    let (mut client, open) = ask(&app, &opened, GET);
    open.stream.flow.set_failed_status(502);
    open.cut(StreamEnd::Error, "502 Bad Gateway: gone\n");
    let reply = client.response().unwrap();
    assert_eq!((reply.status, reply.body.as_slice()), (502, &b"502 Bad Gateway: gone\n"[..]));
    // The application has not failed in this case, so no failure is reported.
    assert_eq!(app.server.reports().count(Rejection::Application), 0);
    // A response that has been begun is cut off.
    client.send(GET);
    let open = opened.recv_timeout(TEST_TIMEOUT).unwrap();
    open.stream.flow.set_failed_status(502);
    open.give("abc");
    read_to(&mut client, "abc");
    open.cut(StreamEnd::Error, "502 Bad Gateway: gone\n");
    assert!(!client.read_to_end().1);
}

#[test]
fn a_fin_behind_the_end_does_not_keep_the_last_piece_back() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    let mut given = 0;
    // Pushes until the sockets take no more, so that a part of the last chunk waits.
    while open.stream.flow.waiting() == 0 {
        open.give(vec![b'x'; 64 << 10]);
        given += 64 << 10;
        std::thread::sleep(Duration::from_millis(20));
    }
    open.end();
    app.advance(Duration::from_secs(1));
    client.socket.shutdown(Shutdown::Write).unwrap();
    // The FIN is noticed at a tick.
    app.advance(Duration::from_secs(2));
    let (bytes, is_fin) = client.read_to_end();
    assert!(is_fin && bytes.ends_with(b"\r\n0\r\n\r\n"), "{} bytes", bytes.len());
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes[head..]).matches('x').count(), given);
    app.await_event("departed Done");
}

#[test]
fn an_error_after_the_head_is_a_cut_behind_what_was_written() {
    fn with_length(exchange: &mut Exchange) {
        ok(exchange);
        exchange.push_response_header(b"Content-Length", b"10000000").unwrap();
    }
    for (request, head) in [(GET, ok as fn(&mut Exchange)), (GET, with_length), (GET_10, ok)] {
        let (app, opened) =
            streaming(Config::default(), PUSHED, head, Box::new(|_, _| unreachable!()));
        let (mut client, open) = ask(&app, &opened, request);
        // The chunk exceeds what the socket takes at once. All of it is written before the end.
        assert_eq!(open.give(vec![b'x'; 6 << 20]), ChunkAdmission::Pause);
        read_to(&mut client, "\r\n\r\n");
        open.give("last");
        open.cut(StreamEnd::Error, "unseen");
        let (bytes, is_fin) = client.read_to_end();
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
        wait_until("nothing is charged", || app.server.budget().used(Share::Outgoing) == 0);
    }
}

#[test]
fn an_error_waits_no_longer_for_a_client_that_does_not_read() {
    let limits = Limits {
        idle_timeout: Duration::from_millis(300),
        ws_close_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let (app, opened) = pushing(limits);
    let (_client, open) = ask(&app, &opened, GET);
    open.give(vec![b'x'; 15 << 20]);
    open.cut(StreamEnd::Error, "");
    app.await_event("departed Error");
    wait_until("the connection is gone", || app.listener().connections() == 0);
}

#[test]
fn a_client_that_goes_is_noticed() {
    // The function returns what remains of the client. After a FIN the socket remains.
    type Go = fn(Client) -> Option<Client>;
    let ways: [Go; 3] = [
        |client| {
            client.socket.shutdown(Shutdown::Write).unwrap();
            Some(client)
        },
        |_| None,
        // The FIN follows another request, which the server does not read before the stream has
        // ended.
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
            assert_eq!(open.give("x"), ChunkAdmission::Ended);
            drop(keeps);
            wait_until("the connection is gone", || app.listener().connections() == 0);
            assert_eq!(departures(&app).len(), 1);
        }
    }
}

#[test]
fn a_reset_is_noticed_while_much_waits() {
    let (app, opened) = pushing(Limits::default());
    let (client, open) = ask(&app, &opened, GET);
    open.give(vec![1; 10 << 20]);
    wait_until("the socket is full", || app.server.budget().used(Share::Outgoing) > 0);
    // The client has unread bytes, so that its close is a reset.
    drop(client);
    app.await_event("departed Client");
    wait_until("nothing is charged", || app.server.budget().used(Share::Outgoing) == 0);
}

#[test]
fn a_client_that_went_before_the_answer_is_told_of_once() {
    let (goes, gone) = channel();
    let gone = Mutex::new(gone);
    let (sender, opened) = channel();
    let app = App::with(
        Config::default(),
        ListenerConfig::default(),
        Box::new(move |link, event| {
            if let Event::Request(mut exchange) = event {
                sender.send(()).unwrap();
                gone.lock().unwrap().recv().unwrap();
                ok(&mut exchange);
                let stream = link.stream(PUSHED);
                exchange.set_response_stream(stream.clone());
                let id = exchange.id();
                link.send(Command::Respond(exchange));
                assert_eq!(stream.flow.admit(1), ChunkAdmission::Continue);
                link.send(Command::Chunk {
                    stream: id,
                    payload: Payload::Pooled(vec![1]),
                    is_pushing: false,
                });
            }
        }),
    );
    let mut client = app.connect();
    client.send(GET);
    opened.recv_timeout(TEST_TIMEOUT).unwrap();
    client.reset();
    wait_until("the connection is gone", || app.listener().connections() == 0);
    goes.send(()).unwrap();
    app.await_event("departed Client");
    assert_eq!(departures(&app).len(), 1);
}

#[test]
fn a_client_that_goes_while_the_head_waits_leaves_no_place_taken() {
    let (sender, slots) = channel();
    let app = App::with(
        Config::default(),
        ListenerConfig::default(),
        Box::new(move |link, event| {
            if let Event::Request(mut exchange) = event {
                sender.send(exchange.slot()).unwrap();
                ok(&mut exchange);
                exchange.set_response_stream(link.stream(PUSHED));
                link.send(Command::Respond(exchange));
            }
        }),
    );
    for n in 1..=5 {
        let mut client = app.connect();
        client.send(GET);
        assert_eq!(
            slots.recv_timeout(TEST_TIMEOUT).unwrap(),
            0,
            "the place of the one before is free"
        );
        drop(client);
        wait_until("told", || departures(&app).len() == n);
    }
}

#[test]
fn a_reset_behind_the_next_request_is_noticed() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("begun");
    read_to(&mut client, "begun");
    client.send(GET);
    std::thread::sleep(Duration::from_millis(50));
    client.reset();
    app.await_event("departed Client");
}

/// Returns a socket option of the server's side of a client's connection. Both sides belong to this
/// process.
#[cfg(target_os = "linux")]
fn option_of(client: &Client, option: libc::c_int) -> libc::c_int {
    use std::os::fd::FromRawFd as _;
    let address = client.socket.local_addr().unwrap();
    let is_peers = |fd: libc::c_int| {
        // SAFETY: The descriptor is only asked for its peer address, and is not closed. The call
        // fails for a descriptor that is no socket.
        let socket = std::mem::ManuallyDrop::new(unsafe { std::net::TcpStream::from_raw_fd(fd) });
        socket.peer_addr().is_ok_and(|peer| peer == address)
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers: Vec<_> =
        descriptors.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let fd = numbers.into_iter().find(|fd| is_peers(*fd)).unwrap();
    let (mut value, mut len) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: `value` has the size that `len` says.
    let done = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, option, (&raw mut value).cast(), &raw mut len)
    };
    assert_eq!(done, 0);
    value
}

/// A client that has lost its network sends no FIN. The server can notice that only by missing
/// acknowledgements.
#[cfg(target_os = "linux")]
#[test]
fn a_stream_to_a_peer_that_vanished_does_not_wait_for_the_systems_patience() {
    let limits = Limits { idle_timeout: Duration::from_millis(4321), ..Limits::default() };
    let (app, opened) = pushing(limits);
    let mut plain = app.connect();
    assert_eq!(plain.get("/plain").status, 200);
    assert_eq!(option_of(&plain, libc::TCP_USER_TIMEOUT), 0);
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("begun");
    read_to(&mut client, "begun");
    assert_eq!(option_of(&client, libc::TCP_USER_TIMEOUT), 4321);
    assert_eq!(option_of(&client, libc::TCP_NOTSENT_LOWAT), 128 << 10);
}

#[test]
fn an_application_may_be_silent_and_a_client_must_read() {
    let limits = Limits { idle_timeout: Duration::from_secs(20), ..Limits::default() };
    let (app, opened) = pushing(limits);
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("one");
    app.advance(Duration::from_secs(100));
    open.give("two");
    open.end();
    assert_eq!(client.response().unwrap().body, b"onetwo");
    let (mut client, open) = ask(&app, &opened, GET);
    open.give(vec![1; 10 << 20]);
    wait_until("the socket is full", || app.server.budget().used(Share::Outgoing) > 0);
    app.advance(Duration::from_secs(100));
    app.await_event("departed Timeout");
    assert!(!client.read_to_end().1, "a clean end was faked");
}

#[test]
fn a_stop_cuts_responses_that_the_application_has_not_ended() {
    for rules in [PULLED, PUSHED] {
        for request in [GET, GET_10] {
            let limits = Limits { stop_timeout: 10 * TEST_TIMEOUT, ..Limits::default() };
            let pull: Pull = Box::new(|_, _| {});
            let (mut app, opened) =
                streaming(Config { limits, ..Config::default() }, rules, ok, pull);
            let (mut client, open) = ask(&app, &opened, request);
            open.give("one");
            read_to(&mut client, "one");
            // The last chunk that the application sends still reaches the client.
            open.give("two");
            let since = Instant::now();
            app.stop();
            assert!(since.elapsed() < 5 * TEST_TIMEOUT, "the application cannot go on meanwhile");
            let (bytes, is_clean) = client.read_to_end();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!is_clean, "a clean end was faked: {text}");
            assert!(text.trim_end().ends_with("two"), "{text}");
            app.await_event("departed Stop");
        }
    }
}

#[test]
fn a_stop_does_not_wait_for_a_client_that_does_not_read() {
    let limits = Limits { stop_timeout: Duration::from_millis(50), ..Limits::default() };
    let (mut app, opened) = pushing(limits);
    let (mut client, open) = ask(&app, &opened, GET);
    open.give(vec![1; 10 << 20]);
    wait_until("the socket is full", || app.server.budget().used(Share::Outgoing) > 0);
    app.stop();
    assert!(!client.read_to_end().1, "a clean end was faked");
    app.await_event("departed Stop");
}

#[test]
fn a_stop_is_told_as_one_where_bytes_of_a_length_are_missing() {
    for has_begun in [true, false] {
        let (mut app, opened) =
            streaming(Config::default(), PUSHED, ten, Box::new(|_, _| unreachable!()));
        let (mut client, open) = ask(&app, &opened, GET);
        if has_begun {
            open.give("01234");
            read_to(&mut client, "01234");
        }
        app.stop();
        let (bytes, is_fin) = client.read_to_end();
        assert!(
            bytes.starts_with(b"HTTP/1.1 500") || (has_begun && !is_fin),
            "a clean end was faked"
        );
        app.await_event("departed Stop");
    }
}

#[test]
fn a_drain_waits_until_the_application_ends_the_response() {
    for rules in [PULLED, PUSHED] {
        let pull: Pull = Box::new(|_, _| {});
        let (app, opened) = streaming(Config::default(), rules, ok, pull);
        let (mut client, open) = ask(&app, &opened, GET);
        open.give("one");
        read_to(&mut client, "one");
        app.listener().drain();
        app.advance(Duration::from_secs(2));
        open.give("two");
        open.end();
        assert_eq!(client.response().unwrap().body, b"onetwo");
        assert!(client.wait_for_close());
        app.await_event("departed Done");
    }
}

#[test]
fn a_cut_after_a_drain_ends_responses_that_the_application_has_not_ended() {
    for rules in [PULLED, PUSHED] {
        let (app, opened) = streaming(Config::default(), rules, ok, Box::new(|_, _| {}));
        let (mut client, open) = ask(&app, &opened, GET);
        app.listener().drain();
        open.give("one");
        read_to(&mut client, "one");
        app.listener().cut();
        let (bytes, is_clean) = client.read_to_end();
        assert!(!is_clean, "a clean end was faked: {}", String::from_utf8_lossy(&bytes));
        app.await_event("departed Stop");
    }
}

#[test]
fn a_cut_waits_for_the_stop_timeout_of_a_client_that_does_not_read() {
    let limits = Limits { stop_timeout: Duration::from_millis(50), ..Limits::default() };
    let (app, opened) = pushing(limits);
    let (mut client, open) = ask(&app, &opened, GET);
    open.give(vec![1; 10 << 20]);
    wait_until("the socket is full", || app.server.budget().used(Share::Outgoing) > 0);
    app.listener().drain();
    app.listener().cut();
    app.await_event("departed Stop");
    assert!(!client.read_to_end().1, "a clean end was faked");
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
                client.reset();
            }
            2 => {
                open.give(vec![1; 1 << 20]);
                open.end();
                rest_by_line(&mut client);
            }
            3 => {
                open.give("x");
                open.cut(StreamEnd::Error, "page");
                rest_by_line(&mut client);
            }
            4 => {
                open.cut(StreamEnd::Error, "page");
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
                open.cut(StreamEnd::Slow, "");
                rest_by_line(&mut client);
            }
            7 => {
                open.give(vec![1; 10 << 20]);
                open.cut(StreamEnd::Slow, "");
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
    wait_until("all are gone", || app.listener().connections() == 0);
    wait_until("each is told of", || {
        let streams = app.requests();
        departures(&app).len() == streams
    });
    for share in Share::ALL {
        wait_until(&format!("nothing is charged to {share:?}"), || budget.used(share) == 0);
    }
}

/// Reads until the server closes the connection or sends nothing more.
fn rest_by_line(client: &mut Client) {
    client.socket.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    let mut buffer = vec![0; 1 << 20];
    while matches!(client.socket.read(&mut buffer), Ok(1..)) {}
}
