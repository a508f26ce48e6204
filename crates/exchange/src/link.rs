//! The two queues between server and application, and who wakes whom.
//!
//! # The wake protocol
//! *Up.* Only the step from an empty queue to a non-empty one wakes the application, and how depends on what it is
//! doing ([`AppState`]): waiting here (the condition variable, once the connections that are ready now have been read:
//! [`Link::settle`]), parked in somebody else's wait (its [`AppWaker`]),
//! or busy. When it is busy nobody is woken at once; the server looks again a millisecond later
//! ([`Link::nudge`]), because "busy" may mean that the application went elsewhere and will not come back.
//!
//! *Down.* A reply wakes the server only if the server sleeps and the oldest unsent reply has waited
//! [`COALESCE`], or the queue up is empty ([`Link::next`] says so by flushing). A server that has seen the
//! application take longer than that sleeps in [`IoState::Immediate`] and is woken by every reply. The application may
//! also work on after it has sent something, for seconds: so the first of a group sets an alarm ([`IoWaker::wake_within`])
//! that no later one moves, and what nobody flushes leaves in [`LATEST`] all the same.
//!
//! # Why no wake-up is lost
//! Each side publishes that it sleeps *before* it looks into its queue under the queue's mutex for the last time;
//! the other side puts its item in under the same mutex *before* it reads that state. Whoever comes second in the
//! mutex sees what the first did.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::event::{Command, Event};
use crate::exchange::Exchange;
use crate::payload::Releases;
use crate::stream::{Stream, StreamRules};

mod buffers;

use self::buffers::Buffers;

/// Wakes an application that is parked outside the link, or that went away. Called on the server's thread.
pub trait AppWaker: Send + Sync {
    /// Makes the application look into the link soon. Must not block.
    fn wake(&self);

    /// Makes the application [collect](Link::releases) what it has lent, soon. Called on any
    /// thread. Must not block. An application that lends nothing, or collects with each event and
    /// is content with that, leaves it as it is.
    fn released(&self) {}
}

/// Wakes the server's thread. Called on the application's thread.
pub trait IoWaker: Send + Sync {
    /// Makes the server look into the link soon. Must not block.
    fn wake(&self);

    /// Makes the server look into the link when `delay` is over, and costs it nothing until then. Must not block. A call
    /// replaces the one before.
    fn wake_within(&self, delay: Duration);
}

/// What the application is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AppState {
    /// Running a handler, or gone elsewhere.
    Busy = 0,
    /// In [`Link::wait`].
    Waiting = 1,
    /// In a wait of its own that its [`AppWaker`] ends.
    Parked = 2,
    /// In [`Link::wait`], and still awake: it finds what comes by itself.
    Looking = 3,
}

/// Bounds of the queue up.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// HTTP requests (and opening handshakes) that may wait for the application: past that the server says 503.
    /// Default 1,024: a second of work at a millisecond each, which is as long as a client should wait unasked.
    pub requests: usize,
    /// Bytes of WebSocket messages that may wait: past that the server stops reading WebSockets. Default 8 MiB: what the application
    /// deals with in a good part of a second. With what may wait for one client it bounds what one that never reads makes it hold.
    pub message_bytes: usize,
    /// WebSocket messages that may wait, likewise. Default 4,096.
    pub messages: usize,
    /// Bytes of one stream that may wait to be written, on whatever side: past that its client is too slow, and it is cut.
    /// Default 16 MiB: seconds of what a program writes, and more than a socket's buffer.
    pub stream_bytes: usize,
}

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits {
            requests: 1024,
            message_bytes: 8 << 20,
            messages: 4096,
            stream_bytes: 16 << 20,
        }
    }
}

/// Why an event was not taken.
#[derive(Debug)]
#[non_exhaustive]
pub enum PushError {
    /// The queue of requests is full; the exchange comes back.
    Full(Box<Exchange>),
}

/// What to do after an event was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// Nothing.
    Quiet,
    /// The application is busy: call [`Link::nudge`] in a millisecond, and until it says that all is well.
    Nudge,
    /// The application waits: call [`Link::settle`] when the other connections that have something to say have said it.
    Settle,
}

/// How the server sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum IoState {
    Awake = 0,
    Coalesce = 1,
    Immediate = 2,
}

/// Events that are brought together before a waiting application is woken without a [`Link::settle`]: on a core of its
/// own it would otherwise wait for the last of a thousand connections. With 8 instead, 3 % fewer requests at ten.
const GATHERED: usize = 32;

/// How long a waiting application stays awake after its last event. It gives the processor away meanwhile: where it
/// shares a core with the server, the two take turns without a system call that wakes the other.
const LOOK: Duration = Duration::from_micros(50);

/// The same for one that [stays](Link::stay_awake) awake, when what came last came within this time: what comes to it has gone
/// through another process, which takes longer than a look, and to be woken is most of what that costs. What comes more seldom is not awaited so.
const LONG_LOOK: Duration = Duration::from_micros(200);

/// How long a reply may wait for others to leave with it.
const COALESCE: Duration = Duration::from_micros(100);

/// How long anything may wait that is neither flushed nor followed by another. Setting the alarm is a system call, which
/// this makes one per half a millisecond; and what the application sends must leave within one.
const LATEST: Duration = Duration::from_micros(500);

/// Bytes of commands that the server is to take though it is busy.
const HEAVY: usize = 1 << 20;

/// The meeting point of a server and an application.
pub struct Link {
    limits: QueueLimits,
    up: Mutex<Up>,
    arrived: Condvar,
    app_state: AtomicU8,
    app_waker: Arc<dyn AppWaker>,
    taken: AtomicU64,
    /// Whether there is a failure, for who looks without the mutex.
    has_failed: AtomicBool,
    /// Events that have been put in, for who looks without the mutex.
    put: AtomicU64,
    /// [`taken`](Self::taken) when the application last looked in vain.
    looked: AtomicU64,
    /// Whether the application may look for [`LONG_LOOK`], and whether what it waited for last had come by then.
    stays_awake: AtomicBool,
    was_soon: AtomicBool,
    down: Mutex<Down>,
    io_state: AtomicU8,
    io_waker: Mutex<Option<Arc<dyn IoWaker>>>,
    wants_room: AtomicBool,
    buffers: Mutex<Buffers>,
    releases: Arc<Releases>,
}

#[derive(Default)]
struct Up {
    events: VecDeque<Event>,
    requests: usize,
    messages: usize,
    message_bytes: usize,
    /// Why the server's thread has ended.
    failure: Option<String>,
}

#[derive(Default)]
struct Down {
    commands: VecDeque<Command>,
    /// When the first of them came that the server sleeps over.
    oldest: Option<Instant>,
    /// When the alarm that was set last goes off.
    alarm: Option<Instant>,
    /// Bytes that the commands hold, and whether the server has been told that these are many.
    bytes: usize,
    is_heavy: bool,
}

impl Down {
    /// Counts a command in. Returns whether the server is to take them now, however busy it is: nobody is charged for what waits
    /// here, and a server that never sleeps does not look by itself.
    fn becomes_heavy(&mut self, command: &Command) -> bool {
        let (Command::Send { payload, .. } | Command::Piece { payload, .. }) = command else {
            return false;
        };
        self.bytes = self.bytes.saturating_add(payload.held());
        self.bytes > HEAVY && !std::mem::replace(&mut self.is_heavy, true)
    }
}

/// When the server should take what was sent.
enum Due {
    /// When it looks by itself, or is flushed.
    Whenever,
    Within(Duration),
    Now,
}

impl Link {
    /// Makes a link. `app_waker` is how a parked or absent application is woken.
    pub fn new(limits: QueueLimits, app_waker: Box<dyn AppWaker>) -> Arc<Link> {
        let app_waker: Arc<dyn AppWaker> = app_waker.into();
        let releases = Arc::new(Releases::telling(Arc::clone(&app_waker)));
        Arc::new(Link {
            limits,
            up: Mutex::default(),
            arrived: Condvar::new(),
            app_state: AtomicU8::new(AppState::Busy as u8),
            app_waker,
            taken: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            put: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            stays_awake: AtomicBool::new(false),
            was_soon: AtomicBool::new(false),
            down: Mutex::default(),
            io_state: AtomicU8::new(IoState::Awake as u8),
            io_waker: Mutex::default(),
            wants_room: AtomicBool::new(false),
            buffers: Mutex::default(),
            releases,
        })
    }

    // ---- the server's side ----

    /// Sets how the server is woken; `None` when its thread has ended.
    pub fn set_io_waker(&self, waker: Option<Arc<dyn IoWaker>>) {
        if waker.is_none() {
            // Which of the two buffers of `commands` stays here is chance: an idle link keeps none.
            lock(&self.down).commands.shrink_to_fit();
        }
        *lock(&self.io_waker) = waker;
        lock(&self.down).alarm = None;
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
    }

    /// Tells the application that the server's thread has ended, and why: it is woken wherever it waits, and finds it by
    /// [`failure`](Self::failure).
    pub fn fail(&self, reason: &str) {
        lock(&self.up).failure = Some(reason.to_owned());
        self.has_failed.store(true, Ordering::SeqCst);
        // It may not be there to look: what it parked in, or went to, is woken as well.
        self.settle();
        self.app_waker.wake();
    }

    /// Hands an event to the application. Closes and messages are always taken; ask [`has_room`](Self::has_room)
    /// before reading a WebSocket further.
    ///
    /// # Errors
    /// A request when [`QueueLimits::requests`] wait already: it comes back, to be answered with 503.
    pub fn push(&self, event: Event) -> Result<Pushed, PushError> {
        let waiting = {
            let mut up = lock(&self.up);
            match event {
                Event::Request(exchange) | Event::Head(exchange)
                    if up.requests >= self.limits.requests =>
                {
                    return Err(PushError::Full(exchange));
                }
                Event::Request(_) | Event::Head(_) => up.requests += 1,
                Event::Message { ref payload, .. } => {
                    up.messages += 1;
                    up.message_bytes += payload.held();
                }
                _ => {}
            }
            up.events.push_back(event);
            self.put.fetch_add(1, Ordering::SeqCst);
            up.events.len()
        };
        if waiting == GATHERED {
            self.settle();
        }
        if waiting != 1 {
            return Ok(Pushed::Quiet);
        }
        Ok(match self.app_state.load(Ordering::SeqCst) {
            state if state == AppState::Looking as u8 => Pushed::Quiet,
            // Woken at once it would, on a shared core, take this one event, answer it and wait again.
            state if state == AppState::Waiting as u8 => Pushed::Settle,
            state if state == AppState::Parked as u8 => {
                self.app_waker.wake();
                // Looked after all the same: what it runs in that wait may be a loop that does not come back.
                Pushed::Nudge
            }
            _ => Pushed::Nudge,
        })
    }

    /// Wakes a waiting application: what [`push`](Self::push) put off. A second call does nothing until it waits
    /// again, for each would be a system call.
    pub fn settle(&self) {
        let (waiting, busy) = (AppState::Waiting as u8, AppState::Busy as u8);
        if self
            .app_state
            .compare_exchange(waiting, busy, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            self.arrived.notify_one();
        }
    }

    /// Whether WebSockets may be read further. After `false` the server is woken when there is room again.
    pub fn has_room(&self) -> bool {
        let has_room = |up: &Up| {
            up.messages < self.limits.messages && up.message_bytes < self.limits.message_bytes
        };
        if has_room(&lock(&self.up)) {
            return true;
        }
        self.wants_room.store(true, Ordering::SeqCst);
        // Looked at again: the application may have made room before it could see that it is wanted.
        has_room(&lock(&self.up))
    }

    /// Looks whether a busy application has taken anything since `seen` (its earlier answer; start with
    /// [`taken`](Self::taken)), and wakes it if not. `None` when nothing waits: stop looking.
    pub fn nudge(&self, seen: u64) -> Option<u64> {
        if lock(&self.up).events.is_empty() {
            return None;
        }
        let taken = self.taken();
        if taken == seen && self.app_state.load(Ordering::SeqCst) != AppState::Waiting as u8 {
            self.app_waker.wake();
        }
        Some(taken)
    }

    /// How many events the application has taken in all.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether the application has events to take; without the mutex, so it may be a moment old.
    pub fn has_events(&self) -> bool {
        self.put.load(Ordering::Relaxed) != self.taken()
    }

    /// Says that the server is about to sleep, and whether it may: `false` when commands wait. `is_app_slow`: the
    /// application has kept the server waiting for a millisecond, so its next reply should wake the server at once.
    pub fn may_sleep(&self, is_app_slow: bool) -> bool {
        let state = if is_app_slow { IoState::Immediate } else { IoState::Coalesce };
        self.io_state.store(state as u8, Ordering::SeqCst);
        if lock(&self.down).commands.is_empty() {
            return true;
        }
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
        false
    }

    /// Says that the server is awake.
    pub fn woke(&self) {
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
    }

    /// Takes all commands into `out`, which is empty; the two buffers change places.
    pub fn commands(&self, out: &mut VecDeque<Command>) {
        debug_assert!(out.is_empty());
        let mut down = lock(&self.down);
        std::mem::swap(&mut down.commands, out);
        down.oldest = None;
        down.bytes = 0;
        down.is_heavy = false;
    }

    // ---- the application's side ----

    /// Takes the next event. When there is none, what has been answered is sent.
    pub fn next(&self) -> Option<Event> {
        let event = self.pop();
        if event.is_none() {
            self.flush();
        }
        event
    }

    /// Whether an event waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.up).events.is_empty()
    }

    /// Whether the server's thread has ended for no good reason. One load of an atomic.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Why the server's thread has ended; told once. Its connections are closed, and its listeners no longer listen.
    pub fn failure(&self) -> Option<String> {
        let reason = lock(&self.up).failure.take();
        self.has_failed.store(false, Ordering::SeqCst);
        reason
    }

    /// Waits until an event waits or the server has failed, at most `timeout`; says whether an event does.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.flush();
        if !self.stays_awake.load(Ordering::Relaxed) {
            return self.look(timeout, LOOK) || self.sleep(timeout);
        }
        let began = Instant::now();
        let look = if self.was_soon.load(Ordering::Relaxed) { LONG_LOOK } else { LOOK };
        let came = self.look(timeout, look) || self.sleep(timeout);
        self.was_soon.store(came && began.elapsed() <= LONG_LOOK, Ordering::Relaxed);
        came
    }

    /// Has the application stay awake for longer in [`wait`](Self::wait), where something comes again and again.
    pub fn stay_awake(&self) {
        self.stays_awake.store(true, Ordering::Relaxed);
    }

    fn sleep(&self, timeout: Duration) -> bool {
        let mut up = lock(&self.up);
        if up.events.is_empty() && up.failure.is_none() {
            up = self
                .arrived
                .wait_timeout_while(up, timeout, |up| {
                    // Before every sleep: who woke it for nothing has taken the word back.
                    let waits = up.events.is_empty() && up.failure.is_none();
                    if waits {
                        self.app_state.store(AppState::Waiting as u8, Ordering::SeqCst);
                    }
                    waits
                })
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            self.app_state.store(AppState::Busy as u8, Ordering::SeqCst);
        }
        !up.events.is_empty()
    }

    /// Stays awake for a moment before it sleeps, once after each time that something came.
    fn look(&self, timeout: Duration, most: Duration) -> bool {
        let taken = self.taken();
        let has_come = || self.put.load(Ordering::SeqCst) != taken;
        if has_come() || self.looked.load(Ordering::Relaxed) == taken {
            return has_come();
        }
        self.app_state.store(AppState::Looking as u8, Ordering::SeqCst);
        let until = Instant::now() + most.min(timeout);
        while !has_come() {
            if Instant::now() >= until {
                self.looked.store(taken, Ordering::Relaxed);
                break;
            }
            std::thread::yield_now();
        }
        self.app_state.store(AppState::Busy as u8, Ordering::SeqCst);
        has_come()
    }

    /// Says that the application goes into a wait of its own, and whether it may: `false` when an event waits, or the
    /// server has failed.
    /// [`resume`](Self::resume) ends it.
    pub fn park(&self) -> bool {
        self.flush();
        self.app_state.store(AppState::Parked as u8, Ordering::SeqCst);
        let may = {
            let up = lock(&self.up);
            up.events.is_empty() && up.failure.is_none()
        };
        if may {
            return true;
        }
        self.resume();
        false
    }

    /// Says that the application is back from its own wait.
    pub fn resume(&self) {
        self.app_state.store(AppState::Busy as u8, Ordering::SeqCst);
    }

    /// Gives a command to the server. It leaves at once with [`flush`](Self::flush), and in half a millisecond in any
    /// case, whatever the application does next.
    ///
    /// Two clocks, for two kinds of sender, and neither does for both. One that sends on and on looks at the age of the group
    /// (`oldest`) as it sends, and from `COALESCE` on wakes the server, which writes while the sender works: that costs
    /// no timer. One that sends and then does not come back for long is served by the alarm alone; were that to go off
    /// after `COALESCE`, each such interval of sending would cost a system call to set it, five times as many.
    pub fn send(&self, command: Command) {
        let due = {
            let mut down = lock(&self.down);
            let is_heavy = down.becomes_heavy(&command);
            down.commands.push_back(command);
            match self.io_state.load(Ordering::SeqCst) {
                _ if is_heavy => Due::Now,
                state if state == IoState::Awake as u8 => Due::Whenever,
                state if state == IoState::Immediate as u8 => Due::Now,
                _ => {
                    let now = Instant::now();
                    if now - *down.oldest.get_or_insert(now) >= COALESCE {
                        Due::Now
                    } else if down.alarm.is_none_or(|alarm| alarm <= now) {
                        down.alarm = Some(now + LATEST);
                        Due::Within(LATEST)
                    } else {
                        Due::Whenever
                    }
                }
            }
        };
        match due {
            Due::Whenever => {}
            Due::Now => self.wake_io(),
            Due::Within(delay) => {
                if let Some(waker) = &*lock(&self.io_waker) {
                    waker.wake_within(delay);
                }
            }
        }
    }

    /// Wakes the server if it sleeps and commands wait.
    pub fn flush(&self) {
        if self.io_state.load(Ordering::SeqCst) != IoState::Awake as u8
            && !lock(&self.down).commands.is_empty()
        {
            self.wake_io();
        }
    }

    /// Wakes the server, whatever waits.
    pub fn wake_io(&self) {
        self.io_state.store(IoState::Awake as u8, Ordering::SeqCst);
        if let Some(waker) = &*lock(&self.io_waker) {
            waker.wake();
        }
    }

    /// A stream for the body of a reply.
    pub fn stream(&self, rules: StreamRules) -> Stream {
        Stream::new(rules, self.limits.stream_bytes)
    }

    /// Where the tokens of ended leases are collected.
    pub fn releases(&self) -> &Arc<Releases> {
        &self.releases
    }

    // ---- both sides ----

    /// An empty buffer for a message.
    pub fn buffer(&self) -> Vec<u8> {
        lock(&self.buffers).take()
    }

    /// Gives a message's buffer back.
    pub fn recycle(&self, buffer: Vec<u8>) {
        if buffers::is_kept(&buffer) {
            lock(&self.buffers).give(buffer);
        }
    }

    fn pop(&self) -> Option<Event> {
        let (event, has_room) = {
            let mut up = lock(&self.up);
            let event = up.events.pop_front()?;
            match &event {
                Event::Request(_) | Event::Head(_) => up.requests -= 1,
                Event::Message { payload, .. } => {
                    up.messages -= 1;
                    up.message_bytes -= payload.held();
                }
                _ => {}
            }
            // Half empty, so that reading does not stop and start for each message.
            let limits = &self.limits;
            (
                event,
                up.messages * 2 <= limits.messages && up.message_bytes * 2 <= limits.message_bytes,
            )
        };
        self.taken.fetch_add(1, Ordering::Relaxed);
        if has_room && self.wants_room.load(Ordering::SeqCst) {
            self.wants_room.store(false, Ordering::SeqCst);
            self.wake_io();
        }
        Some(event)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (up, down) = (lock(&self.up).events.len(), lock(&self.down).commands.len());
        f.debug_struct("Link")
            .field("limits", &self.limits)
            .field("up", &up)
            .field("down", &down)
            .finish_non_exhaustive()
    }
}

/// A panic while a queue was held left it whole: every critical section above is a push or a pop.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
