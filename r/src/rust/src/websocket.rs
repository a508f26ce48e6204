//! WebSockets, as R uses them.

use std::borrow::Cow;
use std::ptr::NonNull;
use std::sync::Arc;

use rookery_exchange::{Command, Lease, MessageKind, Payload, WebSocketCompression};

use crate::core::{Bound, Core};
use crate::{Bytes, core, entry, result, slice};

/// RFC 6455, 5.5: a close frame's payload is at most 125 bytes, two of them the code.
const REASON_MAX: usize = 123;

fn kind(is_text: i32) -> MessageKind {
    if is_text == 0 { MessageKind::Binary } else { MessageKind::Text }
}

/// Accepts a handshake: begins its reply, with the first of `protocols` that the client offers, which is `chosen` (empty: none).
///
/// # Safety
/// - `protocols` has `count` of them, readable for the length of the call, and `chosen` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ws_accept(
    slot: u32,
    id: u64,
    protocols: *const Bytes,
    count: usize,
    compression: RawCompression,
    chosen: *mut Bytes,
) -> i32 {
    entry(result::STALE, || {
        core::with(|core| {
            let Some(exchange) = core.held(slot, id) else { return result::STALE };
            let Some(backlog) = exchange.backlog().map(Arc::clone) else { return result::STALE };
            exchange.begin_response(101);
            // SAFETY: the caller's duty.
            let mut ours = (0..count).map(|at| unsafe { *protocols.add(at) });
            let offered = exchange.header(SUBPROTOCOL).unwrap_or_default();
            // SAFETY: the caller's duty.
            let found = ours.find(|own| is_offered(offered, unsafe { own.get() }));
            if let Some(found) = found {
                // SAFETY: the caller's duty.
                if exchange.push_response_header(SUBPROTOCOL, unsafe { found.get() }).is_err() {
                    return result::BAD_VALUE;
                }
            }
            if let Some(level) = u8::try_from(compression.level).ok().filter(|level| *level > 0) {
                exchange.response_mut().set_compression(WebSocketCompression {
                    level,
                    threshold: usize::try_from(compression.threshold).unwrap_or(usize::MAX),
                    keeps_window: compression.keeps_window != 0,
                });
            }
            // SAFETY: the caller's duty.
            unsafe { chosen.write(found.unwrap_or(Bytes::EMPTY)) };
            let listener = exchange.listener();
            core.sockets.insert(id, Bound { listener, token: 0, backlog });
            result::OK
        })
    })
}

/// `struct rk_ws_compression`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RawCompression {
    level: i32,
    keeps_window: i32,
    threshold: u64,
}

const SUBPROTOCOL: &[u8] = b"sec-websocket-protocol";

/// Whether a client names a subprotocol (RFC 6455, 11.3.4). They differ in case.
fn is_offered(offered: &[u8], own: &[u8]) -> bool {
    !own.is_empty() && offered.split(|byte| *byte == b',').any(|named| named.trim_ascii() == own)
}

/// Remembers the R object of a WebSocket that was accepted.
#[unsafe(no_mangle)]
pub extern "C" fn rk_ws_bind(id: u64, token: u64) {
    entry((), || {
        core::with(|core| {
            if let Some(bound) = core.sockets.get_mut(&id) {
                bound.token = token;
            }
        });
    });
}

/// Forgets it.
#[unsafe(no_mangle)]
pub extern "C" fn rk_ws_unbind(id: u64) {
    entry((), || {
        core::with(|core| {
            core.sockets.remove(&id);
        });
    });
}

/// Writes the tokens of a listener's WebSockets, as many as there is room for; how many there are.
///
/// # Safety
/// - `tokens` has room for `capacity` tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ws_list(listener: u32, tokens: *mut u64, capacity: usize) -> usize {
    entry(0, || {
        core::with(|core| {
            let mut count = 0;
            for bound in core.sockets.values().filter(|bound| bound.listener == listener) {
                if count < capacity {
                    // SAFETY: the caller's duty.
                    unsafe { tokens.add(count).write(bound.token) };
                }
                count += 1;
            }
            count
        })
    })
}

// `enum rk_send`.
const SENT: i32 = 1;
const SENT_BUT_WAIT: i32 = 0;
const OVER: i32 = -1;

/// Counts a message in, and sends it unless the WebSocket is over: `enum rk_send`.
fn send(
    core: &Core,
    id: u64,
    is_text: i32,
    len: usize,
    payload: impl FnOnce(&Core) -> Payload,
) -> i32 {
    let Some(more) = core.sockets.get(&id).and_then(|bound| bound.backlog.count_sent(len)) else {
        return OVER;
    };
    core.link.send(Command::Send { socket: id, kind: kind(is_text), payload: payload(core) });
    if more { SENT } else { SENT_BUT_WAIT }
}

/// Sends a message, copied. Text that is not UTF-8 has its bad bytes replaced by U+FFFD, for the peer would close
/// the connection on them.
///
/// # Safety
/// - `start..start + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ws_send(id: u64, is_text: i32, start: *const u8, len: usize) -> i32 {
    entry(OVER, || {
        // SAFETY: the caller's duty.
        let bytes = unsafe { slice(start, len) };
        let text = if is_text == 0 { Cow::Borrowed("") } else { String::from_utf8_lossy(bytes) };
        let bytes = if is_text == 0 { bytes } else { text.as_bytes() };
        core::with(|core| {
            send(core, id, is_text, bytes.len(), |core| {
                let mut buffer = core.link.buffer();
                buffer.extend_from_slice(bytes);
                Payload::Pooled(buffer)
            })
        })
    })
}

/// Sends a message that is lent, if this does not return `RK_SEND_CLOSED`: else the token stays the caller's.
///
/// # Safety
/// - `start..start + len` stays readable and unwritten until `rk_released` has given `token` back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ws_lend(
    id: u64,
    is_text: i32,
    start: *const u8,
    len: usize,
    token: u64,
) -> i32 {
    entry(OVER, || {
        let Some(first) = NonNull::new(start.cast_mut()) else { return OVER };
        // SAFETY: the caller's duty.
        let bytes = unsafe { slice(start, len) };
        let mended = (is_text != 0 && std::str::from_utf8(bytes).is_err())
            .then(|| String::from_utf8_lossy(bytes));
        core::with(|core| {
            let len = mended.as_ref().map_or(len, |text| text.len());
            send(core, id, is_text, len, |core| {
                // SAFETY: the caller's duty.
                let lease = unsafe { Lease::new(first, bytes.len(), token, core.link.releases()) };
                match mended {
                    Some(text) => Payload::Pooled(text.into_owned().into_bytes()),
                    None => Payload::Lent(lease),
                }
            })
        })
    })
}

/// Bytes that wait to be sent to a WebSocket; -1 when it is over.
#[unsafe(no_mangle)]
pub extern "C" fn rk_ws_queued_bytes(id: u64) -> i64 {
    entry(-1, || {
        core::with(|core| match core.sockets.get(&id) {
            Some(Bound { backlog, .. }) if !backlog.is_over() => {
                i64::try_from(backlog.waiting()).unwrap_or(i64::MAX)
            }
            _ => -1,
        })
    })
}

/// Sends a ping.
#[unsafe(no_mangle)]
pub extern "C" fn rk_ws_ping(id: u64) {
    entry((), || core::with(|core| core.link.send(Command::Ping { socket: id })));
}

/// Starts the closing handshake; a reason that is too long is cut between characters.
///
/// # Safety
/// - `reason..reason + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ws_close(id: u64, code: i32, reason: *const u8, len: usize) {
    entry((), || {
        // SAFETY: the caller's duty.
        let text = String::from_utf8_lossy(unsafe { slice(reason, len) }).into_owned();
        let end = (0..=REASON_MAX.min(text.len()))
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        let reason = text.as_bytes()[..end].to_vec();
        let code = u16::try_from(code).unwrap_or(1001);
        core::with(|core| core.link.send(Command::Close { socket: id, code, reason }));
    });
}

/// Drops the connection.
#[unsafe(no_mangle)]
pub extern "C" fn rk_ws_abort(id: u64) {
    entry((), || core::with(|core| core.link.send(Command::Abort { socket: id })));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subprotocol_is_one_of_the_clients_list() {
        for (offered, own, expected) in [
            ("chat", "chat", true),
            ("superchat , chat", "chat", true),
            ("superchat,\tchat", "chat", true),
            ("superchat", "chat", false),
            ("Chat", "chat", false),
            ("", "chat", false),
            (",,", "", false),
        ] {
            assert_eq!(is_offered(offered.as_bytes(), own.as_bytes()), expected, "{offered} {own}");
        }
    }
}
