//! Tests of static paths that workers have announced and that the front end serves.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rookery_server::Config;
use rookery_server::static_files::{Header, Overrides, RequiredHeader, StaticPath, Validation};
use rookery_supervisor::{Backend, PoolLimits, SessionAffinity};
use rookery_test_support::client::Response;
use rookery_test_support::wait_until;
use tempfile::TempDir;

use crate::support::frontend::Frontend;
use crate::support::running_supervisor::{Running, Wish};

/// Creates a folder with a file of this text.
pub(super) fn folder(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), text).unwrap();
    folder
}

pub(super) fn path(folder: &Path, overrides: Overrides) -> StaticPath {
    StaticPath { path: folder.to_path_buf(), overrides }
}

fn announce(front: &Frontend, backend: &Backend, paths: &[(&str, StaticPath)]) {
    let paths: BTreeMap<_, _> =
        paths.iter().map(|(key, path)| ((*key).to_owned(), path.clone())).collect();
    front.registry.set_static_paths(backend, paths);
}

pub(super) fn announce_all(front: &Frontend, paths: &[(&str, StaticPath)]) {
    for worker in &front.workers {
        announce(front, &worker.backend, paths);
    }
}

fn begun(front: &Frontend) -> usize {
    front.workers.iter().map(|worker| worker.gate.begun.load(Ordering::Relaxed)).sum()
}

/// Returns true if the fake application responded, which sends 404 and the path for unknown paths.
fn is_of_a_worker(reply: &Response) -> bool {
    reply.header("x-slot").is_some()
}

#[test]
fn serves_static_files_while_every_worker_is_busy() {
    let (front, files) = (Frontend::new(2), folder("hello"));
    announce_all(&front, &[("/static", path(files.path(), Overrides::default()))]);
    let held = [front.ask("/hold"), front.ask("/hold")];
    wait_until("both are busy", || begun(&front) == 2);
    let mut client = front.connect();
    for _ in 0..3 {
        let reply = client.get("/static/a.txt");
        assert_eq!((reply.status, reply.text()), (200, "hello".to_owned()));
        assert_eq!(reply.header("content-type"), Some("text/plain"));
    }
    assert_eq!(client.get("/static/none").status, 404);
    assert!(held.iter().all(|held| !held.is_finished()));
    for worker in &front.workers {
        worker.gate.open();
    }
    for held in held {
        assert_eq!(held.join().unwrap().status, 200);
    }
    assert_eq!(begun(&front), 2, "no file was asked of a worker");
}

#[test]
fn options_and_access_rules_of_a_static_path_apply() {
    let (front, files) = (Frontend::new(2), folder("secret"));
    let rule = RequiredHeader::new("X-Key", b"abc").unwrap();
    let secret = Overrides {
        validation: Some(Validation::Require(rule)),
        fallthrough: Some(true),
        headers: Some(vec![Header::new(b"X-Own", b"1").unwrap()]),
        ..Overrides::default()
    };
    let excluded = Overrides { exclude: Some(true), ..Overrides::default() };
    announce_all(
        &front,
        &[("/s", path(files.path(), secret)), ("/s/app", path(Path::new(""), excluded))],
    );
    let mut client = front.connect();
    for (headers, status) in [("", 403), ("X-Key: abd\r\n", 403), ("X-Key: abc\r\n", 200)] {
        client.send(format!("GET /s/a.txt HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
        let reply = client.response_to("GET").unwrap();
        assert_eq!(reply.status, status, "{headers}");
        assert_eq!(reply.header("x-own").is_some(), status == 200);
    }
    assert_eq!(begun(&front), 0);
    // The app serves what these rules leave to it, which are an exclusion, a missing file with
    // fall-through, and a WebSocket.
    assert!(is_of_a_worker(&client.get("/s/app/a.txt")));
    client.send("GET /s/none HTTP/1.1\r\nHost: a\r\nX-Key: abc\r\n\r\n");
    assert!(is_of_a_worker(&client.response_to("GET").unwrap()));
    assert_eq!(front.connect().upgrade("/s/a.txt").status, 404);
}

#[test]
fn a_reload_replaces_static_paths_with_the_workers() {
    let mut front = Frontend::new(2);
    let [old, new] = [folder("old"), folder("new")];
    let at = |folder: &TempDir| path(folder.path(), Overrides::default());
    announce_all(&front, &[("/static", at(&old)), ("/same", at(&old)), ("/gone", at(&old))]);
    let text = |front: &Frontend, path: &str| {
        let reply = front.connect().get(path);
        if is_of_a_worker(&reply) { "a worker".to_owned() } else { reply.text() }
    };
    assert_eq!(text(&front, "/static/a.txt"), "old");
    // While workers of both generations serve, the last change of a path applies.
    for slot in 0..2 {
        front.join(slot);
        let backend = &front.workers.last().unwrap().backend;
        announce(&front, backend, &[("/static", at(&new)), ("/same", at(&old))]);
        assert_eq!(text(&front, "/static/a.txt"), "new");
        assert_eq!(text(&front, "/gone/a.txt"), "old");
        assert_eq!(text(&front, "/same/a.txt"), "old");
    }
    front.registry.drain(&front.workers[0].backend);
    front.registry.drain(&front.workers[1].backend);
    assert_eq!(text(&front, "/static/a.txt"), "new");
    assert_eq!(text(&front, "/gone/a.txt"), "a worker");
    front.kill(0);
    front.kill(0);
    assert_eq!(text(&front, "/static/a.txt"), "new");
    assert_eq!(text(&front, "/same/a.txt"), "old");
    assert_eq!(text(&front, "/gone/a.txt"), "a worker");
}

#[test]
fn a_request_that_names_a_worker_gets_the_files_of_that_worker() {
    let limits = PoolLimits { session_affinity: SessionAffinity::Cookie, ..PoolLimits::default() };
    let mut front = Frontend::with(2, limits, Config::default());
    let folders = [folder("0"), folder("1")];
    for (worker, folder) in front.workers.iter().zip(&folders) {
        announce(&front, &worker.backend, &[("/own", path(folder.path(), Overrides::default()))]);
    }
    let mut client = front.connect();
    assert_eq!(client.get("/own/a.txt").text(), "1", "the last change");
    let page = client.get("/slot");
    let cookie = page.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let at: usize = page.text().parse().unwrap();
    let get = |front: &Frontend, path: &str| {
        let mut client = front.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nCookie: a=1; {cookie}\r\n\r\n"));
        client.response_to("GET").unwrap().text()
    };
    assert_eq!(get(&front, "/own/a.txt"), page.text());
    announce(&front, &front.workers[1 - at].backend, &[]);
    assert_eq!(get(&front, "/own/a.txt"), page.text());
    assert!(is_of_a_worker(&client.get("/own/a.txt")));
    // Also of a worker that drains, but only with its name.
    front.registry.drain(&front.workers[at].backend);
    assert_eq!(get(&front, "/own/a.txt"), page.text());
    front.kill(at);
    assert_eq!(get(&front, "/own/a.txt"), "/own/a.txt");
}

#[test]
fn the_latest_announcement_applies_until_no_worker_is_left() {
    let mut front = Frontend::new(1);
    let files = folder("hello");
    let at = path(files.path(), Overrides::default());
    assert!(is_of_a_worker(&front.connect().get("/static/a.txt")));
    announce_all(&front, &[("/static", at.clone()), ("/", at.clone())]);
    assert_eq!(front.connect().get("/static/a.txt").text(), "hello");
    let excluded = Overrides { exclude: Some(true), ..Overrides::default() };
    announce_all(&front, &[("/static", path(Path::new(""), excluded)), ("/", at)]);
    assert!(is_of_a_worker(&front.connect().get("/static/a.txt")));
    announce_all(&front, &[]);
    assert!(is_of_a_worker(&front.connect().get("/a.txt")));
    front.kill(0);
    assert!(front.registry.files().is_empty());
}

#[test]
fn a_confirmed_path_applies_to_the_next_request() {
    let delay = Duration::from_millis(2);
    let mut running = Running::new(Wish { workers: 1, delay, ..Wish::default() });
    let files = folder("hello");
    let set = format!("/static-is{}", files.path().display());
    let mut client = running.connect();
    let mut stale = (0, 0);
    for _ in 0..300 {
        client.get(&set);
        stale.0 += usize::from(client.get("/static/a.txt").text() != "hello");
        client.get("/static-is-none");
        stale.1 += usize::from(client.get("/static/a.txt").text() == "hello");
    }
    assert_eq!(stale, (0, 0));
    drop(client);
    running.stop();
}
