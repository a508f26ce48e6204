//! Requests and their bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rookery_exchange::{BodySource, Command, Event, Exchange, Share};
use rookery_server::access_log::{AccessLog, Format};
use rookery_server::{Config, Limits, ListenerConfig, Rejection, TrustedProxies};

use crate::support::transport::{Connection, Framing, Transport};
use crate::support::{Handler, Lines, bytes, echo, hello, wait_until};

super::matrix! {
    http1: Http1, https12: Https12, https13: Https13, http2: Http2;
    {
        requests_follow_each_other_on_a_connection,
        a_query_reaches_the_application_and_the_log_as_it_was_sent,
        a_body_of_any_size_comes_back,
        a_body_past_the_limit_gets_413,
        a_client_that_leaves_is_noticed_while_the_application_works,
        the_access_log_names_the_protocol,
        identity_headers_reach_the_application_from_trusted_proxies_only,
        trusted_proxies_name_the_client,
    }
}

fn requests_follow_each_other_on_a_connection(on: Transport) {
    let app = on.app(Limits::default(), move |exchange| {
        assert_eq!(exchange.is_https(), on.is_tls());
        exchange.push_response_header(b"Connection", b"keep-alive").unwrap();
        hello(exchange);
    });
    let mut client = on.connect(&app);
    for _ in 0..3 {
        let reply = client.get("/");
        assert_eq!((reply.status, &reply.body[..]), (200, &b"Hello, World!"[..]));
        assert_eq!(reply.header("content-length"), Some("13"));
        assert_eq!(reply.header("content-type"), Some("text/plain"));
        assert!(reply.header("date").is_some());
        assert!(on != Transport::Http2 || reply.header("connection").is_none());
    }
    assert_eq!((app.requests(), app.listener().connections()), (3, 1));
}

/// Responds with the request target that the application sees, and with the request body.
pub(super) fn target_and_body(exchange: &mut Exchange) {
    let mut seen = [exchange.path(), exchange.query(), b" "].concat();
    seen.extend(exchange.body().segments().flatten());
    exchange.begin_response(200);
    exchange.set_response_body(&seen);
}

fn a_query_reaches_the_application_and_the_log_as_it_was_sent(on: Transport) {
    let app = on.app(Limits::default(), target_and_body);
    let log = Arc::new(AccessLog::read());
    app.server.set_access_log(Some(Arc::clone(&log)));
    let mut client = on.connect(&app);
    // Every printable character, each alone and all together. A `#` would begin a fragment, and the
    // log shows an empty query as none.
    let all: String = ('!'..='~').filter(|char| *char != '#').collect();
    let each = all.chars().map(String::from).chain([all.clone(), "%22\"%zz<\u{e9}".to_owned()]);
    for query in each {
        let reply = client.get(&format!("/a?{query}"));
        assert_eq!(reply.status, 200, "{query}");
        assert_eq!(String::from_utf8(reply.body).unwrap(), format!("/a?{query} "));
        let mut line = None;
        wait_until("a line of the log", || {
            line = log.take();
            line.is_some()
        });
        assert_eq!(String::from_utf8(line.unwrap().query).unwrap(), format!("?{query}"));
    }
}

/// Responds with the body, and with its length and storage.
fn mirror(exchange: &mut Exchange) {
    let place = match exchange.body().source() {
        BodySource::Empty => "empty",
        BodySource::Memory => "memory",
        BodySource::File(_) => "file",
    };
    let mut body = vec![0; exchange.body().len() as usize];
    let mut at = 0;
    while at < body.len() {
        at += exchange.body().read_at(at as u64, &mut body[at..]).unwrap();
    }
    let has_trailer = exchange.header(b"x-trailer").is_some();
    exchange.begin_response(200);
    for (name, value) in [
        ("X-Place", place),
        ("X-Length", &body.len().to_string()),
        ("X-Has-Trailer", if has_trailer { "yes" } else { "no" }),
        ("Content-Type", "application/octet-stream"),
    ] {
        exchange.push_response_header(name.as_bytes(), value.as_bytes()).unwrap();
    }
    exchange.set_response_body(&body);
}

fn a_body_of_any_size_comes_back(on: Transport) {
    let app = on.app(Limits { body_buffer_size: 100_000, ..Limits::default() }, mirror);
    let mut client = on.connect(&app);
    let bytes = bytes(3_000_000);
    for (len, place) in [
        (0, "empty"),
        (1, "memory"),
        (1000, "memory"),
        (16 << 10, "memory"),
        (100_000, "memory"),
        (100_001, "file"),
        (1_000_000, "file"),
        (bytes.len(), "file"),
    ] {
        for framing in [Framing::Length, Framing::End] {
            let reply = client.post(&bytes[..len], framing);
            let what = format!("{len} bytes, {framing:?}: {:?}", reply.headers);
            assert_eq!((reply.status, reply.header("x-place")), (200, Some(place)), "{what}");
            for name in ["x-length", "content-length"] {
                assert_eq!(reply.header(name), Some(&*len.to_string()), "{name}: {what}");
            }
            assert_eq!(reply.header("x-has-trailer"), Some("no"), "{what}");
            assert!(reply.body == bytes[..len], "{what}");
        }
    }
    // The memory of a response is released once it was written, which may be after the client has
    // read the response.
    let used = |share| app.server.budget().used(share);
    wait_until("nothing is held", || used(Share::Incoming) == 0 && used(Share::Outgoing) == 0);
}

fn a_body_past_the_limit_gets_413(on: Transport) {
    let app = on.app(Limits { max_body_size: 1000, ..Limits::default() }, hello);
    assert_eq!(on.connect(&app).post(&[b'a'; 1000], Framing::Length).status, 200);
    // A body is rejected by its announced length, or by the bytes that have arrived.
    for framing in [Framing::Length, Framing::End] {
        let reply = on.connect(&app).post(&[b'a'; 1001], framing);
        assert_eq!((reply.status, &reply.body[..]), (413, &b"413 Content Too Large\n"[..]));
        let closes = if on == Transport::Http2 { None } else { Some("close") };
        assert_eq!(reply.header("connection"), closes);
    }
    assert_eq!(app.server.reports().count(Rejection::BodyTooLarge), 2);
    assert_eq!(app.requests(), 1);
}

fn a_client_that_leaves_is_noticed_while_the_application_works(on: Transport) {
    let seen = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&seen);
    let app = on.app(Limits::default(), move |exchange| {
        wait_until("the client has left", || exchange.is_client_disconnected());
        told.fetch_add(1, Ordering::SeqCst);
        hello(exchange);
    });
    let mut client: Connection = on.connect(&app);
    let pending = client.begin("/", || app.requests() == 1);
    drop(pending);
    client.leave();
    wait_until("it is noticed", || seen.load(Ordering::SeqCst) == 1);
}

fn the_access_log_names_the_protocol(on: Transport) {
    let app = on.app(Limits::default(), hello);
    let lines = Lines::default();
    let log = AccessLog::written(lines.clone(), Format::Common).unwrap();
    app.server.set_access_log(Some(Arc::new(log)));
    assert_eq!(on.connect(&app).get("/a?b=c").status, 200);
    let version = if on == Transport::Http2 { "HTTP/2.0" } else { "HTTP/1.1" };
    wait_until("a line", || !lines.text().is_empty());
    let text = lines.text();
    assert!(text.contains(&format!("\"GET /a?b=c {version}\" 200 13 ")), "{text}");
}

fn identity_headers_reach_the_application_from_trusted_proxies_only(on: Transport) {
    let trusting = |proxy| ListenerConfig {
        proxies: TrustedProxies::parse([proxy]).unwrap(),
        ..ListenerConfig::default()
    };
    let keeping = ListenerConfig { keeps_identity_headers: true, ..ListenerConfig::default() };
    for (site, expected) in [
        (ListenerConfig::default(), "1"),
        (trusting("192.0.2.1"), "1"),
        (trusting("127.0.0.0/8"), "5"),
        (keeping, "5"),
    ] {
        let handler: Handler = Box::new(|link, event| {
            let Event::Request(mut exchange) = event else { return };
            let count =
                exchange.headers().filter(|header| header.name.starts_with(b"shiny")).count();
            exchange.begin_response(200);
            let text = format!("{count} {}", exchange.is_upgrade());
            exchange.set_response_body(text.as_bytes());
            link.send(Command::Respond(exchange));
        });
        let app = on.app_with(Config::default(), site, handler);
        let headers = [
            ("shiny-server-credentials", r#"{"user":"admin"}"#),
            ("shiny_server_credentials", r#"{"user":"admin"}"#),
            ("shiny-shared-secret", "secret"),
            ("shiny_shared-secret", "secret"),
            ("shiny-shared-secrets", "an application's own header"),
        ];
        let mut client = on.connect(&app);
        let reply = client.request("GET", "/", &headers);
        assert_eq!(String::from_utf8_lossy(&reply.body), format!("{expected} false"));
        if on != Transport::Http2 {
            let upgrade = [
                ("Connection", "Upgrade"),
                ("Upgrade", "websocket"),
                ("Sec-WebSocket-Version", "13"),
                ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ];
            let reply = client.request("GET", "/", &[&headers[..], &upgrade].concat());
            assert_eq!(String::from_utf8_lossy(&reply.body), format!("{expected} true"));
        }
    }
}

fn trusted_proxies_name_the_client(on: Transport) {
    for (trusted, expected) in
        [("192.0.2.0/24", "127.0.0.1 127.0.0.1"), ("127.0.0.1", "203.0.113.5 203.0.113.5")]
    {
        let proxies = TrustedProxies::parse([trusted]).unwrap();
        let handler = echo(|exchange| {
            let remote = exchange.remote().unwrap().ip().to_string();
            exchange.begin_response(200);
            exchange.set_response_body(remote.as_bytes());
        });
        let site = ListenerConfig { proxies, ..ListenerConfig::default() };
        let app = on.app_with(Config::default(), site, handler);
        let lines = Lines::default();
        let log = AccessLog::written(lines.clone(), Format::Common).unwrap();
        app.server.set_access_log(Some(Arc::new(log)));
        let mut client = on.connect(&app);
        let reply = client.request("GET", "/", &[("x-forwarded-for", "9.9.9.9, 203.0.113.5")]);
        wait_until("a line", || !lines.text().is_empty());
        let text = lines.text();
        let logged = text.split(' ').next().unwrap();
        assert_eq!(format!("{} {logged}", String::from_utf8_lossy(&reply.body)), expected);
        // The next request on the connection may be of another client.
        let reply = client.request("GET", "/", &[]);
        assert_eq!(reply.body, b"127.0.0.1");
    }
}
