//! A listener on this machine that passes requests on to the Unix socket of a server, to which a
//! browser cannot connect. Other users of the machine can connect to the listener as well, so each
//! request needs the token of the listener.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::{Exchange, Version};
use rookery_status::{Access, AccessToken};

use crate::commands::local_socket;

/// The path of the live page. Browsers send the cookie with the token only there.
const PAGE: &str = "/live/";

/// The maximum number of simultaneous connections. Each has a thread. A browser opens at most six.
const MAX_CONNECTIONS: usize = 32;

/// The maximum size of a request head in bytes, and the maximum number of its header lines.
const MAX_HEAD_SIZE: usize = 64 << 10;
const MAX_HEADERS: usize = 100;

/// The time in which a browser must send the head of a request, or read a part of a response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time without data from the server after which a response ends. The live page gets an event
/// every second.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);

/// A listener on a loopback address, and the Unix socket to which it passes requests on.
pub(super) struct Bridge {
    listener: TcpListener,
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    socket: PathBuf,
    token: AccessToken,
}

impl Bridge {
    /// Opens the listener.
    ///
    /// # Errors
    /// Returns an error if there is no free port, or if the system has no random numbers.
    pub(super) fn open(socket: PathBuf) -> io::Result<Bridge> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let token = AccessToken::generate(PAGE)?;
        let url = token.url(&format!("http://{}", listener.local_addr()?));
        Ok(Bridge { listener, url, shared: Arc::new(Shared { socket, token }) })
    }

    /// Returns the URL of the live page, which contains the token.
    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    /// Passes requests on. Does not return.
    pub(super) fn run(self) {
        for client in self.listener.incoming() {
            let Ok(client) = client else {
                // No descriptor is free, for example.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            // Each thread holds a reference.
            if Arc::strong_count(&self.shared) > MAX_CONNECTIONS {
                continue;
            }
            let shared = Arc::clone(&self.shared);
            let serve = move || {
                // An error means that the browser or the server has disconnected.
                let _ = shared.serve(client);
            };
            // Without a free thread, the connection is closed.
            let _ = std::thread::Builder::new().name("rookery-bridge".to_owned()).spawn(serve);
        }
    }
}

impl Shared {
    /// Responds to one request, and closes the connection.
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let Some(exchange) = read_request(&mut client)? else {
            return respond(&mut client, 400, "", "text/plain", "400 Bad Request\n");
        };
        match self.token.check(&exchange) {
            Access::Granted => match connect(&self.socket, &exchange) {
                Ok(mut response) => io::copy(&mut response, &mut client).map(drop),
                Err(error) => {
                    let text = format!("502 Bad Gateway: the server does not respond: {error}\n");
                    respond(&mut client, 502, "", "text/plain", &text)
                }
            },
            Access::Exchanged { page, cookie } => {
                let cookie = format!("Set-Cookie: {cookie}\r\nReferrer-Policy: no-referrer\r\n");
                respond(&mut client, 200, &cookie, "text/html; charset=utf-8", &page)
            }
            Access::Refused { status, why } => {
                respond(&mut client, status, "", "text/plain", &format!("{status}: {why}\n"))
            }
        }
    }
}

/// Reads the head of a request. Returns `None` if it is not a head of HTTP/1.
fn read_request(client: &mut TcpStream) -> io::Result<Option<Box<Exchange>>> {
    let local = client.local_addr()?;
    let (mut head, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let len = client.read(&mut part)?;
        if len == 0 || head.len() + len > MAX_HEAD_SIZE {
            return Ok(None);
        }
        head.extend_from_slice(&part[..len]);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Partial) => continue,
            Ok(httparse::Status::Complete(_)) => {}
            Err(_) => return Ok(None),
        }
        let (Some(method), Some(target)) = (request.method, request.path) else { return Ok(None) };
        if !target.starts_with('/') {
            return Ok(None);
        }
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.set_request_line(method.as_bytes(), target.as_bytes(), Version::Http11);
        for header in request.headers.iter() {
            exchange.push_header(header.name.to_ascii_lowercase().as_bytes(), header.value);
        }
        exchange.end_head(None, Some(local), false);
        return Ok(Some(exchange));
    }
}

/// Sends a request to the server. Returns the connection, from which the response can be read. The
/// headers and the body are left out, because the live page sends none that the server needs.
fn connect(socket: &Path, exchange: &Exchange) -> io::Result<impl Read + use<>> {
    let mut stream = local_socket::connect(socket, SERVER_TIMEOUT)?;
    // With HTTP/1.0 the response is not chunked, and ends with the connection.
    let end = b" HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    let target = [exchange.path(), exchange.query()].concat();
    stream.write_all(&[exchange.method(), b" ", &target, end].concat())?;
    Ok(stream)
}

fn respond(
    client: &mut TcpStream,
    status: u16,
    headers: &str,
    kind: &str,
    body: &str,
) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} \r\nConnection: close\r\nCache-Control: no-store\r\n{headers}\
         Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    );
    client.write_all(&[head.as_bytes(), body.as_bytes()].concat())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn ask(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn only_clients_with_the_token_reach_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin");
        let server = UnixListener::bind(&path).unwrap();
        let bridge = Bridge::open(path).unwrap();
        let port = bridge.listener.local_addr().unwrap().port();
        let url = bridge.url();
        let target = &url[format!("http://127.0.0.1:{port}").len()..];
        std::thread::spawn(move || bridge.run());
        let get = |target: &str, headers: &str| {
            ask(port, &format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n"))
        };
        for request in [
            "GET /live/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "GET /live/?token=00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "POST /live/actions/reload HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ] {
            assert!(ask(port, request).starts_with("HTTP/1.1 403 "), "{request}");
        }
        let rebound = format!("GET {target} HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        assert!(ask(port, &rebound).starts_with("HTTP/1.1 421 "));
        for wrong in ["GET\r\n\r\n", "GET http://localhost/ HTTP/1.1\r\n\r\n", "\x16\x03\x01 \r\n"]
        {
            assert!(ask(port, wrong).starts_with("HTTP/1.1 400 "), "{wrong:?}");
        }
        let exchanged = get(target, "");
        let (_, cookie) = exchanged.split_once("Set-Cookie: ").unwrap();
        let cookie = cookie.split(';').next().unwrap();
        let responds = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut head = [0; 1024];
            let len = stream.read(&mut head).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nevents").unwrap();
            String::from_utf8(head[..len].to_vec()).unwrap()
        });
        let response = get("/live/events?a=1", &format!("Cookie: {cookie}\r\n"));
        assert!(response.ends_with("\r\n\r\nevents"), "{response}");
        let request = responds.join().unwrap();
        assert!(request.starts_with("GET /live/events?a=1 HTTP/1.0\r\n"), "{request}");
        assert!(!request.contains(cookie), "{request}");
        // The server has ended.
        let response = get("/live/", &format!("Cookie: {cookie}\r\n"));
        assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    }
}
