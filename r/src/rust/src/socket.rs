//! WebSockets, as R uses them.

use std::ptr::NonNull;

use rookery_exchange::{Command, Lease, MessageKind, Payload};

use crate::core::Bound;
use crate::{core, entry, slice};

/// RFC 6455, 5.5: a close frame's payload is at most 125 bytes, two of them the code.
const REASON_MAX: usize = 123;

fn kind(is_text: i32) -> MessageKind {
    if is_text == 0 { MessageKind::Binary } else { MessageKind::Text }
}

/// Remembers the R object of a WebSocket.
#[unsafe(no_mangle)]
pub extern "C" fn rk_ws_bind(id: u64, listener: u32, token: u64) {
    entry((), || {
        core::with(|core| {
            core.sockets.insert(id, Bound { listener, token });
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

/// Sends a message, copied. Text that is not UTF-8 has its bad bytes replaced by U+FFFD, for the peer would close
/// the connection on them.
///
/// # Safety
/// - `start..start + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ws_send(id: u64, is_text: i32, start: *const u8, len: usize) {
    entry((), || {
        // SAFETY: the caller's duty.
        let bytes = unsafe { slice(start, len) };
        core::with(|core| {
            let mut buffer = core.link.buffer();
            if is_text != 0 {
                buffer.extend_from_slice(String::from_utf8_lossy(bytes).as_bytes());
            } else {
                buffer.extend_from_slice(bytes);
            }
            let payload = Payload::Pooled(buffer);
            core.link.send(Command::Send { socket: id, kind: kind(is_text), payload });
        });
    });
}

/// Sends a message that is lent.
///
/// # Safety
/// - `start..start + len` stays readable and unwritten until `rk_released` has given `token` back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_ws_lend(id: u64, is_text: i32, start: *const u8, len: usize, token: u64) {
    entry((), || {
        let Some(start) = NonNull::new(start.cast_mut()) else { return };
        core::with(|core| {
            // SAFETY: the caller's duty.
            let lease = unsafe { Lease::new(start, len, token, core.link.releases()) };
            let payload = if is_text != 0 && std::str::from_utf8(lease.as_bytes()).is_err() {
                Payload::Pooled(String::from_utf8_lossy(lease.as_bytes()).into_owned().into_bytes())
            } else {
                Payload::Lent(lease)
            };
            core.link.send(Command::Send { socket: id, kind: kind(is_text), payload });
        });
    });
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
        let end = (0..=REASON_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
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
