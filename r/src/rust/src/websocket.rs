//! The WebSockets that the server has accepted. The C code uses them with the functions `rk_ws_*`.

use std::borrow::Cow;
use std::ptr::NonNull;
use std::sync::Arc;

use rookery_exchange::{Command, Lease, MessageKind, Payload, WebSocketCompression};

use crate::core::{BoundWebSocket, Core};
use crate::{Bytes, core, entry, result, slice};

/// The maximum length in bytes of the reason in a close frame. The payload of the frame has at most
/// 125 bytes, and the code takes two of them (RFC 6455, 5.5).
const REASON_MAX: usize = 123;

fn kind(is_text: i32) -> MessageKind {
    if is_text == 0 { MessageKind::Binary } else { MessageKind::Text }
}

/// Begins the response that accepts the opening handshake of a WebSocket. Chooses the first
/// subprotocol in `protocols` that the client offers, and writes it to `chosen`. If the client
/// offers none of them, `chosen` is empty.
///
/// # Safety
/// - `protocols` has `count` elements, readable for the length of the call, and `chosen` can be
///   written to.
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
            // SAFETY: guaranteed by the caller, see `# Safety`.
            let mut ours = (0..count).map(|at| unsafe { *protocols.add(at) });
            let offered = exchange.header(SUBPROTOCOL).unwrap_or_default();
            // SAFETY: guaranteed by the caller, see `# Safety`.
            let found = ours.find(|own| is_offered(offered, unsafe { own.get() }));
            if let Some(found) = found {
                // SAFETY: guaranteed by the caller, see `# Safety`.
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
            // SAFETY: guaranteed by the caller, see `# Safety`.
            unsafe { chosen.write(found.unwrap_or(Bytes::EMPTY)) };
            let listener = exchange.listener();
            core.sockets.insert(id, BoundWebSocket { listener, token: 0, backlog });
            result::OK
        })
    })
}

/// The compression settings of a WebSocket as C passes them: `struct rk_ws_compression`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RawCompression {
    level: i32,
    keeps_window: i32,
    threshold: u64,
}

const SUBPROTOCOL: &[u8] = b"sec-websocket-protocol";

/// Returns true if the client offers the WebSocket subprotocol `own` (RFC 6455, 11.3.4). The
/// comparison is case-sensitive.
fn is_offered(offered: &[u8], own: &[u8]) -> bool {
    !own.is_empty() && offered.split(|byte| *byte == b',').any(|named| named.trim_ascii() == own)
}

/// Stores the number by which the C code finds the R object of an accepted WebSocket.
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

/// Forgets a WebSocket whose R object is no longer needed.
#[unsafe(no_mangle)]
pub extern "C" fn rk_ws_unbind(id: u64) {
    entry((), || {
        core::with(|core| {
            core.sockets.remove(&id);
        });
    });
}

/// Writes the tokens of a listener's WebSockets to `tokens`, at most `capacity` of them. C finds
/// the R object of a WebSocket by its token. Returns the number of all WebSockets of the listener.
///
/// # Safety
/// - `tokens` has space for `capacity` tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ws_list(listener: u32, tokens: *mut u64, capacity: usize) -> usize {
    entry(0, || {
        core::with(|core| {
            let mut count = 0;
            for bound in core.sockets.values().filter(|bound| bound.listener == listener) {
                if count < capacity {
                    // SAFETY: guaranteed by the caller, see `# Safety`.
                    unsafe { tokens.add(count).write(bound.token) };
                }
                count += 1;
            }
            count
        })
    })
}

// `enum rk_send`.
const SEND_MORE: i32 = 1;
const SEND_FULL: i32 = 0;
const SEND_CLOSED: i32 = -1;

/// Queues a message to the client of a WebSocket. Does not queue it if the WebSocket has ended.
/// Returns an `enum rk_send`.
fn send(
    core: &mut Core,
    id: u64,
    is_text: i32,
    len: usize,
    payload: impl FnOnce(&Core) -> Payload,
) -> i32 {
    let Some(more) = core.sockets.get(&id).and_then(|bound| bound.backlog.count_sent(len)) else {
        return SEND_CLOSED;
    };
    let payload = payload(core);
    if is_text != 0 && core.tracing.tracer.is_some() {
        core.tracing.on_sent(id, payload.as_bytes());
    }
    core.send(Command::Send { socket: id, kind: kind(is_text), payload });
    if more { SEND_MORE } else { SEND_FULL }
}

/// Sends a copy of a message to the client of a WebSocket. Returns an `enum rk_send`. Invalid UTF-8
/// in text is replaced by U+FFFD, because clients close the connection on invalid text.
///
/// # Safety
/// - `start..start + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ws_send(id: u64, is_text: i32, start: *const u8, len: usize) -> i32 {
    entry(SEND_CLOSED, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
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

/// Sends a message to the client of a WebSocket without copying it: R lends the memory, and C finds
/// the R object that owns the memory by `token`. `rk_released` returns the token once the memory is
/// no longer used. If this returns `RK_SEND_CLOSED`, the memory is not used, and the caller keeps
/// the token.
///
/// # Safety
/// - `start..start + len` stays readable and unwritten until `rk_released` has returned `token`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ws_lend(
    id: u64,
    is_text: i32,
    start: *const u8,
    len: usize,
    token: u64,
) -> i32 {
    entry(SEND_CLOSED, || {
        let Some(first) = NonNull::new(start.cast_mut()) else { return SEND_CLOSED };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let bytes = unsafe { slice(start, len) };
        let mended = (is_text != 0 && std::str::from_utf8(bytes).is_err())
            .then(|| String::from_utf8_lossy(bytes));
        core::with(|core| {
            let len = mended.as_ref().map_or(len, |text| text.len());
            send(core, id, is_text, len, |core| {
                // SAFETY: guaranteed by the caller, see `# Safety`.
                let lease = unsafe { Lease::new(first, bytes.len(), token, core.link.releases()) };
                match mended {
                    Some(text) => Payload::Pooled(text.into_owned().into_bytes()),
                    None => Payload::Lent(lease),
                }
            })
        })
    })
}

/// Returns the number of bytes that wait to be sent to the client of a WebSocket, or -1 after the
/// end of the WebSocket.
#[unsafe(no_mangle)]
pub extern "C" fn rk_ws_queued_bytes(id: u64) -> i64 {
    entry(-1, || {
        core::with(|core| match core.sockets.get(&id) {
            Some(BoundWebSocket { backlog, .. }) if !backlog.is_over() => {
                i64::try_from(backlog.waiting()).unwrap_or(i64::MAX)
            }
            _ => -1,
        })
    })
}

/// Sends a ping to the client of a WebSocket.
#[unsafe(no_mangle)]
pub extern "C" fn rk_ws_ping(id: u64) {
    entry((), || core::with(|core| core.send(Command::Ping { socket: id })));
}

/// Starts the closing handshake of a WebSocket. A reason that is too long is truncated between
/// characters.
///
/// # Safety
/// - `reason..reason + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ws_close(id: u64, code: i32, reason: *const u8, len: usize) {
    entry((), || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let text = String::from_utf8_lossy(unsafe { slice(reason, len) }).into_owned();
        let end = (0..=REASON_MAX.min(text.len()))
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        let reason = text.as_bytes()[..end].to_vec();
        let code = u16::try_from(code).unwrap_or(1001);
        core::with(|core| core.send(Command::Close { socket: id, code, reason }));
    });
}

/// Closes the connection of a WebSocket without a closing handshake.
#[unsafe(no_mangle)]
pub extern "C" fn rk_ws_abort(id: u64) {
    entry((), || core::with(|core| core.send(Command::Abort { socket: id })));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_subprotocol_that_the_client_offers_is_chosen() {
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
