//! The Rust half of the R package: the plain C interface of `src/rookery.h`.
//!
//! # Ground rules
//! - No function here calls R, and none runs while R can raise: no longjmp ever passes a Rust frame.
//! - Every function is called on R's main thread; the `Core` lives in that thread's local storage.
//!   The one call that goes the other way, on the I/O thread, is `schedule` (see `core`).
//! - Every entry point catches panics: `entry`.
//! - An exchange that R holds is named by slot and id; a pair that names nothing is refused.

// The entry points are reached by their symbols, not by their paths.
#![allow(unreachable_pub)]

mod admin;
mod allocator;
mod core;
mod event;
mod exchange;
mod limits;
mod listener;
mod settings;
mod text;
mod websocket;
mod websocket_client;
mod worker;

/// What an entry point reports: `enum rk_result`.
pub(crate) mod result {
    pub(crate) const OK: i32 = 0;
    pub(crate) const BAD_NAME: i32 = 1;
    pub(crate) const BAD_VALUE: i32 = 2;
    pub(crate) const STALE: i32 = 3;
}

/// Runs the body of an entry point; a panic becomes `fallback` and a line for `rk_error()`.
pub(crate) fn entry<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        core::set_error(&format!("internal error: {text}"));
        fallback
    })
}

/// Bytes that C and Rust show each other for the length of a call: `struct rk_bytes`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Bytes {
    pub(crate) start: *const u8,
    pub(crate) len: usize,
}

// As in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Bytes>() == 16 && std::mem::offset_of!(Bytes, len) == 8);

impl Bytes {
    pub(crate) const EMPTY: Bytes = Bytes { start: std::ptr::NonNull::dangling().as_ptr(), len: 0 };

    pub(crate) fn of(bytes: &[u8]) -> Bytes {
        Bytes { start: bytes.as_ptr(), len: bytes.len() }
    }

    /// The bytes.
    ///
    /// # Safety
    /// - `start..start + len` is readable and unwritten for `'a`, which ends with the entry point's call.
    pub(crate) unsafe fn get<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's duty.
        unsafe { slice(self.start, self.len) }
    }
}

/// A slice of C's, which may be NULL when empty.
///
/// # Safety
/// - `start..start + len` is readable and unwritten for `'a`, which ends with the entry point's call.
pub(crate) unsafe fn slice<'a>(start: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: not empty, so `start` is an object's address; the rest is the caller's duty.
    unsafe { std::slice::from_raw_parts(start, len) }
}

/// Writes one line to stderr, like those of `log_error()` in R, from any thread. Never blocks, even
/// if nobody reads stderr.
pub(crate) fn write_log_line(line: &str) {
    rookery_server::output::stderr().write(format!("rookery: {line}\n").as_bytes());
}
