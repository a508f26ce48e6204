//! Listeners on named pipes, which only Windows has.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rookery_server::{Limits, ListenError, ListenerConfig};

use crate::support::{App, TEST_TIMEOUT, hello, wait_until};

/// Returns the name of a pipe that no other test uses.
fn name(of: &str) -> PathBuf {
    PathBuf::from(format!(r"\\.\pipe\rookery-{}-{of}", std::process::id()))
}

/// Connects to a pipe. All its instances may be in use for a moment.
fn connect(pipe: &PathBuf) -> File {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        match OpenOptions::new().read(true).write(true).open(pipe) {
            Ok(client) => return client,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn answer(mut client: File, request: &[u8]) -> Vec<u8> {
    client.write_all(request).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    answer
}

const GET: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

#[test]
fn a_named_pipe_serves_one_client_after_another_and_several_at_once() {
    let app = App::new(Limits::default(), hello);
    let pipe = name("serves");
    let listener = app.server.listen_unix(&pipe, Some(0o077), ListenerConfig::default()).unwrap();
    assert_eq!((listener.local_addr(), listener.path()), (None, Some(&*pipe)));
    for _ in 0..3 {
        assert!(answer(connect(&pipe), GET).ends_with(b"\r\n\r\nHello, World!"));
    }
    let clients: Vec<File> = (0..5).map(|_| connect(&pipe)).collect();
    for client in clients.into_iter().rev() {
        assert!(answer(client, GET).ends_with(b"\r\n\r\nHello, World!"));
    }
    listener.stop();
    let is_gone = || OpenOptions::new().read(true).write(true).open(&pipe).is_err();
    // The system has closed the pipe when it has stopped waiting for a client.
    wait_until("the pipe is closed", is_gone);
    let again = app.server.listen_unix(&pipe, None, ListenerConfig::default()).unwrap();
    assert!(answer(connect(&pipe), GET).ends_with(b"\r\n\r\nHello, World!"));
    again.stop();
}

#[test]
fn a_large_response_reaches_a_slow_client_over_a_named_pipe() {
    let app = App::new(Limits::default(), |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(&vec![b'x'; 3_000_000]);
    });
    let pipe = name("large");
    let listener = app.server.listen_unix(&pipe, None, ListenerConfig::default()).unwrap();
    let mut client = connect(&pipe);
    client.write_all(GET).unwrap();
    let (mut read, mut chunk) = (0, vec![0; 100_000]);
    loop {
        match client.read(&mut chunk).unwrap() {
            0 => break,
            n => read += n,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(read > 3_000_000, "{read}");
    listener.stop();
}

#[test]
fn a_name_in_use_is_an_error() {
    let app = App::new(Limits::default(), hello);
    let pipe = name("used");
    let listen = || app.server.listen_unix(&pipe, None, ListenerConfig::default());
    let _listener = listen().unwrap();
    let error = listen().unwrap_err();
    assert!(error.to_string().contains("address already in use"), "{error}");
}

#[test]
fn a_path_that_is_no_pipe_is_an_error_with_a_remedy() {
    let app = App::new(Limits::default(), hello);
    for path in [r"C:\run\socket", "/run/socket", r"\\.\pipe\", r"\\server\pipe\x", "é"] {
        let listening = app.server.listen_unix(path.as_ref(), None, ListenerConfig::default());
        let error = listening.unwrap_err();
        assert!(matches!(error, ListenError::Bind { .. }), "{path}");
        assert!(error.to_string().contains(r"such as \\.\pipe\rookery"), "{path}: {error}");
    }
}
