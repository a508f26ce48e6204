//! Tests of messages in both directions, with this project's server.

use rookery_server::{Config, Listener, ListenerConfig, Server};
use rookery_websocket_client::{Content, Event, SendOutcome, Settings};

use crate::support::Bench;

/// Starts a server that returns each message.
pub(crate) fn echo() -> (Server, Listener, String) {
    let server = Server::with_closure_and_echo(Config::default(), |_| ());
    let listener =
        server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    (server, listener, url)
}

#[test]
fn messages_keep_their_order_in_both_directions() {
    let (_server, _listener, url) = echo();
    for compresses in [false, true] {
        let mut bench = Bench::new();
        let client = bench.opened(&url, Settings { compresses, ..Settings::default() });
        let sent: Vec<Content> = (0_u32..200)
            .map(|i| match i % 4 {
                0 => Content::Text(String::new()),
                1 => Content::Text(format!("äöü {i} 🦜")),
                2 => Content::Binary(i.to_be_bytes().to_vec()),
                _ => Content::Binary(vec![i as u8; 70_000]),
            })
            .collect();
        for content in &sent {
            assert_eq!(bench.clients.send(client, content.clone()), SendOutcome::Queued);
        }
        for content in &sent {
            assert_eq!(bench.message(), *content);
        }
        bench.clients.close(client, 3999, "done");
        // Waiting messages may need more time than the close timeout; here all of them have been
        // read.
        assert_eq!(bench.closed(), (3999, String::new(), true));
        assert_eq!(bench.send(client, "late"), SendOutcome::Closed);
        assert_eq!(bench.clients.queued_bytes(client), 0);
    }
}

#[test]
fn events_name_their_client() {
    let (_server, _listener, url) = echo();
    let mut bench = Bench::new();
    let clients: Vec<u64> = (0..20).map(|_| bench.opened(&url, Settings::default())).collect();
    for client in &clients {
        bench.send(*client, &client.to_string());
    }
    let mut seen = Vec::new();
    for _ in &clients {
        let Event::Message { client, content } = bench.next() else { panic!("no message") };
        assert_eq!(content, Content::Text(client.to_string()));
        seen.push(client);
    }
    seen.sort_unstable();
    assert_eq!(seen, clients);
}

#[test]
fn messages_before_the_opening_are_refused() {
    let (_server, _listener, url) = echo();
    let mut bench = Bench::new();
    let client = bench.open(&url, Settings::default());
    assert_eq!(bench.send(client, "early"), SendOutcome::Closed);
    assert!(matches!(bench.next(), Event::Opened { .. }));
    assert_eq!(bench.send(client, "in time"), SendOutcome::Queued);
    assert_eq!(bench.message(), Content::Text("in time".to_owned()));
}
