//! Closes connections in such a way that the client can read the last response, and writes error
//! responses that hyper cannot send.

use std::future::poll_fn;
use std::io::IoSlice;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::connections::client_task;
use crate::connections::table::TableEntry as _;
use crate::http::connection::head_start::request_line;
use crate::http::connection::http_connection::{CloseState, HttpConnection, ResetMode};
use crate::logging::access_log::pending_record::record_unreadable;
use crate::rejection::Rejection;

/// Writes an error response to a request head that could not be read. `head` contains the first
/// bytes of the head, as far as they are known. The caller closes the connection afterwards.
pub(crate) fn reject(connection: &HttpConnection, rejection: Rejection, head: &[u8]) {
    reject_with_text(connection, rejection, rejection.text(), head);
}

/// Writes an error response with the given text to a request head that could not be read. `head`
/// contains the first bytes of the head, as far as they are known. If the response does not fit
/// into the socket buffer, the rest is lost.
pub(crate) fn reject_with_text(
    connection: &HttpConnection,
    rejection: Rejection,
    text: &str,
    head: &[u8],
) {
    log_rejection(connection, rejection, text.len(), head);
    write_rejection(connection, rejection, text);
}

/// Writes an error response to a request whose head has been read, and whose record in the access
/// log has ended.
pub(crate) fn reject_begun(connection: &HttpConnection, rejection: Rejection) {
    connection.shared.report(rejection);
    write_rejection(connection, rejection, rejection.text());
}

/// Writes an error response, as far as it fits into the socket buffer.
fn write_rejection(connection: &HttpConnection, rejection: Rejection, text: &str) {
    let hsts = connection.hsts().and_then(|value| value.to_str().ok());
    let hsts =
        hsts.map(|value| format!("Strict-Transport-Security: {value}\r\n")).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\nDate: {date}\r\nConnection: close\r\n{hsts}{retry}\
         Content-Type: text/plain\r\nContent-Length: {len}\r\n\r\n",
        status = rejection.status_line(),
        date = httpdate::fmt_http_date(std::time::SystemTime::now()),
        retry = if rejection.status() == 503 { "Retry-After: 1\r\n" } else { "" },
        len = text.len(),
    );
    let _ = connection
        .transport
        .borrow_mut()
        .try_write_vectored(&[IoSlice::new(head.as_bytes()), IoSlice::new(text.as_bytes())]);
    connection.has_unread_input.set(true);
}

/// Reports a request head that could not be read, and adds it to the access log. `bytes` is the
/// length of the text of the response, and `head` contains the first bytes of the head, as far as
/// they are known.
pub(crate) fn log_rejection(
    connection: &HttpConnection,
    rejection: Rejection,
    bytes: usize,
    head: &[u8],
) {
    connection.shared.report(rejection);
    let remote = connection.ends.get().remote;
    let (log, status) = (&connection.shared.log, rejection.status());
    record_unreadable(log, remote, status, bytes, request_line(head));
}

/// Closes the connection of a client that speaks TLS on a plaintext port, and notifies the
/// operator. No response is sent, because the client could not read it.
pub(crate) fn close_tls_client(connection: &HttpConnection) {
    let rejection = Rejection::TlsOnPlain;
    connection.shared.report(rejection);
    let remote = connection.ends.get().remote;
    record_unreadable(&connection.shared.log, remote, rejection.status(), 0, None);
    if connection.shared.claim_notice() {
        let who = connection
            .ends
            .get()
            .remote
            .map_or_else(|| "a client".to_owned(), |remote| remote.ip().to_string());
        let notice = connection.config.notice.0;
        notice(&format!(
            "{who} sent a TLS handshake to a plaintext HTTP port: give the server a certificate, \
             or use http://"
        ));
    }
    connection.has_unread_input.set(true);
}

/// Closes a connection in such a way that the client can read the response. First closes the
/// sending direction, and then reads and discards input for a limited time. If input remained
/// unread, the system would send a reset, and the client might lose the response (RFC 9112, 9.6).
pub(crate) async fn close(connection: &HttpConnection) {
    if connection.reset_mode.get() != ResetMode::None {
        return reset(connection).await;
    }
    if connection.is_slow() {
        connection.transport.borrow_mut().disconnect_pipe();
    }
    connection.transport.borrow_mut().shut_down();
    if !connection.has_unread_input.get() || !connection.may_linger.get() {
        return;
    }
    if !connection.has_tls() {
        // What is read now needs no buffer of its own.
        connection.release_use();
    }
    connection.close_state.set(CloseState::Open);
    // The sweep allows the idle timeout, which may end the loop earlier.
    connection.activity.begin_lingering(connection.shared.connections.clock.now());
    let period = connection.shared.connections.limits().ws_close_timeout;
    let end = Instant::now() + LINGER_TIME;
    let mut left = if connection.speaks_http2() { HTTP2_LINGER_BYTES } else { LINGER_BYTES };
    loop {
        let before = left;
        let until = end.min(Instant::now() + period);
        let is_done = tokio::time::timeout_at(until, discard(connection, &mut left)).await.is_ok();
        if is_done || before - left < LINGER_PROGRESS || Instant::now() >= end {
            return;
        }
    }
}

/// Reads and discards input until the client ends it, `left` bytes have been read, or the
/// connection must end. Subtracts the number of bytes from `left`.
async fn discard(connection: &HttpConnection, left: &mut usize) {
    poll_fn(|cx| {
        let at_once = left.saturating_sub(LINGER_AT_ONCE);
        while *left > at_once && !connection.is_ending() {
            let mut scratch = connection.shared.scratch.0.borrow_mut();
            match ready!(connection.transport.borrow_mut().poll_read(cx, &mut scratch)) {
                Ok(n) if n > 0 => *left = left.saturating_sub(n),
                _ => return Poll::Ready(()),
            }
        }
        if *left == 0 || connection.is_ending() {
            return Poll::Ready(());
        }
        client_task::yield_now(cx);
        Poll::Pending
    })
    .await;
}

/// The maximum number of bytes that a closing connection reads and discards after its last
/// response. If the client sends more, the connection is reset. Many clients send a whole upload
/// before they read the response.
const LINGER_BYTES: usize = 128 << 20;

/// As [`LINGER_BYTES`] for HTTP/2, where a connection lingers only after a violation of the
/// protocol. Uploads are bounded by flow control instead.
const HTTP2_LINGER_BYTES: usize = 16 << 20;

/// The maximum time for which a closing connection reads and discards input. It is that of nginx
/// (`lingering_time`).
const LINGER_TIME: Duration = Duration::from_secs(30);

/// The number of bytes that a client must send in each close timeout, so that the connection is
/// not closed earlier.
const LINGER_PROGRESS: usize = 64 << 10;

/// The number of bytes that are discarded before other connections have their turn.
const LINGER_AT_ONCE: usize = 1 << 20;

/// The interval at which a closing connection is checked for bytes that the client has not
/// acknowledged.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Closes a connection with a TCP reset, after the bytes of an incomplete response have been
/// written. A FIN would make the response look complete, at least to HTTP/1.0 clients.
async fn reset(connection: &HttpConnection) {
    if connection.reset_mode.get() == ResetMode::AfterWrite && connection.may_linger.get() {
        connection.close_state.set(CloseState::Open);
        connection.activity.begin_lingering(connection.shared.connections.clock.now());
        // A reset discards bytes that the client's system has not acknowledged.
        let written = async {
            let has_unsent = || {
                let mut transport = connection.transport.borrow_mut();
                transport.try_flush();
                transport.unsent().is_some_and(|bytes| bytes > 0)
            };
            while !connection.is_ending() && has_unsent() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let _ =
            tokio::time::timeout(connection.shared.connections.limits().ws_close_timeout, written)
                .await;
    }
    connection.transport.borrow_mut().reset_on_close();
}
