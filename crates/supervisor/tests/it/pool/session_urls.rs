//! Tests of Shiny's URL parameter `w=`. A request that belongs to a page goes to the worker that
//! made the page, whatever the browser's cookie says.

use rookery_server::Config;
use rookery_supervisor::{PoolLimits, WorkerId};
use rookery_test_support::client::{Client, Response};

use crate::support::admin::Admin;
use crate::support::frontend::{Frontend, get_at_rest};

const SESSION: &str = "/session/0123456789abcdef0123456789abcdef/slot";

fn shiny(workers: u32) -> Frontend {
    let front = Frontend::with(workers, PoolLimits::default(), Config::default());
    for worker in &front.workers {
        worker.backend.set_sticky(true);
    }
    front
}

fn ask(client: &mut Client, path: &str, headers: &str) -> Response {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
    client.response_to("GET").unwrap()
}

/// Requests a page. Returns the request header with its cookie, and the index of the worker that
/// made the page.
fn page(front: &Frontend) -> (String, usize) {
    let page = ask(&mut front.connect(), "/slot", "Accept: text/html\r\n");
    let cookie =
        page.header("set-cookie").expect("a page has one").split(';').next().unwrap().to_owned();
    let at = front
        .workers
        .iter()
        .position(|worker| worker.backend.slot.to_string() == page.text())
        .unwrap();
    (format!("Cookie: {cookie}\r\n"), at)
}

fn id(front: &Frontend, at: usize) -> String {
    front.workers[at].backend.id.to_string()
}

fn slot(front: &Frontend, at: usize) -> String {
    front.workers[at].backend.slot.to_string()
}

/// Returns true if the front end responded that the session has ended, without sending the request
/// to a worker.
fn has_ended(reply: &Response) -> bool {
    reply.status == 404 && reply.text().contains("the session has ended")
}

#[test]
fn session_urls_give_affinity_without_a_cookie() {
    let front = shiny(3);
    let cors = "Sec-Fetch-Mode: cors\r\n";
    for at in 0..3 {
        let (id, slot) = (id(&front, at), slot(&front, at));
        for _ in 0..4 {
            let mut client = front.connect();
            for path in [
                format!("{SESSION}?w={id}"),
                format!("{SESSION}?w={id}&nonce=1"),
                format!("/slot?w={id}"),
            ] {
                let reply = ask(&mut client, &path, cors);
                assert_eq!(reply.header("x-slot"), Some(slot.as_str()), "{path}");
            }
            let upload =
                format!("POST {SESSION}?w={id} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
            client.send(upload);
            assert_eq!(client.response_to("POST").unwrap().header("x-slot"), Some(slot.as_str()));
            let socket = client.upgrade_with(&format!("/ws?w={id}"), "", b"");
            assert_eq!((socket.status, socket.header("x-slot")), (101, Some(slot.as_str())));
            assert_eq!(socket.header("set-cookie"), None, "it has come where it belongs");
        }
    }
}

#[test]
fn two_pages_have_separate_sessions() {
    let front = shiny(2);
    let ((cookie, of_cookie), other) = (page(&front), 0);
    let other = if of_cookie == other { 1 } else { other };
    let url = format!("{SESSION}?w={}", id(&front, other));
    let reply = ask(&mut front.connect(), &url, &cookie);
    assert_eq!(reply.header("x-slot"), Some(slot(&front, other).as_str()), "the page's");
    let socket =
        front.connect().upgrade_with(&format!("/ws?w={}", id(&front, other)), &cookie, b"");
    assert_eq!(socket.header("x-slot"), Some(slot(&front, other).as_str()));
    // Navigation ignores the parameter, so that a link cannot choose the worker of a client.
    let url = format!("/slot?w={}", id(&front, other));
    let reply = ask(&mut front.connect(), &url, &format!("{cookie}Sec-Fetch-Mode: navigate\r\n"));
    assert_eq!(reply.text(), slot(&front, of_cookie));
    // An id that names no worker is ignored.
    for unknown in [WorkerId::new().unwrap().to_string(), "mine".to_owned(), String::new()] {
        let url = format!("{SESSION}?w={unknown}");
        let reply = ask(&mut front.connect(), &url, &cookie);
        assert_eq!(reply.header("x-slot"), Some(slot(&front, of_cookie).as_str()), "{unknown}");
        assert!(has_ended(&ask(&mut front.connect(), &url, "")), "{unknown}");
    }
}

#[test]
fn a_lost_session_does_not_return_to_a_draining_worker() {
    let mut front = shiny(2);
    let admin = Admin::of_registry(&front.registry);
    let reconnects = || {
        ["same", "new"]
            .map(|result| admin.metric(&format!("rookery_reconnects_total{{result=\"{result}\"}}")))
    };
    let (cookie, old) = page(&front);
    front.registry.drain(&front.workers[old].backend);
    let (id, own) = (id(&front, old), slot(&front, old));
    // While the worker drains, requests of the page still go to it.
    let url = format!("{SESSION}?w={id}");
    assert_eq!(ask(&mut front.connect(), &url, "").header("x-slot"), Some(own.as_str()));
    assert_eq!(
        front.connect().upgrade_with(&format!("/ws?w={id}"), "", b"").header("x-slot"),
        Some(own.as_str())
    );
    assert_eq!(reconnects(), [Some(0.0), Some(0.0)]);
    let again = front.connect().upgrade_with("/ws?w=", &cookie, b"");
    assert!(again.status == 101 && again.header("x-slot") != Some(own.as_str()), "{}", again.head);
    assert_eq!(reconnects(), [Some(0.0), Some(1.0)]);
    let new = again.header("set-cookie").expect("it is told").split(';').next().unwrap().to_owned();
    let asset = ask(
        &mut front.connect(),
        "/slot",
        &format!("Cookie: {new}\r\nSec-Fetch-Mode: no-cors\r\n"),
    );
    assert_eq!(Some(asset.text().as_str()), again.header("x-slot"));
    front.kill(old);
    assert!(has_ended(&ask(&mut front.connect(), &url, "")));
    let socket = front.connect().upgrade_with(&format!("/ws?w={id}"), "", b"");
    assert_eq!((socket.status, socket.header("x-slot")), (101, again.header("x-slot")));
    // If the worker still runs, only the network has failed, and the WebSocket is opened at the
    // same worker.
    for _ in 0..3 {
        let back = front.connect().upgrade_with("/ws?w=", &format!("Cookie: {new}\r\n"), b"");
        assert_eq!(
            (back.header("x-slot"), back.header("set-cookie")),
            (again.header("x-slot"), None)
        );
    }
    assert_eq!(reconnects(), [Some(3.0), Some(1.0)]);
    // A reconnect without an id and a cookie is served by any worker.
    assert_eq!(front.connect().upgrade_with("/ws?w=", "", b"").status, 101);
    assert_eq!(reconnects(), [Some(3.0), Some(2.0)]);
}

#[test]
fn without_shiny_the_query_is_left_to_the_app() {
    let front = Frontend::new(2);
    let url = format!("/slot?w={}", id(&front, 0));
    let mut client = front.connect();
    let slots: Vec<_> = (0..2).map(|_| get_at_rest(&mut client, &url).text()).collect();
    assert_ne!(slots[0], slots[1], "whoever has time");
}
