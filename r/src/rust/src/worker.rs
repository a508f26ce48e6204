//! This R process in the role of a worker, which a supervisor has started (`rk_worker_*`), and the
//! information about R in the scoreboard (the memory in which a worker publishes its state).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rookery_exchange::{Command, Event};
use rookery_server::session_cookie::SessionCookie;
use rookery_server::static_files::StaticFiles;
use rookery_server::{
    ListenError, Listener, ListenerConfig, Supervision, SupervisorRequest, output,
};
use rookery_worker_protocol::{EXIT_TIMEOUT, Inherited, Message, RState, Scoreboard, Ticket, now};

use crate::core::{self, Core};
use crate::entry;
use crate::listener::access_log;

/// The state of this process as a worker of a supervisor.
#[derive(Debug)]
pub(crate) struct Worker {
    supervision: Arc<Supervision>,
    /// The listener that uses the socket that the supervisor has opened for this worker, if there
    /// is one.
    listening: Option<u32>,
    /// The static paths of the listener that uses the worker's socket.
    files: Option<StaticFiles>,
    /// Whether this worker has told the supervisor that it takes no new requests.
    is_leaving: bool,
}

/// Whether this process is a worker, which means that a supervisor has started it.
#[derive(Debug, Default)]
pub(crate) enum WorkerState {
    #[default]
    NotAWorker,
    Worker(Worker),
    /// A supervisor has started this process, but its file descriptors or environment variables
    /// cannot be used.
    Failed(String),
}

/// The C functions by which the I/O thread passes requests of the supervisor to R.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerCallbacks {
    /// The C function that interrupts the R code of the current request.
    interrupt: extern "C" fn(),
    /// The C function that makes R collect garbage and return free memory, as soon as R waits for
    /// events.
    collect: extern "C" fn(),
    /// The C function that ends the process like SIGTERM, unless a signal has already done so.
    end: extern "C" fn(),
}

/// The return values of `rk_worker_state`, which says whether this process is a worker.
const NONE: i32 = 0;
const SOCKET_FREE: i32 = 1;
const SOCKET_USED: i32 = 2;
const FAILED: i32 = 3;

impl Core {
    /// Takes the file descriptors and environment variables that a supervisor has passed to this
    /// process, if there are any. Called again if the R package is loaded again, to reconnect to
    /// the supervisor.
    ///
    /// # Safety
    /// The requirements are those of [`Inherited::take`].
    unsafe fn join(&mut self, callbacks: WorkerCallbacks) {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        match unsafe { Inherited::take() } {
            Ok(None) => {}
            Ok(Some(inherited)) => {
                inherited.scoreboard.set_own_process();
                let supervision = Arc::new(Supervision::new(inherited, move |asked| {
                    on_supervisor_request(asked, callbacks);
                }));
                self.worker_state = WorkerState::Worker(Worker {
                    supervision,
                    listening: None,
                    files: None,
                    is_leaving: false,
                });
            }
            Err(error) => self.worker_state = WorkerState::Failed(error.to_string()),
        }
        self.attach_supervisor();
    }

    /// Makes the server read the supervisor's messages to this worker. Called again after the
    /// server was replaced.
    pub(crate) fn attach_supervisor(&mut self) {
        let WorkerState::Worker(worker) = &self.worker_state else { return };
        if !worker.supervision.has_public_listeners() {
            // The I/O thread stays awake after a response, because the supervisor sends the next
            // request at once. Direct clients take longer.
            self.link.enable_long_busy_poll();
        }
        if let Err(error) = self.server().watch_supervisor(Arc::clone(&worker.supervision)) {
            self.worker_state = WorkerState::Failed(error.to_string());
        }
    }

    /// Makes the server stop reading the supervisor's messages, so that the server's thread may
    /// end.
    pub(crate) fn detach_supervisor(&self) {
        if let WorkerState::Worker(_) = &self.worker_state {
            self.server().unwatch_supervisor();
        }
    }

    /// Listens on the socket that the supervisor has opened for this worker. The caller must check
    /// that this process is a worker and that no other listener uses the socket.
    pub(crate) fn listen_inherited(&self, site: ListenerConfig) -> Result<Listener, ListenError> {
        let WorkerState::Worker(worker) = &self.worker_state else {
            unreachable!("R checks that this process is a worker")
        };
        self.server().listen_supervised(&worker.supervision, site)
    }

    /// Returns the session cookie by which the supervisor recognizes the clients of this worker.
    pub(crate) fn session_cookie(&self) -> Option<SessionCookie> {
        let WorkerState::Worker(worker) = &self.worker_state else { return None };
        SessionCookie::read(worker.supervision.cookie()?)
    }

    /// Returns a copy of the file descriptor for the supervisor's access log, to which this worker
    /// writes instead of stdout.
    pub(crate) fn log_output(&self) -> Option<OwnedFd> {
        let WorkerState::Worker(worker) = &self.worker_state else { return None };
        worker.supervision.log()
    }

    /// Tells the supervisor that this worker is ready, and which static paths its listener serves.
    pub(crate) fn announce_ready(
        &mut self,
        listener: u32,
        files: StaticFiles,
        sees_heads: bool,
        is_sticky: bool,
    ) {
        if let WorkerState::Worker(worker) = &mut self.worker_state {
            worker.supervision.announce(&files);
            worker.files = Some(files);
            (worker.listening, worker.is_leaving) = (Some(listener), false);
            // The result is ignored, because the end of the supervisor is noticed elsewhere.
            let _ = worker.supervision.send(Message::Ready { sees_heads, is_sticky });
            self.set_r_activity(RState::Busy);
        }
    }

    /// Sends changed static paths to the supervisor, if the supervisor serves the files of this
    /// listener. Returns the connection to the supervisor, by which the caller can wait until the
    /// change is applied.
    pub(crate) fn announce_paths(&self, files: &StaticFiles) -> Option<Arc<Supervision>> {
        let WorkerState::Worker(worker) = &self.worker_state else { return None };
        worker.files.as_ref().filter(|own| own.is_same(files))?;
        worker.supervision.announce(files);
        Some(Arc::clone(&worker.supervision))
    }

    /// Tells the supervisor that this worker takes no new requests, because the listener ends or,
    /// with `is_stopping`, because the process ends.
    pub(crate) fn announce_leaving(&mut self, listener: u32, is_stopping: bool) {
        if let WorkerState::Worker(worker) = &mut self.worker_state {
            if worker.listening == Some(listener) {
                if !std::mem::replace(&mut worker.is_leaving, true) {
                    let _ = worker.supervision.send(Message::Leaving);
                }
                // A listener that is stopping uses the socket until it ends.
                worker.listening = worker.listening.filter(|_| is_stopping);
            }
            if is_stopping {
                worker.supervision.scoreboard().stop();
            }
        }
    }

    // ---- the scoreboard, if there is one ----

    /// Returns the scoreboard (the memory in which a worker publishes its state) that the
    /// supervisor reads, if this process is a worker.
    pub(crate) fn supervised_scoreboard(&self) -> Option<&Scoreboard> {
        match &self.worker_state {
            WorkerState::Worker(worker) => Some(worker.supervision.scoreboard()),
            _ => None,
        }
    }

    /// Records in the scoreboard (the memory that status reports read) what R is doing.
    pub(crate) fn set_r_activity(&self, r: RState) {
        if let Some(scoreboard) = self.scoreboard() {
            scoreboard.set_r_state(r, now());
        }
    }

    /// Records that R begins to process an event. Returns false if the event is a request that the
    /// supervisor has withdrawn, which R must not process.
    #[must_use]
    pub(crate) fn begin_event(&self, event: &mut Event) -> bool {
        let Some(scoreboard) = self.scoreboard() else { return true };
        let now = now();
        scoreboard.set_r_state(
            if event.is_websocket_event() { RState::Messages } else { RState::Busy },
            now,
        );
        let is_head = matches!(event, Event::Head(_));
        if let Event::Request(exchange) | Event::Head(exchange) = event {
            scoreboard.count_taken();
            if Ticket::of_word(exchange.ticket()).is_some_and(|ticket| !scoreboard.begin(ticket)) {
                return false;
            }
            if let Some(admin) = &self.admin {
                admin.one.begins(exchange, is_head, now);
            } else if exchange.ticket() == 0 {
                // Requests of direct clients only; the supervisor counts those that it forwards.
                let (handed, _) = exchange.queue_and_start_times();
                exchange.set_started_at(now);
                if !is_head {
                    scoreboard.request_counters().record_begin(handed, now);
                }
            }
        }
        true
    }

    /// Records that R skips a request because its client has disconnected.
    pub(crate) fn skip_request(&self) {
        if let Some(scoreboard) = self.scoreboard() {
            scoreboard.count_taken();
        }
    }

    /// Returns an exchange (a request with its response) from R to the server, by this command.
    pub(crate) fn return_exchange(&self, command: Command) {
        self.record_response(&command);
        // Recorded before the response is sent, so that its receiver can read the updated values.
        if let Some(scoreboard) = self.scoreboard() {
            scoreboard.count_done(now());
        }
        self.link.send(command);
    }
}

/// Executes a request of the supervisor, such as to stop this worker. Runs on the I/O thread.
fn on_supervisor_request(request: SupervisorRequest, callbacks: WorkerCallbacks) {
    match request {
        SupervisorRequest::Drain => end_process(callbacks),
        SupervisorRequest::Stop | SupervisorRequest::Disconnected => {
            end_process_later();
            end_process(callbacks);
        }
        SupervisorRequest::Interrupt => (callbacks.interrupt)(),
        SupervisorRequest::Collect => (callbacks.collect)(),
        SupervisorRequest::ReopenLog => access_log::reopen(),
    }
}

/// Ends this worker process like SIGTERM: `serve()` shuts down gracefully, and a process without
/// `serve()` ends at once. This is done only once, because a second signal would end `serve()` at
/// once as well.
fn end_process(callbacks: WorkerCallbacks) {
    static IS_ORDERED: AtomicBool = AtomicBool::new(false);
    if !IS_ORDERED.swap(true, Ordering::Relaxed) {
        (callbacks.end)();
    }
}

/// Ends this worker process after a time limit, even if R is still busy. A separate thread waits
/// for that, because the I/O thread may end earlier.
fn end_process_later() {
    static IS_COUNTING: AtomicBool = AtomicBool::new(false);
    if IS_COUNTING.swap(true, Ordering::Relaxed) {
        return;
    }
    // The thread blocks all signals, as the thread that starts it does.
    let counting = std::thread::Builder::new().name("rookery-end".to_owned()).spawn(|| {
        std::thread::sleep(EXIT_TIMEOUT);
        crate::write_log_line(
            "the supervisor has ordered this worker to end, or has died, and R is still busy: the \
             worker ends now",
        );
        output::flush();
        // SAFETY: `_exit` does not return and runs no code of R.
        unsafe { libc::_exit(1) };
    });
    if counting.is_err() {
        // Without the thread, nothing would end the process later.
        // SAFETY: `_exit` does not return and runs no code of R.
        unsafe { libc::_exit(1) };
    }
}

/// Makes this process a worker if a supervisor has started it. `interrupt` interrupts the R code of
/// a request, `collect` makes R return memory when it waits, and `end` ends the process. All three
/// functions are called on another thread.
#[unsafe(no_mangle)]
pub extern "C" fn rk_worker_join(
    interrupt: extern "C" fn(),
    collect: extern "C" fn(),
    end: extern "C" fn(),
) {
    let callbacks = WorkerCallbacks { interrupt, collect, end };
    // SAFETY: called on R's main thread while the package is loaded; no other thread changes the
    // environment of the process, and only a supervisor sets these variables.
    entry((), || core::with(|core| unsafe { core.join(callbacks) }));
}

/// Returns whether this process is a worker: 0 if it is not, 1 if it is and no listener uses its
/// socket yet, 2 if a listener uses the socket, and 3 with the error message set if the process
/// should be a worker but cannot be.
#[unsafe(no_mangle)]
pub extern "C" fn rk_worker_state() -> i32 {
    entry(NONE, || {
        core::with(|core| match &core.worker_state {
            WorkerState::NotAWorker => NONE,
            WorkerState::Worker(Worker { listening: None, .. }) => SOCKET_FREE,
            WorkerState::Worker(_) => SOCKET_USED,
            WorkerState::Failed(error) => {
                core::set_error(error);
                FAILED
            }
        })
    })
}

/// Returns 1 if this listener uses the socket that the supervisor has opened for this worker,
/// otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn rk_worker_uses_socket(listener: u32) -> i32 {
    entry(0, || {
        core::with(|core| match &core.worker_state {
            WorkerState::Worker(worker) => i32::from(worker.listening == Some(listener)),
            _ => 0,
        })
    })
}
