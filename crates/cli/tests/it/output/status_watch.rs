//! Tests of `rookery status --watch`, with a socket in place of a server.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::support::{Running, rookery};

const SNAPSHOT: &str = r#"{"at":1000.0,"actions":[],"certificates":[],"report":{"version":"0.1.0",
"pid":7,"target":"/srv/app","address":"http://here","state":"serving","started":990.0,
"connections":2,"wanted":{"workers":1},"queue":{"length":0,"limit":9},"reload":{},
"workers":[{"slot":0,"pid":8,"state":"ready","r_state":"busy","r_state_ms":2500,"route":"GET /a"}]}}"#;

/// Serves one request on a socket with the text `response`, and returns the request.
fn serve(listener: UnixListener, response: String) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(response.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    })
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
    let snapshot = SNAPSHOT.replace('\n', "");
    let later = snapshot.replace("1000.0", "1001.0");
    let errors = r#"[{"at":999.0,"slot":0,"message":"no such column","trace":"f()\ng()"}]"#;
    format!(
        "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: errors\ndata: {errors}\n\n\
         event: snapshot\ndata: {snapshot}\n\n: comment\n\nevent: snapshot\ndata: {later}\n\n"
    )
}

#[test]
fn each_snapshot_is_shown_until_the_server_ends() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin");
    for (variables, is_coloured) in [
        (&[][..], false),
        (&[("CLICOLOR_FORCE", "1")], true),
        (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
    ] {
        let _ = std::fs::remove_file(&socket);
        let server = serve(UnixListener::bind(&socket).unwrap(), events());
        let (status, out, printed) = watch(&socket, variables);
        assert!(server.join().unwrap().starts_with("GET /live/events HTTP/1.0\r\n"));
        assert_eq!((status, printed.contains("The server has ended.")), (Some(1), true));
        assert_eq!(out.matches("rookery 0.1.0: /srv/app is serving").count(), 2, "{out}");
        assert!(out.contains("up 10.0 s") && out.contains("up 11.0 s"), "{out}");
        assert!(out.contains("GET /a\n") && out.contains("no such column"), "{out}");
        assert_eq!(out.contains('\x1b'), is_coloured, "{out}");
        // Standard output is no terminal, so nothing moves the cursor.
        assert!(!out.contains("\x1b[H"), "{out}");
    }
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
        let server = serve(UnixListener::bind(&socket).unwrap(), response.to_owned());
        let (status, out, printed) = watch(&socket, &[]);
        server.join().unwrap();
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
