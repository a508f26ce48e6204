//! The functions `rk_worker_*`, which let this R process be a worker of a supervisor. Also updates
//! the scoreboard, the memory in which a worker publishes what R is doing.

#[cfg(target_os = "linux")]
mod joining;

use std::sync::Arc;

use rookery_exchange::{Command, Event, masked};
use rookery_server::static_files::StaticFiles;
use rookery_server::{OriginPolicy, Supervision, WorkerRings};
use rookery_worker_protocol::{Message, RState, Ticket, now};

use crate::core::{self, Core, Worker, WorkerState};
use crate::entry;

/// The return value of `rk_worker_state` for a process that is not a worker.
const NONE: i32 = 0;
const FREE: i32 = 1;
const USED: i32 = 2;
const FAILED: i32 = 3;

impl Core {
    /// Makes the server read the supervisor's messages to this worker. Must be called again after
    /// the server was replaced.
    pub(crate) fn attach_supervisor(&mut self) {
        let WorkerState::Worker(worker) = &self.worker_state else { return };
        // The I/O thread stays awake after a response, because the supervisor sends the next
        // request at once.
        self.link.enable_long_busy_poll();
        let watched = self.server().watch_supervisor(Arc::clone(&worker.supervision));
        set_death_signal(watched.is_err());
        if let Err(error) = watched {
            self.worker_state = WorkerState::Failed(error.to_string());
        }
    }

    /// Makes the server stop reading the supervisor's messages, so that the server's thread may
    /// end.
    pub(crate) fn detach_supervisor(&self) {
        if let WorkerState::Worker(_) = &self.worker_state {
            set_death_signal(true);
            self.server().unwatch_supervisor();
        }
    }

    /// Tells the supervisor that this worker is ready, and which static paths its listener serves.
    pub(crate) fn announce_ready(
        &mut self,
        listener: u32,
        (files, origins): (StaticFiles, Option<OriginPolicy>),
        sees_heads: bool,
        is_sticky: bool,
    ) {
        if let WorkerState::Worker(worker) = &mut self.worker_state {
            announce(&worker.supervision, &files);
            (worker.files, worker.origins) = (Some(files), origins);
            (worker.listening, worker.is_leaving) = (Some(listener), false);
            // The result is ignored, because the end of the supervisor is noticed elsewhere.
            let _ = worker.supervision.send(Message::Ready { sees_heads, is_sticky });
            self.set_r_activity(RState::Busy);
        }
    }

    /// Sends changed static paths to the supervisor, and returns the connection to the supervisor,
    /// on which the caller can wait for the confirmation. Returns `None` if the supervisor does not
    /// serve the files of this listener.
    pub(crate) fn announce_paths(&self, files: &StaticFiles) -> Option<Arc<Supervision>> {
        let WorkerState::Worker(worker) = &self.worker_state else { return None };
        worker.files.as_ref().filter(|own| own.is_same(files))?;
        announce(&worker.supervision, files);
        Some(Arc::clone(&worker.supervision))
    }

    /// Tells the supervisor that this worker accepts no new requests. `is_stopping` is true if the
    /// whole process is ending, and false if only the listener is.
    pub(crate) fn announce_leaving(&mut self, listener: u32, is_stopping: bool) {
        if let WorkerState::Worker(worker) = &mut self.worker_state {
            if worker.listening == Some(listener) {
                if !std::mem::replace(&mut worker.is_leaving, true) {
                    let _ = worker.supervision.send(Message::Leaving);
                }
                // A listener that is stopping serves until it ends.
                worker.listening = worker.listening.filter(|_| is_stopping);
            }
            if is_stopping {
                worker.supervision.scoreboard().stop();
            }
        }
    }

    /// Ends the streamed responses of a listener whose connections are in the supervisor.
    pub(crate) fn stop_streams_in_rings(&mut self, listener: u32) {
        if let WorkerState::Worker(Worker { listening, rings, .. }) = &mut self.worker_state {
            if *listening == Some(listener) {
                rings.stop_streams();
            }
        }
    }

    /// Returns the number of requests, WebSockets and streamed responses of a listener whose
    /// connections are in the supervisor.
    pub(crate) fn open_in_rings(&self, listener: u32) -> usize {
        match &self.worker_state {
            WorkerState::Worker(Worker { listening, rings, .. })
                if *listening == Some(listener) =>
            {
                rings.open()
            }
            _ => 0,
        }
    }

    // ---- the scoreboard, if there is one ----

    /// Records that R begins to process an event. Returns false if the event is a request that the
    /// supervisor has cancelled, so that R must not process it.
    #[must_use]
    pub(crate) fn begin_event(&self, event: &mut Event) -> bool {
        let scoreboard = self.scoreboard();
        let is_measured = match event {
            Event::Request(exchange) | Event::Head(exchange) => exchange.is_measured(),
            _ => false,
        };
        if scoreboard.is_none() && !is_measured {
            return true;
        }
        let now = now();
        let is_head = matches!(event, Event::Head(_));
        if let Event::Request(exchange) | Event::Head(exchange) = event {
            exchange.set_started_at(now);
        }
        let Some(scoreboard) = scoreboard else { return true };
        scoreboard.set_r_state(
            if event.is_websocket_event() { RState::Messages } else { RState::Busy },
            now,
        );
        self.show_task(event);
        if let Event::Request(exchange) | Event::Head(exchange) = event {
            let ticket = Ticket::of_word(exchange.ticket());
            // A request of the supervisor whose head R has inspected counts only once. `has_begun`
            // cannot tell whether R has inspected the head: it is also true for a request that
            // was not begun, if a later request with the same place was begun or withdrawn.
            if ticket.is_none() || !exchange.has_app_token() {
                scoreboard.count_taken();
            }
            if ticket.is_some_and(|ticket| !scoreboard.begin(ticket)) {
                return false;
            }
            if let Some(admin) = &self.admin {
                admin.one.begins(exchange, is_head, now);
            }
        }
        true
    }

    /// Refuses the opening handshake of a WebSocket if the origin of its page is not allowed. The
    /// front end does not know what the app allows. Returns true if the event was refused.
    pub(crate) fn refuse_origin(&self, event: &mut Event) -> bool {
        let WorkerState::Worker(Worker { origins: Some(policy), .. }) = &self.worker_state else {
            return false;
        };
        let Event::Request(exchange) = event else { return false };
        // The listeners of this process apply their own rules.
        if !WorkerRings::is_from_front_end(exchange.id()) {
            return false;
        }
        let host = exchange.header(b"host").unwrap_or_default();
        let origins = exchange.headers().filter(|header| header.name == b"origin");
        if !exchange.is_upgrade() || policy.allows_request(origins.map(|origin| origin.value), host)
        {
            return false;
        }
        exchange.begin_response(403);
        // The name and the value are valid.
        let _ = exchange.push_response_header(b"Content-Type", b"text/plain");
        let text = b"403 Forbidden: pages of this origin may not open a WebSocket here\n";
        exchange.set_response_body(text);
        true
    }

    /// Shows the request of an event on the scoreboard as what R is busy with.
    pub(crate) fn show_task(&self, event: &Event) {
        let Some(scoreboard) = self.scoreboard() else { return };
        let request = match event {
            Event::Request(exchange) | Event::Head(exchange) => Some(&**exchange),
            Event::Body { exchange, .. } | Event::BodyEnd { exchange, .. } => {
                let receiver = self.receivers.get(exchange);
                let held = receiver.and_then(|receiver| self.held_in(receiver.slot));
                held.filter(|held| held.id() == *exchange)
            }
            Event::Pull { stream, .. }
            | Event::Writable { stream, .. }
            | Event::StreamEnded { stream, .. } => {
                if let Some(streamed) = self.streams.get(stream) {
                    scoreboard.set_task([&streamed.task[..]]);
                }
                None
            }
            Event::Message { .. } | Event::Closed { .. } | Event::Drained { .. } => None,
        };
        if let Some(exchange) = request {
            let method = [exchange.method(), b" "].into_iter();
            scoreboard.set_task(method.chain(masked(exchange.path())));
        }
    }

    /// Records that R skips a request because its client has disconnected.
    pub(crate) fn skip_request(&self) {
        if let Some(scoreboard) = self.scoreboard() {
            scoreboard.count_taken();
        }
    }

    /// Sends `command` to the server. By this command, R returns an exchange (a request with its
    /// response) to the server.
    pub(crate) fn return_exchange(&mut self, mut command: Command) {
        self.end_call(&mut command);
        let scoreboard = self.scoreboard();
        let is_measured = match &command {
            Command::Respond(exchange) => exchange.is_measured(),
            _ => false,
        };
        if scoreboard.is_some() || is_measured {
            let now = now();
            if let Command::Respond(exchange) = &mut command {
                self.record_response(exchange, now);
            }
            // Recorded before the response is sent, so that its receiver can read the updated
            // values.
            if let Some(scoreboard) = scoreboard {
                // A request that the supervisor has forwarded counts once as done, even if R
                // inspects its head before it gets the body. A request to a server of this process
                // (its ticket is 0) counts twice, here as in `begin_event`, so that the number of
                // pending requests is right.
                let counts_as_done = match &command {
                    Command::ReadBody(exchange) => exchange.ticket() == 0,
                    _ => true,
                };
                if counts_as_done {
                    scoreboard.count_done(now);
                }
                if let Command::Respond(exchange) = &command {
                    // R continues with the first chunk of a streamed response.
                    self.show_task(&Event::Pull { stream: exchange.id(), listener: 0 });
                }
            }
        }
        self.send(command);
    }
}

/// Sets whether the system sends SIGTERM to this process when the supervisor ends. This is needed
/// only while the I/O thread does not read the control channel, whose end also shows that the
/// supervisor has ended. Otherwise it is off, because the system may repeat the signal for several
/// threads of the supervisor. Must be called on R's main thread, because the setting belongs to a
/// thread.
fn set_death_signal(is_wanted: bool) {
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, if is_wanted { libc::SIGTERM } else { 0 });
    }
    #[cfg(not(target_os = "linux"))]
    let _ = is_wanted;
}

/// Announces static paths to the supervisor, which serves them.
fn announce(supervision: &Supervision, files: &StaticFiles) {
    if !supervision.announce(files) {
        crate::write_log_line(
            "some static paths of this worker are not served, because all of them together are too \
             long: set fewer or shorter ones",
        );
    }
}

/// Returns 0 if this process is not a worker. Returns 1 if it is a worker and no listener serves
/// the requests from the supervisor yet, and 2 if one does. Returns 3 after setting the error
/// message if this process was started as a worker but cannot work as one.
#[unsafe(no_mangle)]
pub extern "C" fn rk_worker_state() -> i32 {
    entry(NONE, || {
        core::with(|core| match &core.worker_state {
            WorkerState::NotAWorker => NONE,
            WorkerState::Worker(Worker { listening: None, .. }) => FREE,
            WorkerState::Worker(_) => USED,
            WorkerState::Failed(error) => {
                core::set_error(error);
                FAILED
            }
        })
    })
}

/// Returns 1 if this listener serves the requests from the supervisor, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn rk_worker_serves(listener: u32) -> i32 {
    entry(0, || {
        core::with(|core| match &core.worker_state {
            WorkerState::Worker(worker) => i32::from(worker.listening == Some(listener)),
            _ => 0,
        })
    })
}
