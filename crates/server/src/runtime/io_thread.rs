//! The I/O thread: it starts the async runtime and the server's tasks, executes commands from other
//! threads, and wakes a waiting application before it goes to sleep itself.

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

use rookery_exchange::{Budget, IoWaker, Link, ListenerId};
use rookery_system::blocking::BlockingPool;
use rookery_trace::Tracer;
use rookery_worker_protocol::SharedScoreboard;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::commands::{CloseOnDrop, CommandQueue, IoCommand};
use super::counted_rejections::CountedRejections;
use super::io_context::IoContext;
use super::listening::active_listener::ActiveListener;
use super::listening::drain;
use super::periodic_tasks;
use super::supervised::supervision::{self, Supervision};
use super::wake_timer::WakeTimer;
use crate::application::application::{Application, MakeApplication};
use crate::config::Limits;
use crate::connections::client_task;
use crate::connections::table::ConnectionTable;
use crate::logging::access_log::pending_record::CurrentLog;
use crate::rejection::RejectionReports;

/// The number of threads that perform blocking calls on files. More threads would only wait for the
/// same disk.
const BLOCKING_THREADS: usize = 4;

/// The waker that an application uses to wake the I/O thread after it has sent commands.
struct ThreadWaker {
    commands_available: Arc<Notify>,
    wake_timer: WakeTimer,
}

impl IoWaker for ThreadWaker {
    fn wake(&self) {
        self.commands_available.notify_one();
    }

    fn wake_within(&self, delay: Duration) -> bool {
        self.wake_timer.set(delay)
    }
}

thread_local! {
    /// The context of this I/O thread, for the functions that the runtime calls before and after
    /// sleeping, and for [`serve_application`].
    // These functions must be `Send`, so they cannot hold the context themselves.
    static IO_CONTEXT: RefCell<Option<(Rc<IoContext>, Arc<Notify>)>> = const { RefCell::new(None) };
}

/// The configuration with which an I/O thread is started.
pub(super) struct IoThreadConfig {
    pub(super) link: Arc<Link>,
    /// The function that makes an application on the I/O thread. If `None`, the application runs on
    /// another thread and is connected by the link.
    pub(super) application: Option<MakeApplication>,
    pub(super) limits: Limits,
    pub(super) trim: Option<fn(bool)>,
    pub(super) log: Arc<CurrentLog>,
    pub(super) reports: Arc<RejectionReports>,
    pub(super) counted: CountedRejections,
    pub(super) budget: Arc<Budget>,
    pub(super) tracer: Option<Arc<Tracer>>,
    pub(super) supervision: Option<Arc<Supervision>>,
    /// The scoreboard (memory with the application's counters) of a server that has no supervisor,
    /// or `None` if nothing is counted.
    pub(super) own_scoreboard: Option<Arc<SharedScoreboard>>,
}

/// Runs the I/O thread until there is no listener and no connection left. If a task panics, all
/// connections are closed, threads that wait for a command get an error, and the application is
/// notified by [`Link::fail`].
pub(super) fn run(config: IoThreadConfig, commands: &CommandQueue) {
    // Also closes the queue when the code below panics, because a thread that has sent a command
    // must not wait forever.
    let _closes = CloseOnDrop(commands);
    let IoThreadConfig {
        link,
        application,
        limits,
        trim,
        log,
        reports,
        counted,
        budget,
        tracer,
        supervision,
        own_scoreboard,
    } = config;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        // Tasks that other threads have woken run first. By default they wait for 31 polls of
        // tasks that this thread has woken, such as an HTTP/2 connection that reads without pause.
        .global_queue_interval(1)
        .on_thread_park(before_sleep)
        .on_thread_unpark(after_sleep)
        .build_local(tokio::runtime::LocalOptions::default());
    let pool = BlockingPool::start("rookery-disk", BLOCKING_THREADS);
    let (runtime, pool) = match runtime.and_then(|runtime| Ok((runtime, pool?))) {
        Ok(started) => started,
        // The error is reported to the thread that started this one.
        Err(error) => return commands.fail(error),
    };
    let entered_pool = pool.enter();
    let commands_available = Arc::new(Notify::new());
    let wake_timer = WakeTimer::new();
    let registration = {
        let _inside = runtime.enter();
        wake_timer.register()
    };
    // An unregistered timer would expire unnoticed.
    let wake_timer = if registration.is_some() { wake_timer } else { WakeTimer::none() };
    let waker: Arc<dyn IoWaker> =
        Arc::new(ThreadWaker { commands_available: Arc::clone(&commands_available), wake_timer });
    link.set_io_waker(Some(Arc::clone(&waker)));
    let application: Box<dyn Application> = match application {
        // The application is made inside the runtime, because it may spawn tasks.
        Some(make) => runtime.block_on(async { make(waker) }),
        None => Box::new(Arc::clone(&link)),
    };
    let supervised = supervision.as_ref().map(|supervision| Arc::clone(supervision.scoreboard()));
    let scoreboard = supervised.or(own_scoreboard);
    counted.set_scoreboard(scoreboard.clone());
    let context =
        IoContext::new(application, &limits, trim, (log, tracer), reports, budget, scoreboard);
    IO_CONTEXT.set(Some((Rc::clone(&context), Arc::clone(&commands_available))));
    client_task::set_serve(serve_application);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(run_commands(&context, &commands_available, commands, supervision));
    }));
    context.connections.on_thread_end();
    IO_CONTEXT.set(None);
    let failure = outcome.err().map(|panic| panic_message(&*panic));
    if let Some(failure) = &failure {
        commands.fail(io::Error::other(failure.clone()));
    }
    drop(registration);
    // Tasks and their sockets are dropped here. Files that were open are closed by the pool.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(runtime)));
    drop(entered_pool);
    pool.join();
    let failure = failure.or(dropped.err().map(|panic| panic_message(&*panic)));
    link.set_io_waker(None);
    if let Some(failure) = failure {
        // The application's waker may be the cause of the panic.
        let _ = catch_unwind(AssertUnwindSafe(|| link.fail(&failure)));
    }
    link.wake_waiting();
}

/// Returns the message of a panic as text.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic")
        .to_owned()
}

/// Prepares the I/O thread for sleeping: executes the application's commands, and then notifies the
/// application that the thread sleeps. Returns early if a task has become ready, because the
/// runtime then runs that task instead of sleeping.
fn before_sleep() {
    client_task::on_idle();
    IO_CONTEXT.with_borrow(|context| {
        let Some((context, commands_available)) = context else { return };
        let dispatch = &context.dispatch;
        let mut has_yielded = false;
        loop {
            if context.run_app_commands() {
                // The commands may have woken no task. The runtime would then sleep although the
                // application has not been notified of the sleep.
                commands_available.notify_one();
                return;
            }
            let is_awaited = dispatch.application.has_thread() && dispatch.in_flight() > 0;
            let has_forwarded = dispatch.application.take_has_forwarded();
            if !has_yielded
                && (is_awaited || has_forwarded || dispatch.application.has_unread_events())
                && context.yields.admit()
            {
                // If both threads share a processor core, the application responds during the
                // yield, and no thread has to be woken.
                has_yielded = true;
                context.yields.yield_once();
                continue;
            }
            if is_awaited {
                dispatch.watch_progress();
            }
            if dispatch.application.prepare_sleep(dispatch.is_app_slow.get()) {
                return;
            }
        }
    });
}

fn after_sleep() {
    IO_CONTEXT.with_borrow(|context| {
        if let Some((context, _)) = context {
            context.dispatch.application.on_wake();
        }
    });
}

/// Serves the application although tasks of clients are ready, so that the thread does not sleep:
/// executes the application's commands, and wakes the application for the events that it has got.
fn serve_application() {
    IO_CONTEXT.with_borrow(|context| {
        let Some((context, commands_available)) = context else { return };
        let served = catch_unwind(AssertUnwindSafe(|| {
            context.run_app_commands();
            context.dispatch.application.wake_deferred();
        }));
        if let Err(panic) = served {
            // In the task of a client, the panic would only end the connection of this client.
            context.panic.replace(Some(panic));
            commands_available.notify_one();
        }
    });
}

async fn run_commands(
    context: &Rc<IoContext>,
    commands_available: &Arc<Notify>,
    commands: &CommandQueue,
    supervision: Option<Arc<Supervision>>,
) {
    let mut essential = start_essential_tasks(context, commands_available);
    let connections = &context.connections;
    let mut listeners: HashMap<ListenerId, ActiveListener> = HashMap::new();
    let mut supervisor_task = supervision.map(spawn_supervisor_task);
    loop {
        // Created before the checks below, so that a removal between the checks and the wait is not
        // missed.
        let removed = connections.removed.notified();
        while let Some(command) = commands.pop() {
            match command {
                IoCommand::Listen { listener, sockets, config, done } => {
                    let listening = ActiveListener::start(context, listener, sockets, &config);
                    // The sender waits for the result, so it still exists.
                    let _ = done.send(listening.map(|listening| {
                        listeners.insert(listener, listening);
                    }));
                }
                IoCommand::SetLimits { limits, done } => {
                    connections.set_limits(&limits);
                    let _ = done.send(());
                }
                IoCommand::WatchSupervisor { supervision, done } => {
                    supervisor_task.get_or_insert_with(|| spawn_supervisor_task(supervision));
                    let _ = done.send(Ok(()));
                }
                IoCommand::UnwatchSupervisor { done } => {
                    if let Some(supervisor_task) = supervisor_task.take() {
                        supervisor_task.abort();
                        // The task was aborted above.
                        let _ = supervisor_task.await;
                    }
                    if is_idle(supervisor_task.as_ref(), &listeners, connections)
                        && commands.close_if_empty()
                    {
                        let _ = done.send(());
                        return;
                    }
                    let _ = done.send(());
                }
                IoCommand::CountConnections { listener, done } => {
                    // The sender waits for the result, so it still exists.
                    let _ = done.send(connections.len_of_listener(listener));
                }
                IoCommand::Drain { listener, close_over, done } => {
                    if let Some(listening) = listeners.get_mut(&listener) {
                        listening.end().await;
                    }
                    drain::begin_over(connections, listener, close_over);
                    let _ = done.send(());
                }
                IoCommand::Cut { listener, done } => {
                    drain::cut(context, listener);
                    let _ = done.send(());
                }
                IoCommand::Stop { listener, done } => {
                    // Otherwise a response that the application has just ended would be cut off.
                    context.run_app_commands();
                    if let Some(mut listening) = listeners.remove(&listener) {
                        listening.end().await;
                    }
                    drain::begin(connections, listener);
                    drain::finish(connections, listener, connections.limits().stop_timeout).await;
                    if is_idle(supervisor_task.as_ref(), &listeners, connections)
                        && commands.close_if_empty()
                    {
                        let _ = done.send(());
                        return;
                    }
                    let _ = done.send(());
                }
                IoCommand::AdvanceClock { time, done } => {
                    periodic_tasks::advance_clock(connections, time).await;
                    let _ = done.send(());
                }
                IoCommand::Panic { done } => {
                    drop(done);
                    panic!("broken for a test");
                }
                IoCommand::ShutDown { done } => {
                    for (_, mut listening) in listeners.drain() {
                        listening.end().await;
                    }
                    // Threads that have sent a command meanwhile learn that it is not executed.
                    commands.close();
                    let _ = done.send(());
                    return;
                }
            }
        }
        if is_idle(supervisor_task.as_ref(), &listeners, connections) && commands.close_if_empty() {
            return;
        }
        tokio::select! {
            biased;
            () = commands.pushed.notified() => {}
            () = removed => {}
            // No client would be served without one of these tasks, so its panic ends the thread.
            panic = wait_for_panic(&mut essential, &mut supervisor_task, &mut listeners) => {
                resume_unwind(panic)
            }
        }
    }
}

fn spawn_supervisor_task(supervision: Arc<Supervision>) -> JoinHandle<()> {
    tokio::task::spawn_local(supervision::receive_messages(supervision))
}

/// Starts the tasks without which the I/O thread cannot work. They run until the thread ends.
fn start_essential_tasks(
    context: &Rc<IoContext>,
    commands_available: &Arc<Notify>,
) -> [JoinHandle<()>; 5] {
    [
        tokio::task::spawn_local(client_task::take_turns()),
        tokio::task::spawn_local(periodic_tasks::watch_application(Rc::clone(&context.dispatch))),
        tokio::task::spawn_local(periodic_tasks::sweep(Rc::clone(&context.connections))),
        tokio::task::spawn_local({
            let dispatch = Rc::clone(&context.dispatch);
            async move {
                loop {
                    // The runtime's queue is first in, first out, so this task runs after those
                    // that are ready now.
                    dispatch.wake_requested.notified().await;
                    dispatch.application.wake_deferred();
                }
            }
        }),
        tokio::task::spawn_local({
            let (context, commands_available) =
                (Rc::clone(context), Arc::clone(commands_available));
            async move {
                loop {
                    commands_available.notified().await;
                    if let Some(panic) = context.panic.take() {
                        resume_unwind(panic);
                    }
                    context.run_app_commands();
                }
            }
        }),
    ]
}

/// Returns true if the I/O thread may end, because there is no supervisor, no listener and no
/// connection.
fn is_idle(
    supervisor_task: Option<&JoinHandle<()>>,
    listeners: &HashMap<ListenerId, ActiveListener>,
    connections: &ConnectionTable,
) -> bool {
    supervisor_task.is_none() && listeners.is_empty() && connections.is_empty()
}

/// Waits until one of the I/O thread's permanent tasks panics, and returns the panic. If
/// `supervisor_task` (the task that receives the supervisor's messages) ends without a panic, sets
/// it to `None` and waits on.
async fn wait_for_panic(
    essential: &mut [JoinHandle<()>],
    supervisor_task: &mut Option<JoinHandle<()>>,
    listeners: &mut HashMap<ListenerId, ActiveListener>,
) -> Box<dyn Any + Send> {
    poll_fn(|cx| {
        let accept_tasks = listeners.values_mut().flat_map(|listening| &mut listening.accept_tasks);
        for task in essential.iter_mut().chain(accept_tasks) {
            if let Poll::Ready(Err(error)) = Pin::new(task).poll(cx) {
                if let Ok(panic) = error.try_into_panic() {
                    return Poll::Ready(panic);
                }
            }
        }
        // The task ends together with the supervisor, and must not be polled after that.
        if let Some(Poll::Ready(ended)) =
            supervisor_task.as_mut().map(|task| Pin::new(task).poll(cx))
        {
            *supervisor_task = None;
            if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
                return Poll::Ready(panic);
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests;
