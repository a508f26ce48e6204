//! The I/O thread: its runtime, its sleep, and the orders it carries out.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rookery_error::Reports;
use rookery_exchange::{Budget, IoWaker, Link, ListenerId};
use rookery_worker::Scoreboard;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::alarm::Alarm;
use super::clocks;
use super::drain;
use super::gate::Accepting;
use super::listening::Listening;
use super::orders::{ClosesAtEnd, Control, Order};
use super::patience;
use super::shared::Shared;
use super::supervision::{self, Supervision};
use crate::application::application::{Application, MakeApplication};
use crate::config::Limits;
use crate::connections::table::ConnectionTable;
use crate::logging::access_log::pending_record::CurrentLog;
use crate::rejection::Rejection;

/// Threads for what blocks: files and spools. More would only wait for the same disk.
const BLOCKING_THREADS: usize = 4;

/// How long an idle one of them is kept.
const BLOCKING_IDLE: Duration = Duration::from_secs(2);

/// Wakes the thread when commands wait.
struct Wake {
    drain: Arc<Notify>,
    alarm: Alarm,
}

impl IoWaker for Wake {
    fn wake(&self) {
        self.drain.notify_one();
    }

    fn wake_within(&self, delay: Duration) {
        if !self.alarm.set(delay) {
            self.wake();
        }
    }
}

thread_local! {
    /// For the hooks of the runtime, which must be `Send` and so cannot hold it.
    static SHARED: RefCell<Option<(Rc<Shared>, Arc<Notify>)>> = const { RefCell::new(None) };
}

/// What an I/O thread works with.
pub(super) struct Setup {
    pub(super) link: Arc<Link>,
    /// Answers instead of the application at the other end of the link.
    pub(super) application: Option<MakeApplication>,
    pub(super) limits: Limits,
    pub(super) trim: Option<fn(bool)>,
    pub(super) log: Arc<CurrentLog>,
    pub(super) reports: Arc<Reports<Rejection>>,
    pub(super) budget: Arc<Budget>,
    pub(super) supervision: Option<Arc<Supervision>>,
    /// Of a process without a supervisor.
    pub(super) measured: Option<Arc<Scoreboard>>,
}

/// Runs the I/O thread until there is no listener and no connection. When it cannot go on, every connection is closed,
/// whoever waits for it hears of it, and so does the application ([`Link::fail`]).
pub(super) fn run(setup: Setup, control: &Control) {
    // Also when something below panics: a thread that has given an order must not wait for ever.
    let _closes = ClosesAtEnd(control);
    let Setup { link, application, limits, trim, log, reports, budget, supervision, measured } =
        setup;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(BLOCKING_IDLE)
        .thread_name("rookery-disk")
        .on_thread_park(before_sleep)
        .on_thread_unpark(after_sleep)
        .build_local(tokio::runtime::LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        // Whoever started it is told.
        Err(error) => return control.fail(error),
    };
    let drain = Arc::new(Notify::new());
    let alarm = Alarm::new();
    let watch = {
        let _inside = runtime.enter();
        alarm.watch()
    };
    // Unwatched it would go off unnoticed.
    let alarm = if watch.is_some() { alarm } else { Alarm::none() };
    let waker: Arc<dyn IoWaker> = Arc::new(Wake { drain: Arc::clone(&drain), alarm });
    link.set_io_waker(Some(Arc::clone(&waker)));
    let application: Box<dyn Application> = match application {
        // Inside of the runtime: it may start tasks.
        Some(make) => runtime.block_on(async { make(waker) }),
        None => Box::new(Arc::clone(&link)),
    };
    let accepts =
        supervision.as_ref().is_some_and(|supervision| supervision.has_public_listeners());
    let is_timed = measured.is_some() || accepts;
    let supervised = supervision.as_ref().map(|supervision| Arc::clone(supervision.scoreboard()));
    let scoreboard = (supervised.or(measured), is_timed);
    let shared = Shared::new(application, limits, trim, log, reports, budget, scoreboard);
    SHARED.set(Some((Rc::clone(&shared), Arc::clone(&drain))));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(carry_out(&shared, &drain, control, supervision))
    }));
    SHARED.set(None);
    let failure = outcome.err().map(|panic| text_of(&*panic));
    if let Some(failure) = &failure {
        control.fail(io::Error::other(failure.clone()));
    }
    drop(watch);
    // Tasks, and with them sockets, end here; threads that block are waited for.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(runtime)));
    let failure = failure.or(dropped.err().map(|panic| text_of(&*panic)));
    link.set_io_waker(None);
    if let Some(failure) = failure {
        // Its waker may be what panicked.
        let _ = catch_unwind(AssertUnwindSafe(|| link.fail(&failure)));
    }
    link.settle();
}

/// What a panic said.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic")
        .to_owned()
}

/// The thread is about to sleep: carries out what the application sent, and says so if it may sleep.
fn before_sleep() {
    SHARED.with_borrow(|shared| {
        let Some((shared, drain)) = shared else { return };
        let dispatch = &shared.dispatch;
        let mut has_yielded = false;
        loop {
            if shared.deliver() {
                // What was carried out may have woken no task, and then the runtime would sleep unannounced.
                drain.notify_one();
                return;
            }
            let is_awaited = dispatch.application.has_thread() && dispatch.in_flight() > 0;
            if is_awaited && !has_yielded && shared.patience.stays_awake() {
                // A task, and not a loop here: sockets are looked at meanwhile.
                return;
            }
            let is_elsewhere = dispatch.has_passed_on();
            if !has_yielded && (is_awaited || is_elsewhere || dispatch.application.has_events()) {
                // On a shared core the application answers meanwhile, and nobody has to be woken.
                has_yielded = true;
                std::thread::yield_now();
                continue;
            }
            if is_awaited {
                dispatch.look_after();
            }
            if dispatch.application.may_sleep(dispatch.is_slow.get()) {
                return;
            }
        }
    });
}

fn after_sleep() {
    SHARED.with_borrow(|shared| {
        if let Some((shared, _)) = shared {
            shared.dispatch.application.woke();
        }
    });
}

async fn carry_out(
    shared: &Rc<Shared>,
    drain: &Arc<Notify>,
    control: &Control,
    supervision: Option<Arc<Supervision>>,
) {
    let mut vital = start_vital(shared, drain);
    let connections = &shared.connections;
    let mut listeners: HashMap<ListenerId, Listening> = HashMap::new();
    let mut attending = supervision.map(|supervision| start_attending(shared, supervision));
    loop {
        // Before the look, so that an end between the look and the wait is not missed.
        let gone = connections.removed.notified();
        while let Some(order) = control.pop() {
            match order {
                Order::Listen { listener, inherited, groups, done } => {
                    let listening = Listening::start(shared, listener, inherited, groups);
                    // Whoever asked waits for it.
                    let _ = done.send(listening.map(|listening| {
                        listeners.insert(listener, listening);
                    }));
                }
                Order::SetAccepting { listener, is_on, done } => {
                    if let Some(listening) = listeners.get(&listener) {
                        listening.keeper.set(if is_on {
                            Accepting::Yes
                        } else {
                            Accepting::Paused
                        });
                    }
                    let _ = done.send(());
                }
                Order::CopySockets { listener, done } => {
                    let none = || Err(io::ErrorKind::NotConnected.into());
                    let _ = done
                        .send(listeners.get(&listener).map_or_else(none, Listening::copy_sockets));
                }
                Order::Attend { supervision, done } => {
                    attending.get_or_insert_with(|| start_attending(shared, supervision));
                    let _ = done.send(Ok(()));
                }
                Order::Unattend { done } => {
                    if let Some(attending) = attending.take() {
                        attending.abort();
                        // Cancelled, as asked.
                        let _ = attending.await;
                    }
                    if is_idle(attending.as_ref(), &listeners, connections) && control.finish() {
                        let _ = done.send(());
                        return;
                    }
                    let _ = done.send(());
                }
                Order::Count { listener, done } => {
                    // Whoever asked waits for it.
                    let _ = done.send(connections.len_of_listener(listener));
                }
                Order::Drain { listener, done } => {
                    if let Some(listening) = listeners.remove(&listener) {
                        listening.end(connections).await;
                    }
                    drain::say_goodbye(connections, listener);
                    let _ = done.send(());
                }
                Order::Stop { listener, done } => {
                    if let Some(listening) = listeners.remove(&listener) {
                        listening.end(connections).await;
                    }
                    drain::say_goodbye(connections, listener);
                    drain::stop(connections, listener, connections.limits.stop_time).await;
                    if is_idle(attending.as_ref(), &listeners, connections) && control.finish() {
                        let _ = done.send(());
                        return;
                    }
                    let _ = done.send(());
                }
                Order::Break { done } => {
                    drop(done);
                    panic!("broken for a test");
                }
                Order::Halt { done } => {
                    for (_, listening) in listeners.drain() {
                        listening.end(connections).await;
                    }
                    // Threads that have given an order meanwhile learn that it is not carried out.
                    control.close();
                    let _ = done.send(());
                    return;
                }
            }
        }
        if is_idle(attending.as_ref(), &listeners, connections) && control.finish() {
            return;
        }
        tokio::select! {
            biased;
            () = control.came.notified() => {}
            () = gone => {}
            // Without one of these tasks nobody would be served any more.
            panic = first_panic(&mut vital, &mut attending, &mut listeners) => resume_unwind(panic),
        }
    }
}

fn start_attending(shared: &Rc<Shared>, supervision: Arc<Supervision>) -> JoinHandle<()> {
    tokio::task::spawn_local(supervision::attend(Rc::clone(&shared.connections), supervision))
}

/// Starts what everything else needs.
fn start_vital(shared: &Rc<Shared>, drain: &Arc<Notify>) -> [JoinHandle<()>; 5] {
    [
        tokio::task::spawn_local(clocks::look_after_application(Rc::clone(&shared.dispatch))),
        tokio::task::spawn_local(clocks::sweep(Rc::clone(&shared.connections))),
        tokio::task::spawn_local({
            let dispatch = Rc::clone(&shared.dispatch);
            async move {
                loop {
                    // The runtime's queue is first in, first out: this task comes after those that are ready now.
                    dispatch.settle.notified().await;
                    dispatch.application.settle();
                }
            }
        }),
        tokio::task::spawn_local({
            let (shared, drain) = (Rc::clone(shared), Arc::clone(drain));
            async move {
                loop {
                    drain.notified().await;
                    shared.deliver();
                }
            }
        }),
        tokio::task::spawn_local({
            let shared = Rc::clone(shared);
            async move {
                patience::stay_awake(&shared.patience, &shared.dispatch, || shared.deliver()).await
            }
        }),
    ]
}

/// Whether there is nothing for the thread to do, nor to wait for.
fn is_idle(
    attending: Option<&JoinHandle<()>>,
    listeners: &HashMap<ListenerId, Listening>,
    connections: &ConnectionTable,
) -> bool {
    attending.is_none() && listeners.is_empty() && connections.is_empty()
}

/// Waits for the panic of a task that never ends otherwise.
async fn first_panic(
    vital: &mut [JoinHandle<()>],
    attending: &mut Option<JoinHandle<()>>,
    listeners: &mut HashMap<ListenerId, Listening>,
) -> Box<dyn Any + Send> {
    poll_fn(|cx| {
        let accepting = listeners.values_mut().flat_map(|listening| &mut listening.accepting);
        for task in vital.iter_mut().chain(accepting) {
            if let Poll::Ready(Err(error)) = Pin::new(task).poll(cx) {
                if let Ok(panic) = error.try_into_panic() {
                    return Poll::Ready(panic);
                }
            }
        }
        // It ends with its supervisor, and may not be polled after that.
        if let Some(Poll::Ready(over)) = attending.as_mut().map(|task| Pin::new(task).poll(cx)) {
            *attending = None;
            if let Some(panic) = over.err().and_then(|error| error.try_into_panic().ok()) {
                return Poll::Ready(panic);
            }
        }
        Poll::Pending
    })
    .await
}
