//! Tests of `rookery status --watch`, with a socket in place of a server.

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::support::{Running, read_head, rookery};

const SNAPSHOT: &str = r#"{"at":1000.0,"clock":1.0,"report":{"routes":[]}}"#;
const STATUS: &str = "HTTP/1.0 200 OK\r\n\r\nrookery 0.1.0, serving\n0  8  ready  busy  GET /a\n";

/// Serves the text of the status, and for the events one response with the text `response`.
fn serve(listener: UnixListener, response: String) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = read_head(&mut stream);
            let is_for_events = request.starts_with("GET /live/events HTTP/1.0\r\n");
            stream
                .write_all(if is_for_events { response.as_bytes() } else { STATUS.as_bytes() })
                .unwrap();
        }
    });
}

fn watch(socket: &Path, variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = rookery();
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"] {
        command.env_remove(name);
    }
    command.args(["status", "--watch"]).arg(format!("unix:{}", socket.display()));
    let mut it = Running::start(command.envs(variables.iter().copied()));
    let (status, out) = it.end();
    (status.code(), out, std::mem::take(&mut it.stderr))
}

fn events() -> String {
    let snapshot = SNAPSHOT;
    let later = snapshot.replace("1000.0", "1001.0");
    let errors = r#"[{"at":999.0,"slot":0,"message":"no such column","trace":"f()\ng()"}]"#;
    let history = r#"[{"at":0.5,"seconds":5.0,"count":60,"busy":[[0,0.5]]}]"#;
    format!(
        "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: errors\ndata: {errors}\n\n\
         event: history\ndata: {history}\n\n\
         event: snapshot\ndata: {snapshot}\n\n: comment\n\nevent: snapshot\ndata: {later}\n\n"
    )
}

#[test]
fn each_snapshot_is_shown_until_the_server_ends() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin");
    serve(UnixListener::bind(&socket).unwrap(), events());
    let (status, out, printed) = watch(&socket, &[("CLICOLOR_FORCE", "1")]);
    assert_eq!((status, printed.contains("The server has ended.")), (Some(1), true));
    assert_eq!(
        out.matches("rookery 0.1.0, serving\n0  8  ready  busy  GET /a\n").count(),
        2,
        "{out}"
    );
    assert!(out.contains("1.0 s ago") && out.contains("2.0 s ago"), "{out}");
    assert!(out.contains("no such column\n    f()\n    g()\n"), "{out}");
    // The history is part of the first picture.
    let (first, _) = out.split_once("2.0 s ago").unwrap();
    assert!(first.contains("█ per second, at most 12.0\n"), "{out}");
    assert!(first.contains("▅ R busy, at most 50 %\n"), "{out}");
    // Standard output is no terminal, so nothing moves the cursor.
    assert!(!out.contains('\x1b'), "{out}");
}

#[test]
fn a_refusal_and_another_program_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin");
    for (response, message) in [
        ("HTTP/1.0 503 Service Unavailable\r\n\r\n", "too many people watch this server"),
        ("HTTP/1.0 404 Not Found\r\n\r\n", "another version of Rookery"),
        ("SSH-2.0\r\n", "another version of Rookery"),
        ("", "another version of Rookery"),
    ] {
        let _ = std::fs::remove_file(&socket);
        serve(UnixListener::bind(&socket).unwrap(), response.to_owned());
        let (status, out, printed) = watch(&socket, &[]);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{response}");
        assert!(printed.contains(message), "{printed}");
    }
}

#[test]
fn an_address_over_tcp_and_two_formats_are_refused() {
    for (words, message) in [
        (&["--watch", "127.0.0.1:9"][..], "reads the Unix socket of a server"),
        (&["--watch", "--json"], "--json"),
    ] {
        let mut it = Running::start(rookery().arg("status").args(words));
        let (status, _) = it.end();
        assert_eq!(status.code(), Some(2), "{}", it.stderr);
        assert!(it.stderr.contains(message), "{}", it.stderr);
    }
}
