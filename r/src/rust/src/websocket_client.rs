//! The WebSocket clients with which R code connects to other servers. The C code uses them with the
//! functions `rk_client_*`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use rookery_websocket_client::{Address, Clients, Content, Event, Roots, SendOutcome, Settings};

use crate::{Bytes, core, entry, result, slice};

/// The configuration of a WebSocket client as C passes it: `struct rk_client_setup`.
#[derive(Debug)]
#[repr(C)]
pub struct Setup {
    url: Bytes,
    ca: Bytes,
    protocols: *const Bytes,
    protocol_count: usize,
    headers: *const Bytes,
    header_count: usize,
    message: f64,
    queue: f64,
    connect_time: f64,
    close_time: f64,
    ping_time: f64,
    pong_time: f64,
    compresses: i32,
    group: u32,
}

/// An event of a WebSocket client as C reads it: `struct rk_client_event`.
#[derive(Debug)]
#[repr(C)]
pub struct RawEvent {
    kind: i32,
    code: i32,
    is_text: i32,
    is_clean: i32,
    id: u64,
    token: u64,
    data: Bytes,
}

// The layout is the same as in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(
        size_of::<Setup>() == 120
            && offset_of!(Setup, message) == 64
            && offset_of!(Setup, group) == 116
    );
    assert!(
        size_of::<RawEvent>() == 48
            && offset_of!(RawEvent, id) == 16
            && offset_of!(RawEvent, data) == 32
    );
};

// `enum rk_client_kind`.
const OPENED: i32 = 1;
const MESSAGE: i32 = 2;
const CLOSED: i32 = 3;
const FAILED: i32 = 4;

// `enum rk_client_send_status`.
const SENT: i32 = 0;
const FULL: i32 = 1;
const ENDED: i32 = 2;

struct State {
    clients: Clients,
    /// The numbers by which the C code finds the R objects of the WebSocket clients. The key is the
    /// id of a client.
    tokens: HashMap<u64, u64>,
    /// The event of a WebSocket client that C is reading, kept alive until C reads the next event.
    shown_event: Option<Event>,
}

thread_local! {
    /// The state of all WebSocket clients of this process. `None` until the first client is opened.
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// Runs `body` with the state of the WebSocket clients. Returns the default of `T` if no client was
/// ever opened.
fn with<T: Default>(body: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(|state| state.as_mut().map(body).unwrap_or_default())
}

/// Resets the state of the WebSocket clients in a forked child process, which cannot use the
/// clients of its parent. Does not drop the state: a thread of the parent may have held the state's
/// locks at the fork, and nothing in the child would release them.
pub(crate) fn forked() {
    let _ = STATE.try_with(|state| {
        if let Ok(mut state) = state.try_borrow_mut() {
            if let Some(state) = state.take() {
                rookery_websocket_client::close_inherited();
                std::mem::forget(state);
            }
        }
    });
}

/// Converts a number of seconds from R to a duration. Returns `None` if the number is infinite.
fn duration_of(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

/// Converts a number of bytes from R to an integer.
#[expect(
    clippy::cast_sign_loss,
    reason = "R has checked that it is positive; one of more than there is counts as all there is"
)]
fn byte_count(number: f64) -> u64 {
    number as u64
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses the URL of a WebSocket server. Returns `None` after setting the error message of
/// `rk_error()` if the URL is invalid.
fn address(url: &str) -> Option<Address> {
    Address::parse(url)
        .map_err(|bad| core::set_error(&format!("`url` is not the address of a WebSocket: {bad}")))
        .ok()
}

/// Checks the URL of a WebSocket server. Returns `RK_BAD_VALUE` after setting the error message if
/// the URL is invalid.
///
/// # Safety
/// - `url` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_client_check(url: Bytes) -> i32 {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let is_one = || address(&text(unsafe { url.get() })).is_some();
    entry(result::BAD_VALUE, || if is_one() { result::OK } else { result::BAD_VALUE })
}

/// Starts a WebSocket client, which connects to its server. Writes the client's id to `id`. `token`
/// is the number by which C finds the client's R object. When events of the client are queued,
/// `wake` is called on another thread with the number of the client's group, and has to wake the
/// group's event loop. Returns `RK_BAD_VALUE` after setting the error message if the client cannot
/// be started.
///
/// # Safety
/// - `setup` is a `struct rk_client_setup` whose pointers are valid for the length of the call,
///   with `protocol_count` subprotocols, and `header_count` pairs of a header's name and value.
///   `id` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_client_open(
    setup: *const Setup,
    wake: extern "C" fn(u32),
    token: u64,
    id: *mut u64,
) -> i32 {
    entry(result::BAD_VALUE, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let setup = unsafe { &*setup };
        let texts = |start: *const Bytes, count: usize| -> Vec<String> {
            let all = if count == 0 {
                &[]
            } else {
                // SAFETY: guaranteed by the caller; `Bytes` has the layout of `struct rk_bytes`.
                unsafe { std::slice::from_raw_parts(start, count) }
            };
            // SAFETY: guaranteed by the caller, see `# Safety`.
            all.iter().map(|bytes| text(unsafe { bytes.get() })).collect()
        };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let (url, ca) = unsafe { (text(setup.url.get()), text(setup.ca.get())) };
        let Some(address) = address(&url) else { return result::BAD_VALUE };
        let headers = texts(setup.headers, setup.header_count * 2);
        let settings = Settings {
            subprotocols: texts(setup.protocols, setup.protocol_count),
            headers: headers
                .chunks_exact(2)
                .map(|pair| (pair[0].clone(), pair[1].clone()))
                .collect(),
            compresses: setup.compresses != 0,
            max_message_size: byte_count(setup.message),
            max_queue_size: usize::try_from(byte_count(setup.queue)).unwrap_or(usize::MAX),
            connect_timeout: duration_of(setup.connect_time).unwrap_or(Duration::MAX),
            close_timeout: duration_of(setup.close_time).unwrap_or(Duration::MAX),
            ping_interval: duration_of(setup.ping_time),
            pong_timeout: duration_of(setup.pong_time).unwrap_or(Duration::MAX),
            group: setup.group,
        };
        let roots = if ca.is_empty() { Roots::System } else { Roots::Custom(ca) };
        STATE.with_borrow_mut(|state| {
            let state = state.get_or_insert_with(|| State {
                clients: Clients::new(Box::new(move |group| wake(group))),
                tokens: HashMap::new(),
                shown_event: None,
            });
            match state.clients.open(address, settings, &roots) {
                Ok(client) => {
                    state.tokens.insert(client, token);
                    // SAFETY: guaranteed by the caller, see `# Safety`.
                    unsafe { id.write(client) };
                    result::OK
                }
                Err(error) => {
                    core::set_error(&error.to_string());
                    result::BAD_VALUE
                }
            }
        })
    })
}

/// Sends a copy of a message from a WebSocket client to its server. Returns an `enum
/// rk_client_send_status`. Invalid UTF-8 in text is replaced by U+FFFD.
///
/// # Safety
/// - `start..start + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_client_send(
    id: u64,
    is_text: i32,
    start: *const u8,
    len: usize,
) -> i32 {
    entry(ENDED, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let bytes = unsafe { slice(start, len) };
        let content =
            if is_text == 0 { Content::Binary(bytes.to_vec()) } else { Content::Text(text(bytes)) };
        STATE.with_borrow_mut(|state| {
            match state.as_mut().map(|state| state.clients.send(id, content)) {
                Some(SendOutcome::Queued) => SENT,
                Some(SendOutcome::Full) => FULL,
                Some(SendOutcome::Closed) | None => ENDED,
            }
        })
    })
}

/// Starts the closing handshake of a WebSocket client, or stops its attempt to connect.
///
/// # Safety
/// - `reason..reason + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_client_close(id: u64, code: i32, reason: *const u8, len: usize) {
    entry((), || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let reason = text(unsafe { slice(reason, len) });
        with(|state| state.clients.close(id, u16::try_from(code).unwrap_or(1000), &reason));
    });
}

/// Closes a WebSocket client whose R object was garbage-collected, and drops the client's events.
/// Returns the token by which C finds the R object, or 0 if the client had already ended.
#[unsafe(no_mangle)]
pub extern "C" fn rk_client_abandon(id: u64) -> u64 {
    entry(0, || {
        with(|state| {
            state.clients.abandon(id);
            state.tokens.remove(&id).unwrap_or(0)
        })
    })
}

/// Returns the number of bytes that wait to be sent by a WebSocket client.
#[unsafe(no_mangle)]
pub extern "C" fn rk_client_queued_bytes(id: u64) -> u64 {
    entry(0, || with(|state| state.clients.queued_bytes(id) as u64))
}

/// Removes the next event of a group of WebSocket clients from the queue, and writes it to `event`.
/// Returns 0 if no event is queued. The pointers in the event are valid until the next call. After
/// `RK_CLIENT_CLOSED` or `RK_CLIENT_FAILED`, the client's token is no longer used.
///
/// # Safety
/// - `event` points to a `struct rk_client_event`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_client_next(group: u32, event: *mut RawEvent) -> i32 {
    entry(0, || {
        with(|state| {
            let Some(next) = state.clients.next_event(group) else {
                state.shown_event = None;
                return 0;
            };
            let shown_event = &*state.shown_event.insert(next);
            let id = shown_event.client();
            let token = match shown_event {
                Event::Closed { .. } | Event::Failed { .. } => state.tokens.remove(&id),
                _ => state.tokens.get(&id).copied(),
            };
            let mut raw = RawEvent {
                kind: MESSAGE,
                code: 0,
                is_text: 0,
                is_clean: 0,
                id,
                token: token.unwrap_or(0),
                data: Bytes::EMPTY,
            };
            match shown_event {
                Event::Opened { protocol, .. } => {
                    raw.kind = OPENED;
                    raw.data = Bytes::of(protocol.as_deref().unwrap_or_default().as_bytes());
                }
                Event::Message { content, .. } => {
                    raw.is_text = i32::from(matches!(content, Content::Text(_)));
                    raw.data = Bytes::of(content.as_bytes());
                }
                Event::Closed { code, reason, is_clean, .. } => {
                    raw.kind = CLOSED;
                    raw.code = i32::from(*code);
                    raw.is_clean = i32::from(*is_clean);
                    raw.data = Bytes::of(reason.as_bytes());
                }
                Event::Failed { message, status, .. } => {
                    raw.kind = FAILED;
                    raw.code = status.map_or(0, i32::from);
                    raw.data = Bytes::of(message.as_bytes());
                }
            }
            // SAFETY: guaranteed by the caller; `RawEvent` has the layout of
            // `struct rk_client_event` and no destructor.
            unsafe { event.write(raw) };
            1
        })
    })
}

/// Returns 1 if events of a group of WebSocket clients are queued, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn rk_client_has_events(group: u32) -> i32 {
    entry(0, || i32::from(with(|state| state.clients.has_events(group))))
}

/// Ends all WebSocket clients and their thread, which takes at most half a second. The clients'
/// last events can still be taken afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn rk_client_stop() {
    entry((), || with(|state| state.clients.stop()));
}
