//! The layout of the scoreboard, which is the shared memory in which a worker records what it is
//! doing.

pub(crate) mod begun_word;
mod profile_cell;
mod stack_cell;
mod text_cell;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use self::begun_word::is_begun;
use self::profile_cell::ProfileCell;
pub use self::profile_cell::{ProfileProgress, ProfileRequest};
use self::stack_cell::StackCell;
pub use self::stack_cell::{MAX_STACK_LEN, StackSample};
use self::text_cell::TextCell;
use crate::counters::{Histogram, RejectionCounters, SpanCounters};
use crate::routes::{RequestReport, RouteName, RouteTable, StoredReport};
use crate::ticket::{MAX_TICKETS, Ticket};

/// The first word of every scoreboard, "Rookery\0" in ASCII.
const MAGIC: u64 = u64::from_le_bytes(*b"Rookery\0");

/// The version of the scoreboard's layout. A worker rejects a scoreboard with another version.
const VERSION: u32 = 10;

/// The number of machine words for the method and path of a request on the scoreboard.
const TASK_WORDS: usize = 12;

/// The maximum length in bytes of a request's method and path on the scoreboard.
pub const MAX_TASK_LEN: usize = 8 * TASK_WORDS;

/// The maximum time after which an idle R process renews its state [`RState::Idle`] on the
/// scoreboard. If the state has not been renewed for much longer, R is not idle: it runs a long
/// callback of the R package `later`, or waits outside Rookery.
pub const IDLE_RENEWAL_INTERVAL: Duration = Duration::from_millis(150);

/// The age up to which the state [`RState::Idle`] on a scoreboard counts as valid. The value is
/// twice [`IDLE_RENEWAL_INTERVAL`], because the renewal may be late on a busy machine.
const IDLE_VALIDITY: Duration = Duration::from_nanos(2 * IDLE_RENEWAL_INTERVAL.as_nanos() as u64);

/// The activity of an R process, as the scoreboard records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RState {
    /// R is starting or is loading the application.
    Starting,
    /// R waits for events. The worker renews this state on the scoreboard at every
    /// [`IDLE_RENEWAL_INTERVAL`].
    Idle,
    /// R runs the application for a request, or runs other code.
    Busy,
    /// R runs the application for messages or other events of a WebSocket.
    Messages,
}

/// The maximum number of times that a reader of the scoreboard repeats its reading of R's state,
/// because the state has changed meanwhile.
const MAX_STATE_READS: u32 = 3;

/// The number of bits for R's activity in the word that also contains the activity's start time.
const STATE_BITS: u32 = 2;

impl RState {
    fn bits(self) -> u64 {
        match self {
            RState::Starting => 0,
            RState::Idle => 1,
            RState::Busy => 2,
            RState::Messages => 3,
        }
    }

    fn of_bits(bits: u64) -> RState {
        match bits & ((1 << STATE_BITS) - 1) {
            0 => RState::Starting,
            1 => RState::Idle,
            2 => RState::Busy,
            _ => RState::Messages,
        }
    }
}

/// Returns the current time of the machine's monotonic clock in nanoseconds. All processes of a
/// machine share this clock.
#[inline]
pub fn now() -> u64 {
    rookery_system::clock::nanoseconds()
}

/// The scoreboard of one worker process: memory, shared with the supervisor, in which the worker
/// records what it is doing. A reader must not trust the contents, and must accept every value.
///
/// Each word of the scoreboard has a single writer: the supervisor before the worker starts (and
/// later, for the request of a profile), R's thread, or the worker's I/O thread. Writers therefore
/// use plain loads and stores without locked instructions. The words that record begun requests are
/// an exception: R writes them when it [begins](Self::begin) a request, and the supervisor
/// when it [withdraws](Self::withdraw) one. Only one of the two can succeed for a request.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Scoreboard {
    magic: AtomicU64,
    version: AtomicU32,
    size: AtomicU32,
    pid: AtomicU32,
    r_thread: AtomicU32,
    is_stopping: AtomicU32,
    r: Line<Rs>,
    io: Line<Ios>,
    /// The record of which requests were begun or withdrawn. A request's ticket contains its place,
    /// which is an index into this array. An element is `2 * n` if R has begun the request with the
    /// sequence number `n`, or `2 * n + 1` if the supervisor has withdrawn that request.
    begun: [AtomicU64; MAX_TICKETS],
    /// The spans of the process. R's thread writes them.
    spans: Line<SpanCounters>,
    /// The number of requests and connections that the server of this process has rejected, by
    /// reason. The I/O thread counts them.
    rejections: Line<RejectionCounters>,
    /// The method and path of the request that R is processing. R's thread writes them.
    task: Line<TextCell<TASK_WORDS>>,
    /// Metrics by route of the requests of a server without a supervisor. The I/O thread writes
    /// them.
    routes: RouteTable,
    /// For each place, what R's thread reports about the latest request there.
    reports: [StoredReport; MAX_TICKETS],
    /// The functions that R's thread has last found on its stack. R's thread writes them.
    stack: Line<StackCell>,
    /// The profile that the worker's R process should take, and its progress.
    profile: Line<ProfileCell>,
    /// The times that R was busy with messages and other events of WebSockets. R's thread writes
    /// them.
    messages: Line<Histogram>,
}

// All of the memory is allocated when the scoreboard is created. This assertion bounds it.
const _: () = assert!(size_of::<Scoreboard>() < 1 << 20);

/// A wrapper that puts a value on cache lines of its own, so that two threads that write different
/// values do not slow each other down.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Line<T>(T);

/// The part of the scoreboard that R's thread writes.
#[derive(Debug, Default)]
#[repr(C)]
struct Rs {
    /// The start time of R's current activity, in the upper bits, and the activity itself, in the
    /// lower [`STATE_BITS`]. One word contains both, so that readers always see a consistent pair.
    state: AtomicU64,
    /// The number of requests that R has taken from its queue.
    taken: AtomicU64,
    /// The number of requests that R has responded to.
    done: AtomicU64,
    /// The time in nanoseconds for which R was busy before its current activity began.
    busy: AtomicU64,
    busy_with_requests: AtomicU64,
}

/// The part of the scoreboard that the worker's I/O thread writes.
#[derive(Debug, Default)]
#[repr(C)]
struct Ios {
    /// The number of requests that the I/O thread has passed to R.
    handed: AtomicU64,
    /// The number of open WebSockets of the worker.
    sessions: AtomicU64,
    /// The number of open streams of the worker.
    streams: AtomicU64,
}

// These assertions fix the layout of `VERSION`. Increment `VERSION` with every change of the
// layout.
const _: () = {
    const ROUTES_SIZE: usize = 274_976;
    const COUNTERS: usize = 64 + 256;
    const REPORTS: usize = 192 + 8 * MAX_TICKETS + COUNTERS + 128 + ROUTES_SIZE;
    const STACK: usize = (REPORTS + 144 * MAX_TICKETS).next_multiple_of(64);
    assert!(size_of::<Rs>() == 40 && size_of::<Line<Rs>>() == 64);
    assert!(
        std::mem::offset_of!(Scoreboard, r) == 64 && std::mem::offset_of!(Scoreboard, io) == 128
    );
    assert!(std::mem::offset_of!(Scoreboard, begun) == 192);
    assert!(
        std::mem::offset_of!(Scoreboard, spans) == 192 + 8 * MAX_TICKETS
            && size_of::<SpanCounters>() == 24
            && size_of::<RejectionCounters>() == 256
    );
    assert!(std::mem::offset_of!(Scoreboard, task) == 192 + 8 * MAX_TICKETS + COUNTERS);
    assert!(
        size_of::<TextCell<TASK_WORDS>>() == 104 && size_of::<Line<TextCell<TASK_WORDS>>>() == 128
    );
    assert!(
        std::mem::offset_of!(Scoreboard, routes) == 192 + 8 * MAX_TICKETS + COUNTERS + 128
            && size_of::<RouteTable>() == ROUTES_SIZE
            && size_of::<StoredReport>() == 144
            && align_of::<Scoreboard>() == 64
    );
    assert!(std::mem::offset_of!(Scoreboard, reports) == REPORTS);
    assert!(
        std::mem::offset_of!(Scoreboard, stack) == STACK && size_of::<Line<StackCell>>() == 256
    );
    assert!(
        std::mem::offset_of!(Scoreboard, profile) == STACK + 256
            && size_of::<Line<ProfileCell>>() == 64
    );
    assert!(
        std::mem::offset_of!(Scoreboard, messages) == STACK + 256 + 64
            && size_of::<Scoreboard>() == STACK + 256 + 64 + 128
    );
};

/// A copy of the numbers of a [`Scoreboard`] at about one moment. The copy is not atomic, so
/// counters of requests may be inconsistent by one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// The activity of R.
    pub r_state: RState,
    /// The time at which R's activity began, according to [`now`].
    pub since: u64,
    /// Whether the worker has been requested to stop, for example by SIGTERM.
    pub is_stopping: bool,
    /// The worker's process id; 0 until the worker has attached to the scoreboard.
    pub pid: u32,
    /// The id of the thread on which R runs, which identifies the thread's CPU clock; 0 until the
    /// worker has attached to the scoreboard.
    pub r_thread: u32,
    /// The number of requests that were passed to R, including those that R has already
    /// [taken](Self::taken) from its queue.
    pub handed: u64,
    /// The number of requests that R has taken from its queue, including those whose client had
    /// disconnected by then.
    pub taken: u64,
    /// The number of requests that R has responded to.
    pub done: u64,
    /// The number of open WebSockets of the worker.
    pub sessions: u64,
    /// The number of streamed responses and streamed request bodies of the worker that have not
    /// ended.
    pub streams: u64,
    /// The total time for which R was busy before its current activity began at
    /// [`since`](Self::since). Use [`busy_time`](Self::busy_time) to include the current activity.
    pub busy: Duration,
    /// The part of [`busy`](Self::busy) that R spent on requests and not on WebSocket events
    /// ([`RState::Messages`]). The value includes the time for every request that is
    /// [done](Self::done).
    pub busy_with_requests: Duration,
}

impl Snapshot {
    /// Returns the number of requests that wait in the queue for R.
    pub fn queued(&self) -> u64 {
        self.handed.saturating_sub(self.taken)
    }

    /// Returns the number of requests that R has taken from its queue and not yet responded to: the
    /// current request, and requests that wait for a promise.
    pub fn pending(&self) -> u64 {
        self.taken.saturating_sub(self.done)
    }

    /// Returns how long R's current activity has lasted at the time `now`, or zero if its start is
    /// in the future.
    pub fn elapsed(&self, now: u64) -> Duration {
        Duration::from_nanos(now.saturating_sub(self.since))
    }

    /// Returns true if R is idle at the time `now`, that is, if R has renewed this state recently
    /// enough.
    pub fn is_idle(&self, now: u64) -> bool {
        self.r_state == RState::Idle && self.elapsed(now) <= IDLE_VALIDITY
    }

    /// Returns the total time for which R has been busy since it began to serve, including its
    /// current activity.
    pub fn busy_time(&self, now: u64) -> Duration {
        let is_busy = self.r_state != RState::Starting && !self.is_idle(now);
        self.busy.saturating_add(if is_busy { self.elapsed(now) } else { Duration::ZERO })
    }
}

/// A copy of the scoreboard's record of which requests R has begun.
#[derive(Debug, Default)]
pub struct BegunRequests(Box<[u64]>);

impl BegunRequests {
    /// Returns true if R had begun the request with this ticket when the copy was made.
    pub fn contains(&self, ticket: Ticket) -> bool {
        self.0.get(ticket.place()).is_some_and(|word| is_begun(*word, ticket))
    }
}

impl Default for Scoreboard {
    fn default() -> Scoreboard {
        Scoreboard::new()
    }
}

impl Scoreboard {
    /// Creates an empty scoreboard, for tests. Workers have theirs in shared memory.
    #[allow(clippy::large_stack_arrays, reason = "the stacks of all threads have 2 MiB")]
    pub fn new() -> Scoreboard {
        let scoreboard = Scoreboard {
            magic: AtomicU64::new(0),
            version: AtomicU32::new(0),
            size: AtomicU32::new(0),
            pid: AtomicU32::new(0),
            r_thread: AtomicU32::new(0),
            is_stopping: AtomicU32::new(0),
            r: Line::default(),
            io: Line::default(),
            begun: [const { AtomicU64::new(0) }; MAX_TICKETS],
            spans: Line::default(),
            rejections: Line::default(),
            task: Line(TextCell::new()),
            routes: RouteTable::new(),
            reports: [const { StoredReport::new() }; MAX_TICKETS],
            stack: Line(StackCell::new()),
            profile: Line(ProfileCell::default()),
            messages: Line(Histogram::new()),
        };
        scoreboard.write_signature();
        scoreboard
    }

    /// Writes the scoreboard's signature: the magic number, the version and the size.
    pub(crate) fn write_signature(&self) {
        self.version.store(VERSION, Relaxed);
        self.size.store(size_of::<Scoreboard>() as u32, Relaxed);
        self.magic.store(MAGIC, Release);
    }

    /// Returns true if the scoreboard's signature (magic number, version and size) is that of this
    /// layout.
    #[cfg(any(target_os = "linux", test))]
    pub(crate) fn has_valid_signature(&self) -> bool {
        self.magic.load(Acquire) == MAGIC
            && self.version.load(Relaxed) == VERSION
            && self.size.load(Relaxed) as usize == size_of::<Scoreboard>()
    }

    // ---- called by the supervisor ----

    /// Returns a copy of the scoreboard's numbers: R's state, the counters and the process id.
    pub fn read(&self) -> Snapshot {
        // `taken` is read before `handed`. The I/O thread increments `handed` before R can take the
        // request, so no reader sees more taken requests than handed ones.
        let done = self.r.0.done.load(Acquire);
        let taken = self.r.0.taken.load(Acquire);
        // `answering` is read after `done`, so that it includes the time of all completed requests.
        let busy_with_requests = self.r.0.busy_with_requests.load(Acquire);
        let (state, busy) = self.state();
        Snapshot {
            r_state: RState::of_bits(state),
            since: state >> STATE_BITS,
            is_stopping: self.is_stopping.load(Relaxed) != 0,
            pid: self.pid.load(Relaxed),
            r_thread: self.r_thread.load(Relaxed),
            handed: self.io.0.handed.load(Acquire),
            taken,
            done,
            sessions: self.io.0.sessions.load(Relaxed),
            streams: self.io.0.streams.load(Relaxed),
            busy: Duration::from_nanos(busy),
            busy_with_requests: Duration::from_nanos(busy_with_requests),
        }
    }

    /// Reads R's state: the word with the current activity and its start time, and the nanoseconds
    /// for which R was busy before.
    fn state(&self) -> (u64, u64) {
        let mut state = self.r.0.state.load(Acquire);
        let mut busy = self.r.0.busy.load(Acquire);
        // After the last attempt the two values may belong to different activities. This happens
        // only if R switches between short activities, so the error is small.
        for _ in 0..MAX_STATE_READS {
            let now = self.r.0.state.load(Acquire);
            if now == state {
                break;
            }
            (state, busy) = (now, self.r.0.busy.load(Acquire));
        }
        (state, busy)
    }

    /// Returns true if R has begun the request with this ticket. The result is final once the
    /// worker process has exited and was reaped. `false` then means that no line of the application
    /// has run for the request.
    pub fn has_begun(&self, ticket: Ticket) -> bool {
        // A later ticket of the same place would hide this one. That is possible only for a caller
        // that drops a ticket before calling this method.
        is_begun(self.begun[ticket.place()].load(SeqCst), ticket)
    }

    /// Returns a copy of the record of all requests that R has begun by now.
    pub fn begun_requests(&self) -> BegunRequests {
        BegunRequests(self.begun.iter().map(|word| word.load(SeqCst)).collect())
    }

    /// Withdraws a request from the worker unless R has begun the request. Returns true if R will
    /// never begin it, so that another worker may receive the request.
    pub fn withdraw(&self, ticket: Ticket) -> bool {
        begun_word::withdraw(&self.begun[ticket.place()], ticket)
    }

    /// Returns the counts of the process's spans. R's thread writes them.
    pub fn spans(&self) -> &SpanCounters {
        &self.spans.0
    }

    /// Returns the counts of the requests and connections that the server of this process has
    /// rejected. The I/O thread writes them.
    pub fn rejections(&self) -> &RejectionCounters {
        &self.rejections.0
    }

    /// Returns the method and path of the request that R is processing, without secrets. Returns
    /// `None` if R does something else, or switches between requests too quickly.
    pub fn task(&self) -> Option<String> {
        self.task.0.read()
    }

    /// Returns the metrics by route of the requests of a server without a supervisor. The I/O
    /// thread writes them.
    pub fn routes(&self) -> &RouteTable {
        &self.routes
    }

    /// Returns the times that R was busy with messages and other events of WebSockets, each until R
    /// took another event or waited for one. The times include what Shiny computes after a message.
    pub fn messages(&self) -> &Histogram {
        &self.messages.0
    }

    /// Returns what the worker has reported about the request with this ticket, or `None` if it has
    /// reported nothing. Called after the response to the request has arrived.
    pub fn request_report(&self, ticket: Ticket) -> Option<RequestReport> {
        self.reports[ticket.place()].read(ticket.sequence())
    }

    // ---- called by the worker ----

    /// Records the method and path of the request that R begins, without secrets. Text that is
    /// longer than [`MAX_TASK_LEN`] is truncated. Called on R's thread after
    /// [`set_r_state`](Self::set_r_state), which removes the text of the previous request.
    pub fn set_task<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) {
        self.task.0.write(parts);
    }

    /// Reports the times in nanoseconds and the route of a request to which R responds. `route` is
    /// empty if the application has not set it. Called on R's thread before the response is sent.
    pub fn report_request(&self, ticket: Ticket, queue: u64, r: u64, route: &[u8]) {
        let route = RouteName::of_pattern(route);
        self.reports[ticket.place()].store(ticket.sequence(), queue, r, route);
    }

    /// Records this process as the worker and the calling thread as the thread on which R runs.
    pub fn set_own_process(&self) {
        self.set_process(std::process::id(), rookery_system::signals::thread_id());
    }

    /// Records the worker's process id and the id of the thread on which R runs.
    pub fn set_process(&self, pid: u32, r_thread: u32) {
        self.pid.store(pid, Relaxed);
        self.r_thread.store(r_thread, Relaxed);
    }

    /// Records that R begins the activity `r` at the time `since`, according to [`now`]. The time
    /// since the previous call counts as time of the previous activity. Removes the
    /// [`task`](Self::task) and the [`stack`](Self::stack) of the previous activity. Called on R's
    /// thread.
    pub fn set_r_state(&self, r: RState, since: u64) {
        self.task.0.clear();
        self.stack.0.clear();
        let line = &self.r.0;
        let state = line.state.load(Relaxed);
        let lasted = (since << STATE_BITS >> STATE_BITS).saturating_sub(state >> STATE_BITS);
        let (is_busy, is_for_requests) = match RState::of_bits(state) {
            RState::Starting => (false, false),
            // R was not idle but ran a callback of the package later.
            RState::Idle => (Duration::from_nanos(lasted) > IDLE_VALIDITY, false),
            RState::Busy => (true, true),
            RState::Messages => (true, false),
        };
        if is_busy {
            add(&line.busy, lasted);
        }
        if is_for_requests {
            add(&line.busy_with_requests, lasted);
        }
        if RState::of_bits(state) == RState::Messages {
            self.messages.0.add(Duration::from_nanos(lasted));
        }
        line.state.store(since << STATE_BITS | r.bits(), Release);
    }

    /// Counts a request that R has taken from the queue. Called on R's thread.
    pub fn count_taken(&self) {
        add(&self.r.0.taken, 1);
    }

    /// Records that R is about to call the application for a request, and returns true. Returns
    /// false if the supervisor has withdrawn the request, so that R must not call the application
    /// for it. Called on R's thread.
    ///
    /// The supervisor can see the record before the application has any effect, even if a signal
    /// kills the process in between.
    #[must_use]
    pub fn begin(&self, ticket: Ticket) -> bool {
        begun_word::begin(&self.begun[ticket.place()], ticket)
    }

    /// Records that R has responded to a request at the time `now`, in nanoseconds of the clock
    /// [`crate::now`]. Called on R's thread. The time that R spent on the request is added to the
    /// scoreboard before the request counts as done.
    pub fn count_done(&self, now: u64) {
        match RState::of_bits(self.r.0.state.load(Relaxed)) {
            // A promise has produced the response while R was waiting, and the wait continues.
            RState::Idle => {}
            r => self.set_r_state(r, now),
        }
        add(&self.r.0.done, 1);
    }

    /// Counts a request that the I/O thread is about to pass to R. Called on the I/O thread.
    pub fn count_handed(&self) {
        add(&self.io.0.handed, 1);
    }

    /// Reverts [`count_handed`](Self::count_handed) for a request that could not be passed to R
    /// because R's queue is full. Called on the I/O thread.
    pub fn uncount_handed(&self) {
        add(&self.io.0.handed, u64::MAX);
    }

    /// Counts a WebSocket that was opened. Called on the I/O thread.
    pub fn open_session(&self) {
        add(&self.io.0.sessions, 1);
    }

    /// Counts a WebSocket that was closed. Called on the I/O thread.
    pub fn close_session(&self) {
        add(&self.io.0.sessions, u64::MAX);
    }

    /// Counts a streamed response or a streamed request body that has begun. Called on the I/O
    /// thread.
    pub fn open_stream(&self) {
        add(&self.io.0.streams, 1);
    }

    /// Counts the end of a streamed response or a streamed request body. Called on the I/O thread.
    pub fn close_stream(&self) {
        add(&self.io.0.streams, u64::MAX);
    }

    /// Records that the worker has received a request to stop. May be called on any thread.
    pub fn stop(&self) {
        self.is_stopping.store(1, Relaxed);
    }
}

/// Adds `n` to a counter that has no other writer. `u64::MAX` subtracts 1.
fn add(number: &AtomicU64, n: u64) {
    number.store(number.load(Relaxed).wrapping_add(n), Release);
}

#[cfg(test)]
mod tests;
