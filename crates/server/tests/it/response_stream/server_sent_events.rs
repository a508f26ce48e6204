//! Server-sent events: the server adds the first comment, heartbeats, and the last event.

use std::time::Duration;

use rookery_exchange::{StreamEnd, StreamOptions};
use rookery_server::{Config, ListenerConfig};

use super::{GET, PUSHED, ask, ends_with, ok, read_to, streaming};
use crate::support::{App, echo, hello};

const EVENTS: StreamOptions =
    StreamOptions { sends_head_first: true, is_events: true, heartbeat: 1, ..PUSHED };

#[test]
fn events_begin_at_once_and_are_kept_alive_without_the_application() {
    let (app, opened) = streaming(Config::default(), EVENTS, ok, Box::new(|_, _| unreachable!()));
    let (mut client, open) = ask(&app, &opened, GET);
    // The head is followed by a comment, which makes proxies forward the response.
    read_to(&mut client, "\r\n\r\n3\r\n:\n\n\r\n");
    for comments in 2..4 {
        app.advance(Duration::from_secs(1));
        read_to(&mut client, &"3\r\n:\n\n\r\n".repeat(comments));
    }
    open.give("data: a\n\n");
    open.end();
    let body = client.response().unwrap().body;
    assert!(ends_with(&body, ":\n\ndata: a\n\n"));
    app.await_event("departed Done");
    assert_eq!(open.stream.flow.waiting(), 0);
}

#[test]
fn no_comment_lands_within_an_event() {
    let (app, opened) = streaming(Config::default(), EVENTS, ok, Box::new(|_, _| unreachable!()));
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("data: half");
    app.advance(Duration::from_secs(10));
    open.give(" and half\n\n");
    open.end();
    let body = client.response().unwrap().body;
    assert!(ends_with(&body, "data: half and half\n\n"), "{:?}", String::from_utf8_lossy(&body));
}

#[test]
fn a_stop_tells_clients_of_events_when_to_come_again() {
    for (is_pulled, does_server_stop) in [(false, true), (true, true), (true, false)] {
        let rules = StreamOptions { is_pulled, ..EVENTS };
        let (mut app, opened) = streaming(Config::default(), rules, ok, Box::new(|_, _| ()));
        let (mut client, open) = ask(&app, &opened, GET);
        read_to(&mut client, ":\n\n");
        // A worker's front end continues to serve when the worker stops.
        if does_server_stop {
            app.stop();
        } else {
            open.cut(StreamEnd::Stop, "");
        }
        let body = String::from_utf8(client.response().unwrap().body).unwrap();
        let retry = body
            .strip_prefix(":\n\nretry: ")
            .and_then(|rest| rest.strip_suffix("\n\n"))
            .expect(&body);
        assert!((3000..8000).contains(&retry.parse::<u32>().unwrap()), "{retry}");
        app.await_event("departed Stop");
    }
}

#[test]
fn a_full_queue_does_not_end_a_pages_events_for_good() {
    let queue = rookery_exchange::QueueLimits { max_queued_requests: 0, ..Default::default() };
    let app =
        App::with(Config { queue, ..Config::default() }, ListenerConfig::default(), echo(hello));
    let mut client = app.connect();
    assert_eq!(client.get("/").status, 503);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n");
    let reply = client.response().unwrap();
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(
        (reply.body.as_slice(), reply.header("retry-after")),
        (&b"retry: 5000\n\n"[..], None)
    );
}
