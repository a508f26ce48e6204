//! Connections of a client: through a proxy, and after a response that came early.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http::{HeaderMap, Method};
use rookery_http_client::{Client, Endpoint, HttpError, Response, ResponseLimits};
use rookery_test_support::tls::client_config;
use rookery_test_support::tls_file;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const LIMITS: ResponseLimits = ResponseLimits { time: Duration::from_secs(60), bytes: 100 };

fn server_config() -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(tls_file("other.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(tls_file("other.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    Arc::new(config)
}

fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Starts a proxy for one connection, which `serve` gets after the head of CONNECT. Returns the
/// proxy's URL, and the thread that runs `serve`.
fn proxy<T: Send + 'static>(
    serve: impl FnOnce(String, TcpStream) -> T + Send + 'static,
) -> (String, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://me:secret@{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = read_head(&mut stream);
        serve(head, stream)
    });
    (url, serving)
}

/// Sends requests to an HTTPS URL through a proxy, and returns the responses.
fn send(proxy: &str, count: usize) -> Vec<Result<Response, HttpError>> {
    let mut endpoint = Endpoint::parse("https://example.test:8443/v1/traces").unwrap();
    let get = |name: &str| (name == "HTTPS_PROXY").then(|| proxy.to_owned());
    endpoint.set_proxy(&get).unwrap();
    let mut client = Client::new(endpoint, Some(Arc::new(client_config(None))));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut responses = Vec::new();
    runtime.block_on(async {
        for _ in 0..count {
            let headers = HeaderMap::new();
            responses.push(client.send(&Method::POST, &headers, b"body", LIMITS).await);
        }
    });
    responses
}

#[test]
fn requests_share_one_tunnel() {
    let (url, serving) = proxy(|head, mut stream| {
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
        let tls = ServerConnection::new(server_config()).unwrap();
        let mut tls = StreamOwned::new(tls, stream);
        for _ in 0..2 {
            let request = read_head(&mut tls);
            assert!(request.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{request}");
            assert!(!request.contains("proxy-authorization"), "{request}");
            let mut body = [0; 4];
            tls.read_exact(&mut body).unwrap();
            tls.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        }
        head
    });
    for response in send(&url, 2) {
        assert_eq!(response.unwrap().body, b"ok");
    }
    let head = serving.join().unwrap();
    assert!(head.starts_with("CONNECT example.test:8443 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("proxy-authorization: Basic "), "{head}");
}

#[test]
fn a_proxy_that_refuses_is_an_error_without_its_password() {
    let (url, serving) = proxy(|_, mut stream| {
        let answer = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).unwrap();
    });
    let error = send(&url, 1).remove(0).unwrap_err().to_string();
    assert!(error.contains("407") && !error.contains("secret"), "{error}");
    serving.join().unwrap();
}

#[test]
fn an_early_response_is_returned_and_its_connection_not_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        // The body, which no buffer holds, is never read.
        let (mut first, _) = listener.accept().unwrap();
        read_head(&mut first);
        first.write_all(b"HTTP/1.1 413 x\r\ncontent-length: 0\r\n\r\n").unwrap();
        let (mut second, _) = listener.accept().unwrap();
        read_head(&mut second);
        second.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        (first, second)
    });
    let mut client = Client::new(Endpoint::parse(&url).unwrap(), None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let statuses = runtime.block_on(async {
        let mut statuses = Vec::new();
        for body in [vec![b'x'; 32 << 20], Vec::new()] {
            let response = client.send(&Method::POST, &HeaderMap::new(), &body, LIMITS).await;
            statuses.push(response.unwrap().status.as_u16());
        }
        statuses
    });
    assert_eq!(statuses, [413, 200]);
    serving.join().unwrap();
}
