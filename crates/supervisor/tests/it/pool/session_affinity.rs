//! Tests of session affinity.

use std::collections::HashMap;
use std::time::Duration;

use rookery_server::Config;
use rookery_supervisor::{PoolLimits, SessionAffinity};
use rookery_test_support::client::{Client, Response};
use rookery_test_support::wait_until;
use rookery_worker_protocol::now;

use crate::support::admin::Admin;
use crate::support::fake_worker::FakeWorker;
use crate::support::frontend::{Frontend, get_at_rest};

fn sticky(workers: u32, session_affinity: SessionAffinity) -> Frontend {
    Frontend::with(
        workers,
        PoolLimits { session_affinity, ..PoolLimits::default() },
        Config::default(),
    )
}

/// Returns the name and value of the session cookie that a response sets, if it sets one.
fn cookie(reply: &Response) -> Option<String> {
    let set = reply.header("set-cookie")?;
    Some(set.split(';').next().unwrap().to_owned())
}

fn ask(client: &mut Client, path: &str, headers: &str) -> Response {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
    client.response_to("GET").unwrap()
}

/// Waits until every worker is idle. The balancer passes over busy workers, whatever the number of
/// their sessions.
fn at_rest(front: &Frontend) {
    wait_until("all are idle", || {
        front.workers.iter().all(|worker| worker.backend.scoreboard.read().is_idle(now()))
    });
}

#[test]
fn sessions_are_distributed_and_stay_with_their_worker() {
    let front = sticky(3, SessionAffinity::Cookie);
    let mut pages = HashMap::new();
    let mut sockets = Vec::new();
    for _ in 0..120 {
        let mut client = front.connect();
        at_rest(&front);
        let page = ask(&mut client, "/slot", "Accept: text/html\r\n");
        let slot = page.text();
        let cookie = cookie(&page).expect("a page has one");
        let headers =
            format!("Cookie: other=1; {cookie}\r\nAccept: */*\r\nSec-Fetch-Mode: cors\r\n");
        for _ in 0..5 {
            let reply = ask(&mut client, "/slot", &headers);
            assert_eq!((reply.text(), reply.header("set-cookie")), (slot.clone(), None));
        }
        // A page that is loaded again is not counted as a new client.
        let again =
            ask(&mut client, "/slot", &format!("Cookie: {cookie}\r\nAccept: text/html\r\n"));
        assert_eq!((again.text(), again.header("set-cookie")), (slot.clone(), None));
        let upgraded = client.upgrade_with("/ws", &format!("Cookie: {cookie}\r\n"), b"");
        assert_eq!((upgraded.status, upgraded.header("x-slot")), (101, Some(slot.as_str())));
        assert_eq!(upgraded.header("set-cookie"), None);
        *pages.entry(slot).or_insert(0) += 1;
        sockets.push((upgraded.header("x-slot").unwrap().to_owned(), client));
    }
    assert_eq!(pages.values().copied().collect::<Vec<_>>(), [40, 40, 40]);
    wait_until("they count", || front.workers.iter().all(|worker| worker.backend.load().1 == 40));
    // All sessions of one worker end, so new sessions go to that worker.
    sockets.retain(|(slot, _)| slot != "1");
    wait_until("they have gone", || front.workers[1].backend.load().1 == 0);
    for _ in 0..40 {
        at_rest(&front);
        assert_eq!(front.connect().get("/slot").text(), "1");
    }
}

#[test]
fn a_client_without_a_page_gets_its_cookie_with_the_websocket() {
    let front = sticky(2, SessionAffinity::Cookie);
    let mut client = front.connect();
    let reply = client.upgrade_with("/ws", "", b"");
    let cookie = cookie(&reply).expect("a handshake has one");
    let slot = reply.header("x-slot").unwrap().to_owned();
    for _ in 0..4 {
        let again = front.connect().upgrade_with("/ws", &format!("Cookie: {cookie}\r\n"), b"");
        assert_eq!(again.header("x-slot"), Some(slot.as_str()));
    }
}

#[test]
fn the_affinity_cookie_is_hidden_from_the_app_and_from_caches() {
    let front = sticky(1, SessionAffinity::Cookie);
    let mut client = front.connect();
    let page = ask(&mut client, "/slot", "");
    let own = cookie(&page).unwrap();
    for (sent, seen) in
        [(own.clone(), None), (format!("a=1; {own}; b=2"), Some("cookie: a=1; b=2\n"))]
    {
        let headers = ask(&mut client, "/headers", &format!("Cookie: {sent}\r\n")).text();
        assert!(!headers.contains("rookery="), "{headers}");
        match seen {
            Some(seen) => assert!(headers.contains(seen), "{headers}"),
            None => assert!(!headers.contains("cookie"), "{headers}"),
        }
    }
    assert!(cookie(&ask(&mut client, "/public", "")).is_none());
}

#[test]
fn forged_cookies_are_ignored() {
    let front = sticky(2, SessionAffinity::Cookie);
    let other = sticky(2, SessionAffinity::Cookie);
    let foreign = cookie(&other.connect().get("/slot")).unwrap();
    let mut client = front.connect();
    let own = cookie(&client.get("/slot")).unwrap();
    let mut cut = own.clone();
    cut.pop();
    let admin = Admin::of_registry(&front.registry);
    for forged in [
        foreign,
        cut,
        format!("{own}A"),
        own.to_uppercase(),
        "rookery=".to_owned(),
        ";;=;".to_owned(),
    ] {
        let page = ask(&mut client, "/slot", &format!("Cookie: {forged}\r\n"));
        assert_eq!(page.status, 200, "{forged}");
        assert!(cookie(&page).is_some_and(|new| new != forged), "{forged}");
        let asset =
            ask(&mut client, "/slot", &format!("Cookie: {forged}\r\nSec-Fetch-Mode: no-cors\r\n"));
        assert!(asset.status == 200 && cookie(&asset).is_some_and(|new| new != forged), "{forged}");
    }
    // Both requests of each forged cookie count, except those whose cookie has another name.
    assert_eq!(admin.metric("rookery_cookie_invalid_total"), Some(8.0));
    for known in [own.as_str(), "rookeries=1", "a=b"] {
        assert_eq!(ask(&mut client, "/slot", &format!("Cookie: {known}\r\n")).status, 200);
    }
    assert_eq!(admin.metric("rookery_cookie_invalid_total"), Some(8.0));
}

#[test]
fn a_queued_handshake_delays_no_other_request() {
    let limits = || PoolLimits {
        session_affinity: SessionAffinity::None,
        max_sessions: 1,
        ..PoolLimits::default()
    };
    // One worker has its maximum of sessions and is idle, and the other has no session and is busy.
    let (front, busy, held, _socket) = loop {
        let front = Frontend::with(2, limits(), Config::default());
        let mut socket = front.connect();
        assert_eq!(socket.upgrade("/ws").status, 101);
        let held = front.ask("/hold");
        let begun = |it: &FakeWorker| it.backend.load().0 == 1;
        wait_until("it is begun", || front.workers.iter().any(begun));
        let busy = front.workers.iter().position(begun).unwrap();
        if front.workers[busy].backend.load().1 == 0 {
            break (front, busy, held, socket);
        }
        front.workers[busy].gate.open();
        held.join().unwrap();
    };
    let admin = Admin::of_registry(&front.registry);
    let mut waits = front.connect();
    let waiting = std::thread::spawn(move || waits.upgrade("/ws"));
    wait_until("it waits", || admin.metric("rookery_queue_length") == Some(1.0));
    let mut client = front.connect();
    for _ in 0..20 {
        assert_eq!(client.get("/slot").text(), (1 - busy).to_string());
    }
    assert!(!waiting.is_finished());
    front.workers[busy].gate.open();
    assert_eq!(waiting.join().unwrap().header("x-slot"), Some(&*busy.to_string()));
    assert_eq!(held.join().unwrap().status, 200);
}

#[test]
fn queued_handshakes_time_out_and_later_ones_are_accepted() {
    let queue_timeout = Duration::from_millis(500);
    let limits = PoolLimits {
        session_affinity: SessionAffinity::None,
        max_sessions: 1,
        queue_timeout,
        ..PoolLimits::default()
    };
    let front = Frontend::with(1, limits, Config::default());
    let held = front.ask("/hold");
    wait_until("it is begun", || front.workers[0].backend.load().0 == 1);
    let late = front.connect().upgrade("/ws");
    assert_eq!((late.status, late.header("retry-after")), (503, Some("1")));
    front.workers[0].gate.open();
    held.join().unwrap();
    assert_eq!(front.connect().upgrade("/ws").status, 101);
}

#[test]
fn sessions_stay_with_a_draining_worker() {
    let mut front = sticky(2, SessionAffinity::Auto);
    for worker in &front.workers {
        worker.backend.set_sticky(true);
    }
    let mut client = front.connect();
    let page = client.get("/slot");
    let (slot, own) = (page.text(), cookie(&page).expect("Shiny asks for it"));
    let at =
        front.workers.iter().position(|worker| worker.backend.slot.to_string() == slot).unwrap();
    front.registry.drain(&front.workers[at].backend);
    let with = format!("Cookie: {own}\r\n");
    let session = "/session/0123456789abcdef0123456789abcdef/slot";
    for (path, headers) in
        [("/slot", "Sec-Fetch-Mode: cors\r\n"), (session, "Sec-Fetch-Mode: navigate\r\n")]
    {
        let reply = ask(&mut client, path, &format!("{with}{headers}"));
        assert_eq!(reply.header("x-slot"), Some(slot.as_str()), "{path}");
    }
    assert_eq!(client.upgrade_with("/ws", &with, b"").header("x-slot"), Some(slot.as_str()));
    let mut client = front.connect();
    let next = ask(&mut client, "/slot", &format!("{with}Accept: text/html\r\n"));
    assert!(next.text() != slot && cookie(&next).is_some(), "a new page is another's");
    // The same happens after the worker has ended.
    front.kill(at);
    let gone = ask(&mut client, session, &with);
    assert_eq!((gone.status, gone.text().contains("the session has ended")), (404, true));
    let asset = ask(&mut client, "/slot", &format!("{with}Sec-Fetch-Mode: cors\r\n"));
    assert!(asset.status == 200 && cookie(&asset).is_some());
    let socket = client.upgrade_with("/ws", &with, b"");
    assert!(socket.status == 101 && cookie(&socket).is_some());
}

#[test]
fn without_sessions_no_cookie_is_set() {
    for how in [SessionAffinity::Auto, SessionAffinity::None] {
        let front = sticky(2, how);
        if how == SessionAffinity::None {
            front.workers[0].backend.set_sticky(true);
        }
        let mut client = front.connect();
        let slots: Vec<_> = (0..2).map(|_| get_at_rest(&mut client, "/slot")).collect();
        assert!(
            slots.iter().all(|reply| cookie(reply).is_none()) && slots[0].body != slots[1].body
        );
        let path = "/session/0123456789abcdef0123456789abcdef/x";
        assert!(!client.get(path).text().contains("has ended"), "{how:?}");
    }
}

#[test]
fn requests_that_wait_for_a_worker_go_elsewhere_when_it_ends() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::Cookie,
        max_in_flight: 1,
        ..PoolLimits::default()
    };
    let mut front = Frontend::with(2, limits, Config::default());
    let page = front.connect().get("/slot");
    let at = front
        .workers
        .iter()
        .position(|worker| worker.backend.slot.to_string() == page.text())
        .unwrap();
    let headers = format!("Cookie: {}\r\nSec-Fetch-Mode: cors\r\n", cookie(&page).unwrap());
    let mut asking = Vec::new();
    for path in ["/hold", "/slot", "/slot"] {
        let (mut client, headers) = (front.connect(), headers.clone());
        asking.push(std::thread::spawn(move || ask(&mut client, path, &headers)));
        wait_until("it has it", || front.workers[at].backend.load().0 == 1);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    front.kill(at);
    let replies: Vec<_> = asking.into_iter().map(|asking| asking.join().unwrap()).collect();
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [502, 200, 200]);
    assert!(replies[1..].iter().all(|reply| reply.text() != page.text()));
}

#[test]
fn the_session_limit_applies_to_new_sessions_only() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::Cookie,
        max_sessions: 2,
        ..PoolLimits::default()
    };
    let front = Frontend::with(2, limits, Config::default());
    let mut sockets = Vec::new();
    let mut cookies = Vec::new();
    for _ in 0..4 {
        let mut client = front.connect();
        let page = client.get("/slot");
        assert_eq!(page.status, 200);
        cookies.push(cookie(&page).unwrap());
        assert_eq!(
            client
                .upgrade_with("/ws", &format!("Cookie: {}\r\n", cookies.last().unwrap()), b"")
                .status,
            101
        );
        sockets.push(client);
    }
    wait_until("they count", || front.workers.iter().all(|worker| worker.backend.load().1 == 2));
    let page = front.connect().get("/slot");
    assert_eq!((page.status, page.header("retry-after")), (503, Some("5")));
    assert!(page.text().contains("the maximum number of sessions"), "{}", page.text());
    assert_eq!(front.connect().upgrade("/ws").status, 503);
    // Requests that open no session, and those of clients that have a session, are served.
    assert_eq!(ask(&mut front.connect(), "/slot", "Sec-Fetch-Mode: no-cors\r\n").status, 200);
    for cookie in &cookies {
        assert_eq!(
            ask(&mut front.connect(), "/slot", &format!("Cookie: {cookie}\r\n")).status,
            200
        );
    }
    sockets.pop();
    wait_until("there is room", || front.workers.iter().any(|worker| worker.backend.load().1 == 1));
    assert_eq!(front.connect().get("/slot").status, 200);
    // The session of that page has not been opened yet, and counts already.
    assert_eq!(front.connect().get("/slot").status, 503);
}

#[test]
fn websockets_count_as_sessions_without_affinity() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::None,
        max_sessions: 1,
        ..PoolLimits::default()
    };
    let front = Frontend::with(2, limits, Config::default());
    let mut sockets: Vec<_> = (0..2)
        .map(|_| {
            let mut client = front.connect();
            assert_eq!(client.upgrade("/ws").status, 101);
            client
        })
        .collect();
    wait_until("each has one", || front.workers.iter().all(|worker| worker.backend.load().1 == 1));
    let refused = front.connect().upgrade("/ws");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    assert_eq!(front.connect().get("/slot").status, 200);
    sockets.pop();
    wait_until("there is room", || front.workers.iter().any(|worker| worker.backend.load().1 == 0));
    // A handshake that is refused does not count as a session.
    for _ in 0..3 {
        assert_eq!(front.connect().upgrade("/refuse").status, 403);
    }
    assert_eq!(front.connect().upgrade("/ws").status, 101);
}

#[test]
fn every_client_without_a_cookie_gets_one() {
    let front = sticky(2, SessionAffinity::Cookie);
    for (method, headers) in [
        ("POST", "Accept: application/json\r\nContent-Length: 0\r\n"),
        ("GET", "Accept: application/json\r\n"),
        ("GET", "Accept: */*\r\n"),
        ("GET", "Sec-Fetch-Mode: cors\r\n"),
        ("HEAD", ""),
        ("DELETE", ""),
    ] {
        let mut client = front.connect();
        client.send(format!("{method} /slot HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
        let first = client.response_to(method).unwrap();
        let own = cookie(&first).unwrap_or_else(|| panic!("{method} {headers}: {}", first.head));
        for _ in 0..3 {
            at_rest(&front);
            let again = ask(&mut front.connect(), "/slot", &format!("Cookie: {own}\r\n"));
            assert_eq!(again.header("x-slot"), first.header("x-slot"), "{method} {headers}");
            assert_eq!(cookie(&again), None, "{method} {headers}");
        }
    }
}

#[test]
fn a_draining_worker_keeps_clients_whose_requests_load_no_page() {
    let front = sticky(2, SessionAffinity::Cookie);
    let page = front.connect().get("/slot");
    let at = front
        .workers
        .iter()
        .position(|worker| worker.backend.slot.to_string() == page.text())
        .unwrap();
    front.registry.drain(&front.workers[at].backend);
    let with = format!("Cookie: {}\r\n", cookie(&page).unwrap());
    for headers in
        ["Accept: */*\r\n", "", "Accept: text/css,*/*;q=0.1\r\n", "Sec-Fetch-Mode: no-cors\r\n"]
    {
        let kept = ask(&mut front.connect(), "/slot", &format!("{with}{headers}"));
        assert_eq!((kept.text(), cookie(&kept)), (page.text(), None), "{headers}");
    }
    for headers in ["Accept: text/html,*/*;q=0.8\r\n", "Sec-Fetch-Mode: navigate\r\n"] {
        let new = ask(&mut front.connect(), "/slot", &format!("{with}{headers}"));
        assert!(new.text() != page.text() && cookie(&new).is_some(), "{headers}");
    }
}

#[test]
fn servers_of_one_host_ignore_each_others_cookies() {
    let named = |name: &str| {
        let limits = PoolLimits {
            session_affinity: SessionAffinity::Cookie,
            cookie_suffix: name.to_owned(),
            ..PoolLimits::default()
        };
        Frontend::with(2, limits, Config::default())
    };
    let fronts = [named("one"), named("two")];
    // The jar is like a browser's, which has one cookie of each name for all ports.
    let mut jar: HashMap<String, String> = HashMap::new();
    let mut slots = HashMap::new();
    for round in 0..4 {
        for (at, front) in fronts.iter().enumerate() {
            at_rest(front);
            let sent = jar
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join("; ");
            let reply = ask(&mut front.connect(), "/slot", &format!("Cookie: {sent}\r\n"));
            if let Some((name, value)) =
                cookie(&reply).as_deref().and_then(|pair| pair.split_once('='))
            {
                assert_eq!(round, 0, "a cookie was taken from another server");
                jar.insert(name.to_owned(), value.to_owned());
            }
            assert_eq!(*slots.entry(at).or_insert(reply.text()), reply.text());
        }
    }
    for front in &fronts {
        assert_eq!(
            Admin::of_registry(&front.registry).metric("rookery_cookie_invalid_total"),
            Some(0.0)
        );
    }
}
