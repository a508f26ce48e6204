//! What a server and its listeners share, and the thread behind them.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;

use rookery_error::Reports;
use rookery_exchange::{AppWaker, Budget, Link, ListenerId};
use rookery_worker::Scoreboard;

use super::io_thread::{Setup, run};
use super::listen_error::ListenError;
use super::orders::{Control, Order};
use super::public::Group;
use super::supervision::Supervision;
use crate::application::application::MakeApplication;
use crate::blocking::signal_mask::with_signals_blocked;
use crate::config::Config;
use crate::connections::memory_budget;
use crate::http::listener_config::ListenerConfig;
use crate::logging::access_log::pending_record::CurrentLog;
use crate::net::listen::Bound;
use crate::rejection::Rejection;

/// What a server and its listeners share: the way to the I/O thread.
pub(super) struct Core {
    pub(super) link: Arc<Link>,
    application: Option<MakeApplication>,
    pub(super) config: Config,
    pub(super) log: Arc<CurrentLog>,
    pub(super) reports: Arc<Reports<Rejection>>,
    pub(super) budget: Arc<Budget>,
    supervision: OnceLock<Arc<Supervision>>,
    measured: Mutex<Option<Arc<Scoreboard>>>,
    thread: Mutex<Option<Thread>>,
}

/// Listeners' ids are unique in the process.
static NEXT_LISTENER: AtomicU32 = AtomicU32::new(1);

struct Thread {
    control: Arc<Control>,
    handle: JoinHandle<()>,
}

impl Core {
    pub(super) fn new(
        config: Config,
        app_waker: Box<dyn AppWaker>,
        application: Option<MakeApplication>,
    ) -> Core {
        let waiting =
            memory_budget::message_queue_bytes(&config.limits).min(config.queue.message_bytes);
        let queue = rookery_exchange::QueueLimits { message_bytes: waiting, ..config.queue };
        Core {
            link: Link::new(queue, app_waker),
            application,
            budget: memory_budget::budget(&config.limits),
            config,
            log: Arc::default(),
            reports: Arc::new(Reports::new()),
            supervision: OnceLock::new(),
            measured: Mutex::default(),
            thread: Mutex::new(None),
        }
    }

    /// Gives sockets, which are one listener, to the I/O thread, which is started if none runs.
    pub(super) fn start(
        &self,
        bound: Vec<Bound>,
        site: ListenerConfig,
    ) -> Result<ListenerId, ListenError> {
        self.start_groups(vec![Group { bound, site: Box::new(site), is_public: false }], None)
    }

    /// The same for sockets that do not all serve the same; `inherited` is that of a worker whose socket is among them.
    pub(super) fn start_groups(
        &self,
        groups: Vec<Group>,
        inherited: Option<Arc<Supervision>>,
    ) -> Result<ListenerId, ListenError> {
        let listener = NEXT_LISTENER.fetch_add(1, Ordering::Relaxed);
        self.start_with(|done| Order::Listen { listener, inherited, groups, done })?;
        Ok(listener)
    }

    /// Has the I/O thread, which is started if none runs, hear the supervisor of the process. Before anything else is asked of it.
    pub(super) fn attend(&self, supervision: Arc<Supervision>) -> Result<(), ListenError> {
        // A second one is the same: a process has one supervisor.
        let supervision = Arc::clone(self.supervision.get_or_init(|| supervision));
        self.start_with(|done| Order::Attend { supervision, done })
    }

    /// Has I/O threads that are started from now on write there what the application is handed, and when.
    pub(super) fn measure(&self, board: Option<Arc<Scoreboard>>) {
        *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = board;
    }

    /// Gives an order to the I/O thread, which is started if none runs, and waits until it has been carried out.
    fn start_with(
        &self,
        order: impl FnOnce(mpsc::Sender<io::Result<()>>) -> Order,
    ) -> Result<(), ListenError> {
        let (done, carried_out) = mpsc::channel();
        let mut order = order(done);
        let mut thread = self.thread();
        if let Some(running) = &*thread {
            let control = Arc::clone(&running.control);
            match control.push(order) {
                Ok(()) => {
                    drop(thread);
                    return started(&carried_out, &control);
                }
                Err(refused) => order = refused,
            }
        }
        if let Some(over) = thread.take() {
            // Its end was decided before; what it returns is nothing.
            let _ = over.handle.join();
        }
        let control = Arc::new(Control::default());
        // The first order is there before the thread looks: it ends when it finds nothing to do.
        let _ = control.push(order);
        let setup = Setup {
            link: Arc::clone(&self.link),
            application: self.application.clone(),
            limits: self.config.limits.clone(),
            trim: self.config.trim,
            log: Arc::clone(&self.log),
            reports: Arc::clone(&self.reports),
            budget: Arc::clone(&self.budget),
            supervision: self.supervision.get().cloned(),
            measured: self.measured.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        let theirs = Arc::clone(&control);
        let handle = with_signals_blocked(|| {
            std::thread::Builder::new()
                .name("rookery-io".to_owned())
                .spawn(move || run(setup, &theirs))
        })
        .map_err(ListenError::Thread)?;
        *thread = Some(Thread { control: Arc::clone(&control), handle });
        drop(thread);
        started(&carried_out, &control)
    }

    /// Gives an order and waits until it has been carried out; `None` when there is no thread to carry it out.
    pub(super) fn order<T>(&self, order: impl FnOnce(mpsc::Sender<T>) -> Order) -> Option<T> {
        let (done, wait) = mpsc::channel();
        let control = Arc::clone(&self.thread().as_ref()?.control);
        control.push(order(done)).ok()?;
        wait.recv().ok()
    }

    /// Joins the thread if it has nothing left to do; `is_forced` waits for that.
    pub(super) fn join_if_over(&self, is_forced: bool) {
        let mut thread = self.thread();
        let is_over = thread.as_ref().is_some_and(|running| is_forced || running.control.is_over());
        if is_over {
            if let Some(over) = thread.take() {
                let _ = over.handle.join();
            }
        }
    }

    fn thread(&self) -> MutexGuard<'_, Option<Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the I/O thread has done what it was started for.
fn started(
    carried_out: &mpsc::Receiver<io::Result<()>>,
    control: &Control,
) -> Result<(), ListenError> {
    match carried_out.recv() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(source)) => Err(ListenError::Thread(source)),
        // It dropped the order: it has ended.
        Err(mpsc::RecvError) => Err(ListenError::Thread(control.failure())),
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}
