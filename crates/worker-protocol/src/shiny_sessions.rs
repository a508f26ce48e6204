//! The open sessions of Shiny, as the messages to their pages show them. The process that has the
//! WebSockets of the sessions records them, and the same process reports them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::scoreboard::now;

/// The length in bytes of the part of a session's token that reports show. The whole token would
/// give access to the session's downloads and uploads.
pub const SESSION_ID_LEN: usize = 8;

/// The maximum number of outputs of a session that are being computed at the same time, as promises
/// allow it. Further outputs are not recorded.
const MAX_COMPUTING: usize = 32;

/// The value of [`Inner::busy_since`] of a session for which Shiny computes nothing.
const IDLE: u64 = 0;

/// The open sessions of Shiny, and the counts of all sessions that this process has had.
#[derive(Debug, Default)]
pub struct ShinySessions {
    open: Mutex<BTreeMap<u64, Arc<Inner>>>,
    last: AtomicU64,
    flushes: AtomicU64,
    page_bytes: AtomicU64,
}

/// What is known about one session. The thread of the WebSocket writes it.
#[derive(Debug)]
struct Inner {
    id: [u8; SESSION_ID_LEN],
    opened: u64,
    page_bytes: AtomicU64,
    /// The time at which Shiny began to compute for the session, or [`IDLE`].
    busy_since: AtomicU64,
    /// The name of each output that is being computed, and the time at which that began.
    computing: Mutex<Vec<(Box<[u8]>, u64)>>,
}

/// One open session of Shiny, for the owner of its WebSocket. The session ends when this value is
/// dropped.
#[derive(Debug)]
pub struct ShinySession {
    all: Arc<ShinySessions>,
    number: u64,
    inner: Arc<Inner>,
}

/// A session of Shiny in a report. The times are those of the clock [`now`], in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionReading {
    /// The beginning of the session's token.
    pub id: String,
    /// The time at which the session was opened.
    pub opened: u64,
    /// The number of bytes of messages to the page, before compression.
    pub page_bytes: u64,
    /// The time since which Shiny computes for the session; `None` if it computes nothing.
    pub busy_since: Option<u64>,
    /// The output that has been computed for longest, and the time at which that began.
    pub output: Option<(String, u64)>,
}

/// The counts of all sessions of Shiny, with the readings of some of the open ones.
#[derive(Debug, Clone, Default)]
pub struct SessionsReading {
    /// The number of open sessions.
    pub open: usize,
    /// The number of open sessions for which Shiny computes something.
    pub computing: usize,
    /// The number of flushes of Shiny's reactive graph, counted for each session that took part.
    pub flushes: u64,
    /// The number of bytes of messages to the pages of all sessions, before compression.
    pub page_bytes: u64,
    /// The sessions for which Shiny has computed for longest, and then the newest ones.
    pub sessions: Vec<SessionReading>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ShinySessions {
    /// Records a session that begins. `token` is the session's token, of which only the beginning
    /// is kept.
    pub fn open(self: &Arc<ShinySessions>, token: &[u8]) -> ShinySession {
        let mut id = [b'-'; SESSION_ID_LEN];
        for (to, from) in id.iter_mut().zip(token) {
            *to = if from.is_ascii_alphanumeric() { *from } else { b'-' };
        }
        let inner = Arc::new(Inner {
            id,
            opened: now(),
            page_bytes: AtomicU64::new(0),
            busy_since: AtomicU64::new(IDLE),
            computing: Mutex::default(),
        });
        let number = self.last.fetch_add(1, Relaxed) + 1;
        lock(&self.open).insert(number, Arc::clone(&inner));
        ShinySession { all: Arc::clone(self), number, inner }
    }

    /// Returns the counts, and the readings of at most `max` sessions.
    pub fn read(&self, max: usize) -> SessionsReading {
        let open: Vec<Arc<Inner>> = lock(&self.open).values().cloned().collect();
        let mut sorted: Vec<(u64, &Inner)> = open
            .iter()
            .map(|inner| (inner.busy_since.load(Relaxed).wrapping_sub(1), &**inner))
            .collect();
        // The time of an idle session is the largest number.
        sorted.sort_by_key(|(busy, inner)| (*busy, std::cmp::Reverse(inner.opened)));
        let computing = sorted.iter().take_while(|(busy, _)| *busy != u64::MAX).count();
        SessionsReading {
            open: open.len(),
            computing,
            flushes: self.flushes.load(Relaxed),
            page_bytes: self.page_bytes.load(Relaxed),
            sessions: sorted.into_iter().take(max).map(|(_, inner)| inner.read()).collect(),
        }
    }
}

impl Inner {
    fn read(&self) -> SessionReading {
        let busy_since = self.busy_since.load(Relaxed);
        let computing = lock(&self.computing);
        let first = computing.iter().min_by_key(|(_, began)| *began);
        SessionReading {
            id: String::from_utf8_lossy(&self.id).into_owned(),
            opened: self.opened,
            page_bytes: self.page_bytes.load(Relaxed),
            busy_since: (busy_since != IDLE).then_some(busy_since),
            output: first.map(|(name, began)| (String::from_utf8_lossy(name).into_owned(), *began)),
        }
    }
}

impl ShinySession {
    /// Counts a message to the page.
    pub fn count_sent(&self, len: usize) {
        self.inner.page_bytes.fetch_add(len as u64, Relaxed);
        self.all.page_bytes.fetch_add(len as u64, Relaxed);
    }

    /// Records that Shiny begins to compute for the session at the time `now`.
    pub fn begin_flush(&self, now: u64) {
        let _ = self.inner.busy_since.compare_exchange(IDLE, now.max(1), Relaxed, Relaxed);
    }

    /// Records that Shiny has computed everything for the session, and counts the flush.
    pub fn end_flush(&self) {
        if self.inner.busy_since.swap(IDLE, Relaxed) != IDLE {
            self.all.flushes.fetch_add(1, Relaxed);
        }
    }

    /// Records that Shiny begins to compute an output at the time `now`.
    pub fn begin_output(&self, name: &[u8], now: u64) {
        let mut computing = lock(&self.inner.computing);
        computing.retain(|(other, _)| **other != *name);
        if computing.len() < MAX_COMPUTING {
            computing.push((name.into(), now));
        }
    }

    /// Records that Shiny has computed an output. Returns the time at which that began, if it was
    /// recorded.
    pub fn end_output(&self, name: &[u8]) -> Option<u64> {
        let mut computing = lock(&self.inner.computing);
        let at = computing.iter().position(|(other, _)| **other == *name)?;
        Some(computing.swap_remove(at).1)
    }
}

impl Drop for ShinySession {
    fn drop(&mut self) {
        lock(&self.all.open).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_compute_for_longest_come_first_and_ended_ones_are_gone() {
        let all = Arc::<ShinySessions>::default();
        let idle = all.open(b"aaaaaaaabbbbbbbb");
        let late = all.open(b"\"\x1b[2Jxx");
        let early = all.open(b"c");
        late.begin_flush(2000);
        early.begin_flush(1000);
        early.begin_flush(1500);
        early.begin_output(b"plot", 1200);
        early.begin_output(b"table", 1100);
        idle.count_sent(7);
        let reading = all.read(9);
        let ids: Vec<&str> = reading.sessions.iter().map(|it| &*it.id).collect();
        assert_eq!(ids, ["c-------", "---2Jxx-", "aaaaaaaa"]);
        assert_eq!((reading.open, reading.computing, reading.page_bytes), (3, 2, 7));
        assert_eq!(reading.sessions[0].busy_since, Some(1000));
        assert_eq!(reading.sessions[0].output, Some(("table".to_owned(), 1100)));
        assert_eq!((reading.sessions[2].busy_since, reading.sessions[2].page_bytes), (None, 7));
        assert_eq!(early.end_output(b"table"), Some(1100));
        assert_eq!(early.end_output(b"table"), None);
        early.end_flush();
        early.end_flush();
        drop(late);
        let reading = all.read(1);
        assert_eq!((reading.open, reading.computing, reading.flushes), (2, 0, 1));
        assert_eq!(reading.sessions.len(), 1);
        drop((idle, early));
        assert_eq!(all.read(9).open, 0);
    }

    #[test]
    fn a_session_has_a_maximum_of_computed_outputs() {
        let session = Arc::<ShinySessions>::default().open(b"a");
        for at in 0..2 * MAX_COMPUTING {
            session.begin_output(format!("o{at}").as_bytes(), 0);
            session.begin_output(b"again", 0);
        }
        assert_eq!(lock(&session.inner.computing).len(), MAX_COMPUTING);
    }
}
