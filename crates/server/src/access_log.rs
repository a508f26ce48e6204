//! The access log: one line per answered request.
//!
//! The I/O thread formats a line into a buffer in memory and goes on; a thread of the log's own writes what has come
//! together. So a disk or a terminal that does not take lines (Ctrl-S, a full pipe) holds up nobody: past
//! [`BUFFER_BYTES`] lines are lost, counted, and the count is written when the log moves again.
//!
//! A log may instead be read by the application, record by record: then nothing is formatted here.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{io, thread};

use http::{Method, Uri, Version};

use crate::server::with_signals_blocked;

/// What lines may wait to be written: about 10,000 of them, a tenth of a second under full load.
pub const BUFFER_BYTES: usize = 1 << 20;
/// What records may wait for an application that reads them itself; about 1 MiB with ordinary paths.
pub const QUEUE_RECORDS: usize = 4096;
/// The writer gathers lines for this long before it writes again: at most 100 writes (and wake-ups) a second.
const GATHER: Duration = Duration::from_millis(10);
/// How long closing waits for an output that stands still; then what waits is given up.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// The status in the log of a request whose client went away before it was answered; none was sent. 499 is what nginx
/// writes for it.
const CLIENT_GONE: u16 = 499;
/// A path of a log line is cut here: a client may send 96 KiB, and a line is for reading.
const PATH_BYTES: usize = 2048;

/// One answered request.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// When its head had been read.
    pub time: SystemTime,
    /// The client; `None` on a Unix socket.
    pub remote: Option<SocketAddr>,
    /// The method, as sent; empty when the head was refused before it was known.
    pub method: &'a [u8],
    /// The path, as sent.
    pub path: &'a [u8],
    /// The query with its `?`, or empty.
    pub query: &'a [u8],
    /// Whether the client speaks HTTP/1.0.
    pub is_http10: bool,
    /// The reply's status; 101 for a WebSocket, once it is open.
    pub status: u16,
    /// Bytes of the reply's body that were handed to the system.
    pub bytes: u64,
    /// From the head of the request to the end of the reply.
    pub elapsed: Duration,
}

/// A [`Record`] that stands on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRecord {
    /// See [`Record::time`].
    pub time: SystemTime,
    /// See [`Record::remote`].
    pub remote: Option<SocketAddr>,
    /// See [`Record::method`].
    pub method: Vec<u8>,
    /// See [`Record::path`]; at most 2,048 bytes.
    pub path: Vec<u8>,
    /// See [`Record::query`]; at most 2,048 bytes.
    pub query: Vec<u8>,
    /// See [`Record::status`].
    pub status: u16,
    /// See [`Record::bytes`].
    pub bytes: u64,
    /// See [`Record::elapsed`].
    pub elapsed: Duration,
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The Common Log Format, with the seconds the request took behind it.
    Common,
    /// One JSON object per line.
    Json,
}

/// Where records go.
#[derive(Debug)]
pub struct AccessLog {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Written { shared: Arc<Shared>, format: Format },
    Read(Mutex<Queue>),
}

impl AccessLog {
    /// A log whose lines are written to `out` by a thread of its own.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn written(out: impl Write + Send + 'static, format: Format) -> io::Result<AccessLog> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        with_signals_blocked(|| {
            thread::Builder::new().name("rookery-log".into()).spawn(move || write_lines(&theirs, out))
        })?;
        Ok(AccessLog { kind: Kind::Written { shared, format } })
    }

    /// A log that the application reads with [`take`](Self::take).
    pub fn read() -> AccessLog {
        AccessLog { kind: Kind::Read(Mutex::default()) }
    }

    /// Takes a record. Never blocks on the output.
    ///
    /// # Allocation
    /// None for a written log once its buffers have grown; a record that is read is copied.
    pub fn record(&self, record: &Record<'_>) {
        match &self.kind {
            Kind::Written { shared, format } => shared.push(record, *format),
            Kind::Read(queue) => {
                let mut queue = lock(queue);
                if queue.records.len() < QUEUE_RECORDS {
                    queue.records.push_back(record.to_owned());
                } else {
                    queue.lost += 1;
                }
            }
        }
    }

    /// Ends a written log when what waits has been written, or when the output has stood still for a second. Later
    /// records are lost.
    pub fn close(&self) {
        let Kind::Written { shared, .. } = &self.kind else { return };
        let mut state = lock(&shared.state);
        state.is_closed = true;
        shared.changed.notify_all();
        let deadline = Instant::now() + CLOSE_TIME;
        while !state.is_done {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            (state, _) = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next record of a log that is [`read`](Self::read); `None` when there is none.
    pub fn take(&self) -> Option<OwnedRecord> {
        match &self.kind {
            Kind::Read(queue) => lock(queue).records.pop_front(),
            Kind::Written { .. } => None,
        }
    }

    /// Records lost since this was last asked, because nobody read them fast enough.
    pub fn take_lost(&self) -> u64 {
        match &self.kind {
            Kind::Read(queue) => std::mem::take(&mut lock(queue).lost),
            Kind::Written { .. } => 0,
        }
    }
}

impl Drop for AccessLog {
    /// What waits is written, but not waited for.
    fn drop(&mut self) {
        if let Kind::Written { shared, .. } = &self.kind {
            lock(&shared.state).is_closed = true;
            shared.changed.notify_all();
        }
    }
}

impl Record<'_> {
    /// A copy that stands on its own.
    pub fn to_owned(&self) -> OwnedRecord {
        OwnedRecord {
            time: self.time,
            remote: self.remote,
            method: self.method.to_vec(),
            path: cut(self.path).to_vec(),
            query: cut(self.query).to_vec(),
            status: self.status,
            bytes: self.bytes,
            elapsed: self.elapsed,
        }
    }

    /// Appends the line, with its end.
    pub fn write_line(&self, format: Format, out: &mut Vec<u8>) {
        // Writing to a Vec does not fail.
        let _ = match format {
            Format::Common => self.write_common(out),
            Format::Json => self.write_json(out),
        };
    }

    fn write_common(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let civil = Civil::of(self.time);
        match self.remote {
            Some(remote) => write!(out, "{}", plain(remote.ip()))?,
            None => out.push(b'-'),
        }
        write!(
            out,
            " - - [{:02}/{}/{:04}:{:02}:{:02}:{:02} +0000] \"",
            civil.day,
            MONTHS[usize::from(civil.month) - 1],
            civil.year,
            civil.hour,
            civil.minute,
            civil.second
        )?;
        escape_common(if self.method.is_empty() { b"-" } else { self.method }, out);
        out.push(b' ');
        escape_common(cut(self.path), out);
        escape_common(cut(self.query), out);
        let version = if self.is_http10 { '0' } else { '1' };
        writeln!(out, " HTTP/1.{version}\" {} {} {:.6}", self.status, self.bytes, self.elapsed.as_secs_f64())
    }

    fn write_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let civil = Civil::of(self.time);
        write!(
            out,
            "{{\"time\":\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z\",\"remote\":",
            civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second, civil.milli
        )?;
        match self.remote {
            Some(remote) => write!(out, "\"{}\"", plain(remote.ip()))?,
            None => out.extend_from_slice(b"null"),
        }
        for (name, value) in [("method", self.method), ("path", cut(self.path)), ("query", cut(self.query))] {
            write!(out, ",\"{name}\":\"")?;
            escape_json(value, out);
            out.push(b'"');
        }
        writeln!(
            out,
            ",\"status\":{},\"bytes\":{},\"seconds\":{:.6}}}",
            self.status,
            self.bytes,
            self.elapsed.as_secs_f64()
        )
    }
}

/// Lines on their way to the writer.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    lost: u64,
    is_closed: bool,
    /// The writer has written its last.
    is_done: bool,
    /// The writer sleeps until it is told: while it writes or gathers, nobody has to wake it.
    is_idle: bool,
}

impl Shared {
    fn push(&self, record: &Record<'_>, format: Format) {
        let mut state = lock(&self.state);
        if state.is_closed {
            return;
        }
        if state.lines.len() >= BUFFER_BYTES {
            state.lost += 1;
            return;
        }
        record.write_line(format, &mut state.lines);
        if std::mem::take(&mut state.is_idle) {
            drop(state);
            self.changed.notify_all();
        }
    }
}

/// The writer's thread.
fn write_lines(shared: &Shared, mut out: impl Write) {
    let mut lines = Vec::new();
    loop {
        let mut state = lock(&shared.state);
        while state.lines.is_empty() && state.lost == 0 && !state.is_closed {
            state.is_idle = true;
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_idle = false;
        std::mem::swap(&mut lines, &mut state.lines);
        let lost = std::mem::take(&mut state.lost);
        let is_last = state.is_closed;
        drop(state);
        if lost > 0 {
            let _ = writeln!(lines, "# {lost} lines were lost: the log could not be written fast enough");
        }
        // A log that cannot be written (a full disk, a reader that has gone) must not end the server.
        let _ = out.write_all(&lines).and_then(|()| out.flush());
        lines.clear();
        let mut state = lock(&shared.state);
        if is_last {
            state.is_done = true;
            shared.changed.notify_all();
            return;
        }
        if !state.is_closed {
            // Woken early only by closing: `is_idle` is false.
            drop(shared.changed.wait_timeout(state, GATHER));
        }
    }
}

/// Where the I/O thread finds the log of the moment.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// So that a server without a log pays one load per request.
    is_on: AtomicBool,
    log: Mutex<Option<Arc<AccessLog>>>,
}

impl Slot {
    pub(crate) fn set(&self, log: Option<Arc<AccessLog>>) {
        let mut slot = lock(&self.log);
        self.is_on.store(log.is_some(), Ordering::Relaxed);
        let before = std::mem::replace(&mut *slot, log);
        drop(slot);
        drop(before);
    }

    fn get(&self) -> Option<Arc<AccessLog>> {
        if self.is_on.load(Ordering::Relaxed) { lock(&self.log).clone() } else { None }
    }
}

/// The line of the request that a connection is at. Begun when its head has been read, ended when the last byte of
/// the reply is with the system, or the connection is over.
#[derive(Debug, Default)]
pub(crate) struct Line {
    begun: RefCell<Option<Begun>>,
    status: Cell<u16>,
    bytes: Cell<u64>,
    /// Method, path and query, one behind the other: kept from request to request.
    head: RefCell<Vec<u8>>,
}

#[derive(Debug)]
struct Begun {
    log: Arc<AccessLog>,
    time: SystemTime,
    since: Instant,
    is_http10: bool,
    method: usize,
    path: usize,
}

impl Line {
    /// Begins the line of a request; the one before is ended, when its successor came in before it was flushed.
    pub(crate) fn begin(
        &self,
        slot: &Slot,
        remote: Option<SocketAddr>,
        (method, uri, version): (&Method, &Uri, Version),
    ) {
        self.end(remote);
        let Some(log) = slot.get() else { return };
        let mut head = self.head.borrow_mut();
        head.clear();
        head.extend_from_slice(method.as_str().as_bytes());
        let method = head.len();
        head.extend_from_slice(cut(uri.path().as_bytes()));
        let path = head.len();
        if let Some(query) = uri.query() {
            head.push(b'?');
            head.extend_from_slice(cut(query.as_bytes()));
        }
        self.start(log, version == Version::HTTP_10, method, path);
    }

    /// A head that could not be read: nothing of it is known.
    pub(crate) fn begin_unreadable(&self, slot: &Slot, remote: Option<SocketAddr>, status: u16) {
        self.end(remote);
        let Some(log) = slot.get() else { return };
        self.head.borrow_mut().clear();
        self.start(log, false, 0, 0);
        self.status.set(status);
    }

    fn start(&self, log: Arc<AccessLog>, is_http10: bool, method: usize, path: usize) {
        self.status.set(0);
        self.bytes.set(0);
        let (time, since) = (SystemTime::now(), Instant::now());
        self.begun.replace(Some(Begun { log, time, since, is_http10, method, path }));
    }

    pub(crate) fn set_status(&self, status: u16) {
        self.status.set(status);
    }

    pub(crate) fn add_bytes(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// Records the line, if one has been begun.
    pub(crate) fn end(&self, remote: Option<SocketAddr>) {
        let Some(begun) = self.begun.take() else { return };
        let head = self.head.borrow();
        begun.log.record(&Record {
            time: begun.time,
            remote,
            method: &head[..begun.method],
            path: &head[begun.method..begun.path],
            query: &head[begun.path..],
            is_http10: begun.is_http10,
            status: if self.status.get() == 0 { CLIENT_GONE } else { self.status.get() },
            bytes: self.bytes.get(),
            elapsed: begun.since.elapsed(),
        });
    }
}

#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<OwnedRecord>,
    lost: u64,
}

/// A point in time in the calendar, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Civil {
    year: u64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    milli: u16,
}

impl Civil {
    /// From days since 1970 by the method of H. Hinnant, "chrono-compatible low-level date algorithms"; times before
    /// 1970 are taken for 1970.
    fn of(time: SystemTime) -> Civil {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        let days = days + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Months from March on, so that the leap day is the last of its year.
        let shifted = (5 * day_of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        Civil {
            year: year_of_era + era * 400 + u64::from(month <= 2),
            month: month as u8,
            day: (day_of_year - (153 * shifted + 2) / 5 + 1) as u8,
            hour: (second / 3600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
            milli: since.subsec_millis() as u16,
        }
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// An IPv4 address that came in on an IPv6 socket is shown as what it is.
fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn cut(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(PATH_BYTES)]
}

/// A client must not be able to write lines, or terminal escapes, into the log.
fn escape_common(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x20..=0x7e => out.push(byte),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
}

/// Bytes that are no UTF-8 become U+FFFD: JSON has no others.
fn escape_json(bytes: &[u8], out: &mut Vec<u8>) {
    for char in String::from_utf8_lossy(bytes).chars() {
        match char {
            '"' | '\\' => out.extend_from_slice(&[b'\\', char as u8]),
            ' '..='\u{7e}' => out.push(char as u8),
            _ if char.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(char));
            }
            _ => {
                let _ = write!(out, "{char}");
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole at every point where a panic could happen.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
