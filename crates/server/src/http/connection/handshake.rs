//! The steps before the first HTTP request of a connection: reading the PROXY protocol header,
//! performing the TLS handshake, and sending an error response to clients that use plaintext HTTP
//! on a TLS port.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, ready};

use rookery_exchange::ClientCertificate;

use crate::http::connection::activity::Phase;
use crate::http::connection::http_connection::HttpConnection;
use crate::http::connection::lingering_close;
use crate::http::request::head::is_host;
use crate::net::addresses::ConnectionAddresses;
use crate::net::tls::certificate;
use crate::net::tls::stream::HandshakeResult;
use crate::net::trusted_proxies::TrustedProxies;
use crate::rejection::Rejection;

/// The maximum number of bytes that the server reads of a plaintext request on a TLS port. From
/// these bytes it finds the URL that the client intended.
const MAX_HEAD_BYTES: usize = 8 << 10;

/// Reads the PROXY protocol header and performs the TLS handshake, if the listener requires them.
/// Returns false if the connection must be closed. In that case, any error response has already
/// been written.
pub(crate) async fn perform_handshake(connection: &HttpConnection) -> bool {
    if connection.has_tls() {
        // Only the next poll of the reactor shows whether the client has sent anything.
        tokio::task::yield_now().await;
    }
    if let Some(senders) = &connection.config.proxy_protocol {
        if !read_proxy_header(connection, senders).await {
            return false;
        }
    }
    let greeting = poll_fn(|cx| {
        connection.set_waker(cx);
        if connection.close_state.get().is_immediate() {
            return Poll::Ready(None);
        }
        // Before the first byte, the connection holds little.
        let may_read = connection.is_charged_for_use()
            || (connection.transport.borrow().poll_read_ready(cx).is_ready()
                && connection.charge_use());
        if !may_read {
            return Poll::Pending;
        }
        connection.transport.borrow_mut().poll_handshake(cx).map(Some)
    });
    match greeting.await {
        // The certificate authority has got the certificate that it asked for. If the server
        // responded to requests on this connection, the response would be mistaken for one of the
        // host (RFC 8737, 3).
        Some(Ok(HandshakeResult::Complete)) if is_challenge(connection) => false,
        Some(Ok(HandshakeResult::Complete)) => {
            // The HTTP/2 connection preface must arrive within the handshake timeout as well.
            if !connection.speaks_http2() {
                connection.enter(Phase::Head);
                connection.release_use();
            }
            record_client_certificate(connection);
            true
        }
        Some(Ok(HandshakeResult::PlaintextHttp)) => {
            reject_plaintext(connection).await;
            false
        }
        Some(Err(error)) => {
            // Clients, especially browsers, abandon handshakes for harmless reasons. Only invalid
            // data is reported.
            if error.kind() == io::ErrorKind::InvalidData {
                connection.shared.report(Rejection::Handshake);
                connection.has_unread_input.set(true);
            }
            false
        }
        None => false,
    }
}

/// Reads the PROXY protocol header, and replaces the connection's addresses by the addresses in the
/// header. Returns false if the connection must be closed. `senders` are the load balancers that
/// may send the header, and are empty if any client may.
async fn read_proxy_header(connection: &HttpConnection, senders: &TrustedProxies) -> bool {
    let peer = connection.ends.get().remote.map(|peer| peer.ip());
    if !senders.is_empty() && !senders.contains(peer) {
        reject_proxy(
            connection,
            "`proxy_protocol_from` does not list this address: add it if it is that of a load \
             balancer",
        );
        return false;
    }
    let header = poll_fn(|cx| {
        connection.set_waker(cx);
        if connection.close_state.get().is_immediate() {
            return Poll::Ready(None);
        }
        connection.transport.borrow().poll_proxy_header(cx).map(Some)
    });
    match header.await {
        Some(Ok(None)) => true,
        Some(Ok(Some((remote, local)))) => {
            connection.set_announced_addresses(ConnectionAddresses::of(remote, local));
            // What follows is in the turns of the client's network.
            tokio::task::yield_now().await;
            true
        }
        Some(Err(error)) => {
            if error.kind() == io::ErrorKind::InvalidData {
                reject_proxy(
                    connection,
                    "it did not begin with a PROXY protocol header: connect by way of the load \
                     balancer, or switch `proxy_protocol` off",
                );
            }
            false
        }
        None => false,
    }
}

/// Records that a connection is closed because of its PROXY protocol header, and notifies the
/// operator of the reason.
fn reject_proxy(connection: &HttpConnection, why: &str) {
    connection.shared.report(Rejection::Proxy);
    if connection.shared.claim_notice() {
        let peer = connection.ends.get().remote;
        let who = peer.map_or_else(|| "a Unix socket".to_owned(), |peer| peer.ip().to_string());
        let notice = connection.config.notice.0;
        notice(&format!("a connection from {who} was closed, because {why}"));
    }
}

fn is_challenge(connection: &HttpConnection) -> bool {
    connection.transport.borrow_mut().tls().is_some_and(|tls| tls.is_challenge())
}

fn record_client_certificate(connection: &HttpConnection) {
    let mut transport = connection.transport.borrow_mut();
    if let Some(der) = transport.tls().and_then(|tls| tls.peer_certificate()) {
        let (subject, fingerprint) = certificate::client_identity(der);
        // The certificate is set only here, so setting it cannot fail.
        let _ =
            connection.client_certificate.set(Arc::new(ClientCertificate { subject, fingerprint }));
    }
}

/// Sends a 400 response with an explanation to a client that uses plaintext HTTP on a TLS port. The
/// client is not redirected to HTTPS, because nobody would then notice that it sends cookies in
/// plaintext.
async fn reject_plaintext(connection: &HttpConnection) {
    let head = read_head(connection).await;
    let url = intended_url(&head, connection.ends.get().local);
    let text = format!(
        "400 Bad Request: this port speaks HTTPS{}{url}\n",
        if url.is_empty() { "" } else { ": " }
    );
    lingering_close::reject_with_text(connection, Rejection::PlainOnTls, &text, &head);
}

/// Reads the head of a plaintext request on a TLS port. Stops when the head is complete, when it is
/// longer than [`MAX_HEAD_BYTES`], or when the handshake times out. Returns the bytes that were
/// read.
async fn read_head(connection: &HttpConnection) -> Vec<u8> {
    let mut head = Vec::new();
    poll_fn(|cx| {
        connection.set_waker(cx);
        while !connection.close_state.get().is_immediate()
            && head.len() < MAX_HEAD_BYTES
            && !has_complete_head(&head)
        {
            let mut scratch = connection.shared.scratch.0.borrow_mut();
            let room = MAX_HEAD_BYTES - head.len();
            match ready!(connection.transport.borrow_mut().poll_read(cx, &mut scratch[..room])) {
                Ok(n) if n > 0 => head.extend_from_slice(&scratch[..n]),
                _ => break,
            }
        }
        Poll::Ready(())
    })
    .await;
    head
}

fn has_complete_head(head: &[u8]) -> bool {
    head.windows(4).any(|window| window == b"\r\n\r\n")
}

/// Returns the `https` URL that the client of a plaintext request on a TLS port probably wanted.
/// `local` is the address that the client connected to. Returns an empty string if the URL is
/// unknown.
fn intended_url(head: &[u8], local: Option<SocketAddr>) -> String {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let target = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or("/");
    let target = if target.starts_with('/') && target.is_ascii() { target } else { "/" };
    let host = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    match (host.filter(|host| !host.is_empty() && is_host(host.as_bytes())), local) {
        (Some(host), _) => format!("https://{host}{target}"),
        (None, Some(local)) => format!("https://{local}{target}"),
        (None, None) => String::new(),
    }
}

/// Returns true if the received bytes begin like a TLS handshake record (RFC 8446, 5.1).
pub(crate) fn looks_like_tls(read: &[u8]) -> bool {
    matches!(read, [22, 3, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_the_intended_url_from_a_plaintext_request() {
        let local = Some("192.0.2.1:8443".parse().unwrap());
        for (head, expected) in [
            (
                "GET /a?b=c HTTP/1.1\r\nHost: example.org:8443\r\n\r\n",
                "https://example.org:8443/a?b=c",
            ),
            ("GET /a HTTP/1.0\r\nAccept: */*\r\n\r\n", "https://192.0.2.1:8443/a"),
            ("GET / HTTP/1.1\r\nhOST:  a \r\n", "https://a/"),
            ("GET / HTTP/1.1\r\nHost: a b/<c>\r\n\r\n", "https://192.0.2.1:8443/"),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "https://192.0.2.1:8443/"),
            ("GET http://x/ HTTP/1.1\r\nHost: a\r\n\r\n", "https://a/"),
            ("NONSENSE", "https://192.0.2.1:8443/"),
        ] {
            assert_eq!(intended_url(head.as_bytes(), local), expected, "{head}");
        }
        assert_eq!(intended_url(b"GET / HTTP/1.0\r\n\r\n", None), "");
    }
}
