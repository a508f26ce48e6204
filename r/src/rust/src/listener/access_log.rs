//! The access log of the R process. The C code uses it with the functions `rk_log_*`.

use std::ffi::{CStr, c_char};
use std::fs::File;
use std::io;
use std::sync::Arc;

use rookery_server::access_log::{AccessLog, Format, LogFile};
#[cfg(unix)]
use rookery_server::captured_output;
use rookery_server::output;

use crate::core::{self, Log};
use crate::text::path::path_of;
use crate::{Bytes, entry, result};

/// Returns the format of the access log for an `enum rk_log_format`.
fn format_of(format: i32) -> Format {
    match format {
        1 => Format::Json,
        2 => Format::Combined,
        3 => Format::Terminal { is_coloured: false },
        4 => Format::Fields,
        _ => Format::Common,
    }
}

/// Returns the open file of a descriptor of the C runtime.
///
/// # Safety
/// - The descriptor is open, and not used elsewhere.
#[cfg_attr(unix, allow(clippy::unnecessary_wraps))] // on Windows, copying the handle can fail
unsafe fn file_of(fd: i32) -> io::Result<File> {
    #[cfg(unix)]
    // SAFETY: guaranteed by the caller, see `# Safety`.
    return Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) });
    #[cfg(windows)]
    {
        use std::os::windows::io::BorrowedHandle;
        // SAFETY: guaranteed by the caller, see `# Safety`. The C runtime owns the handle of its
        // descriptor, so the file gets a copy.
        let copy = unsafe {
            let handle = libc::get_osfhandle(fd) as std::os::windows::io::RawHandle;
            BorrowedHandle::borrow_raw(handle).try_clone_to_owned()
        };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        unsafe { libc::close(fd) };
        copy.map(File::from)
    }
}

/// Opens the access log for all requests of the process. `format` is an `enum rk_log_format`. The
/// log is written to one of three places:
/// - the file at `path`, unless `path` is NULL
/// - otherwise the descriptor `fd`, unless `fd` is -1; it is closed with the log
/// - otherwise a queue from which R reads the records with [`rk_log_next`]
///
/// # Safety
/// - `path` is NULL or a C string; `fd` is -1, or open and not used elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_log_open(path: *const c_char, fd: i32, format: i32) -> i32 {
    entry(result::STALE, || {
        let format = format_of(format);
        let log = if !path.is_null() {
            // SAFETY: guaranteed by the caller, see `# Safety`.
            let path = unsafe { CStr::from_ptr(path) };
            LogFile::open(&path_of(path.to_bytes()), crate::write_log_line)
                .and_then(|file| AccessLog::written(file, format))
        } else if fd < 0 {
            Ok(AccessLog::read())
        } else {
            // SAFETY: guaranteed by the caller, see `# Safety`.
            let file = unsafe { file_of(fd) };
            file.and_then(|file| {
                let format = format.for_output(&file);
                AccessLog::written(file, format)
            })
        };
        match log {
            Ok(log) => {
                // `rookery serve` sets this variable for its workers.
                let log = log.with_app(&std::env::var("OTEL_SERVICE_NAME").unwrap_or_default());
                core::with(|core| {
                    let log = Arc::new(log);
                    core.server().set_access_log(Some(Arc::clone(&log)));
                    core.log = Log { open: Some(log), ..Log::default() };
                });
                result::OK
            }
            Err(error) => {
                core::set_error(&error.to_string());
                result::STALE
            }
        }
    })
}

/// Writes the next record of the access log to `out`, as a line of fields ([`Format::Fields`]), if
/// R reads the log itself. Returns 0 if no record is queued. The line is valid until the next call.
///
/// # Safety
/// - `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_log_next(out: *mut Bytes) -> i32 {
    entry(0, || {
        core::with(|core| {
            let log = &mut core.log;
            log.line.clear();
            let Some(record) = log.open.as_ref().and_then(|open| open.take()) else { return 0 };
            record.write_fields(&mut log.line);
            // SAFETY: guaranteed by the caller, see `# Safety`.
            unsafe { out.write(Bytes::of(log.line.trim_ascii_end())) };
            1
        })
    })
}

/// Returns the number of access log records that were dropped since the last call, because R did
/// not read them in time.
#[unsafe(no_mangle)]
pub extern "C" fn rk_log_lost() -> u64 {
    entry(0, || core::with(|core| core.log.open.as_ref().map_or(0, |open| open.take_lost())))
}

/// Makes this process write the messages of panics to stderr by the same writer as all its other
/// messages. The writer does not block if nothing reads stderr.
#[unsafe(no_mangle)]
pub extern "C" fn rk_output_init() {
    output::write_panics();
}

/// Waits until all queued lines have been written to stderr, for at most one second. Ends the
/// conversion of output to JSON before.
#[unsafe(no_mangle)]
pub extern "C" fn rk_output_flush() {
    output::flush();
    rk_output_json(0);
}

/// Begins (1) or ends (0) the conversion of what this process prints to JSON objects. Has no effect
/// on Windows, and in a worker, whose supervisor converts its output. Fails with an error message
/// if the system has no pipe or thread left.
#[unsafe(no_mangle)]
pub extern "C" fn rk_output_json(is_on: i32) -> i32 {
    entry(result::STALE, || {
        #[cfg(unix)]
        if is_on == 0 {
            captured_output::end();
        } else if core::with(|core| core.supervised_scoreboard().is_none()) {
            if let Err(error) = captured_output::begin() {
                core::set_error(&error.to_string());
                return result::STALE;
            }
        }
        #[cfg(windows)]
        let _ = is_on;
        result::OK
    })
}

/// Closes the access log. First writes the queued lines, which takes at most one second.
#[unsafe(no_mangle)]
pub extern "C" fn rk_log_close() {
    entry((), || {
        let log = core::with(|core| {
            core.server().set_access_log(None);
            std::mem::take(&mut core.log)
        });
        if let Some(log) = log.open {
            log.close();
        }
    });
}
