//! A server in a process that cannot start further threads, for example because its control group
//! has a limit of processes.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod application;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rookery_exchange::{BodySource, Command, Event};
use rookery_server::{Config, Limits, ListenerConfig, Server};
use rookery_test_support::{TEST_TIMEOUT, forbid_new_threads};

use self::application::{Application, NoWaker};

/// The bytes of a request body that is written to disk, and of a response body that is compressed
/// in several chunks.
const LARGE: usize = 300_000;

#[test]
fn large_requests_and_responses_need_no_further_thread() {
    let limits = Limits { body_buffer_size: 1000, ..Limits::default() };
    let server = Server::new(Config { limits, ..Config::default() }, Box::new(NoWaker));
    let listener =
        server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
    let _application = Application::start(&server, |link, event| match event {
        Event::Head(exchange) => link.send(Command::ReadBody(exchange)),
        Event::Request(mut exchange) => {
            assert!(matches!(exchange.body().source(), BodySource::File(_)), "it was spooled");
            exchange.begin_response(200);
            exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
            exchange.set_response_body(&b"text ".repeat(LARGE / 5));
            link.send(Command::Respond(exchange));
        }
        _ => {}
    });
    assert!(forbid_new_threads());
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    write!(
        client,
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\
         Content-Length: {LARGE}\r\n\r\n"
    )
    .unwrap();
    client.write_all(&vec![b'x'; LARGE]).unwrap();
    let mut response = Vec::new();
    client.read_to_end(&mut response).unwrap();
    assert!(response.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&response));
    assert!(response.ends_with(b"\r\n0\r\n\r\n"), "the response is complete");
}
