//! This process as a worker: `rk_worker_*`, and what R's thread writes on the scoreboard.

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

/// What the process was given by its supervisor.
#[derive(Debug)]
pub(crate) struct Worker {
    supervision: Arc<Supervision>,
    /// The listener that has the socket.
    listening: Option<u32>,
    /// The static paths of that listener.
    files: Option<StaticFiles>,
    /// Whether the supervisor has been told that it answers nothing new.
    is_leaving: bool,
}

/// Whether the process was started by a supervisor.
#[derive(Debug, Default)]
pub(crate) enum Membership {
    #[default]
    None,
    Worker(Worker),
    /// It was, in a way that cannot be worked with.
    Broken(String),
}

/// What C does on the I/O thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deeds {
    /// Interrupts what R runs for a request.
    interrupt: extern "C" fn(),
    /// Has R give back memory, when it comes to wait.
    collect: extern "C" fn(),
    /// Has the process end as SIGTERM has it end, unless a signal has done so.
    end: extern "C" fn(),
}

/// What a function that asks for the socket reports.
const NO_WORKER: i32 = 0;
const SOCKET_IS_FREE: i32 = 1;
const SOCKET_IS_TAKEN: i32 = 2;
const IS_BROKEN: i32 = 3;

impl Core {
    /// Takes what a supervisor has given this process; again after the package was unloaded, when it is attended anew.
    ///
    /// # Safety
    /// As for [`Inherited::take`].
    unsafe fn join(&mut self, deeds: Deeds) {
        // SAFETY: the caller's duty.
        match unsafe { Inherited::take() } {
            Ok(None) => {}
            Ok(Some(inherited)) => {
                inherited.scoreboard.introduce_self();
                let supervision =
                    Arc::new(Supervision::new(inherited, move |asked| hear(asked, deeds)));
                self.membership = Membership::Worker(Worker {
                    supervision,
                    listening: None,
                    files: None,
                    is_leaving: false,
                });
            }
            Err(error) => self.membership = Membership::Broken(error.to_string()),
        }
        self.attend();
    }

    /// Has the server hear the supervisor: it, or the one in its place from now on.
    pub(crate) fn attend(&mut self) {
        let Membership::Worker(worker) = &self.membership else { return };
        if !worker.supervision.has_public_listeners() {
            // Its supervisor has the next request as soon as this one is answered; clients of its own take longer.
            self.link.enable_long_busy_poll();
        }
        if let Err(error) = self.server().watch_supervisor(Arc::clone(&worker.supervision)) {
            self.membership = Membership::Broken(error.to_string());
        }
    }

    /// Hears the supervisor no more: the server's thread may end.
    pub(crate) fn unattend(&self) {
        if let Membership::Worker(_) = &self.membership {
            self.server().unwatch_supervisor();
        }
    }

    /// Listens on the socket that the supervisor has made. Outside of a worker, and while a listener has it, that is an error of the
    /// caller's.
    pub(crate) fn listen_inherited(&self, site: ListenerConfig) -> Result<Listener, ListenError> {
        let Membership::Worker(worker) = &self.membership else {
            unreachable!("R has asked before")
        };
        self.server().listen_supervised(&worker.supervision, site)
    }

    /// The cookie by which the supervisor knows the clients of this process.
    pub(crate) fn session_cookie(&self) -> Option<SessionCookie> {
        let Membership::Worker(worker) = &self.membership else { return None };
        SessionCookie::read(worker.supervision.cookie()?)
    }

    /// A copy of what the supervisor writes the access log to, in place of standard output.
    pub(crate) fn log_output(&self) -> Option<OwnedFd> {
        let Membership::Worker(worker) = &self.membership else { return None };
        worker.supervision.log()
    }

    /// Tells the supervisor which static paths a listener on its socket serves, and that requests will be answered.
    pub(crate) fn announce_ready(
        &mut self,
        listener: u32,
        files: StaticFiles,
        sees_heads: bool,
        is_sticky: bool,
    ) {
        if let Membership::Worker(worker) = &mut self.membership {
            worker.supervision.announce(&files);
            worker.files = Some(files);
            (worker.listening, worker.is_leaving) = (Some(listener), false);
            // One that does not read or has gone hears nothing, and its end is heard here.
            let _ = worker.supervision.send(Message::Ready { sees_heads, is_sticky });
            self.r_is(RState::Busy);
        }
    }

    /// Announces changed static paths to the supervisor if it serves them. Returns the supervision
    /// to wait on until the change is in force.
    pub(crate) fn announce_paths(&self, files: &StaticFiles) -> Option<Arc<Supervision>> {
        let Membership::Worker(worker) = &self.membership else { return None };
        worker.files.as_ref().filter(|own| own.is_same(files))?;
        worker.supervision.announce(files);
        Some(Arc::clone(&worker.supervision))
    }

    /// That listener answers no new requests any more, because it ends or (`is_stopping`) the process does.
    pub(crate) fn leaves(&mut self, listener: u32, is_stopping: bool) {
        if let Membership::Worker(worker) = &mut self.membership {
            if worker.listening == Some(listener) {
                if !std::mem::replace(&mut worker.is_leaving, true) {
                    let _ = worker.supervision.send(Message::Leaving);
                }
                // One that is stopping has the socket until it ends.
                worker.listening = worker.listening.filter(|_| is_stopping);
            }
            if is_stopping {
                worker.supervision.scoreboard().stop();
            }
        }
    }

    // ---- the scoreboard: nothing where there is none ----

    /// The one that a supervisor reads.
    pub(crate) fn supervised_board(&self) -> Option<&Scoreboard> {
        match &self.membership {
            Membership::Worker(worker) => Some(worker.supervision.scoreboard()),
            _ => None,
        }
    }

    /// R begins to do something.
    pub(crate) fn r_is(&self, r: RState) {
        if let Some(board) = self.board() {
            board.r_is(r, now());
        }
    }

    /// Notes that R is about to be shown an event, and returns true; or returns false for a request
    /// that the supervisor has withdrawn, which R must not see.
    #[must_use]
    pub(crate) fn begin(&self, event: &mut Event) -> bool {
        let Some(board) = self.board() else { return true };
        let now = now();
        board.r_is(if event.is_websocket_event() { RState::Messages } else { RState::Busy }, now);
        let is_head = matches!(event, Event::Head(_));
        if let Event::Request(exchange) | Event::Head(exchange) = event {
            board.take();
            if Ticket::of_word(exchange.ticket()).is_some_and(|ticket| !board.begin(ticket)) {
                return false;
            }
            if let Some(admin) = &self.admin {
                admin.one.begins(exchange, is_head, now);
            } else if exchange.ticket() == 0 {
                // Of a client of its own: what the supervisor passes on is counted there.
                let (handed, _) = exchange.times();
                exchange.set_started_at(now);
                if !is_head {
                    board.tally().begin(handed, now);
                }
            }
        }
        true
    }

    /// R has come for a request whose client has gone, and does not begin it.
    pub(crate) fn passes_over(&self) {
        if let Some(board) = self.board() {
            board.take();
        }
    }

    /// Hands an exchange back to the server.
    pub(crate) fn hand_back(&self, command: Command) {
        self.counts(&command);
        // Before: who has the reply can read what it took.
        if let Some(board) = self.board() {
            board.done(now());
        }
        self.link.send(command);
    }
}

/// What the supervisor asks. On the I/O thread.
fn hear(asked: SupervisorRequest, deeds: Deeds) {
    match asked {
        SupervisorRequest::Drain => end(deeds),
        SupervisorRequest::Stop | SupervisorRequest::Gone => {
            end_in_time();
            end(deeds);
        }
        SupervisorRequest::Interrupt => (deeds.interrupt)(),
        SupervisorRequest::Collect => (deeds.collect)(),
        SupervisorRequest::ReopenLog => access_log::reopen(),
    }
}

/// Has the process end as SIGTERM has it: `serve()` finishes what is in hand, and what is not under `serve()` ends at once. A second signal
/// would end that at once, too: so there is one, whatever is asked, and how often.
fn end(deeds: Deeds) {
    static IS_ASKED: AtomicBool = AtomicBool::new(false);
    if !IS_ASKED.swap(true, Ordering::Relaxed) {
        (deeds.end)();
    }
}

/// Ends the process in a while, whatever R does. From a thread of its own: that of the I/O may end before.
fn end_in_time() {
    static IS_COUNTING: AtomicBool = AtomicBool::new(false);
    if IS_COUNTING.swap(true, Ordering::Relaxed) {
        return;
    }
    // It takes no signals, as the thread that starts it.
    let counting = std::thread::Builder::new().name("rookery-end".to_owned()).spawn(|| {
        std::thread::sleep(EXIT_TIMEOUT);
        crate::write_log_line(
            "the supervisor has asked this worker to end, or has gone, and R does not come back: it is ended",
        );
        output::flush();
        // SAFETY: it does not return, and runs nothing of R's.
        unsafe { libc::_exit(1) };
    });
    if counting.is_err() {
        // Nobody would end it later.
        // SAFETY: as above.
        unsafe { libc::_exit(1) };
    }
}

/// Takes what a supervisor has given this process, if one has. `interrupt` interrupts what R runs for a request, `collect` has R give back
/// memory when it waits, `end` has the process end; all are called on another thread.
#[unsafe(no_mangle)]
pub extern "C" fn rk_worker_join(
    interrupt: extern "C" fn(),
    collect: extern "C" fn(),
    end: extern "C" fn(),
) {
    let deeds = Deeds { interrupt, collect, end };
    // SAFETY: R's main thread, which alone changes R's environment, as the package is loaded; and the names are a supervisor's to set.
    entry((), || core::with(|core| unsafe { core.join(deeds) }));
}

/// Whether the process is a worker: 1 when nothing listens on its socket, 2 when something does; 3, with the error set, when it was
/// meant to be one.
#[unsafe(no_mangle)]
pub extern "C" fn rk_worker_state() -> i32 {
    entry(NO_WORKER, || {
        core::with(|core| match &core.membership {
            Membership::None => NO_WORKER,
            Membership::Worker(Worker { listening: None, .. }) => SOCKET_IS_FREE,
            Membership::Worker(_) => SOCKET_IS_TAKEN,
            Membership::Broken(error) => {
                core::set_error(error);
                IS_BROKEN
            }
        })
    })
}

/// Whether a listener has the socket of this worker.
#[unsafe(no_mangle)]
pub extern "C" fn rk_worker_uses_socket(listener: u32) -> i32 {
    entry(0, || {
        core::with(|core| match &core.membership {
            Membership::Worker(worker) => i32::from(worker.listening == Some(listener)),
            _ => 0,
        })
    })
}
