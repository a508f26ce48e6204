//! Warm-up requests to a new worker before it serves clients. The first requests of an app are
//! slow, because R compiles functions and loads packages during them.

use std::io;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// The number of bytes of a warm-up response that are read at a time. The response is read to its
/// end, because only then is the app's work for the request complete.
const READ_SIZE: usize = 16 << 10;

/// The number of bytes that are parsed at the beginning of a status line, for example
/// `HTTP/1.1 200`.
const STATUS_LINE_BYTES: usize = 12;

/// The result of the warm-up requests to a new worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WarmupResult {
    /// The app responded to all warm-up requests. The texts are warnings about paths that do not
    /// exist or that require authorization (status 4xx).
    Succeeded(Vec<String>),
    /// The app failed on a warm-up request. The text is the reason.
    Failed(String),
}

/// Sends warm-up requests for all `paths` to a worker's `socket`, one after the other, until one
/// fails. The caller must limit the time.
pub(super) async fn warm_up(socket: PathBuf, paths: Vec<String>) -> WarmupResult {
    let mut warnings = Vec::new();
    for path in paths {
        match get(&socket, &path).await {
            Ok(status @ 500..) => {
                return WarmupResult::Failed(format!("`{path}` returned status {status}"));
            }
            Ok(status @ 400..) => warnings.push(format!("`{path}` returned status {status}")),
            Ok(_) => {}
            Err(error) => {
                return WarmupResult::Failed(format!("`{path}` got no response: {error}"));
            }
        }
    }
    WarmupResult::Succeeded(warnings)
}

/// Requests `path` from the worker at `socket`. Returns the status code when the response is
/// complete.
async fn get(socket: &Path, path: &str) -> io::Result<u16> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: rookery-warmup\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::with_capacity(STATUS_LINE_BYTES);
    let mut room = vec![0; READ_SIZE];
    loop {
        let read = stream.read(&mut room).await?;
        if read == 0 {
            break;
        }
        head.extend_from_slice(&room[..read.min(STATUS_LINE_BYTES - head.len())]);
    }
    status(&head).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Returns the status code at the beginning of a response head, or `None` if the status line is
/// malformed.
fn status(head: &[u8]) -> Option<u16> {
    let digits = head.strip_prefix(b"HTTP/1.1 ")?;
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|status| (200..600).contains(status))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn reads_the_status_code_of_a_status_line() {
        assert_eq!(status(b"HTTP/1.1 200"), Some(200));
        for wrong in [&b""[..], b"HTTP/1.1 20", b"HTTP/1.1 abc", b"HTTP/1.0 200", b"HTTP/1.1 999"] {
            assert_eq!(status(wrong), None);
        }
    }

    /// Sends warm-up requests for `paths` to a simulated worker, which sends the `replies` in
    /// order. Returns the result of the warm-up.
    fn warm_up_server(replies: Vec<&'static str>, paths: &[&str]) -> WarmupResult {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            for reply in replies {
                let (mut stream, _) = listener.accept().unwrap();
                let mut read = Vec::new();
                while !read.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    read.push(byte[0]);
                }
                assert!(read.starts_with(b"GET /"));
                stream.write_all(reply.as_bytes()).unwrap();
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let warmed =
            runtime.block_on(warm_up(socket, paths.iter().map(|&path| path.to_owned()).collect()));
        server.join().unwrap();
        warmed
    }

    #[test]
    fn a_server_error_fails_and_a_client_error_is_a_warning() {
        let ok = "HTTP/1.1 200 OK\r\n\r\nbody";
        let none = "HTTP/1.1 404 Not Found\r\n\r\n";
        assert_eq!(warm_up_server(vec![ok, ok], &["/a", "/b"]), WarmupResult::Succeeded(vec![]));
        assert_eq!(
            warm_up_server(vec![none, ok], &["/a", "/b"]),
            WarmupResult::Succeeded(vec!["`/a` returned status 404".to_owned()])
        );
        assert_eq!(
            warm_up_server(vec!["HTTP/1.1 500 Oh\r\n\r\n"], &["/a", "/b"]),
            WarmupResult::Failed("`/a` returned status 500".to_owned())
        );
        let WarmupResult::Failed(reason) = warm_up_server(vec![""], &["/a"]) else {
            panic!("the request got no response")
        };
        assert!(reason.starts_with("`/a` got no response: "), "{reason}");
    }
}
