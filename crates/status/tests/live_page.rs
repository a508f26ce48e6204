//! Tests of the live page over real connections: who gets it, what it sends, and what viewers can
//! do to the server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rookery_status::{
    Action, AdminAddress, AdminHandler, AdminListener, NotReady, RecentErrors, Report, ServerInfo,
    StatusSource,
};
use rookery_worker_protocol::ErrorReport;
use serde_json::Value;

/// A status source whose report has a given length.
#[derive(Default)]
struct Source {
    padding: String,
    reports: AtomicUsize,
    reloads: AtomicUsize,
    errors: RecentErrors,
}

impl StatusSource for Source {
    fn report(&self) -> Report {
        self.reports.fetch_add(1, Ordering::Relaxed);
        let about = ServerInfo { target: self.padding.clone(), ..ServerInfo::default() };
        Report { about, ..Report::default() }
    }

    fn not_live(&self) -> Option<&'static str> {
        None
    }

    fn not_ready(&self) -> Option<NotReady> {
        None
    }

    fn not_started(&self) -> Option<&'static str> {
        None
    }

    fn errors(&self) -> &RecentErrors {
        &self.errors
    }

    fn actions(&self) -> &'static [Action] {
        &[Action::Reload]
    }

    fn perform(&self, _action: Action) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }
}

struct Admin {
    source: Arc<Source>,
    listener: AdminListener,
    /// The path and query of the page's URL, with the token.
    path: String,
}

impl Admin {
    fn new(source: Source) -> Admin {
        let source = Arc::new(source);
        let at = AdminAddress::Tcp("127.0.0.1:0".parse().unwrap());
        let handler = AdminHandler::new(Arc::clone(&source) as Arc<_>).unwrap();
        let listener = AdminListener::start(handler, Some(&at)).unwrap();
        let url = listener.page_url().unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        Admin { source, path: url.strip_prefix(&base).unwrap().to_owned(), listener }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Sends a request and returns the connection.
    fn send(&self, method: &str, path: &str, headers: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
        write!(stream, "{method} {path} HTTP/1.1\r\nConnection: close\r\n{host}{headers}\r\n")
            .unwrap();
        stream
    }

    /// Sends a request and returns the response, which begins with its status code.
    fn ask(&self, method: &str, path: &str, headers: &str) -> String {
        let mut text = String::new();
        self.send(method, path, headers).read_to_string(&mut text).unwrap();
        text.split_off("HTTP/1.1 ".len())
    }

    fn status(&self, method: &str, path: &str, headers: &str) -> String {
        self.ask(method, path, headers)[..3].to_owned()
    }

    /// Returns the `Cookie` header of a browser that has opened the page's URL.
    fn cookie(&self) -> String {
        let response = self.ask("GET", &self.path, "");
        let (_, cookie) = response.split_once("Set-Cookie: ").expect(&response);
        format!("Cookie: {}\r\n", cookie.split_once(';').unwrap().0)
    }

    fn viewer(&self, cookie: &str) -> TcpStream {
        self.send("GET", "/live/events", cookie)
    }

    fn reports(&self) -> usize {
        self.source.reports.load(Ordering::Relaxed)
    }
}

/// Reads a stream until it contains a text, and returns what was read.
fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let (mut all, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let len = stream.read(&mut chunk).unwrap();
        assert!(len > 0, "the stream has ended: {}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&chunk[..len]);
        if all.windows(wanted.len()).any(|window| window == wanted.as_bytes()) {
            return String::from_utf8(all).unwrap();
        }
    }
}

#[test]
fn the_url_leads_to_the_page_and_nothing_else_does() {
    let admin = Admin::new(Source::default());
    let response = admin.ask("GET", &admin.path, "");
    assert!(response.starts_with("200"), "{response}");
    assert!(response.contains("content=\"0;url=/live/\""), "{response}");
    assert!(response.contains("; Path=/live/; "), "a cookie that other ports do not get");
    let redirect = admin.ask("GET", &admin.path.replace("/live/", "/"), "");
    assert!(redirect.starts_with("303"), "{redirect}");
    assert!(redirect.contains(&format!("\r\nLocation: {}\r\n", admin.path)), "{redirect}");
    let (_, token) = admin.path.split_once("token=").unwrap();
    let cookie = admin.cookie();
    let page = admin.ask("GET", "/live/", &cookie);
    assert!(page.starts_with("200"));
    for header in [
        "Content-Security-Policy: default-src 'none'; script-src 'sha256-",
        "Cache-Control: no-store\r\n",
        "Referrer-Policy: no-referrer\r\n",
    ] {
        assert!(page.contains(&format!("\r\n{header}")), "{header}");
    }
    assert!(!page.contains(token));
    for path in ["/live/", "/live/events"] {
        assert_eq!(admin.status("GET", path, ""), "403");
        assert_eq!(admin.status("GET", &format!("{path}?token=0"), &cookie), "403");
    }
    // Probes and metrics are open to everybody who reaches the address.
    for path in ["/status", "/metrics", "/-/live", "/-/ready"] {
        assert_eq!(admin.status("GET", path, ""), "200", "{path}");
    }
}

#[test]
fn only_the_page_itself_makes_the_server_do_something() {
    let admin = Admin::new(Source::default());
    let cookie = admin.cookie();
    let own = "Origin: http://localhost\r\n";
    let post = |path: &str, headers: &[&str]| {
        admin.status("POST", path, &format!("{}Content-Length: 0\r\n", headers.concat()))
    };
    let reload = "/live/actions/reload";
    assert_eq!(post(reload, &[own]), "403", "without the token");
    assert_eq!(post(&admin.path.replace('?', "actions/reload?"), &[own]), "403");
    assert_eq!(post(reload, &[&cookie]), "403", "without an origin");
    assert_eq!(post(reload, &[&cookie, "Origin: http://evil.example\r\n"]), "403");
    assert_eq!(post(reload, &[&cookie, "Origin: http://localhost:1\r\n"]), "403");
    assert_eq!(post(reload, &[&cookie, own, "Sec-Fetch-Site: same-site\r\n"]), "403");
    let evil = ["Host: evil.example\r\n", "Origin: http://evil.example\r\n", &cookie];
    assert_eq!(post(reload, &evil), "421", "DNS rebinding");
    assert_eq!(admin.source.reloads.load(Ordering::Relaxed), 0);
    assert_eq!(post(reload, &[&cookie, own]), "202");
    assert_eq!(admin.source.reloads.load(Ordering::Relaxed), 1);
}

#[test]
fn a_viewer_gets_a_snapshot_every_second_and_errors_when_they_occur() {
    let admin = Admin::new(Source::default());
    let mut stream = admin.viewer(&admin.cookie());
    let first = read_until(&mut stream, "event: snapshot");
    assert!(first.contains("Content-Type: text/event-stream"), "{first}");
    assert!(first.contains("event: errors\ndata: []\n\n"), "{first}");
    let report = ErrorReport { message: "two\nlines".into(), ..ErrorReport::default() };
    admin.source.errors.add(2, 4711, report);
    let next = read_until(&mut stream, "\"two\\nlines\"");
    let (_, data) = next.split_once("event: errors\ndata: ").unwrap();
    let (data, _) = data.split_once('\n').unwrap();
    let errors: Value = serde_json::from_str(data).unwrap();
    assert_eq!((&errors[0]["message"], &errors[0]["slot"]), (&"two\nlines".into(), &2.into()));
    let began = Instant::now();
    for _ in 0..3 {
        let snapshot = read_until(&mut stream, "event: snapshot");
        assert!(!snapshot.contains("event: errors"), "they are sent once");
    }
    assert!(began.elapsed() > Duration::from_millis(1500), "{:?}", began.elapsed());
}

#[test]
fn a_long_list_of_errors_and_a_long_snapshot_both_arrive() {
    let admin = Admin::new(Source { padding: "x".repeat(900_000), ..Source::default() });
    let add = || {
        let report = ErrorReport { trace: "x".repeat(4000), ..ErrorReport::default() };
        admin.source.errors.add(1, 4711, report);
    };
    (0..50).for_each(|_| add());
    let mut stream = admin.viewer(&admin.cookie());
    read_until(&mut stream, "event: errors");
    for _ in 0..2 {
        // There is a new error in every turn.
        add();
        read_until(&mut stream, "event: snapshot");
        add();
        read_until(&mut stream, "event: errors");
    }
}

#[test]
fn snapshots_are_made_once_for_all_viewers_and_only_for_viewers() {
    let admin = Admin::new(Source::default());
    let cookie = admin.cookie();
    std::thread::sleep(Duration::from_millis(1200));
    assert!(admin.reports() <= 1, "the first sample of the history");
    let mut viewers: Vec<TcpStream> = (0..10).map(|_| admin.viewer(&cookie)).collect();
    for viewer in &mut viewers {
        read_until(viewer, "event: snapshot");
    }
    let before = admin.reports();
    std::thread::sleep(Duration::from_secs(3));
    let made = admin.reports() - before;
    assert!((1..=4).contains(&made), "{made} reports for ten viewers in three seconds");
    drop(viewers);
    std::thread::sleep(Duration::from_millis(2500));
    let before = admin.reports();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(admin.reports() - before <= 1, "a sample of the history is due every five seconds");
}

#[test]
fn a_viewer_begins_with_the_samples_of_the_time_before() {
    let admin = Admin::new(Source::default());
    let cookie = admin.cookie();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let text = read_until(&mut admin.viewer(&cookie), "event: snapshot");
        let (_, history) = text.split_once("event: history\ndata: ").expect("it comes first");
        assert!(!text.starts_with("event: errors"), "{text}");
        let samples: Value = serde_json::from_str(history.split_once('\n').unwrap().0).unwrap();
        if let Some(sample) = samples.get(1) {
            assert!(sample["seconds"].as_f64() >= Some(4.9), "{sample}");
            assert_eq!(sample["count"], 0);
            return;
        }
        assert!(Instant::now() < until, "{samples}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn too_many_viewers_are_refused_and_probes_are_still_answered() {
    let admin = Admin::new(Source::default());
    let cookie = admin.cookie();
    let mut viewers = Vec::new();
    for _ in 0..20 {
        let mut viewer = admin.viewer(&cookie);
        read_until(&mut viewer, "event: snapshot");
        viewers.push(viewer);
    }
    for _ in 0..5 {
        assert_eq!(admin.status("GET", "/live/events", &cookie), "503");
    }
    assert_eq!(admin.status("GET", "/-/live", ""), "200");
    // One viewer leaves, and another one comes.
    drop(viewers.pop());
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let mut head = [0; 12];
        admin.viewer(&cookie).read_exact(&mut head).unwrap();
        if head.ends_with(b"200") {
            break;
        }
        assert!(Instant::now() < until, "the place of the viewer that has left is not free");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Is held by the test that measures the memory of the process, and by the one that needs much.
static MEMORY: Mutex<()> = Mutex::new(());

#[test]
fn clients_that_hold_connections_do_not_keep_out_a_probe() {
    let _memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let admin = Admin::new(Source { padding: "x".repeat(4 << 20), ..Source::default() });
    // More connections than the admin listener admits, in each state that a client can prolong.
    for (state, sent, is_answered) in [
        ("new", "", false),
        ("in a head", "GET /-/live HTTP/1.1\r\n", false),
        ("idle", "GET /-/live HTTP/1.1\r\nHost: localhost\r\n\r\n", true),
        ("in a body", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", false),
        ("refused", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n", true),
        ("in a response", "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n", true),
        (
            "refused as a WebSocket",
            "GET /live/ HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
          Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
          Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n",
            true,
        ),
    ] {
        let mut held = Vec::new();
        for _ in 0..70 {
            let mut stream = TcpStream::connect(admin.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.write_all(sent.as_bytes()).unwrap();
            if is_answered {
                // An earlier connection may have been closed for this one, but this one is served.
                stream.read_exact(&mut [0; 12]).unwrap();
            }
            held.push(stream);
        }
        for _ in 0..3 {
            assert_eq!(admin.status("GET", "/-/live", ""), "200", "the connections are {state}");
        }
    }
}

#[test]
fn viewers_that_do_not_read_hold_one_snapshot_each_and_delay_nobody() {
    let _memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    // Each snapshot is about as large as the buffers of a socket.
    let admin = Admin::new(Source { padding: "x".repeat(900_000), ..Source::default() });
    let cookie = admin.cookie();
    let idle: Vec<TcpStream> = (0..10).map(|_| admin.viewer(&cookie)).collect();
    let mut reader = admin.viewer(&cookie);
    read_until(&mut reader, "event: snapshot");
    let before = resident_memory();
    for _ in 0..10 {
        read_until(&mut reader, "event: snapshot");
    }
    let grown = resident_memory().saturating_sub(before);
    // Without the limit, ten more snapshots of ten viewers would wait: 90 MB.
    assert!(grown < 40_000_000, "{grown} bytes");
    assert_eq!(admin.status("GET", "/-/live", ""), "200");
    drop(idle);
}

/// Returns the resident memory of this process in bytes.
fn resident_memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn the_listener_ends_while_there_are_viewers() {
    let admin = Admin::new(Source::default());
    let mut viewer = admin.viewer(&admin.cookie());
    read_until(&mut viewer, "event: snapshot");
    let began = Instant::now();
    drop(admin);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    while viewer.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
}
