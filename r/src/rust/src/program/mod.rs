//! The entry point of the program `rookery`, which is in this library so that the core is installed
//! only once. The launcher (`src/launcher.c`) loads the library and calls [`rookery_main`], and R
//! never does.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The exit status after a panic, as in programs whose `main` is in Rust.
const PANICKED: c_int = 101;

/// Runs the program, and returns the exit status of the process.
///
/// # Safety
/// - `words` has `count` pointers to strings that end with NUL, as `main` gets them.
/// - The process has only this thread, and calls this function once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rookery_main(count: c_int, words: *const *const c_char) -> c_int {
    catch_unwind(AssertUnwindSafe(|| {
        init_standard_streams();
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let words = unsafe { std::slice::from_raw_parts(words, count) };
        let words: Vec<OsString> = words
            .iter()
            // SAFETY: guaranteed by the caller, see `# Safety`.
            .map(|&word| OsStr::from_bytes(unsafe { CStr::from_ptr(word) }.to_bytes()).to_owned())
            .collect();
        c_int::from(rookery_cli::run(words))
    }))
    .unwrap_or(PANICKED)
}

/// Does what Rust's runtime does before a `main` in Rust. A write to a pipe without a reader fails
/// instead of ending the process, and the descriptors 0, 1 and 2 are open, so that no file or
/// socket gets one of these numbers.
fn init_standard_streams() {
    // SAFETY: the calls take no pointers, except for one string literal.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            if libc::fcntl(stream, libc::F_GETFD) == -1 {
                // The lowest free number is `stream`, because those below it are open.
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
}
