//! The I/O thread: its runtime, and the orders it carries out.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::Poll;
use std::time::Duration;

use rookery_error::Reports;
use rookery_exchange::{Budget, IoWaker, Link, ListenerId};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::accept::{self, Bound};
use crate::access_log::Slot;
use crate::alarm::Alarm;
use crate::config::Limits;
use crate::connection::Phase;
use crate::descriptor::Served;
use crate::hub::{GOING_AWAY, Hub};
use crate::pulse;
use crate::rejection::Rejection;
use crate::server::Site;

/// Threads for what blocks: files and spools. More would only wait for the same disk.
const BLOCKING_THREADS: usize = 4;

/// How long an idle one of them is kept.
const BLOCKING_IDLE: Duration = Duration::from_secs(2);

/// What the I/O thread is told to do.
#[derive(Debug)]
pub(crate) enum Order {
    Listen { listener: ListenerId, bound: Bound, site: Site, done: mpsc::Sender<io::Result<()>> },
    Drain { listener: ListenerId, done: mpsc::Sender<()> },
    Count { listener: ListenerId, done: mpsc::Sender<usize> },
    Stop { listener: ListenerId, done: mpsc::Sender<()> },
    Halt { done: mpsc::Sender<()> },
    Break { done: mpsc::Sender<()> },
}

/// How orders reach the I/O thread.
#[derive(Debug, Default)]
pub(crate) struct Control {
    orders: Mutex<Orders>,
    came: Notify,
}

#[derive(Debug, Default)]
struct Orders {
    waiting: VecDeque<Order>,
    /// The thread has decided to end and takes no more.
    is_over: bool,
    /// Why it ended, when that was not its decision.
    failure: Option<io::Error>,
}

impl Control {
    /// Gives an order; it comes back when the thread has ended.
    pub(crate) fn push(&self, order: Order) -> Result<(), Order> {
        let mut orders = self.orders();
        if orders.is_over {
            return Err(order);
        }
        orders.waiting.push_back(order);
        drop(orders);
        self.came.notify_one();
        Ok(())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.orders().is_over
    }

    fn pop(&self) -> Option<Order> {
        self.orders().waiting.pop_front()
    }

    /// Ends the taking of orders, unless one waits.
    fn finish(&self) -> bool {
        let mut orders = self.orders();
        orders.is_over = orders.waiting.is_empty();
        orders.is_over
    }

    /// Ends the taking of orders; whoever waits for one hears that nobody carries it out.
    fn fail(&self, failure: io::Error) {
        let mut orders = self.orders();
        orders.is_over = true;
        orders.failure = Some(failure);
        let unheard = std::mem::take(&mut orders.waiting);
        drop(orders);
        drop(unheard);
    }

    /// Why the thread ended.
    pub(crate) fn failure(&self) -> io::Error {
        self.orders().failure.take().unwrap_or_else(|| io::Error::other("the I/O thread has ended"))
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    static HUB: RefCell<Option<(Rc<Hub>, Arc<Notify>)>> = const { RefCell::new(None) };
}

/// Runs the I/O thread until there is no listener and no connection. When it cannot go on, every connection is closed,
/// whoever waits for it hears of it, and so does the application ([`Link::fail`]).
pub(crate) fn run(
    link: &Arc<Link>,
    limits: Limits,
    log: Arc<Slot>,
    reports: Arc<Reports<Rejection>>,
    budget: Arc<Budget>,
    control: &Control,
) {
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
    let hub = Hub::new(Arc::clone(link), limits, log, reports, budget);
    let drain = Arc::new(Notify::new());
    let alarm = Alarm::new();
    let watch = {
        let _inside = runtime.enter();
        alarm.watch()
    };
    // Unwatched it would go off unnoticed.
    let alarm = if watch.is_some() { alarm } else { Alarm::none() };
    link.set_io_waker(Some(Arc::new(Wake { drain: Arc::clone(&drain), alarm })));
    HUB.set(Some((Rc::clone(&hub), Arc::clone(&drain))));
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(carry_out(&hub, &drain, control))));
    HUB.set(None);
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
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic").to_owned()
}

/// The thread is about to sleep: carries out what the application sent, and says so if it may sleep.
fn before_sleep() {
    HUB.with_borrow(|shared| {
        let Some((hub, drain)) = shared else { return };
        let mut has_yielded = false;
        loop {
            if hub.deliver() {
                // What was carried out may have woken no task, and then the runtime would sleep unannounced.
                drain.notify_one();
                return;
            }
            let is_awaited = hub.pending.len() > 0;
            if !has_yielded && (is_awaited || hub.link.has_events()) {
                // On a shared core the application answers meanwhile, and nobody has to be woken.
                has_yielded = true;
                std::thread::yield_now();
                continue;
            }
            if is_awaited {
                hub.start_pulse();
            }
            if hub.link.may_sleep(hub.is_app_slow.get()) {
                return;
            }
        }
    });
}

fn after_sleep() {
    HUB.with_borrow(|shared| {
        if let Some((hub, _)) = shared {
            hub.link.woke();
        }
    });
}

async fn carry_out(hub: &Rc<Hub>, drain: &Arc<Notify>, control: &Control) {
    let mut vital = [
        tokio::task::spawn_local(pulse::pulse(Rc::clone(hub))),
        tokio::task::spawn_local(pulse::sweep(Rc::clone(hub))),
        tokio::task::spawn_local({
            let hub = Rc::clone(hub);
            async move {
                loop {
                    // The runtime's queue is first in, first out: this task comes after those that are ready now.
                    hub.settle.notified().await;
                    hub.link.settle();
                }
            }
        }),
        tokio::task::spawn_local({
            let (hub, drain) = (Rc::clone(hub), Arc::clone(drain));
            async move {
                loop {
                    drain.notified().await;
                    hub.deliver();
                }
            }
        }),
    ];
    let mut listeners: HashMap<ListenerId, Listening> = HashMap::new();
    loop {
        // Before the look, so that an end between the look and the wait is not missed.
        let ended = hub.ended.notified();
        while let Some(order) = control.pop() {
            match order {
                Order::Listen { listener, bound, site, done } => {
                    let served = Served::new(&bound);
                    // Whoever asked waits for it.
                    let _ = done.send(accept::register(bound).map(|bound| {
                        let accepting =
                            tokio::task::spawn_local(accept::accept(Rc::clone(hub), bound, listener, site));
                        listeners.insert(listener, Listening { served, accepting });
                    }));
                }
                Order::Count { listener, done } => {
                    let count = hub.connections_of(listener).len() + hub.sockets_of(listener).len();
                    // Whoever asked waits for it.
                    let _ = done.send(count);
                }
                Order::Drain { listener, done } => {
                    if let Some(listening) = listeners.remove(&listener) {
                        listening.end().await;
                    }
                    say_goodbye(hub, listener);
                    let _ = done.send(());
                }
                Order::Stop { listener, done } => {
                    if let Some(listening) = listeners.remove(&listener) {
                        listening.end().await;
                    }
                    say_goodbye(hub, listener);
                    stop(hub, listener, hub.limits.stop_time).await;
                    if listeners.is_empty() && hub.population() == 0 && control.finish() {
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
                        listening.end().await;
                    }
                    let _ = control.finish();
                    let _ = done.send(());
                    return;
                }
            }
        }
        if listeners.is_empty() && hub.population() == 0 && control.finish() {
            return;
        }
        tokio::select! {
            biased;
            () = control.came.notified() => {}
            () = ended => {}
            // Without one of these tasks nobody would be served any more.
            panic = first_panic(&mut vital, &mut listeners) => resume_unwind(panic),
        }
    }
}

/// Waits for the panic of a task that never ends otherwise.
async fn first_panic(
    vital: &mut [JoinHandle<()>],
    listeners: &mut HashMap<ListenerId, Listening>,
) -> Box<dyn Any + Send> {
    poll_fn(|cx| {
        let accepting = listeners.values_mut().map(|listening| &mut listening.accepting);
        for task in vital.iter_mut().chain(accepting) {
            if let Poll::Ready(Err(error)) = Pin::new(task).poll(cx) {
                if let Ok(panic) = error.try_into_panic() {
                    return Poll::Ready(panic);
                }
            }
        }
        Poll::Pending
    })
    .await
}

/// A listener's task.
struct Listening {
    served: Served,
    accepting: JoinHandle<()>,
}

impl Listening {
    /// Stops accepting; when this returns the port is free.
    async fn end(self) {
        drop(self.served);
        self.accepting.abort();
        // Cancelled, as asked.
        let _ = self.accepting.await;
    }
}

/// Ends what is idle, and the rest when it is done.
fn say_goodbye(hub: &Rc<Hub>, listener: ListenerId) {
    for connection in hub.connections_of(listener) {
        connection.stop();
    }
    for socket in hub.sockets_of(listener) {
        socket.close(hub, GOING_AWAY, b"");
    }
}

/// Waits for the end of all but the connections that the application owes a reply, and ends those that are late.
async fn stop(hub: &Rc<Hub>, listener: ListenerId, patience: Duration) {
    let is_ours = |phase: Phase| phase != Phase::Application;
    let is_done = || {
        hub.sockets_of(listener).is_empty()
            && !hub.connections_of(listener).iter().any(|connection| is_ours(connection.phase.get()))
    };
    let all_done = async {
        loop {
            let ended = hub.ended.notified();
            if is_done() {
                return;
            }
            ended.await;
        }
    };
    if tokio::time::timeout(patience, all_done).await.is_ok() {
        return;
    }
    for connection in hub.connections_of(listener) {
        if is_ours(connection.phase.get()) {
            connection.abort();
        }
    }
    for socket in hub.sockets_of(listener) {
        socket.abort();
    }
    while !is_done() {
        // Each of them ends when it is polled next.
        tokio::task::yield_now().await;
    }
}
