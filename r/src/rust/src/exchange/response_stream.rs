//! Streamed responses, whose bodies R sends chunk by chunk. The C code uses them with the functions
//! `rk_stream_*`.

use std::ptr::NonNull;
use std::sync::Arc;

use rookery_exchange::{
    ChunkAdmission, Command, Exchange, Lease, Payload, StreamEnd, StreamOptions, write_masked,
};
use rookery_worker_protocol::MAX_TASK_LEN;

use crate::core::{Core, OpenStream};
use crate::{core, entry, result, slice};

// `enum rk_write`.
const WRITE_MORE: i32 = 0;
const WRITE_FULL: i32 = 1;
const WRITE_CLOSED: i32 = 2;
const WRITE_SLOW: i32 = 3;
const WRITE_TOO_LONG: i32 = 4;

// `enum rk_stream_rule`.
const PULLED: i32 = 1;
const PROMPT: i32 = 2;
const EVENTS: i32 = 4;
const COMPRESSIBLE: i32 = 8;
const HEARTBEAT: u32 = 8;

/// Makes the response to a request a streamed response: R writes the body in chunks later. `rules`
/// contains flags of `enum rk_stream_rule` and, in its upper bits, the seconds between heartbeats.
/// Events about the streamed response contain `token`, by which C finds the R object of the
/// response. After the last event, `RK_STREAM_ENDED`, the token is no longer used.
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
            });
            let has_scoreboard = core.scoreboard().is_some();
            let Some(exchange) = core.held(slot, id) else { return result::STALE };
            let mut task = Vec::new();
            if has_scoreboard {
                write_task(exchange, &mut task);
            }
            let flow = Arc::clone(&stream.flow);
            exchange.set_response_stream(stream);
            core.streams.insert(id, OpenStream { token, flow, chunks: 0, task });
            result::OK
        })
    })
}

/// Appends the method and the path of a request to `out` as the scoreboard shows them.
fn write_task(exchange: &Exchange, out: &mut Vec<u8>) {
    out.extend_from_slice(exchange.method());
    out.push(b' ');
    write_masked(exchange.path(), MAX_TASK_LEN.saturating_sub(out.len()), out);
}

impl OpenStream {
    pub(crate) fn is_over(&self) -> bool {
        self.flow.is_over()
    }
}

/// Queues a chunk of a streamed response, and returns an `enum rk_write`. If `may_go_on` is set and
/// the queue has capacity for more, R gets the next chunk from the app at once, without waiting
/// until the server asks for it.
fn write_chunk(
    core: &mut Core,
    id: u64,
    len: usize,
    may_go_on: i32,
    payload: impl FnOnce(&Core) -> Payload,
) -> i32 {
    let Some(streamed) = core.streams.get_mut(&id) else { return WRITE_CLOSED };
    let given = match streamed.flow.admit(len) {
        ChunkAdmission::Continue => WRITE_MORE,
        ChunkAdmission::Pause => WRITE_FULL,
        ChunkAdmission::Ended => return WRITE_CLOSED,
        ChunkAdmission::ClientTooSlow => {
            core.send(Command::AbortStream {
                stream: id,
                reason: StreamEnd::Slow,
                page: Vec::new(),
            });
            return WRITE_SLOW;
        }
        ChunkAdmission::ExceedsLength => return WRITE_TOO_LONG,
    };
    streamed.chunks += 1;
    let is_whole = streamed.flow.length().is_some_and(|length| streamed.flow.pushed() >= length);
    let goes_on = may_go_on != 0 && given == WRITE_MORE && len > 0 && !is_whole;
    let payload = payload(core);
    core.send(Command::Chunk { stream: id, payload, is_pushing: goes_on });
    if goes_on {
        core.pull_queue.push_back(id);
    }
    given
}

/// Writes a copy of a chunk to a streamed response. An empty chunk means that no data is available
/// yet. `may_go_on` is true if the app can provide the next chunk at once.
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
    entry(WRITE_CLOSED, || {
        core::with(|core| {
            write_chunk(core, id, len, may_go_on, |core| {
                let mut buffer = core.link.buffer();
                // SAFETY: guaranteed by the caller, see `# Safety`.
                buffer.extend_from_slice(unsafe { slice(start, len) });
                Payload::Pooled(buffer)
            })
        })
    })
}

/// Writes a chunk to a streamed response without copying it: R lends the memory, and C finds the R
/// object that owns the memory by `token`. If this returns `RK_WRITE_MORE` or `RK_WRITE_FULL`, the
/// chunk is queued, and `rk_released` returns the token once the memory is no longer used.
/// Otherwise the memory is not used, and the caller keeps the token.
///
/// # Safety
/// - `start..start + len` stays readable and unwritten until `rk_released` has returned `token`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_stream_lend(
    id: u64,
    start: *const u8,
    len: usize,
    token: u64,
    may_go_on: i32,
) -> i32 {
    entry(WRITE_CLOSED, || {
        let Some(start) = NonNull::new(start.cast_mut()) else { return WRITE_CLOSED };
        core::with(|core| {
            write_chunk(core, id, len, may_go_on, |core| {
                // SAFETY: guaranteed by the caller, see `# Safety`.
                Payload::Lent(unsafe { Lease::new(start, len, token, core.link.releases()) })
            })
        })
    })
}

/// Sends the head of a streamed response before R has written the first chunk.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stream_send_head(id: u64) {
    entry((), || core::with(|core| core.send(Command::SendHead { stream: id })));
}

/// Ends a streamed response. Returns 0 if the body is complete or the stream has already ended. If
/// the body is shorter than its Content-Length, does not end the stream but returns the number of
/// missing bytes. The caller then has to abort the stream.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stream_finish(id: u64) -> u64 {
    entry(0, || {
        core::with(|core| {
            let Some(OpenStream { flow, .. }) = core.streams.get(&id) else { return 0 };
            // If the stream has ended otherwise, the app could not write the missing bytes.
            let missing = flow
                .length()
                .filter(|_| !flow.is_over())
                .unwrap_or(0)
                .saturating_sub(flow.pushed());
            if missing == 0 {
                core.send(Command::EndStream { stream: id });
            }
            missing
        })
    })
}

/// Aborts a streamed response that cannot be completed. If the head has not been sent yet, the
/// client gets status 500 with the body `page`.
///
/// # Safety
/// - `page..page + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_stream_abort(id: u64, page: *const u8, len: usize) {
    entry((), || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let page = unsafe { slice(page, len) }.to_vec();
        core::with(|core| {
            core.send(Command::AbortStream { stream: id, reason: StreamEnd::Error, page });
        });
    });
}

/// Returns the number of bytes of a streamed response that wait to be sent, or -1 after the end of
/// the stream.
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

/// Returns the number of bytes that R has written to a streamed response, or 0 after R was notified
/// of the end of the stream.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stream_written_bytes(id: u64) -> u64 {
    entry(0, || {
        core::with(|core| core.streams.get(&id).map_or(0, |streamed| streamed.flow.pushed()))
    })
}

/// Returns the number of chunks that R has written to a streamed response, or 0 after R was
/// notified of the end of the stream.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stream_written_chunks(id: u64) -> u64 {
    entry(0, || core::with(|core| core.streams.get(&id).map_or(0, |streamed| streamed.chunks)))
}
