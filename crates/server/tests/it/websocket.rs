//! WebSockets as clients see them.

use rookery_server::Limits;

use crate::support::{App, hello, masked};

#[test]
fn frames_in_the_segment_of_the_handshake_are_delivered() {
    let app = App::new(Limits::default(), hello);
    let mut client = app.connect();
    let mut also = masked(0x81, b"first");
    also.extend(masked(0x82, &[0, 1, 2]));
    let reply = client.upgrade(&also);
    assert_eq!(reply.status, 101);
    assert_eq!(reply.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(client.frame(), Some((1, b"first".to_vec())));
    assert_eq!(client.frame(), Some((2, vec![0, 1, 2])));
    client.send(masked(0x88, &[0x03, 0xE8]));
    assert_eq!(client.frame(), Some((8, vec![0x03, 0xE8])));
    assert!(client.is_closed());
    assert_eq!(app.await_event("closed"), "closed 1000");
}
