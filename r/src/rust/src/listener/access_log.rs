//! The access log: `rk_log_*`.

use std::ffi::{CStr, OsStr, c_char};
use std::fs::File;
use std::os::fd::{FromRawFd as _, IntoRawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use rookery_server::access_log::{AccessLog, Format, LogFile, OwnedRecord, Reopener};
use rookery_server::output;

use crate::{Bytes, core, entry, result};

/// `enum rk_log_format`.
const JSON: i32 = 1;

/// The log of the process, and the record that C is reading.
#[derive(Debug, Default)]
pub(crate) struct Log {
    open: Option<Arc<AccessLog>>,
    record: Option<OwnedRecord>,
    remote: String,
}

impl Log {
    /// Where lines go, if anywhere.
    pub(crate) fn opened(&self) -> Option<Arc<AccessLog>> {
        self.open.clone()
    }
}

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

// As in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () =
    assert!(size_of::<RawRecord>() == 120 && std::mem::offset_of!(RawRecord, remote) == 32);

/// What has the file of the log reopened, if it has one.
static REOPENER: Mutex<Option<Reopener>> = Mutex::new(None);

/// Has the file of the log reopened, from any thread.
pub(crate) fn reopen() {
    if let Some(reopener) = &*REOPENER.lock().unwrap_or_else(PoisonError::into_inner) {
        reopener.reopen();
    }
}

/// Logs all listeners' requests to the file at `path`, or without one to a descriptor, which is taken over; -1: to
/// [`rk_log_next`].
///
/// # Safety
/// - `path` is NULL or a C string; `fd` is -1, or open and nobody else's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_log_open(path: *const c_char, fd: i32, format: i32) -> i32 {
    entry(result::STALE, || {
        let format = if format == JSON { Format::Json } else { Format::Common };
        let mut reopener = None;
        let log = if !path.is_null() {
            // SAFETY: the caller's duty.
            let path = unsafe { CStr::from_ptr(path) };
            LogFile::open(Path::new(OsStr::from_bytes(path.to_bytes())), crate::write_log_line)
                .and_then(|file| {
                    reopener = Some(file.reopener());
                    AccessLog::written(file, format)
                })
        } else if fd < 0 {
            Ok(AccessLog::read())
        } else {
            // SAFETY: the caller's duty.
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

/// A new descriptor of what the supervisor of this process writes the access log to, in place of standard output; -1 where
/// there is none.
#[unsafe(no_mangle)]
pub extern "C" fn rk_log_output() -> i32 {
    entry(-1, || core::with(|core| core.log_output().map_or(-1, IntoRawFd::into_raw_fd)))
}

/// The next record of a log without a descriptor: 1, or 0 when there is none. Its bytes are valid until the next call.
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
            // SAFETY: the caller's duty.
            unsafe { out.write(raw) };
            1
        })
    })
}

/// How many records were lost since the last call because they were not read in time.
#[unsafe(no_mangle)]
pub extern "C" fn rk_log_lost() -> u64 {
    entry(0, || core::with(|core| core.log.open.as_ref().map_or(0, |open| open.take_lost())))
}

/// Makes panics of this process's threads go through the same writer as all other messages, which
/// does not block if nobody reads stderr.
#[unsafe(no_mangle)]
pub extern "C" fn rk_output_init() {
    output::write_panics();
}

/// Waits until the lines for stderr have been written, for at most one second.
#[unsafe(no_mangle)]
pub extern "C" fn rk_output_flush() {
    output::flush();
}

/// Ends the log; what waits is written first, for a second at most.
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
