//! Tests of `rookery profile`, with a socket in place of a server.

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::support::{Running, read_head, rookery};

const FINISHED: &str = r#"{"state":"finished","interval_ms":10,"took":1.0,"workers":
[{"slot":0,"pid":8,"problem":null}],"summary":{"samples":2,"seconds":0.02,
"routes":[{"route":"GET:/a","seconds":0.02}],"by_self":[],"by_total":[]}}"#;

const STARTED: &str = r#"{"number":4}"#;

const FILE: &str = "sample.interval=10000\n\"f\" \"GET:/a\" \n\"f\" \"GET:/a\" \n";

/// Responds to each request on a socket with what `respond` returns for the request's first line.
/// Returns the first lines of the requests so far.
fn serve(
    socket: &Path,
    respond: impl Fn(&str) -> (u16, String) + Send + 'static,
) -> Arc<Mutex<Vec<String>>> {
    let listener = UnixListener::bind(socket).unwrap();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let requests = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = read_head(&mut stream);
            let first = request.lines().next().unwrap().replace(" HTTP/1.0", "");
            let (status, body) = respond(&first);
            requests.lock().unwrap().push(first);
            write!(stream, "HTTP/1.0 {status} x\r\n\r\n{body}").unwrap();
        }
    });
    seen
}

fn profile(socket: &Path, folder: &Path, arguments: &[&str]) -> Running {
    let mut command = rookery();
    command.current_dir(folder).arg("profile").arg(format!("unix:{}", socket.display()));
    Running::start(command.args(arguments))
}

#[test]
fn the_file_is_written_and_never_replaced_unless_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin");
    let seen = serve(&socket, |request| match request {
        "GET /live/profile?number=4" => (200, FINISHED.to_owned()),
        "GET /live/profile/file?number=4" => (200, FILE.to_owned()),
        _ => (202, STARTED.to_owned()),
    });
    for (arguments, name, action) in [
        (&["--seconds", "1"][..], "rookery-profile.out", "seconds=1"),
        (&["--worker", "3"], "rookery-profile-2.out", "seconds=10&worker=3"),
        (&["--output", "own"], "own", "seconds=10"),
        (&["--output", "own"], "own", "seconds=10"),
    ] {
        let (status, out) = profile(&socket, folder.path(), arguments).end();
        assert_eq!(status.code(), Some(0), "{out}");
        assert!(
            out.contains(&format!(
                "2 samples of R (10 ms of processor time each) in 1.0 s are in {name}\n"
            )),
            "{out}"
        );
        assert!(out.contains("100.0 %  GET:/a\n"), "{out}");
        assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), FILE);
        let requests = std::mem::take(&mut *seen.lock().unwrap());
        let action = format!("POST /live/actions/profile?{action}");
        let expected = ["GET /live/profile?number=4", "GET /live/profile/file?number=4"];
        assert_eq!(requests, [&action, expected[0], expected[1]]);
    }
}

#[test]
fn a_refusal_is_reported_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    for (at, (status, body, message)) in [
        (409, "another profile is running: wait until it ends\n", "another profile is running"),
        (405, "", "another version of Rookery"),
        (404, "there is no worker 7 that serves\n", "there is no worker 7 that serves"),
    ]
    .into_iter()
    .enumerate()
    {
        let socket = folder.path().join(at.to_string());
        serve(&socket, move |_| (status, body.to_owned()));
        let mut it = profile(&socket, folder.path(), &[]);
        assert_eq!(it.end().0.code(), Some(1));
        assert!(it.stderr.contains(message), "{}", it.stderr);
        assert!(!folder.path().join("rookery-profile.out").exists());
    }
    let mut it = profile(&folder.path().join("0"), folder.path(), &["--output", "/none/there"]);
    assert_eq!(it.end().0.code(), Some(1));
    assert!(it.stderr.contains("/none/there cannot be written"), "{}", it.stderr);
}

#[test]
fn ctrl_c_ends_the_profile_and_writes_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin");
    let is_stopped = Arc::new(Mutex::new(false));
    let stopped = Arc::clone(&is_stopped);
    let seen = serve(&socket, move |request| match request {
        "POST /live/actions/stop-profile?number=4" => {
            *stopped.lock().unwrap() = true;
            (202, String::new())
        }
        "GET /live/profile?number=4" if *stopped.lock().unwrap() => (200, FINISHED.to_owned()),
        "GET /live/profile?number=4" => (200, r#"{"state":"running"}"#.to_owned()),
        "GET /live/profile/file?number=4" => (200, FILE.to_owned()),
        _ => (202, STARTED.to_owned()),
    });
    let mut it = profile(&socket, folder.path(), &["--seconds", "300"]);
    rookery_test_support::wait_until("it runs", || seen.lock().unwrap().len() >= 2);
    it.signal(libc::SIGINT);
    assert_eq!(it.end().0.code(), Some(0));
    assert!(*is_stopped.lock().unwrap());
    assert!(folder.path().join("rookery-profile.out").exists());
}
