//! Clients that queue as much as they can for a busy application delay other clients by at most one
//! item each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rookery_exchange::Event;
use rookery_server::{Config, ListenerConfig, Rejection};

use crate::support::http2::{Heard, Peer, get};
use crate::support::transport::Transport;
use crate::support::{App, echo, hello, masked_frame, wait_until};

super::matrix! {
    http1: Http1, https13: Https13, http2: Http2;
    {
        a_message_waits_for_one_of_a_flooding_websocket,
    }
}

/// A server whose application is busy with its first request or message until the test ends that.
struct Busy {
    app: App,
    is_busy: Arc<AtomicBool>,
}

impl Busy {
    fn new(on: Transport) -> Busy {
        let is_busy = Arc::new(AtomicBool::new(true));
        let busy = Arc::clone(&is_busy);
        let mut answer = echo(hello);
        let handler = Box::new(move |link: &rookery_exchange::Link, event| {
            let is_handshake = matches!(&event, Event::Request(exchange) if exchange.is_upgrade());
            while !is_handshake && busy.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            answer(link, event);
        });
        Busy { app: on.app_with(Config::default(), ListenerConfig::default(), handler), is_busy }
    }

    /// Waits until the server has read and queued all that the clients have sent, as far as it has
    /// capacity.
    fn settle(&self) {
        self.app.advance(Duration::ZERO);
    }

    fn go(&self) {
        self.is_busy.store(false, Ordering::Relaxed);
    }

    /// Returns the number of events with this description that the application took before the
    /// first event `until`.
    fn taken_before(&self, until: &str, event: &str) -> usize {
        let log = self.app.log.lock().unwrap();
        log.iter().take_while(|line| *line != until).filter(|line| *line == event).count()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.go();
    }
}

fn a_message_waits_for_one_of_a_flooding_websocket(on: Transport) {
    const MESSAGES: usize = 6000;
    let busy = Busy::new(on);
    let (mut honest, mut flood) = (on.open(&busy.app), on.open(&busy.app));
    for _ in 0..MESSAGES / 1000 {
        flood.send(&masked_frame(0x81, b"f").repeat(1000));
    }
    busy.app.await_event("message 1");
    busy.settle();
    // The pong shows that the server has read the message before it.
    honest.send(&[masked_frame(0x81, b"honest"), masked_frame(0x89, b"")].concat());
    assert_eq!(honest.frame(), Some((10, Vec::new())));
    busy.go();
    assert_eq!(honest.frame(), Some((1, b"honest".to_vec())));
    let before = busy.taken_before("message 6", "message 1");
    assert!(before <= 2, "it waited for {before} messages");
    // The flooding client gets all its messages back in their order.
    for at in 0..MESSAGES {
        assert_eq!(flood.frame(), Some((1, b"f".to_vec())), "{at}");
    }
}

#[test]
fn a_request_waits_for_one_of_each_flooding_http2_connection() {
    const CONNECTIONS: usize = 11;
    const STREAMS: usize = 100;
    let busy = Busy::new(Transport::Http2);
    let mut flood: Vec<_> = (0..CONNECTIONS).map(|_| Peer::new(&busy.app)).collect();
    let streams = || (0..STREAMS).map(|at| 2 * at as u32 + 1);
    for peer in &mut flood {
        streams().for_each(|stream| peer.ask(stream, &get("/flood")));
    }
    busy.app.await_event("request /flood");
    busy.settle();
    let rejected = || busy.app.server.reports().count(Rejection::Busy);
    // The application has one of the requests, and 1,024 are queued.
    let waiting = rookery_exchange::QueueLimits::default().max_queued_requests + 1;
    let expected = (CONNECTIONS * STREAMS - waiting) as u64;
    wait_until("the others are rejected", || rejected() == expected);
    let mut honest = Peer::new(&busy.app);
    honest.ask(1, &get("/honest"));
    wait_until("it gets a place", || rejected() == expected + 1);
    busy.go();
    assert_eq!(honest.outcome(1), Heard::Status(200));
    let before = busy.taken_before("request /honest", "request /flood");
    assert!(before <= 1 + CONNECTIONS, "it waited for {before} requests");
    let mut statuses = Vec::new();
    for peer in &mut flood {
        statuses.extend(streams().map(|stream| peer.outcome(stream)));
    }
    assert_eq!(statuses.iter().filter(|it| **it == Heard::Status(200)).count(), waiting - 1);
    assert!(statuses.iter().all(|it| matches!(it, Heard::Status(200 | 503))));
}
