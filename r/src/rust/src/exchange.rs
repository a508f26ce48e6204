//! Functions for C that read the body of a request and write its response. They work while R holds
//! the exchange (the request with its response).

mod error_format;
pub(crate) mod header_names;
pub(crate) mod response_stream;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::ptr::{self, NonNull};

use rookery_exchange::{
    AppToken, BodyBuffer, Command, EVENTS_RETRY, Exchange, HeaderError, Lease, RequestId,
    ResponseBody, accepts_events, write_masked,
};
use rookery_worker_protocol::RouteName;

use crate::core::{Core, Receiver};
use crate::text::path::path_of;
use crate::{Bytes, core, entry, result, slice};

/// Runs `body` with the exchange (the request with its response) in a slot. Returns `STALE` if the
/// slot does not contain the exchange with this id.
fn with_held(slot: u32, id: u64, body: impl FnOnce(&mut Exchange) -> i32) -> i32 {
    entry(result::STALE, || core::with(|core| core.held(slot, id).map_or(result::STALE, body)))
}

/// Gives a request back to the server, which reads the body and then passes the request to R again.
/// The second event for the request contains `token`, by which C finds the R object of the request.
/// If the client disconnects first, `rk_released` returns the token instead. Returns `RK_STALE` if
/// R does not hold the request.
#[unsafe(no_mangle)]
pub extern "C" fn rk_read_body(slot: u32, id: u64, token: u64) -> i32 {
    entry(result::STALE, || {
        core::with(|core| {
            let Some(mut exchange) = core.give(slot, id) else { return result::STALE };
            exchange.set_app_token(AppToken::new(token, core.link.releases()));
            core.return_exchange(Command::ReadBody(exchange));
            result::OK
        })
    })
}

/// Makes the server pass the body of a request to R in chunks, while R keeps the request. Each
/// chunk is an event with `token`, by which C finds the R object that receives the body. After the
/// last event, `RK_BODY_END`, the token is no longer used. Returns `RK_STALE` if R does not hold
/// the request.
#[unsafe(no_mangle)]
pub extern "C" fn rk_receive_body(slot: u32, id: u64, token: u64) -> i32 {
    entry(result::STALE, || {
        core::with(|core| {
            let Some(exchange) = core.held(slot, id) else { return result::STALE };
            let (listener, place) = (exchange.listener(), exchange.slot());
            core.receivers.insert(id, Receiver { slot, token });
            core.received.insert(id);
            core.send(Command::StreamBody { exchange: id, listener, slot: place });
            result::OK
        })
    })
}

/// Tells the server that the app has processed `bytes` more bytes of a request body that it
/// receives in chunks. The server then reads more of the body.
#[unsafe(no_mangle)]
pub extern "C" fn rk_body_consumed(id: u64, bytes: usize) {
    entry((), || core::with(|core| core.send(Command::BodyConsumed { exchange: id, bytes })));
}

/// Reads bytes of a request's body into `out`. Returns the number of bytes, 0 at the end of the
/// body, or -1 after setting the error message.
///
/// # Safety
/// - `out` has space for `len` bytes that nothing else reads or writes meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_body_read(
    slot: u32,
    id: u64,
    offset: u64,
    out: *mut u8,
    len: usize,
) -> i64 {
    entry(-1, || {
        if len == 0 {
            return 0;
        }
        // SAFETY: guaranteed by the caller. The slice is only written to, so R's raw vector need
        // not be initialized.
        let out = unsafe { std::slice::from_raw_parts_mut(out, len) };
        core::with(|core| {
            // After the response, the body can no longer be read.
            let Some(exchange) = core.held(slot, id) else { return 0 };
            let mut done = 0;
            while done < out.len() {
                match exchange.body().read_at(offset + done as u64, &mut out[done..]) {
                    Ok(0) => break,
                    Ok(n) => done += n,
                    Err(error) => {
                        core::set_error(&error.to_string());
                        return -1;
                    }
                }
            }
            i64::try_from(done).unwrap_or(i64::MAX)
        })
    })
}

/// Writes the response of a server that is stopping: status 503. A client that accepts server-sent
/// events instead gets an event stream that tells it when to reconnect.
fn refuse(exchange: &mut Exchange) {
    let is_for_events = exchange.header(b"accept").is_some_and(accepts_events);
    // These names and values are valid, so they are not refused.
    let mut begin = |status, kind: &str, (name, value): (&str, &str), body: &str| {
        exchange.begin_response(status);
        let _ = exchange.push_response_header(b"content-type", kind.as_bytes());
        let _ = exchange.push_response_header(name.as_bytes(), value.as_bytes());
        exchange.set_response_body(body.as_bytes());
    };
    if is_for_events {
        begin(200, "text/event-stream", ("cache-control", "no-store"), EVENTS_RETRY);
    } else {
        begin(503, "text/plain", ("retry-after", "1"), "503 Service Unavailable\n");
    }
}

/// Writes the response that refuses a request because the server has stopped: status 503, or an
/// event stream for a client that accepts server-sent events. Returns `RK_STALE` if R does not hold
/// the request.
#[unsafe(no_mangle)]
pub extern "C" fn rk_refuse(slot: u32, id: u64) -> i32 {
    with_held(slot, id, |exchange| {
        refuse(exchange);
        result::OK
    })
}

/// Responds with status 503 to every request of a listener that R is processing. Responses that the
/// app sends to these requests later are dropped.
#[unsafe(no_mangle)]
pub extern "C" fn rk_refuse_held(listener: u32) {
    entry((), || {
        core::with(|core| {
            for mut exchange in core.take_held(listener) {
                refuse(&mut exchange);
                core.return_exchange(Command::Respond(exchange));
            }
            core.flush();
        });
    });
}

/// Returns 1 if [`rk_body_lend`] would lend R the body of a request, otherwise 0. `len` is the
/// length of the body in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn rk_body_is_lendable(slot: u32, id: u64, len: usize) -> c_int {
    entry(0, || {
        core::with(|core| {
            c_int::from(block_of(core, slot, id, len).is_some_and(BodyBuffer::is_lendable))
        })
    })
}

fn block_of(core: &mut Core, slot: u32, id: u64, len: usize) -> Option<&BodyBuffer> {
    core.held(slot, id)?.body().block().filter(|block| block.bytes().len() == len)
}

/// Lends R the body of a request without copying it. Returns a pointer to the start of the body. R
/// may only read the body, and must give it back with [`rk_body_return`]. Returns NULL if the body
/// is not one block of `len` bytes, or if it is already lent.
#[unsafe(no_mangle)]
pub extern "C" fn rk_body_lend(slot: u32, id: u64, len: usize) -> *mut u8 {
    entry(ptr::null_mut(), || {
        core::with(|core| {
            block_of(core, slot, id, len)
                .and_then(BodyBuffer::lend)
                .map_or(ptr::null_mut(), NonNull::as_ptr)
        })
    })
}

/// Takes back the body of a request that `rk_body_lend` has lent to R.
///
/// # Safety
/// - `start` came from `rk_body_lend` and is returned once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_body_return(start: *mut u8) {
    entry((), || {
        if let Some(start) = NonNull::new(start) {
            // SAFETY: guaranteed by the caller, see `# Safety`.
            unsafe { BodyBuffer::give_back(start) };
        }
    });
}

/// Begins the response to a request, with this status.
#[unsafe(no_mangle)]
pub extern "C" fn rk_response_begin(slot: u32, id: u64, status: i32) -> i32 {
    with_held(slot, id, |exchange| {
        exchange.begin_response(u16::try_from(status).unwrap_or(500));
        result::OK
    })
}

/// Marks the response to a request as the result of an error in the app.
#[unsafe(no_mangle)]
pub extern "C" fn rk_response_mark_failed(slot: u32, id: u64) -> i32 {
    with_held(slot, id, |exchange| {
        exchange.response_mut().set_failure();
        result::OK
    })
}

/// Adds a header line to the response to a request.
///
/// # Safety
/// - `name` and `value` are readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_response_header(slot: u32, id: u64, name: Bytes, value: Bytes) -> i32 {
    with_held(slot, id, |exchange| {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let (name, value) = unsafe { (name.get(), value.get()) };
        match exchange.push_response_header(name, value) {
            Ok(()) => result::OK,
            Err(HeaderError::Name) => result::BAD_NAME,
            Err(HeaderError::Count) => result::TOO_MANY,
            Err(_) => result::BAD_VALUE,
        }
    })
}

/// Sets the body of a response to a copy of these bytes.
///
/// # Safety
/// - `start..start + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_response_copy(slot: u32, id: u64, start: *const u8, len: usize) -> i32 {
    with_held(slot, id, |exchange| {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        exchange.set_response_body(unsafe { slice(start, len) });
        result::OK
    })
}

/// Sets the body of a response to memory that R lends. When the server no longer uses the memory,
/// `rk_released` returns `token`, by which C finds the R object that owns the memory.
///
/// # Safety
/// - `start..start + len` stays readable and unwritten until `rk_released` has returned `token`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_response_lend(
    slot: u32,
    id: u64,
    start: *const u8,
    len: usize,
    token: u64,
) -> i32 {
    entry(result::STALE, || {
        core::with(|core| {
            let releases = core.link.releases().clone();
            let Some(exchange) = core.held(slot, id) else { return result::STALE };
            let Some(start) = NonNull::new(start.cast_mut()) else { return result::STALE };
            // SAFETY: guaranteed by the caller, see `# Safety`.
            let lease = unsafe { Lease::new(start, len, token, &releases) };
            exchange.response_mut().set_body(ResponseBody::Lent(lease));
            result::OK
        })
    })
}

/// Sets the body of a response to a file. If `unlink_it` is not 0, the file is deleted once it is
/// open.
///
/// # Safety
/// - `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_response_file(
    slot: u32,
    id: u64,
    path: *const c_char,
    unlink_it: i32,
) -> i32 {
    with_held(slot, id, |exchange| {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        let path = &*path_of(path);
        let mut options = File::options();
        // O_NONBLOCK, because opening a FIFO without a writer would block R. It has no effect on
        // regular files.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
        let opened = options
            .read(true)
            .open(path)
            .and_then(|file| file.metadata().map(|metadata| (file, metadata)));
        match opened {
            Ok((file, metadata)) if metadata.is_file() => {
                if unlink_it != 0 {
                    // The file is open. If the name cannot be removed, the app keeps it.
                    let _ = std::fs::remove_file(path);
                }
                exchange.response_mut().set_body(ResponseBody::File {
                    file,
                    len: metadata.len(),
                    charge: None,
                });
                result::OK
            }
            Ok(_) => {
                core::set_error(&format!("{} is not a regular file", path.display()));
                result::BAD_VALUE
            }
            Err(error) => {
                core::set_error(&format!("{} cannot be read: {error}", path.display()));
                result::BAD_VALUE
            }
        }
    })
}

/// Sends the response to a request. Afterwards, R no longer holds the request.
#[unsafe(no_mangle)]
pub extern "C" fn rk_respond(slot: u32, id: u64) -> i32 {
    entry(result::STALE, || {
        core::with(|core| {
            let Some(exchange) = core.give(slot, id) else { return result::STALE };
            core.return_exchange(Command::Respond(exchange));
            result::OK
        })
    })
}

/// Returns 1 if R still has to respond to this request, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn rk_is_held(slot: u32, id: u64) -> i32 {
    entry(0, || i32::from(core::with(|core| core.held(slot, id).is_some())))
}

/// Writes the method and path of a request, such as `GET /path`, as a C string. Session tokens in
/// the path are masked. Returns the length of the text.
///
/// # Safety
/// - `out` has space for `len` bytes, at least 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_route(slot: u32, id: u64, out: *mut c_char, len: usize) -> i32 {
    entry(0, || {
        core::with(|core| {
            let mut text = Vec::new();
            if let Some(exchange) = core.held(slot, id) {
                text.extend_from_slice(exchange.method());
                text.push(b' ');
                write_masked(exchange.path(), len - 1, &mut text);
            }
            text.truncate(len - 1);
            // SAFETY: guaranteed by the caller, because `text.len() < len`.
            unsafe { write_text(&text, out) }
        })
    })
}

/// Sets the route of a request, such as `/users/<id>`, by which the request is counted. Does
/// nothing if R does not hold the request.
///
/// # Safety
/// - `route` describes valid memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_set_route(slot: u32, id: u64, route: Bytes) {
    entry((), || {
        core::with(|core| {
            // SAFETY: guaranteed by the caller, see `# Safety`.
            let route = RouteName::of_pattern(unsafe { route.get() }).as_bytes();
            if let Some(exchange) = core.held(slot, id) {
                exchange.set_route(route);
                core.profiling.learn_route(route);
            }
        });
    });
}

/// Returns the id of the listener that accepted a request, or 0 if R does not hold the request.
#[unsafe(no_mangle)]
pub extern "C" fn rk_listener_of(slot: u32, id: u64) -> u32 {
    entry(0, || core::with(|core| core.held(slot, id).map_or(0, |exchange| exchange.listener())))
}

/// Writes the id of a request as a C string, and returns the length of the id. The text is empty if
/// R does not hold the request.
///
/// # Safety
/// - `out` has space for `len` bytes, at least 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_request_id(slot: u32, id: u64, out: *mut c_char, len: usize) -> i32 {
    entry(0, || {
        let id = core::with(|core| core.held(slot, id).map(|exchange| exchange.request_id()));
        let text = id.as_ref().map_or(&[][..], RequestId::as_bytes);
        // SAFETY: guaranteed by the caller, see `# Safety`.
        unsafe { write_text(&text[..text.len().min(len - 1)], out) }
    })
}

/// Returns the number that stands for this process in the request ids that its server creates.
#[unsafe(no_mangle)]
pub extern "C" fn rk_request_process() -> u64 {
    rookery_exchange::request_id_prefix()
}

/// Writes a request id as a C string. `id` is the internal id of the request, and `process` the
/// number of the process that has received the request.
///
/// # Safety
/// - `out` has space for 33 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_format_request_id(id: u64, process: u64, out: *mut c_char) {
    entry((), || {
        // SAFETY: guaranteed by the caller, because these ids have 32 bytes.
        unsafe { write_text(RequestId::generated(id, process).as_bytes(), out) };
    });
}

/// Writes `text` as a C string to `out`. Returns the length of the text.
///
/// # Safety
/// - `out` has space for `text` and one more byte.
unsafe fn write_text(text: &[u8], out: *mut c_char) -> i32 {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    unsafe {
        out.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        out.add(text.len()).write(0);
    }
    i32::try_from(text.len()).unwrap_or(0)
}

/// Writes to `tokens` the tokens of R objects that can now be released, at most `capacity` of them,
/// and returns their number. Such an object owns lent memory that is no longer used, or belongs to
/// a request that is not passed to R again, for example because its client has disconnected.
///
/// # Safety
/// - `tokens` has space for `capacity` tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_released(tokens: *mut u64, capacity: usize) -> usize {
    entry(0, || {
        core::with(|core| {
            if core.tokens.is_empty() {
                core.link.releases().take(&mut core.tokens);
            }
            let count = core.tokens.len().min(capacity);
            let from = core.tokens.len() - count;
            // SAFETY: guaranteed by the caller; `count` is at most both lengths.
            unsafe { tokens.copy_from_nonoverlapping(core.tokens[from..].as_ptr(), count) };
            core.tokens.truncate(from);
            count
        })
    })
}

/// Returns 1 if the bytes are valid UTF-8, otherwise 0.
///
/// # Safety
/// - `start..start + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_is_utf8(start: *const c_void, len: usize) -> i32 {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    entry(0, || i32::from(std::str::from_utf8(unsafe { slice(start.cast(), len) }).is_ok()))
}
