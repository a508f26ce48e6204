//! WebSocket clients, as R uses them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use rookery_websocket_client::{Address, Clients, Content, Event, Roots, SendOutcome, Settings};

use crate::{Bytes, core, entry, result, slice};

/// `struct rk_client_setup`.
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

/// `struct rk_client_event`.
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

// As in rookery.h.
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
    /// C's token of each client's R object.
    tokens: HashMap<u64, u64>,
    /// What C is reading.
    shown_event: Option<Event>,
}

thread_local! {
    /// On R's main thread, from the first client on.
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// Nothing where there has been no client yet.
fn with<T: Default>(body: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(|state| state.as_mut().map(body).unwrap_or_default())
}

/// In a forked child: the clients are the parent's. Nothing of them is dropped: locks may be held by a thread that was not forked.
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

/// A span of R's, in seconds; none when it has no end.
fn duration_of(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

/// A number of bytes that R has.
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

/// The address that `url` is, or else the failure that `rk_error()` describes.
fn address(url: &str) -> Option<Address> {
    Address::parse(url)
        .map_err(|bad| core::set_error(&format!("`url` is not the address of a WebSocket: {bad}")))
        .ok()
}

/// Checks an address: `RK_BAD_VALUE` when it is not one of a WebSocket, see `rk_error()`.
///
/// # Safety
/// - `url` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_client_check(url: Bytes) -> i32 {
    // SAFETY: the caller's duty.
    let is_one = || address(&text(unsafe { url.get() })).is_some();
    entry(result::BAD_VALUE, || if is_one() { result::OK } else { result::BAD_VALUE })
}

/// Begins to connect; `wake` asks the event loop of a group for a turn, on any thread.
/// `RK_BAD_VALUE`: see `rk_error()`.
///
/// # Safety
/// - `setup` is a `struct rk_client_setup` whose pointers are valid for the length of the call, with as many protocols as it says,
///   and twice as many header texts. `id` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_client_open(
    setup: *const Setup,
    wake: extern "C" fn(u32),
    token: u64,
    id: *mut u64,
) -> i32 {
    entry(result::BAD_VALUE, || {
        // SAFETY: the caller's duty.
        let setup = unsafe { &*setup };
        let texts = |start: *const Bytes, count: usize| -> Vec<String> {
            // SAFETY: the caller's duty; `Bytes` has the layout of `struct rk_bytes`.
            let all =
                if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, count) } };
            // SAFETY: as above.
            all.iter().map(|bytes| text(unsafe { bytes.get() })).collect()
        };
        // SAFETY: as above.
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
                    // SAFETY: the caller's duty.
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

/// Sends a message, copied: `enum rk_client_send_status`. Text that is not UTF-8 has its bad bytes replaced by U+FFFD.
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
        // SAFETY: the caller's duty.
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

/// Starts the closing handshake, or gives up connecting.
///
/// # Safety
/// - `reason..reason + len` is readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_client_close(id: u64, code: i32, reason: *const u8, len: usize) {
    entry((), || {
        // SAFETY: the caller's duty.
        let reason = text(unsafe { slice(reason, len) });
        with(|state| state.clients.close(id, u16::try_from(code).unwrap_or(1000), &reason));
    });
}

/// Lets go of a client, whose events are not shown_event any more: its token, 0 when it has ended before.
#[unsafe(no_mangle)]
pub extern "C" fn rk_client_abandon(id: u64) -> u64 {
    entry(0, || {
        with(|state| {
            state.clients.abandon(id);
            state.tokens.remove(&id).unwrap_or(0)
        })
    })
}

/// Bytes that wait to be sent.
#[unsafe(no_mangle)]
pub extern "C" fn rk_client_queued_bytes(id: u64) -> u64 {
    entry(0, || with(|state| state.clients.queued_bytes(id) as u64))
}

/// Takes the next event of a group; 0 when there is none. What it points to is valid until the next call. The token of an
/// `RK_CLIENT_CLOSED` or `RK_CLIENT_FAILED` is given back by it.
///
/// # Safety
/// - `event` is a place for a `struct rk_client_event`.
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
            // SAFETY: the caller's duty; `RawEvent` has the layout of `struct rk_client_event` and no destructor.
            unsafe { event.write(raw) };
            1
        })
    })
}

/// Whether an event of a group waits.
#[unsafe(no_mangle)]
pub extern "C" fn rk_client_has_events(group: u32) -> i32 {
    entry(0, || i32::from(with(|state| state.clients.has_events(group))))
}

/// Ends all clients, and their thread: takes half a second at most. Their last events can be taken after it.
#[unsafe(no_mangle)]
pub extern "C" fn rk_client_stop() {
    entry((), || with(|state| state.clients.stop()));
}
