//! The viewers of the live page, and the thread that sends them a snapshot every second.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rookery_exchange::{
    ChunkAdmission, Command, Exchange, IoWaker, Payload, StreamEnd, StreamFlow, StreamId,
    StreamOptions, StreamedBody,
};
use rookery_system::lock;
use rookery_system::signals::with_signals_blocked;

use super::history::{self, History};
use crate::admin_handler::{AdminHandler, StatusSource, snapshot};
use crate::profile::Profiler;

/// The interval between two snapshots.
const INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of simultaneous viewers. It is much smaller than the number of connections of
/// the admin listener, so that viewers never keep out a probe.
const MAX_VIEWERS: usize = 20;

/// The maximum number of bytes that wait for one viewer. A viewer that has not read the previous
/// snapshot is left out, so no more than one snapshot, one list of errors and, at the beginning,
/// the history ever wait. If they do not fit together, the snapshot follows in the next turn.
const MAX_WAITING: usize = 1 << 20;

/// The viewers of the live page. One thread sends each of them a snapshot every second.
pub(crate) struct Viewers {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    source: Arc<dyn StatusSource>,
    profiler: Arc<Profiler>,
    stream: Mutex<Stream>,
    history: Mutex<History>,
    is_over: AtomicBool,
}

/// The state that the I/O thread shares with the thread that makes snapshots.
#[derive(Default)]
struct Stream {
    viewers: Vec<Viewer>,
    commands: VecDeque<Command>,
    waker: Option<Arc<dyn IoWaker>>,
}

struct Viewer {
    id: StreamId,
    flow: Arc<StreamFlow>,
    /// The number of errors that had been reported when the viewer last got the list of errors;
    /// `None` if the viewer has not got the list.
    errors_seen: Option<u64>,
    /// Whether the viewer has got the history, which precedes everything else.
    has_history: bool,
    /// Whether a snapshot was left out for the list of errors. It then precedes the next list, so
    /// that errors that occur every second do not keep out all snapshots.
    is_snapshot_next: bool,
}

impl Viewers {
    /// Starts the thread that sends snapshots of what `handler` reports on.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
    pub(crate) fn start(handler: &AdminHandler) -> std::io::Result<Viewers> {
        let shared = Arc::new(Shared {
            source: Arc::clone(handler.source()),
            profiler: Arc::clone(handler.profiler()),
            stream: Mutex::default(),
            history: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        // The thread runs no signal handlers, like the server's threads.
        let thread = with_signals_blocked(|| {
            std::thread::Builder::new()
                .name("rookery-live".to_owned())
                .spawn(move || send_snapshots(&theirs))
        })?;
        Ok(Viewers { shared, thread: Some(thread) })
    }

    /// Sets the means by which the I/O thread is woken, after the thread has been started.
    pub(super) fn set_waker(&self, waker: Arc<dyn IoWaker>) {
        let mut stream = self.shared.lock();
        // An earlier I/O thread has ended, and with it its connections.
        *stream = Stream { waker: Some(waker), ..Stream::default() };
    }

    /// Makes the client of a request a viewer and responds with a stream of events, whose first
    /// event follows at once.
    ///
    /// # Errors
    /// Returns the request if there are too many viewers.
    pub(super) fn add(&self, mut exchange: Box<Exchange>) -> Result<(), Box<Exchange>> {
        let mut stream = self.shared.lock();
        stream.viewers.retain(|viewer| !viewer.flow.is_over());
        if stream.viewers.len() >= MAX_VIEWERS {
            return Err(exchange);
        }
        let options =
            StreamOptions { sends_head_first: true, is_events: true, ..StreamOptions::default() };
        let body = StreamedBody::new(options, MAX_WAITING);
        stream.viewers.push(Viewer {
            id: exchange.id(),
            flow: Arc::clone(&body.flow),
            errors_seen: None,
            has_history: false,
            is_snapshot_next: false,
        });
        exchange.set_response_stream(body);
        // Queued before the lock is released, so that no event precedes the response.
        stream.commands.push_back(Command::Respond(exchange));
        drop(stream);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        Ok(())
    }

    pub(super) fn remove(&self, id: StreamId) {
        self.shared.lock().viewers.retain(|viewer| viewer.id != id);
    }

    /// Queues a command for the I/O thread, which calls this function itself.
    pub(super) fn push(&self, command: Command) {
        self.shared.lock().commands.push_back(command);
    }

    pub(super) fn take_commands(&self, commands: &mut VecDeque<Command>) {
        std::mem::swap(&mut self.shared.lock().commands, commands);
    }

    pub(super) fn has_commands(&self) -> bool {
        !self.shared.lock().commands.is_empty()
    }
}

impl Drop for Viewers {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread has been written to standard error already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Viewers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Viewers")
            .field("count", &self.shared.lock().viewers.len())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a snapshot to all viewers every second, and at once when a viewer comes. Takes the samples
/// of the history meanwhile. Returns when the admin listener ends.
fn send_snapshots(shared: &Shared) {
    let mut sampled: Option<Instant> = None;
    while !shared.is_over.load(Ordering::Acquire) {
        let began = Instant::now();
        if sampled.is_none_or(|at| began.duration_since(at) >= history::INTERVAL) {
            sampled = Some(began);
            lock(&shared.history).add(&shared.source.report());
        }
        let wait = if shared.lock().viewers.is_empty() {
            history::INTERVAL
        } else {
            send_snapshot(shared);
            INTERVAL
        };
        // A new viewer ends the wait. The others then get a snapshot out of turn.
        std::thread::park_timeout(wait.saturating_sub(began.elapsed()));
    }
}

fn send_snapshot(shared: &Shared) {
    let snapshot = event("snapshot", &snapshot(&*shared.source, &shared.profiler));
    let errors = shared.source.errors();
    let reported = errors.reported();
    let (mut list, mut history) = (None, None);
    let mut stream = shared.lock();
    let Stream { viewers, commands, waker } = &mut *stream;
    for viewer in viewers.iter_mut() {
        // A viewer that has not read the previous snapshot gets none, so nothing piles up.
        if viewer.flow.waiting() > 0 {
            continue;
        }
        if !viewer.has_history {
            let history = history
                .get_or_insert_with(|| event("history", &lock(&shared.history).json().to_string()));
            viewer.has_history = send(viewer, commands, history);
        }
        let is_snapshot_next = std::mem::take(&mut viewer.is_snapshot_next);
        if viewer.errors_seen != Some(reported) && !is_snapshot_next {
            let list = list.get_or_insert_with(|| event("errors", &errors.json()));
            if send(viewer, commands, list) {
                viewer.errors_seen = Some(reported);
            }
            if list.len() + snapshot.len() > MAX_WAITING {
                viewer.is_snapshot_next = true;
                continue;
            }
        }
        send(viewer, commands, &snapshot);
    }
    if let Some(waker) = waker.as_ref().filter(|_| !commands.is_empty()) {
        waker.wake();
    }
}

fn send(viewer: &Viewer, commands: &mut VecDeque<Command>, event: &[u8]) -> bool {
    match viewer.flow.admit(event.len()) {
        ChunkAdmission::Continue | ChunkAdmission::Pause => {
            let payload = Payload::Pooled(event.to_vec());
            commands.push_back(Command::Chunk { stream: viewer.id, payload, is_pushing: true });
            true
        }
        ChunkAdmission::ClientTooSlow | ChunkAdmission::ExceedsLength => {
            let (stream, reason) = (viewer.id, StreamEnd::Slow);
            commands.push_back(Command::AbortStream { stream, reason, page: Vec::new() });
            false
        }
        ChunkAdmission::Ended => false,
    }
}

/// Returns a server-sent event. `json` has no line breaks, except at its end.
fn event(name: &str, json: &str) -> Vec<u8> {
    format!("event: {name}\ndata: {}\n\n", json.trim_end()).into_bytes()
}
