//! The redirect of plaintext HTTP requests to HTTPS.

use std::sync::Arc;
use std::thread;

use rookery_server::{Config, Limits, Listener, ListenerConfig, Redirect, Rejection};

use crate::support::tls::{settings, site};
use crate::support::{App, Client, Response, echo, hello, wait_until};

/// Starts an application with TLS, and a listener for plaintext HTTP that redirects to `port`, or
/// to the application's own port.
fn beside(limits: Limits, names: &[&str], port: Option<u16>) -> (App, Listener) {
    let site = site(settings(names));
    let tls = site.tls.clone().unwrap();
    let app = App::with(Config { limits, ..Config::default() }, site, echo(hello));
    let redirect = Redirect { tls, port: port.unwrap_or(app.address.port()) };
    let site = ListenerConfig { redirect: Some(Arc::new(redirect)), ..ListenerConfig::default() };
    let listener = app.server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
    (app, listener)
}

fn ask(listener: &Listener, request: &str) -> Response {
    let mut client = Client::connect(listener.local_addr().unwrap());
    client.send(request);
    client.response_to(request.split(' ').next().unwrap()).unwrap()
}

fn get(target: &str, host: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[test]
fn a_request_is_sent_on_with_path_and_query() {
    let (app, listener) = beside(Limits::default(), &["localhost", "other"], None);
    let port = app.address.port();
    for (target, host, expected) in [
        ("/", "localhost", format!("https://localhost:{port}/")),
        ("/a/b?c=d&e", "LOCALHOST:80", format!("https://LOCALHOST:{port}/a/b?c=d&e")),
        (
            "//evil.example/%2e%2e",
            "localhost",
            format!("https://localhost:{port}//evil.example/%2e%2e"),
        ),
        (
            "/?next=https://evil.example",
            "localhost.",
            format!("https://localhost.:{port}/?next=https://evil.example"),
        ),
        ("http://localhost:80/x?y", "evil.example", format!("https://localhost:{port}/x?y")),
        ("/", "example.test", format!("https://example.test:{port}/")),
        ("/", "a.wild.test", format!("https://a.wild.test:{port}/")),
        ("/", "127.0.0.1:8080", format!("https://127.0.0.1:{port}/")),
        ("/\u{e4}", "localhost", format!("https://localhost:{port}/%C3%A4")),
        ("/?\"<{a}>", "localhost", format!("https://localhost:{port}/?%22%3C{{a}}%3E")),
    ] {
        let reply = ask(&listener, &get(target, host));
        assert_eq!(
            (reply.status, reply.header("location")),
            (308, Some(&*expected)),
            "{target} {host}"
        );
        assert_eq!(reply.header("strict-transport-security"), None);
    }
    // Other methods are redirected as well, also HEAD. The server does not wait for a body.
    let head = ask(&listener, "HEAD /h HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((head.status, head.body.len()), (308, 0));
    let options = ask(&listener, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(options.header("location"), Some(&*format!("https://localhost:{port}/")));
    let post =
        ask(&listener, "POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n");
    assert_eq!((post.status, post.header("connection")), (308, Some("close")));
    let upgrade =
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
    assert_eq!(ask(&listener, upgrade).status, 308);
    assert_eq!(app.requests(), 0);
    // The body was received, so that the connection is kept.
    let mut client = Client::connect(listener.local_addr().unwrap());
    for _ in 0..2 {
        client.send(get("/", "localhost"));
        assert_eq!(client.response().unwrap().status, 308);
    }
    assert_eq!(app.secure().get("/").status, 200);
}

#[test]
fn the_port_of_https_is_not_named() {
    let (_app, listener) = beside(Limits::default(), &["localhost"], Some(443));
    let reply = ask(&listener, &get("/a", "localhost:80"));
    assert_eq!(reply.header("location"), Some("https://localhost/a"));
}

#[test]
fn a_certificate_of_addresses_is_for_these() {
    let (app, listener) = beside(Limits::default(), &["address"], None);
    let port = app.address.port();
    for host in ["203.0.113.7", "[2001:db8::7]", "[2001:DB8:0::7]", "127.0.0.1"] {
        let reply = ask(&listener, &get("/", host));
        let expected = format!("https://{host}:{port}/");
        assert_eq!((reply.status, reply.header("location")), (308, Some(&*expected)));
    }
    for host in ["evil.example", "203.0.113.8", "[2001:db8::8]", "localhost"] {
        assert_eq!(ask(&listener, &get("/", host)).status, 421, "{host}");
    }
}

#[test]
fn nobody_is_sent_to_another_host() {
    let (app, listener) = beside(Limits::default(), &["localhost", "other"], None);
    for host in [
        "evil.example",
        "localhost.evil.example",
        "wild.test",
        "a.b.wild.test",
        "192.0.2.1",
        "[::1]",
        "127.0.0.2",
        ".wild.test",
        "evil%2F.wild.test",
    ] {
        let reply = ask(&listener, &get("/", host));
        assert_eq!((reply.status, reply.header("location")), (421, None), "{host}");
    }
    assert_eq!(app.server.reports().count(Rejection::Elsewhere), 9);
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: :80\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost@evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost/evil.example\r\n\r\n",
        "GET http://a@localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let reply = ask(&listener, request);
        assert_eq!((reply.status, reply.header("location")), (400, None), "{request}");
    }
    assert_eq!(app.requests(), 0);
}

#[test]
fn it_takes_part_in_the_limits_and_ends_as_any_listener() {
    let limits = Limits { max_header_size: 16 << 10, max_connections: 2, ..Limits::default() };
    let (app, listener) = beside(limits, &["localhost"], None);
    let address = listener.local_addr().unwrap();
    let long = ask(&listener, &get(&format!("/{}", "a".repeat(40_000)), "localhost"));
    assert_eq!(long.status, 431);
    // One connection slot is used by a client of the application. Idle connections are evicted, so
    // that at most two exist.
    let mut secure = app.secure();
    assert_eq!(secure.get("/").status, 200);
    let mut clients: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = Client::connect(address);
            client.send(get("/", "localhost"));
            client
        })
        .collect();
    wait_until("there are two at the most", || {
        listener.connections() + app.listener().connections() <= 2
    });
    assert!(
        clients.iter_mut().any(|client| client.response().is_some_and(|reply| reply.status == 308))
    );
    // Requests in progress are answered during a drain, and no new connections are accepted.
    drop(clients);
    wait_until("they have gone", || listener.connections() == 0);
    let mut begun = Client::connect(address);
    begun.send("GET / HTTP/1.1\r\nHost: local");
    wait_until("it is there", || listener.connections() == 1);
    listener.drain();
    wait_until("nobody is let in", || std::net::TcpStream::connect(address).is_err());
    let stopped = thread::spawn(move || listener.stop());
    stopped.join().unwrap();
    assert!(begun.wait_for_close());
    assert_eq!(app.secure().get("/").status, 200);
}
