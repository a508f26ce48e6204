//! Tests against a small fake authority, which fails in ways that Pebble does not.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rookery_acme::{Challenge, RetrySchedule, Settings};
use rookery_test_support::tls_file;

use crate::support::{Client, Served, logged, roots, settings, wait_for, wait_for_line};

/// The response to an order: a status line with headers, and a body.
type Answer = Mutex<(String, String)>;

struct Fake {
    port: u16,
    orders: Arc<AtomicUsize>,
    accounts: Arc<AtomicUsize>,
    posts: Arc<AtomicUsize>,
    /// The bodies of the requests that created an order.
    ordered: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// Starts an authority that rejects the first `refused` nonces of each request, and responds to
    /// each order with `answer`.
    fn start(refused: usize, status: &str, body: &str) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let counts: [Arc<AtomicUsize>; 3] = Default::default();
        let [orders, accounts, posts] = counts.clone();
        let answer: Answer = Mutex::new((status.to_owned(), body.to_owned()));
        let ordered: Arc<Mutex<Vec<String>>> = Arc::default();
        let theirs = Arc::clone(&ordered);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = answer_one(stream.unwrap(), port, refused, &answer, &counts, &theirs);
            }
        });
        Fake { port, orders, accounts, posts, ordered }
    }

    fn directory(&self) -> String {
        format!("http://127.0.0.1:{}/dir", self.port)
    }

    fn orders(&self) -> usize {
        self.orders.load(Ordering::Relaxed)
    }
}

fn answer_one(
    stream: TcpStream,
    port: u16,
    refused: usize,
    answer: &Answer,
    [orders, accounts, posts]: &[Arc<AtomicUsize>; 3],
    ordered: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut len = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
            len = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body)?;
    let base = format!("http://127.0.0.1:{port}");
    let (status, body) = match line.split(' ').nth(1).unwrap() {
        "/dir" => (
            "200 OK".to_owned(),
            format!(
                r#"{{"newNonce":"{base}/nonce","newAccount":"{base}/account",
                "newOrder":"{base}/order","renewalInfo":"{base}/window","meta":{{}}}}"#
            ),
        ),
        // A window that ended long ago.
        window if window.starts_with("/window/") => (
            "200 OK".to_owned(),
            r#"{"suggestedWindow":{"start":"2020-01-01T00:00:00Z","end":"2020-01-02T00:00:00Z"}}"#
                .to_owned(),
        ),
        "/nonce" => ("200 OK".to_owned(), String::new()),
        _ if posts.fetch_add(1, Ordering::Relaxed) % (refused + 1) < refused => (
            "400 Bad Request".to_owned(),
            r#"{"type":"urn:ietf:params:acme:error:badNonce","detail":"used"}"#.to_owned(),
        ),
        "/account" => {
            accounts.fetch_add(1, Ordering::Relaxed);
            (format!("201 Created\r\nLocation: {base}/account/1"), "{}".to_owned())
        }
        _ => {
            orders.fetch_add(1, Ordering::Relaxed);
            ordered.lock().unwrap().push(String::from_utf8(body).unwrap());
            answer.lock().unwrap().clone()
        }
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nReplay-Nonce: n\r\nContent-Length: {}\r\nConnection: \
         close\r\n\r\n{body}",
        body.len()
    )
}

fn served(fake: &Fake, host: &str, folder: &tempfile::TempDir, retry: RetrySchedule) -> Served {
    let mut it =
        Served::start(Settings { retry, ..settings(&[host], &fake.directory(), folder.path()) });
    it.start_renewer(&[Challenge::Tls]);
    it
}

const FAST: RetrySchedule =
    RetrySchedule { divisor: 600, check_interval: Duration::from_millis(50) };

#[test]
fn how_long_to_wait_is_the_authoritys_to_say_and_survives_a_restart() {
    let fake = Fake::start(
        0,
        "429 Too Many Requests\r\nRetry-After: 3600",
        r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many certificates"}"#,
    );
    let folder = tempfile::tempdir().unwrap();
    let it = served(&fake, "limited.example.org", &folder, FAST);
    let line = wait_for_line("limited.example.org", "no certificate for");
    assert!(
        line.contains("too many certificates (rateLimited). The next attempt is in 60 min"),
        "{line}"
    );
    assert_eq!(fake.orders(), 1);
    drop(it);
    for restart in 1..=3 {
        let _it = served(&fake, "limited.example.org", &folder, FAST);
        wait_for("what it does", || {
            let told = logged("limited.example.org")
                .into_iter()
                .filter(|line| line.contains("the next attempt is in 60 min"));
            (told.count() == restart).then_some(())
        });
    }
    assert_eq!(fake.orders(), 1);
    assert_eq!(fake.accounts.load(Ordering::Relaxed), 1);
}

/// The state was written while the clock was a year ahead.
#[test]
fn an_attempt_in_the_future_is_no_reason_to_wait() {
    let host = "future.example.org";
    let fake = Fake::start(0, "500 Internal Server Error", "<html>");
    let folder = tempfile::tempdir().unwrap();
    // The waits are longer than the test.
    let slow = RetrySchedule { divisor: 1, check_interval: Duration::from_millis(50) };
    let begin = || {
        Served::start(Settings {
            retry: slow,
            ..settings(&[host], &fake.directory(), folder.path())
        })
    };
    let mut it = begin();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let ahead = now + 365 * 86_400;
    let state =
        format!(r#"{{"failures":1,"attempted":{ahead},"next":{},"window":null}}"#, ahead + 60);
    let place = it.certificate_file().with_file_name("state.json");
    std::fs::write(&place, state).unwrap();
    it.start_renewer(&[Challenge::Tls]);
    wait_for_line(host, "no certificate for");
    assert_eq!(fake.orders(), 1);
    // The state now has the time of the correct clock, so a restart waits and orders nothing.
    drop(it);
    let state = std::fs::read_to_string(&place).unwrap();
    assert!(state.contains("\"failures\":2") && !state.contains(&ahead.to_string()), "{state}");
    let mut it = begin();
    it.start_renewer(&[Challenge::Tls]);
    wait_for_line(host, "the last attempt to get a certificate");
    assert_eq!(fake.orders(), 1);
}

#[test]
fn waits_grow_while_it_fails() {
    let fake = Fake::start(0, "500 Internal Server Error", "<html>");
    let folder = tempfile::tempdir().unwrap();
    let _it =
        served(&fake, "failing.example.org", &folder, RetrySchedule { divisor: 6000, ..FAST });
    wait_for("four attempts", || (fake.orders() >= 4).then_some(()));
    assert!(
        wait_for_line("failing.example.org", "no certificate for")
            .contains("the authority responded with status 500")
    );
    let state = |folder: &std::path::Path| {
        let place = std::fs::read_dir(folder.join("acme")).unwrap().next().unwrap().unwrap().path();
        std::fs::read_to_string(place.join("failing.example.org/state.json")).unwrap()
    };
    wait_for("that it counts", || state(folder.path()).contains("\"failures\":4").then_some(()));
}

#[test]
fn a_request_is_signed_again_after_a_refused_nonce() {
    for (refused, host, is_heard) in
        [(2, "nonces.example.org", true), (3, "hostile.example.org", false)]
    {
        let fake = Fake::start(refused, "403 Forbidden", r#"{"detail":"no\u001b[31m"}"#);
        let folder = tempfile::tempdir().unwrap();
        let _it = served(&fake, host, &folder, RetrySchedule::default());
        let line = wait_for_line(host, "no certificate for");
        assert_eq!(line.contains(": no [31m. "), is_heard, "{line}");
        assert_eq!(line.contains(": used (badNonce). "), !is_heard, "{line}");
        // The requests for one account and one order, or none.
        assert_eq!(fake.posts.load(Ordering::Relaxed), if is_heard { 6 } else { 3 });
        assert_eq!(fake.orders(), usize::from(is_heard));
    }
}

/// Returns the signed payload of a request body.
fn payload(body: &str) -> String {
    use base64::Engine as _;
    let signed: serde_json::Value = serde_json::from_str(body).unwrap();
    let payload = signed["payload"].as_str().unwrap();
    let decoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).unwrap();
    String::from_utf8(decoded).unwrap()
}

#[test]
fn a_certificate_that_the_authority_wants_gone_is_renewed_at_once() {
    let problem =
        r#"{"type":"urn:ietf:params:acme:error:alreadyReplaced","detail":"by another order"}"#;
    let fake = Fake::start(0, "409 Conflict", problem);
    let folder = tempfile::tempdir().unwrap();
    let it = Served::start(settings(&["localhost"], &fake.directory(), folder.path()));
    let both = ["localhost.pem", "localhost.key"]
        .map(|name| std::fs::read_to_string(tls_file(name)).unwrap());
    std::fs::write(it.certificate_file(), both.concat()).unwrap();
    drop(it);
    let it = served(&fake, "localhost", &folder, RetrySchedule::default());
    assert!(
        wait_for_line("localhost", "no certificate for localhost: by another order")
            .contains("The current certificate is valid until")
    );
    assert!(
        logged("localhost")
            .iter()
            .any(|line| line.contains("renewing the certificate for localhost from 127.0.0.1"))
    );
    // The previous certificate is served meanwhile.
    assert!(it.shown("localhost").is_some());
    // The first request names the replaced certificate; the second does not.
    let ordered: Vec<String> =
        fake.ordered.lock().unwrap().iter().map(|body| payload(body)).collect();
    assert_eq!(ordered.len(), 2);
    assert!(
        ordered[0].contains(r#""replaces":""#) && !ordered[1].contains("replaces"),
        "{ordered:?}"
    );
    assert!(ordered[1].contains(r#"[{"type":"dns","value":"localhost"}]"#), "{ordered:?}");
}

#[test]
fn a_name_that_is_added_does_not_cost_the_others() {
    let fake = Fake::start(0, "403 Forbidden", r#"{"detail":"no such name"}"#);
    let folder = tempfile::tempdir().unwrap();
    let before = Served::start(settings(&["localhost"], &fake.directory(), folder.path()));
    let both = ["localhost.pem", "localhost.key"]
        .map(|name| std::fs::read_to_string(tls_file(name)).unwrap());
    std::fs::write(before.certificate_file(), both.concat()).unwrap();
    let names = ["localhost", "added.example.org"];
    let mut it = Served::start(settings(&names, &fake.directory(), folder.path()));
    assert!(!it.certificate_file().exists());
    it.start_renewer(&[Challenge::Tls]);
    let line = wait_for_line(
        "added.example.org",
        "no certificate for localhost, added.example.org: no such name",
    );
    assert!(
        line.ends_with("Until then, stored certificates for some of the names are used"),
        "{line}"
    );
    let trusted = roots(&std::fs::read(tls_file("ca.pem")).unwrap());
    let address = it.secure.local_addr().unwrap();
    Client::connect(address, "localhost", Some(trusted)).unwrap().get();
    // An expired certificate, or one for other hosts, is not used.
    std::fs::write(before.certificate_file(), std::fs::read(tls_file("expired.pem")).unwrap())
        .unwrap();
    let it = Served::start(settings(&names, &fake.directory(), folder.path()));
    assert!(it.shown("localhost").is_none());
    std::fs::write(before.certificate_file(), both.concat()).unwrap();
    let it = Served::start(settings(
        &["b.example.org", "c.example.org"],
        &fake.directory(),
        folder.path(),
    ));
    assert!(it.shown("localhost").is_none());
}

#[test]
fn nothing_is_ordered_that_cannot_be_written_down() {
    let fake = Fake::start(0, "500 No", "");
    let folder = tempfile::tempdir().unwrap();
    let mut it = Served::start(settings(&["full.example.org"], &fake.directory(), folder.path()));
    // Like a full disk: the state cannot be written.
    let place = it.certificate_file().with_file_name("state.json");
    std::fs::create_dir_all(place.join("in the way")).unwrap();
    it.start_renewer(&[Challenge::Tls]);
    let line = wait_for_line("full.example.org", "cannot be written to");
    assert!(line.contains("no certificate for full.example.org is ordered"), "{line}");
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!((fake.orders(), logged("full.example.org").len()), (0, 1));
}

#[test]
fn a_server_that_shares_the_folder_responds_to_challenges_of_the_one_that_orders() {
    let fake = Fake::start(0, "500 No", "");
    let folder = tempfile::tempdir().unwrap();
    let served =
        || Served::start(settings(&["shared.example.org"], &fake.directory(), folder.path()));
    let (mut orders, mut shares) = (served(), served());
    orders.start_renewer(&[Challenge::Http]);
    wait_for_line("shared.example.org", "no certificate for shared.example.org");
    shares.start_renewer(&[Challenge::Http]);
    wait_for_line("shared.example.org", "another server renews");
    let port = shares.clear.local_addr().unwrap().port();
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let path = "/.well-known/acme-challenge/a-token";
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let file = shares.certificate_file().with_file_name("challenges.json");
    std::fs::write(&file, "[[\"http-01\",\"a-token\",\"a-token.and-key\"]]").unwrap();
    wait_for("the response", || ask().ends_with("\r\n\r\na-token.and-key").then_some(()));
    std::fs::write(&file, "[]").unwrap();
    wait_for("the end of the response", || (!ask().contains("and-key")).then_some(()));
    assert!(shares.acme.failures().load(Ordering::Relaxed) == 0);
    assert!(orders.acme.failures().load(Ordering::Relaxed) > 0);
}

#[test]
fn a_server_that_stops_waits_for_no_authority() {
    // The listener accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = format!("http://127.0.0.1:{}/dir", silent.local_addr().unwrap().port());
    let folder = tempfile::tempdir().unwrap();
    let mut it = Served::start(settings(&["silent.example.org"], &directory, folder.path()));
    it.start_renewer(&[Challenge::Tls]);
    let (_held, _) = silent.accept().unwrap();
    let began = std::time::Instant::now();
    it.stop_renewer();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
