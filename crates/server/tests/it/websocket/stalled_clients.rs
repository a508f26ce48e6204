//! WebSockets that are not read for a while, because the application or the client is slow.

use std::io::{Read as _, Write as _};
#[cfg(unix)]
use std::os::fd::AsRawFd as _;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::time::Duration;

use rookery_exchange::{Command, Event, Link, MessageKind, Payload, QueueLimits, Share};
use rookery_server::{Config, Limits, ListenerConfig};

use crate::support::{App, Handler, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

#[cfg(unix)]
const UPGRADE: &[u8] =
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// All messages of a client that has sent everything and a FIN are delivered, although that takes
/// longer than `ws_stall_timeout`, as long as the application makes progress.
#[cfg(unix)]
#[test]
fn what_came_before_a_fin_is_delivered_to_a_slow_application_that_goes_on() {
    const COUNT: usize = 75;
    let mut answer = echo(hello);
    let queue = QueueLimits { ws_max_receive_queue_messages: 1, ..QueueLimits::default() };
    let (go, goes) = channel();
    let handler: Handler = Box::new(move |link: &Link, event| {
        if matches!(event, Event::Message { .. }) {
            return goes.recv_timeout(TEST_TIMEOUT).unwrap();
        }
        answer(link, event);
    });
    let limits = Limits { ws_stall_timeout: Duration::from_secs(60), ..Limits::default() };
    let app = App::with(
        Config { limits, queue, ..Config::default() },
        ListenerConfig::default(),
        handler,
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let _listener = app.server.listen_unix(&path, None, ListenerConfig::default());
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(UPGRADE).unwrap();
    let mut head = [0; 1000];
    let len = client.read(&mut head).unwrap();
    assert!(head[..len].starts_with(b"HTTP/1.1 101"));
    let large: libc::c_int = 4 << 20;
    // SAFETY: The descriptor is an open socket, and the size is that of the option's value.
    unsafe {
        let (option, len) =
            ((&raw const large).cast(), libc::socklen_t::try_from(size_of_val(&large)).unwrap());
        libc::setsockopt(client.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, option, len);
    }
    client.write_all(&masked_frame(0x82, &vec![7; 4000]).repeat(COUNT)).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let messages =
        || app.log.lock().unwrap().iter().filter(|line| line.starts_with("message")).count();
    for count in 1..=COUNT {
        wait_until("the next message", || messages() == count);
        app.advance(Duration::from_secs(2));
        go.send(()).unwrap();
    }
    app.await_event("closed");
}

/// The client reads only after it has written a whole message, and the server has more to send than
/// the client's system buffers. Neither may wait for the other.
#[test]
fn a_message_that_has_begun_is_read_to_its_end_while_its_client_reads_nothing() {
    const PUSHED: usize = 20 << 20;
    const UPLOADED: usize = 8 << 20;
    let mut answer = echo(hello);
    let handler: Handler = Box::new(move |link: &Link, event| match event {
        Event::Message { socket, payload, .. } if payload.as_bytes() == b"push" => {
            for _ in 0..PUSHED / 10_000 {
                let payload = Payload::Pooled(vec![7; 10_000]);
                link.send(Command::Send { socket, kind: MessageKind::Binary, payload });
            }
        }
        Event::Message { .. } => {}
        event => answer(link, event),
    });
    let app = App::with(Config::default(), ListenerConfig::default(), handler);
    for fragment in [UPLOADED, 100_000] {
        let mut client = app.connect();
        client.shrink_receive_buffer();
        client.upgrade("/ws");
        client.send(masked_frame(0x82, b"push"));
        app.await_event("message");
        wait_until("the server is behind", || app.server.budget().used(Share::Outgoing) > 0);
        client.socket.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        let mut left = UPLOADED;
        while left > 0 {
            let len = left.min(fragment);
            let opcode = if left == UPLOADED { 2 } else { 0 };
            left -= len;
            let fin = if left == 0 { 0x80 } else { 0 };
            client.socket.write_all(&masked_frame(fin | opcode, &vec![7; len])).unwrap();
        }
        let whole =
            |line: &String| line.starts_with("message") && line.contains(&UPLOADED.to_string());
        wait_until("the message", || app.log.lock().unwrap().iter().any(whole));
        app.log.lock().unwrap().clear();
    }
}
