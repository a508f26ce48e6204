//! How a connection says goodbye: with an answer where none of hyper's can be sent, and without throwing away what was
//! written.

use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Poll, ready};

use super::{Connection, End, Phase};
use crate::hub::Hub;
use crate::rejection::Rejection;

/// Writes the answer to a head that could not be read; the connection is closed after it. What does not fit the
/// socket's buffer is lost, with a client that does not read.
pub(super) fn reject(connection: &Connection, rejection: Rejection) {
    // What has no head has no id yet.
    connection.hook.begin(Hub::next_id());
    rookery_error::throw(rejection.error());
    let text = rejection.text();
    connection.line.begin_unreadable(&connection.hub.log, connection.remote, rejection.status());
    connection.line.add_bytes(text.len());
    let head = format!(
        "HTTP/1.1 {status}\r\nDate: {date}\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {len}\r\n\r\n",
        status = rejection.status_line(),
        date = httpdate::fmt_http_date(std::time::SystemTime::now()),
        len = text.len(),
    );
    let _ = connection
        .socket
        .borrow()
        .try_write_vectored(&[IoSlice::new(head.as_bytes()), IoSlice::new(text.as_bytes())]);
    connection.has_rest.set(true);
}

/// Says goodbye: a FIN, and when the peer is still sending, reading on for a while, so that what was written is not
/// thrown away by a reset (RFC 9112, 9.6).
pub(super) async fn close(connection: &Rc<Connection>) {
    connection.socket.borrow().shut_down();
    if !connection.has_rest.get() || !connection.lingers.get() {
        return;
    }
    connection.end.set(End::No);
    connection.enter(Phase::Flush);
    connection.is_write_blocked.set(true); // Counts as such: the sweep gives it `idle_time`, this loop less.
    let patience = connection.hub.limits.close_time;
    let mut left = LINGER_BYTES;
    let rest = poll_fn(|cx| {
        while left > 0 && !connection.is_ending() {
            let mut scratch = connection.hub.scratch.borrow_mut();
            match ready!(connection.socket.borrow_mut().poll_read(cx, &mut scratch)) {
                Ok(n) if n > 0 => left = left.saturating_sub(n),
                _ => break,
            }
        }
        Poll::Ready(())
    });
    let _ = tokio::time::timeout(patience, rest).await;
}

/// What a client may send after its request was refused before the connection is reset all the same.
const LINGER_BYTES: usize = 16 << 20;
