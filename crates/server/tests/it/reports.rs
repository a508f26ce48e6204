//! Rejections are thrown to the hook of their request: once, and with its id.

use rookery_error::Delivery;
use rookery_server::{Config, Limits, Rejection, Site};

use crate::support::{App, echo, hello};

#[test]
fn every_rejection_reaches_its_requests_hook_once() {
    let limits = Limits {
        body_bytes: 10,
        head_bytes: 16 << 10,
        head_time: std::time::Duration::from_millis(100),
        ..Limits::default()
    };
    let app = App::new(limits, |exchange| {
        if exchange.path() == b"/fails" {
            exchange.begin_reply(500);
            exchange.reply_mut().set_failure();
        } else {
            hello(exchange);
        }
    });
    let mut served = app.connect();
    assert_eq!(served.get("/").status, 200);
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(40_000));
    let table: &[(&str, u16, Rejection)] = &[
        ("nonsense\r\n\r\n", 400, Rejection::Unreadable),
        ("GET / HTTP/1.1\r\n\r\n", 400, Rejection::Host),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 400, Rejection::Target),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
            Rejection::BodyUnreadable,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n", 413, Rejection::BodyTooLarge),
        (&long, 431, Rejection::HeadTooLarge),
        ("GET / HTTP", 408, Rejection::HeadTimeout),
        ("GET /fails HTTP/1.1\r\nHost: a\r\n\r\n", 500, Rejection::Application),
    ];
    all_are_reported(&app, table);
}

#[test]
fn what_a_full_disk_and_a_full_queue_reject_is_reported() {
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nHello there";
    let limits = Limits { body_memory: 10, disk_reserve: u64::MAX, disk_share: 1, ..Limits::default() };
    all_are_reported(&App::new(limits, hello), &[(post, 507, Rejection::DiskFull)]);

    let queue = rookery_exchange::Limits { requests: 0, ..Default::default() };
    let app = App::with(Config { queue, ..Config::default() }, Site::default(), echo(hello));
    all_are_reported(&app, &[(post, 503, Rejection::Busy)]);
}

/// Each is answered with its status, and thrown once, to a hook that knows its request.
fn all_are_reported(app: &App, table: &[(&str, u16, Rejection)]) {
    let reports = app.server.reports();
    reports.set_delivery(Delivery::Queue);
    let mut last = 0;
    for (request, status, rejection) in table {
        let mut client = app.connect();
        let _ = std::io::Write::write_all(&mut client.socket, request.as_bytes());
        assert_eq!(client.reply().unwrap().status, *status, "{rejection:?}");
        assert_eq!(reports.count(*rejection), 1, "{rejection:?}");
        let report = reports.take().unwrap();
        assert_eq!(report.error.downcast_ref(), Some(rejection));
        assert!(report.request > last, "ids grow");
        last = report.request;
        assert!(reports.take().is_none(), "once");
    }
}

#[test]
fn under_load_each_request_keeps_its_own_id_and_no_hook_is_counted() {
    // That the hook's count stays two is asserted by the server itself, for each request, in debug builds.
    let app = App::new(Limits::default(), |exchange| {
        let id = exchange.id();
        exchange.begin_reply(500);
        exchange.reply_mut().set_failure();
        exchange.set_reply_body(id.to_string().as_bytes());
    });
    app.server.reports().set_delivery(Delivery::Queue);
    let mut answered = Vec::new();
    let mut reported = Vec::new();
    let mut clients: Vec<_> = (0..50).map(|_| app.connect()).collect();
    for _ in 0..40 {
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for client in &mut clients {
            let body = client.reply().unwrap().body;
            answered.push(String::from_utf8(body).unwrap().parse::<u64>().unwrap());
        }
        while let Some(report) = app.server.reports().take() {
            reported.push(report.request);
        }
    }
    answered.sort_unstable();
    reported.sort_unstable();
    assert_eq!(answered.len(), 2000);
    assert_eq!(answered, reported);
}
