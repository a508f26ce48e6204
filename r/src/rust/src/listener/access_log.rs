//! The access log of the R process. The C code uses it with the functions `rk_log_*`.

use std::ffi::{CStr, c_char};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

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
        _ => Format::Common,
    }
}

/// A record of the access log as C reads it: `struct rk_log_record`.
#[derive(Debug)]
#[repr(C)]
pub struct RawRecord {
    time: f64,
    seconds: f64,
    bytes: u64,
    status: i32,
    remote: Bytes,
    method: Bytes,
    path: Bytes,
    query: Bytes,
    request_id: Bytes,
    aborted: i32,
    route: Bytes,
    queue_seconds: f64,
    r_seconds: f64,
}

// The layout is the same as in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () =
    assert!(size_of::<RawRecord>() == 152 && std::mem::offset_of!(RawRecord, remote) == 32);

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

/// Writes the next record of the access log to `out`, if R reads the log itself. Returns 0 if no
/// record is queued. The record's texts are valid until the next call.
///
/// # Safety
/// - `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_log_next(out: *mut RawRecord) -> i32 {
    entry(0, || {
        core::with(|core| {
            let log = &mut core.log;
            log.record = log.open.as_ref().and_then(|open| open.take());
            let Some(record) = &log.record else { return 0 };
            log.remote = record
                .remote
                .map(|remote| remote.ip().to_canonical().to_string())
                .unwrap_or_default();
            let raw = RawRecord {
                time: record.time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
                seconds: record.elapsed.as_secs_f64(),
                bytes: record.bytes,
                status: i32::from(record.status),
                remote: Bytes::of(log.remote.as_bytes()),
                method: Bytes::of(&record.method),
                path: Bytes::of(&record.path),
                query: Bytes::of(&record.query),
                request_id: Bytes::of(&record.request_id),
                aborted: record.aborted.map_or(-1, |reason| reason as i32),
                route: Bytes::of(&record.route),
                queue_seconds: record.queue.map_or(f64::NAN, |time| time.as_secs_f64()),
                r_seconds: record.r.map_or(f64::NAN, |time| time.as_secs_f64()),
            };
            // SAFETY: guaranteed by the caller, see `# Safety`.
            unsafe { out.write(raw) };
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
