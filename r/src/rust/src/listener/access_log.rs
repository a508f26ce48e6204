//! The access log: `rk_log_*`.

use std::ffi::{CStr, OsStr, c_char};
use std::fs::File;
use std::os::fd::FromRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use rookery_server::access_log::{AccessLog, Format, LogFile, Reopener};
use rookery_server::output;

use crate::core::{self, Log};
use crate::{Bytes, entry, result};

/// `enum rk_log_format`.
const JSON: i32 = 1;

/// `struct rk_log_record`.
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
}

// The layout is the same as in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () =
    assert!(size_of::<RawRecord>() == 120 && std::mem::offset_of!(RawRecord, remote) == 32);

/// Reopens the log file, if there is one.
static REOPENER: Mutex<Option<Reopener>> = Mutex::new(None);

/// Makes the log file be reopened. Called on any thread.
pub(crate) fn reopen() {
    if let Some(reopener) = &*REOPENER.lock().unwrap_or_else(PoisonError::into_inner) {
        reopener.reopen();
    }
}

/// Logs all requests of the process to the file at `path`, or without a path to the descriptor
/// `fd`, which is closed with the log. With -1, [`rk_log_next`] returns the records.
///
/// # Safety
/// - `path` is NULL or a C string; `fd` is -1, or open and not used elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_log_open(path: *const c_char, fd: i32, format: i32) -> i32 {
    entry(result::STALE, || {
        let format = if format == JSON { Format::Json } else { Format::Common };
        let mut reopener = None;
        let log = if !path.is_null() {
            // SAFETY: guaranteed by the caller, see `# Safety`.
            let path = unsafe { CStr::from_ptr(path) };
            LogFile::open(Path::new(OsStr::from_bytes(path.to_bytes())), crate::write_log_line)
                .and_then(|file| {
                    reopener = Some(file.reopener());
                    AccessLog::written(file, format)
                })
        } else if fd < 0 {
            Ok(AccessLog::read())
        } else {
            // SAFETY: guaranteed by the caller, see `# Safety`.
            let file = unsafe { File::from_raw_fd(fd) };
            AccessLog::written(file, format)
        };
        match log {
            Ok(log) => {
                *REOPENER.lock().unwrap_or_else(PoisonError::into_inner) = reopener;
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

/// Writes the next record of a log that R reads; returns 0 if no record is queued. Its bytes
/// are valid until the next call.
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
            };
            // SAFETY: guaranteed by the caller, see `# Safety`.
            unsafe { out.write(raw) };
            1
        })
    })
}

/// Returns the number of records that were dropped since the last call because they were not read
/// in time.
#[unsafe(no_mangle)]
pub extern "C" fn rk_log_lost() -> u64 {
    entry(0, || core::with(|core| core.log.open.as_ref().map_or(0, |open| open.take_lost())))
}

/// Makes panics in threads of this process use the same writer as all other messages, which does
/// not block if nothing reads stderr.
#[unsafe(no_mangle)]
pub extern "C" fn rk_output_init() {
    output::write_panics();
}

/// Waits until the lines for stderr were written, for at most one second.
#[unsafe(no_mangle)]
pub extern "C" fn rk_output_flush() {
    output::flush();
}

/// Closes the log after writing the queued lines, which takes at most one second.
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
