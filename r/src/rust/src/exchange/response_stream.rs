//! Replies in pieces, as R gives them.

use std::ptr::NonNull;
use std::sync::Arc;

use rookery_exchange::{
    ChunkAdmission, Command, Lease, Payload, StreamEnd, StreamFlow, StreamOptions,
};

use crate::core::Core;
use crate::{core, entry, result, slice};

/// A stream that R has opened and not been told the end of.
#[derive(Debug)]
pub(crate) struct Streamed {
    /// C's token of its R object.
    pub(crate) token: u64,
    flow: Arc<StreamFlow>,
    /// Pieces that were given.
    pieces: u64,
}

// `enum rk_write`.
const MORE: i32 = 0;
const ENOUGH: i32 = 1;
const OVER: i32 = 2;
const SLOW: i32 = 3;
const TOO_LONG: i32 = 4;

// `enum rk_stream_rule`.
const PULLED: i32 = 1;
const PROMPT: i32 = 2;
const EVENTS: i32 = 4;
const COMPRESSIBLE: i32 = 8;
const HEARTBEAT: u32 = 8;

/// Sets a stream as a reply's body. `token` is shown with its events; its `RK_STREAM_ENDED` gives it back.
#[unsafe(no_mangle)]
pub extern "C" fn rk_response_stream(slot: u32, id: u64, rules: i32, token: u64) -> i32 {
    entry(result::STALE, || {
        core::with(|core| {
            let stream = core.link.stream(StreamOptions {
                is_pulled: rules & PULLED != 0,
                sends_head_first: rules & PROMPT != 0,
                is_events: rules & EVENTS != 0,
                heartbeat: u16::try_from(rules >> HEARTBEAT).unwrap_or(0),
                is_compressible: rules & COMPRESSIBLE != 0,
                failed_status: 0,
            });
            let Some(exchange) = core.held(slot, id) else { return result::STALE };
            let flow = Arc::clone(&stream.flow);
            exchange.set_response_stream(stream);
            core.streams.insert(id, Streamed { token, flow, pieces: 0 });
            result::OK
        })
    })
}

impl Streamed {
    pub(crate) fn is_over(&self) -> bool {
        self.flow.is_over()
    }
}

/// Counts a piece in, and sends it if it is to be: `enum rk_write`. While there is room its source is asked again, if it `may_go_on`:
/// by way of the server, two threads would be woken for each piece.
fn give(
    core: &mut Core,
    id: u64,
    len: usize,
    may_go_on: i32,
    payload: impl FnOnce(&Core) -> Payload,
) -> i32 {
    let Some(streamed) = core.streams.get_mut(&id) else { return OVER };
    let given = match streamed.flow.admit(len) {
        ChunkAdmission::Continue => MORE,
        ChunkAdmission::Pause => ENOUGH,
        ChunkAdmission::Ended => return OVER,
        ChunkAdmission::ClientTooSlow => {
            core.link.send(Command::AbortStream {
                stream: id,
                reason: StreamEnd::Slow,
                page: Vec::new(),
            });
            return SLOW;
        }
        ChunkAdmission::ExceedsLength => return TOO_LONG,
    };
    streamed.pieces += 1;
    let is_whole = streamed.flow.length().is_some_and(|length| streamed.flow.pushed() >= length);
    let goes_on = may_go_on != 0 && given == MORE && len > 0 && !is_whole;
    core.link.send(Command::Chunk { stream: id, payload: payload(core), is_pushing: goes_on });
    if goes_on {
        core.going_on.push_back(id);
    }
    given
}

/// Gives a piece, copied; an empty one is "nothing yet". `may_go_on`: its source can be asked for the next at once.
///
/// # Safety
/// - `start..start + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_stream_write(
    id: u64,
    start: *const u8,
    len: usize,
    may_go_on: i32,
) -> i32 {
    entry(OVER, || {
        core::with(|core| {
            give(core, id, len, may_go_on, |core| {
                let mut buffer = core.link.buffer();
                // SAFETY: the caller's duty.
                buffer.extend_from_slice(unsafe { slice(start, len) });
                Payload::Pooled(buffer)
            })
        })
    })
}

/// Gives a piece that is lent, if this returns `RK_WRITE_MORE` or `RK_WRITE_FULL`: else the token stays the caller's.
///
/// # Safety
/// - `start..start + len` stays readable and unwritten until `rk_released` has given `token` back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_stream_lend(
    id: u64,
    start: *const u8,
    len: usize,
    token: u64,
    may_go_on: i32,
) -> i32 {
    entry(OVER, || {
        let Some(start) = NonNull::new(start.cast_mut()) else { return OVER };
        core::with(|core| {
            give(core, id, len, may_go_on, |core| {
                // SAFETY: the caller's duty.
                Payload::Lent(unsafe { Lease::new(start, len, token, core.link.releases()) })
            })
        })
    })
}

/// Lets the head of a stream's reply leave before there is a piece.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stream_send_head(id: u64) {
    entry((), || core::with(|core| core.link.send(Command::SendHead { stream: id })));
}

/// Ends a stream, unless it lacks bytes of its Content-Length: how many. It is to be cut then. 0: it has ended, or is over.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stream_finish(id: u64) -> u64 {
    entry(0, || {
        core::with(|core| {
            let Some(Streamed { flow, .. }) = core.streams.get(&id) else { return 0 };
            // Of one that is over the application could not give the rest.
            let missing = flow
                .length()
                .filter(|_| !flow.is_over())
                .unwrap_or(0)
                .saturating_sub(flow.pushed());
            if missing == 0 {
                core.link.send(Command::EndStream { stream: id });
            }
            missing
        })
    })
}

/// Cuts a stream that cannot be completed. `page` is the text of the 500, if its head has not left.
///
/// # Safety
/// - `page..page + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_stream_abort(id: u64, page: *const u8, len: usize) {
    entry((), || {
        // SAFETY: the caller's duty.
        let page = unsafe { slice(page, len) }.to_vec();
        core::with(|core| {
            core.link.send(Command::AbortStream { stream: id, reason: StreamEnd::Error, page });
        });
    });
}

/// Bytes of a stream that wait to be written; -1 when it is over.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stream_queued_bytes(id: u64) -> i64 {
    entry(-1, || {
        core::with(|core| match core.streams.get(&id) {
            Some(streamed) if !streamed.flow.is_over() => {
                i64::try_from(streamed.flow.waiting()).unwrap_or(i64::MAX)
            }
            _ => -1,
        })
    })
}

/// Bytes that were given to a stream; 0 when it has departed.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stream_written_bytes(id: u64) -> u64 {
    entry(0, || {
        core::with(|core| core.streams.get(&id).map_or(0, |streamed| streamed.flow.pushed()))
    })
}

/// Pieces that were given to a stream; 0 when it has departed.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stream_written_chunks(id: u64) -> u64 {
    entry(0, || core::with(|core| core.streams.get(&id).map_or(0, |streamed| streamed.pieces)))
}
