//! A worker process, as the supervisor has it.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rookery_server::output;
use rookery_status::{RunFolder, Utilization};
use rookery_worker_protocol::{
    ControlChannel, KEEP_WEBSOCKETS, Message, PublicDescriptors, Received,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::health::Health;
use super::lost_wakeup::LostWakeup;
use super::recycle::MemoryWatch;
use super::slow_log::SlowLog;
use super::state::ASKED;
use super::warmup::{WarmupResult, warm_up};
use super::worker_timeout::WorkerTimeout;
use super::{SupervisorConfig, Timeouts};
use crate::backend_registry::Backend;
use crate::process::{HeldOutput, WorkerStart, pass_on, spawn, wait};

/// What happens to workers.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// A message came from one.
    Message(u64, Message),
    /// A worker has announced its static paths: see [`WorkerProcess::take_announced`].
    Announced(u64),
    /// One has answered what it was asked before it is given requests, or has not.
    WarmedUp(u64, WarmupResult),
    /// A worker process has ended and has to be reaped.
    Ended(u64, libc::pid_t),
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerPhase {
    /// Its R starts and loads the app.
    Starting { until: Instant },
    /// It answers.
    Ready,
    /// It finishes what it has: requests until then, and WebSockets until their time is over.
    Draining { until: Instant, sessions: Instant },
    /// It has been asked to end.
    Stopping { until: Instant },
    /// It has been killed, and its end is waited for.
    Killed,
}

/// See the module.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    pub(super) start: WorkerStart,
    pub(super) pid: libc::pid_t,
    pub(super) backend: Arc<Backend>,
    pub(super) phase: WorkerPhase,
    pub(super) began: Instant,
    pub(super) health: Health,
    pub(super) age: MemoryWatch,
    pub(super) stuck: WorkerTimeout,
    pub(super) share: Utilization,
    pub(super) slow: SlowLog,
    pub(super) stalled: LostWakeup,
    /// When it is told next what its end waits for, and how long after that.
    pub(super) tells_at: Option<(Instant, Duration)>,
    /// Whether it is given requests, or was; else it is a spare.
    pub(super) is_serving: bool,
    pub(super) is_warming: bool,
    /// The memory that it had when it was ready, where a control group limits memory.
    pub(super) memory_at_start: Option<u64>,
    /// Whether the WebSockets that it has accepted itself are being closed.
    ends_sessions: bool,
    /// Why it is to end, where that was ours to say.
    pub(super) leaves: Option<&'static str>,
    /// The same start, as others are told of it.
    pub(super) started: SystemTime,
    control: Rc<ControlChannel>,
    /// What it has announced last, until that has been read.
    announced: Announced,
    temporary: PathBuf,
    outputs: Vec<JoinHandle<()>>,
    /// Whom signals are sent to: its process group, or the process alone where the group is ours.
    group: libc::pid_t,
}

/// The last announcement that has not been read. It is one, however many a worker sends.
type Announced = Rc<RefCell<Option<(u64, Vec<u8>)>>>;

/// How long a worker that is starting has to end once it has been asked, before it is killed.
const START_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

impl WorkerProcess {
    /// Starts one. `kept` has its output while it is starting.
    pub(super) fn start(
        command: std::process::Command,
        folder: &RunFolder,
        start: WorkerStart,
        plan: &SupervisorConfig,
        public: PublicDescriptors<'_>,
        kept: [HeldOutput; 2],
        events: &UnboundedSender<WorkerEvent>,
    ) -> io::Result<WorkerProcess> {
        let spawned = spawn(command, folder, start, plan.files, public, plan.is_on_terminal)?;
        let time = plan.times.start;
        let child_id = spawned.child.id();
        let pid = libc::pid_t::try_from(child_id).expect("the system has it in this type");
        let epoch = start.epoch;
        // The lines of a single worker are as it has written them.
        let prefix =
            if start.workers > 1 { format!("[{} {pid}] ", start.slot) } else { String::new() };
        let streams =
            spawned.streams.into_iter().flatten().zip([output::stdout(), output::stderr()]);
        let outputs = streams.zip(kept).map(|((pipe, to), kept)| {
            tokio::task::spawn_local(pass_on(to.clone(), pipe, prefix.clone(), kept))
        });
        let outputs = outputs.collect();
        let control = Rc::new(spawned.control);
        let announced = Announced::default();
        let listening = listen(Rc::clone(&control), epoch, Rc::clone(&announced), events.clone());
        let listening = tokio::task::spawn_local(listening);
        let events = events.clone();
        tokio::task::spawn_local(async move {
            wait(pid).await;
            // What it said before has been read, or is not of interest any more.
            listening.abort();
            // The supervisor has gone first: nobody is to be told.
            let _ = events.send(WorkerEvent::Ended(epoch, pid));
        });
        let now = Instant::now();
        Ok(WorkerProcess {
            start,
            pid,
            backend: Backend::new(
                (start.slot, epoch),
                child_id,
                spawned.id,
                spawned.socket,
                spawned.scoreboard,
            ),
            phase: WorkerPhase::Starting { until: now + time },
            began: now,
            health: Health::default(),
            age: MemoryWatch::default(),
            stuck: WorkerTimeout::default(),
            share: Utilization::default(),
            slow: SlowLog::default(),
            stalled: LostWakeup::default(),
            tells_at: None,
            is_serving: false,
            is_warming: false,
            memory_at_start: None,
            ends_sessions: false,
            leaves: None,
            started: SystemTime::now(),
            control,
            announced,
            temporary: spawned.temporary,
            outputs,
            group: if plan.is_on_terminal { pid } else { -pid },
        })
    }

    /// Tells it something. One that does not read it is found by its silence.
    pub(super) fn say(&self, message: Message) {
        let _ = self.control.send(message);
    }

    /// Takes its last announcement, and the number of that, unless it has been taken.
    pub(super) fn take_announced(&self) -> Option<(u64, Vec<u8>)> {
        self.announced.take()
    }

    /// Asks it for these paths; how it answers is told as an event.
    pub(super) fn warm_up(&mut self, paths: &[String], events: &UnboundedSender<WorkerEvent>) {
        // It may say more than once that it is ready.
        if std::mem::replace(&mut self.is_warming, true) {
            return;
        }
        let (socket, epoch, events) =
            (self.backend.socket.clone(), self.start.epoch, events.clone());
        let paths = paths.to_vec();
        tokio::task::spawn_local(async move {
            // The supervisor may have gone.
            let _ = events.send(WorkerEvent::WarmedUp(epoch, warm_up(socket, paths).await));
        });
    }

    /// Has it finish what it has; one that is not ready has nothing.
    pub(super) fn drain(&mut self, times: Timeouts) {
        match self.phase {
            WorkerPhase::Ready => {
                let now = Instant::now();
                let sessions = now + times.sessions.unwrap_or(times.drain);
                self.phase = WorkerPhase::Draining { until: now + times.drain, sessions };
                if self.start.is_public {
                    self.say(Message::Retire(KEEP_WEBSOCKETS));
                }
            }
            WorkerPhase::Starting { .. } => self.stop(times.stop),
            WorkerPhase::Draining { .. } | WorkerPhase::Stopping { .. } | WorkerPhase::Killed => {}
        }
    }

    /// One that finishes what it has has no longer for its WebSockets than for a request from now on.
    pub(super) fn hurry(&mut self, times: Timeouts) {
        if let WorkerPhase::Draining { sessions, .. } = &mut self.phase {
            *sessions = (*sessions).min(Instant::now() + times.drain);
        }
    }

    /// Has the WebSockets that it has accepted itself closed within a time.
    pub(super) fn end_sessions(&mut self, within: Duration) {
        if self.start.is_public && !std::mem::replace(&mut self.ends_sessions, true) {
            let within = u64::try_from(within.as_millis()).unwrap_or(KEEP_WEBSOCKETS);
            self.say(Message::Retire(within.clamp(1, KEEP_WEBSOCKETS - 1)));
        }
    }

    /// Asks it to end.
    pub(super) fn stop(&mut self, time: Duration) {
        let mut time = time;
        match self.phase {
            WorkerPhase::Stopping { .. } | WorkerPhase::Killed => return,
            // It may not have come to listen to us yet; once it has, it leaves signals to us.
            WorkerPhase::Starting { .. } => {
                self.signal(libc::SIGTERM);
                self.say(Message::Stop);
                // It has nothing in hand, and ends by itself a second after it has been interrupted.
                time = time.min(START_EXIT_TIMEOUT);
            }
            WorkerPhase::Ready | WorkerPhase::Draining { .. } => self.say(Message::Stop),
        }
        self.phase = WorkerPhase::Stopping { until: Instant::now() + time };
    }

    /// Ends it, and what it has started.
    pub(super) fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.phase = WorkerPhase::Killed;
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: passes no memory. It, and a group of its own, have their number until it is
        // reaped, as it is when the supervisor forgets it.
        unsafe { libc::kill(self.group, signal) };
    }

    /// Removes what it leaves behind, now that it has been reaped: its socket, and its temporary
    /// files. What passes on its last words
    /// is returned, and ends by itself unless something that it started has left its group.
    pub(super) fn clean_up(&mut self) -> Vec<JoinHandle<()>> {
        let (socket, temporary) = (self.backend.socket.clone(), self.temporary.clone());
        tokio::task::spawn_blocking(move || {
            // What cannot be removed goes with the folder.
            let _ = std::fs::remove_file(socket);
            let _ = std::fs::remove_dir_all(temporary);
        });
        std::mem::take(&mut self.outputs)
    }

    /// Whether nothing is to happen to it soon.
    pub(super) fn is_settled(&self) -> bool {
        match self.phase {
            WorkerPhase::Ready => true,
            WorkerPhase::Draining { until, .. } => {
                Instant::now() >= until && self.backend.load().1 > 0
            }
            WorkerPhase::Starting { .. } | WorkerPhase::Stopping { .. } | WorkerPhase::Killed => {
                false
            }
        }
    }

    /// Whether it has stopped its server, and may start another one before it ends.
    pub(super) fn is_between_servers(&self) -> bool {
        matches!(self.phase, WorkerPhase::Draining { .. }) && self.leaves == Some(ASKED)
    }

    /// Whether it has nothing in hand.
    pub(super) fn is_done(&self) -> bool {
        self.backend.load() == (0, 0) && self.backend.connections() == 0
    }
}

/// Passes on what a worker says, until it says nothing more.
async fn listen(
    control: Rc<ControlChannel>,
    epoch: u64,
    announced: Announced,
    events: UnboundedSender<WorkerEvent>,
) {
    // SAFETY: it owns its descriptor, which stays open and the same until the last that has it drops it.
    let readable =
        unsafe { AsyncFd::register_with_interest(Rc::clone(&control), Interest::READABLE) };
    let Ok(readable) = readable else { return };
    loop {
        let Ok(mut guard) = readable.readable().await else { return };
        loop {
            match control.receive() {
                Received::Message(message) => {
                    if events.send(WorkerEvent::Message(epoch, message)).is_err() {
                        return;
                    }
                }
                Received::Announcement(number, bytes) => {
                    let is_told = announced.replace(Some((number, bytes))).is_some();
                    if !is_told && events.send(WorkerEvent::Announced(epoch)).is_err() {
                        return;
                    }
                }
                Received::Malformed => {}
                Received::Nothing => break,
                Received::End => return,
            }
        }
        guard.clear_ready();
    }
}
