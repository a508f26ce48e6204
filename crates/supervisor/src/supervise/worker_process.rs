//! A worker process as the supervisor sees it, with its control channel and its lifecycle.

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
use crate::backend::Backend;
use crate::process::{HeldOutput, WorkerStart, pass_on, spawn, wait};

/// An event of a worker, identified by the worker's epoch.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// A worker has sent a message.
    Message(u64, Message),
    /// A worker has announced its static paths, which [`WorkerProcess::take_announced`] returns.
    Announced(u64),
    /// The warm-up requests of a worker have succeeded or failed.
    WarmedUp(u64, WarmupResult),
    /// A worker process has ended and has to be reaped.
    Ended(u64, libc::pid_t),
}

/// The phase of a worker's lifecycle.
///
/// ```text
///                               the app starts another server
///                               +---------------------------------+
///                               v                                 |
///    Starting --ready---------> Ready --drain, or the app -------> Draining
///       |    and warmed up      |       stops its server          |
///       |                       |                                 |
///       | start timeout,        | worker timeout,                 | no work left,
///       | failed warm-up,       | end of the server               | drain timeout,
///       | drain                 |                                 | end of the server
///       v                       |                                 |
///    Stopping <-----------------+---------------------------------+
///       |
///       | stop timeout
///       v
///    Killed
/// ```
///
/// `kill()` leads from every phase to `Killed`. It is called on a second request to stop the server
/// and for a worker that is unresponsive or has missed a wake-up. A worker process can end by
/// itself in every phase. The supervisor then removes its `WorkerProcess` and, where the slot needs
/// a worker, starts another process, which begins in `Starting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerPhase {
    /// R starts and loads the app. The worker must be ready before `until`.
    Starting { until: Instant },
    /// The worker can respond to requests. A worker in this phase serves or is a spare.
    Ready,
    /// The worker finishes its work. Requests have time until `until`, and WebSockets until
    /// `sessions`.
    Draining { until: Instant, sessions: Instant },
    /// The worker has been requested to exit, and is killed at `until`.
    Stopping { until: Instant },
    /// The worker has been killed, and its process has not been reaped yet.
    Killed,
}

/// A worker process with everything that the supervisor keeps about it.
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
    /// The time of the next log line about what the worker's drain waits for, and the interval
    /// after that.
    pub(super) tells_at: Option<(Instant, Duration)>,
    /// Whether the worker has been put into service. If false, the worker is starting or a spare.
    pub(super) is_serving: bool,
    pub(super) is_warming: bool,
    /// The memory of the worker when it became ready. Measured only where a control group limits
    /// memory.
    pub(super) memory_at_start: Option<u64>,
    /// Whether the WebSockets on connections that the worker has accepted itself are being closed.
    ends_sessions: bool,
    /// The reason for which the worker should end, if the supervisor decided it or the worker
    /// announced it.
    pub(super) leaves: Option<&'static str>,
    /// The wall-clock time of the start, for reports.
    pub(super) started: SystemTime,
    control: Rc<ControlChannel>,
    /// The worker's last announcement, until the supervisor has read it.
    announced: Announced,
    temporary: PathBuf,
    outputs: Vec<JoinHandle<()>>,
    /// The target of signals, in the form of the argument of `kill()`. It is the worker's process
    /// group, or only the process if the worker shares the supervisor's group.
    group: libc::pid_t,
}

/// The last unread announcement with its number. A newer announcement replaces it, so a worker that
/// sends many uses no more memory.
type Announced = Rc<RefCell<Option<(u64, Vec<u8>)>>>;

/// The time that a starting worker has to exit after the request to stop, before it is killed.
const START_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

impl WorkerProcess {
    /// Starts a worker process. `kept` stores the output that the worker writes while it starts.
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
        // The output lines of a single worker get no prefix.
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
            // Messages that were sent before the end have been read or no longer matter.
            listening.abort();
            // Sending fails only if the supervisor has ended, and then nobody needs the event.
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

    /// Sends a message to the worker. Errors are ignored, because health checks detect a worker
    /// that does not read its messages.
    pub(super) fn say(&self, message: Message) {
        let _ = self.control.send(message);
    }

    /// Takes the worker's last announcement and its number, or returns `None` if it has been taken.
    pub(super) fn take_announced(&self) -> Option<(u64, Vec<u8>)> {
        self.announced.take()
    }

    /// Sends the warm-up requests for `paths` in the background. [`WorkerEvent::WarmedUp`] reports
    /// the result.
    pub(super) fn warm_up(&mut self, paths: &[String], events: &UnboundedSender<WorkerEvent>) {
        // A worker may report more than once that it is ready.
        if std::mem::replace(&mut self.is_warming, true) {
            return;
        }
        let (socket, epoch, events) =
            (self.backend.socket.clone(), self.start.epoch, events.clone());
        let paths = paths.to_vec();
        tokio::task::spawn_local(async move {
            // Sending fails only if the supervisor has ended.
            let _ = events.send(WorkerEvent::WarmedUp(epoch, warm_up(socket, paths).await));
        });
    }

    /// Starts to drain a ready worker. A starting worker has no requests, so it is stopped at once.
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

    /// Shortens the time of a draining worker's WebSockets to the drain timeout of requests, from
    /// now on.
    pub(super) fn hurry(&mut self, times: Timeouts) {
        if let WorkerPhase::Draining { sessions, .. } = &mut self.phase {
            *sessions = (*sessions).min(Instant::now() + times.drain);
        }
    }

    /// Makes the worker close the WebSockets on connections that it has accepted itself, `within` a
    /// time.
    pub(super) fn end_sessions(&mut self, within: Duration) {
        if self.start.is_public && !std::mem::replace(&mut self.ends_sessions, true) {
            let within = u64::try_from(within.as_millis()).unwrap_or(KEEP_WEBSOCKETS);
            self.say(Message::Retire(within.clamp(1, KEEP_WEBSOCKETS - 1)));
        }
    }

    /// Requests the worker to exit within `time`, after which it is killed.
    pub(super) fn stop(&mut self, time: Duration) {
        let mut time = time;
        match self.phase {
            WorkerPhase::Stopping { .. } | WorkerPhase::Killed => return,
            // A starting worker may not read its control channel yet, so a signal is sent as well.
            // Once the worker reads the channel, it ignores the signal.
            WorkerPhase::Starting { .. } => {
                self.signal(libc::SIGTERM);
                self.say(Message::Stop);
                // A starting worker has no requests, and exits by itself a second after the
                // interrupt.
                time = time.min(START_EXIT_TIMEOUT);
            }
            WorkerPhase::Ready | WorkerPhase::Draining { .. } => self.say(Message::Stop),
        }
        self.phase = WorkerPhase::Stopping { until: Instant::now() + time };
    }

    /// Kills the worker process and the processes in its process group.
    pub(super) fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.phase = WorkerPhase::Killed;
    }

    /// Sends a signal to the worker's process group, or to its process if the group is shared.
    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the call passes no memory. The ids of the process and of its process group stay
        // reserved until the process is reaped, and the supervisor removes this object when it
        // reaps the process.
        unsafe { libc::kill(self.group, signal) };
    }

    /// Removes the socket and the temporary files of a reaped worker. Returns the tasks that pass
    /// on the worker's last output. These tasks end by themselves, unless a process that the worker
    /// started has left the process group and holds the output open.
    pub(super) fn clean_up(&mut self) -> Vec<JoinHandle<()>> {
        let (socket, temporary) = (self.backend.socket.clone(), self.temporary.clone());
        tokio::task::spawn_blocking(move || {
            // Files that cannot be removed now are removed with the supervisor's folder.
            let _ = std::fs::remove_file(socket);
            let _ = std::fs::remove_dir_all(temporary);
        });
        std::mem::take(&mut self.outputs)
    }

    /// Returns true unless the phase of the worker may change soon, so that the supervisor may
    /// check it less often.
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

    /// Returns true if the app has stopped its server and may start another one before the worker
    /// exits.
    pub(super) fn is_between_servers(&self) -> bool {
        matches!(self.phase, WorkerPhase::Draining { .. }) && self.leaves == Some(ASKED)
    }

    /// Returns true if the worker has no requests, WebSockets or connections.
    pub(super) fn is_done(&self) -> bool {
        self.backend.load() == (0, 0) && self.backend.connections() == 0
    }
}

/// Receives the messages of a worker and forwards them as events, until the channel is closed.
async fn listen(
    control: Rc<ControlChannel>,
    epoch: u64,
    announced: Announced,
    events: UnboundedSender<WorkerEvent>,
) {
    // SAFETY: the `ControlChannel` owns its descriptor, which stays open and unchanged until the
    // last `Rc` of it is dropped.
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
