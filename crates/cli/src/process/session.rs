//! The R session that has started this program by `serve(path)`. The session passes its arguments
//! on standard input. From a pipe, it reads the address to open and the records of the access log,
//! for its functions `open` and `log`, and the failure that ends this program.

use std::io::{self, Read as _};
#[cfg(unix)]
use std::os::fd::BorrowedFd;
#[cfg(unix)]
use std::sync::OnceLock;

use rookery_server::access_log::LineWriter;
use rookery_server::output;
#[cfg(unix)]
use rookery_system::descriptor::set_close_on_exec;

/// The environment variable with the process id of the R session that has started this program.
pub(crate) const PARENT_VARIABLE: &str = "ROOKERY_INTERNAL_PARENT_PID";

/// The descriptor of the pipe to the session, on Unix.
pub(crate) const PIPE: i32 = 3;

/// Returns the process id of the R session that has started this program and forwards signals to
/// it. Returns `None` if no R session has started this program.
pub(crate) fn parent_session() -> Option<i32> {
    std::env::var(PARENT_VARIABLE).ok()?.parse().ok()
}

/// Reads the arguments of R's `serve()` from standard input, which only this user can read, because
/// the arguments may contain keys. Returns an empty text if no R session has started this program.
///
/// # Errors
/// Fails if standard input cannot be read or is no text.
pub(crate) fn read_arguments() -> io::Result<String> {
    let mut text = String::new();
    if parent_session().is_some() {
        // Workers must not inherit the pipe.
        #[cfg(unix)]
        // SAFETY: the descriptor is not closed during the call. If it is not open, the call fails.
        let _ = set_close_on_exec(unsafe { BorrowedFd::borrow_raw(PIPE) }, true);
        io::stdin().read_to_string(&mut text)?;
    }
    Ok(text)
}

/// Lets the process that `command` starts inherit the pipe to the R session.
#[cfg(all(unix, any(not(target_os = "linux"), feature = "portable", test)))]
pub(crate) fn let_inherit_pipe(command: &mut std::process::Command) {
    // SAFETY: the closure only makes a system call, which is async-signal-safe.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(command, || {
            set_close_on_exec(BorrowedFd::borrow_raw(PIPE), false)
        });
    }
}

/// Reports to the R session the address that the session has to open. `url` is `None` for a Unix
/// socket. Returns false if there is no session that opens addresses.
pub(crate) fn open(url: Option<&str>) -> bool {
    let writer = writer();
    if let Some(writer) = &writer {
        writer.write(format!("open\t{}\n", url.unwrap_or_default()).as_bytes());
    }
    writer.is_some()
}

/// Reports to the R session the failure that ends this program, so that the session can raise it.
/// `class` is the class of the condition besides `rookery_exit`. Returns false if there is no
/// session that reads reports.
pub(crate) fn fail(class: &str, message: &str) -> bool {
    let writer = writer();
    if let Some(writer) = &writer {
        let message = message.replace('%', "%25").replace('\n', "%0A");
        writer.write(format!("failed\t{class}\t{message}\n").as_bytes());
        writer.flush(output::FLUSH_TIME);
    }
    writer.is_some()
}

/// Returns the writer of lines to the R session. Returns `None` if no R session has started this
/// program, and on Windows, where no pipe leads to the session. The first call starts a thread.
#[cfg(unix)]
pub(crate) fn writer() -> Option<LineWriter> {
    static WRITER: OnceLock<Option<LineWriter>> = OnceLock::new();
    let start = || {
        parent_session()?;
        // SAFETY: the descriptor is not closed during the call. If it is not open, the call fails.
        set_close_on_exec(unsafe { BorrowedFd::borrow_raw(PIPE) }, true).ok()?;
        // SAFETY: R's `serve()` has made this descriptor for this program, and only this function,
        // which is called once, uses it.
        let pipe: std::fs::File = unsafe { std::os::fd::FromRawFd::from_raw_fd(PIPE) };
        LineWriter::start(pipe, "# ").ok()
    };
    WRITER.get_or_init(start).clone()
}

#[cfg(windows)]
pub(crate) fn writer() -> Option<LineWriter> {
    None
}
