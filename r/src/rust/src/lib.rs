//! The Rust code of the R package, with the plain C interface that `src/rookery.h` declares.
//!
//! # Ground rules
//! - No function here calls R, and none runs while R can raise an error. An R error, which is a
//!   longjmp, therefore never skips a Rust frame.
//! - C calls every function on R's main thread. The state `Core` is in that thread's local storage.
//! - Rust calls only the C functions that were passed to `rk_init`, `rk_worker_join` and
//!   `rk_client_open`, usually on another thread.
//! - Every function that C calls catches panics, with the help of `entry`.
//! - C refers to an exchange (a request with its response) by a slot number and an id. A function
//!   refuses the call if the slot does not contain the exchange with this id.

// C calls the entry points by their symbols, not by their paths.
#![allow(unreachable_pub)]

mod admin;
mod allocator;
mod core;
mod error_sharing;
mod event;
mod exchange;
mod limits;
mod listener;
#[cfg(unix)]
mod program;
mod settings;
mod text;
mod tracing;
mod websocket;
mod websocket_client;
mod worker;

use std::borrow::Cow;

/// The return values of functions that C calls. They equal those of `enum rk_result` in rookery.h.
pub(crate) mod result {
    pub(crate) const OK: i32 = 0;
    pub(crate) const BAD_NAME: i32 = 1;
    pub(crate) const BAD_VALUE: i32 = 2;
    pub(crate) const STALE: i32 = 3;
    pub(crate) const TOO_MANY: i32 = 4;
}

/// Runs the body of a function that C calls. If the body panics, returns `fallback` and sets the
/// error message that `rk_error()` returns.
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

/// Resets the state of the package in a forked child process. The child has no I/O thread, and must
/// not use the file descriptors of its parent.
#[unsafe(no_mangle)]
pub extern "C" fn rk_forked() {
    entry((), || {
        rookery_exchange::renew_request_ids();
        websocket_client::forked();
        tracing::forked();
        core::forked();
    });
}

/// A range of bytes that C passes to Rust, or Rust to C, for the length of a call: `struct
/// rk_bytes`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Bytes {
    pub(crate) start: *const u8,
    pub(crate) len: usize,
}

// The layout is the same as in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Bytes>() == 16 && std::mem::offset_of!(Bytes, len) == 8);

impl Bytes {
    pub(crate) const EMPTY: Bytes = Bytes { start: std::ptr::NonNull::dangling().as_ptr(), len: 0 };

    pub(crate) fn of(bytes: &[u8]) -> Bytes {
        Bytes { start: bytes.as_ptr(), len: bytes.len() }
    }

    /// Returns the bytes of the range as a slice, which must not be used after the call from C has
    /// returned.
    ///
    /// # Safety
    /// - `start..start + len` is readable and unwritten for the lifetime `'a`, which ends before
    ///   the call from C returns.
    pub(crate) unsafe fn get<'a>(self) -> &'a [u8] {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        unsafe { slice(self.start, self.len) }
    }

    /// Returns the bytes of the range as text, in which invalid UTF-8 is replaced.
    ///
    /// # Safety
    /// - As for [`get`](Self::get).
    pub(crate) unsafe fn text<'a>(self) -> Cow<'a, str> {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        String::from_utf8_lossy(unsafe { self.get() })
    }
}

/// Returns a C array of `len` bytes as a slice, which must not be used after the call from C has
/// returned. `start` may be NULL if the array is empty.
///
/// # Safety
/// - `start..start + len` is readable and unwritten for the lifetime `'a`, which ends before the
///   call from C returns.
pub(crate) unsafe fn slice<'a>(start: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the slice is not empty, so `start` is the address of an object; the caller guarantees
    // the rest.
    unsafe { std::slice::from_raw_parts(start, len) }
}

/// Logs one line to stderr, in the format of R's `log_error()`. Can be called on any thread, and
/// never blocks, even if nothing reads stderr.
pub(crate) fn write_log_line(line: &str) {
    rookery_server::output::log(rookery_server::output::Level::Info, line);
}
