//! Calls that may block, on a few threads of their own, for programs whose other threads must not
//! wait.
//!
//! tokio's `spawn_blocking` panics if the system has no resources for another thread, which ends
//! the task or thread that called it. Here, a call without a thread fails with the system's error,
//! and a [`BlockingPool`] whose first thread is started beforehand always has a thread.
//!
//! The peers for which calls are made take turns ([`FairQueue`]), so that a client with many calls
//! does not delay those of the others.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rookery_fairness::{FairQueue, Load, Peer, Queued};

use crate::lock;
use crate::signals::with_signals_blocked;

/// The time after which a thread ends if it has nothing to do and is not the first thread of its
/// pool.
const IDLE_TIME: Duration = Duration::from_secs(2);

thread_local! {
    /// The pool that performs the blocking calls of this thread.
    static POOL: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Performs a call that may block on another thread: on a thread of the pool that the current
/// thread has [entered](BlockingPool::enter), and otherwise on a thread of its own. Never blocks
/// and never panics. The call is the process's own, and takes turns with those of clients, for
/// which [`start_for`] is.
///
/// # Errors
/// Those of [`start_for`].
pub fn start<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> BlockingTask<T> {
    start_for(Peer::default(), work)
}

/// Performs a call that may block, as [`start`] does, on behalf of a client. If all threads of the
/// pool are busy, peers and their networks take turns.
///
/// # Errors
/// The task fails with the system's error if there is no thread and none can be started, and with
/// [`io::ErrorKind::Other`] if `work` panics.
pub fn start_for<T: Send + 'static>(
    peer: Peer,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> BlockingTask<T> {
    let state = Arc::new(Mutex::new(State::Running(None)));
    let completion = Completion(Arc::clone(&state));
    let job: Work = Box::new(move || {
        if completion.is_cancelled() {
            return;
        }
        let done = catch_unwind(AssertUnwindSafe(work));
        completion.set(done.unwrap_or_else(|_| Err(io::Error::other("the task has panicked"))));
    });
    let started = match entered() {
        Some(pool) => pool.push(peer, Job(job)),
        None => spawn("rookery-blocking", job).map(drop),
    };
    if let Err(error) = started {
        // The waiting task does not exist yet.
        *lock(&state) = State::Done(Err(error));
    }
    BlockingTask(state)
}

/// Performs a call that may block, as [`start`] does, without reporting its result. If the current
/// thread has entered no pool or the pool has no thread, drops `work` on the current thread.
pub fn run_detached(work: impl FnOnce() + Send + 'static) {
    if let Some(pool) = entered() {
        // The error has no receiver, and the call was dropped with it.
        let job: Work = Box::new(move || {
            // The panic has been printed.
            let _ = catch_unwind(AssertUnwindSafe(work));
        });
        let _ = pool.push(Peer::default(), Job(job));
    }
}

/// Looks up the addresses of a host. A name is looked up as by [`start`], and an IP address needs
/// no thread.
///
/// # Errors
/// Returns the error of the lookup, and an error if there is no thread for it.
pub async fn lookup_host(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let host = host.to_owned();
    start(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect)).await
}

/// A handle to a blocking call. Dropping the handle cancels the call if it has not started. The
/// thread that would have performed the call then drops what the call owns.
#[must_use = "dropping the handle cancels the call"]
#[derive(Debug)]
pub struct BlockingTask<T>(Arc<Mutex<State<T>>>);

#[derive(Debug)]
enum State<T> {
    Running(Option<Waker>),
    Done(io::Result<T>),
    /// The result is not needed, or has been taken.
    Cancelled,
}

impl<T> Future for BlockingTask<T> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let mut state = lock(&self.0);
        if let State::Running(waker) = &mut *state {
            *waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Cancelled) {
            State::Done(result) => Poll::Ready(result),
            _ => Poll::Ready(Err(io::Error::other("the result has been taken"))),
        }
    }
}

impl<T> Drop for BlockingTask<T> {
    fn drop(&mut self) {
        let dropped = std::mem::replace(&mut *lock(&self.0), State::Cancelled);
        // Dropped after the lock was released.
        drop(dropped);
    }
}

/// Completes a [`BlockingTask`]. If the completion is dropped unused, the task fails.
struct Completion<T>(Arc<Mutex<State<T>>>);

impl<T> Completion<T> {
    fn is_cancelled(&self) -> bool {
        matches!(*lock(&self.0), State::Cancelled)
    }

    fn set(&self, result: io::Result<T>) {
        let mut state = lock(&self.0);
        if let State::Running(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Done(result);
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        self.set(Err(io::Error::other("the task was not performed")));
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// A call that waits for a thread.
struct Job(Work);

impl Queued for Job {
    fn load(&self) -> Load {
        // The number of calls is limited by the memory that they are charged.
        Load::default()
    }
}

/// A few threads for calls that may block. Calls wait while all threads are busy. The peers of the
/// waiting calls take turns.
///
/// Dropping the pool closes it: its threads end after their current calls, and queued calls are
/// dropped.
#[derive(Debug)]
pub struct BlockingPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: &'static str,
    max_threads: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: FairQueue<Job>,
    threads: usize,
    idle: usize,
    is_closed: bool,
    /// The threads that have been started, except those that have ended because they were idle.
    handles: Vec<JoinHandle<()>>,
}

impl BlockingPool {
    /// Starts a pool with one thread, which lasts as long as the pool does. Up to `max_threads`
    /// threads exist while there are more calls, and fewer if the system has no resources for them.
    ///
    /// # Errors
    /// Returns the system's error if the first thread cannot be started.
    pub fn start(name: &'static str, max_threads: usize) -> io::Result<BlockingPool> {
        let pool = BlockingPool::on_demand(name, max_threads);
        pool.0.start_thread(&mut lock(&pool.0.queue), Lasts::AsThePool)?;
        Ok(pool)
    }

    /// Creates a pool that has threads only while there are calls.
    pub fn on_demand(name: &'static str, max_threads: usize) -> BlockingPool {
        let (queue, changed) = (Mutex::default(), Condvar::new());
        BlockingPool(Arc::new(Shared { name, max_threads, queue, changed }))
    }

    /// Makes the pool perform the blocking calls of the current thread until the guard is dropped.
    pub fn enter(&self) -> EnteredPool {
        EnteredPool(POOL.replace(Some(Arc::clone(&self.0))), PhantomData)
    }

    /// Closes the pool, and waits until its threads have ended.
    pub fn join(self) {
        let handles = self.0.close();
        for handle in handles {
            // The calls of a thread do not unwind.
            let _ = handle.join();
        }
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A guard during whose lifetime the current thread uses a [`BlockingPool`].
#[derive(Debug)]
pub struct EnteredPool(Option<Arc<Shared>>, PhantomData<*const ()>);

impl Drop for EnteredPool {
    fn drop(&mut self) {
        POOL.set(self.0.take());
    }
}

fn entered() -> Option<Arc<Shared>> {
    // Values of other thread-local variables may be dropped after the pool.
    POOL.try_with(|pool| pool.borrow().clone()).ok().flatten()
}

/// The lifetime of a thread of a pool.
#[derive(Clone, Copy, PartialEq)]
enum Lasts {
    AsThePool,
    WhileBusy,
}

impl Shared {
    fn push(self: &Arc<Self>, peer: Peer, job: Job) -> io::Result<()> {
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            drop(queue);
            return Err(io::Error::other("the pool of threads is closed"));
        }
        if queue.jobs.len() >= queue.idle && queue.threads < self.max_threads {
            let started = self.start_thread(&mut queue, Lasts::WhileBusy);
            // A running thread performs the call later.
            if queue.threads == 0 {
                drop(queue);
                return started;
            }
        }
        queue.jobs.push(peer, job);
        drop(queue);
        self.changed.notify_one();
        Ok(())
    }

    fn start_thread(self: &Arc<Self>, queue: &mut Queue, lasts: Lasts) -> io::Result<()> {
        let shared = Arc::clone(self);
        let handle = spawn(self.name, move || shared.run(lasts))?;
        queue.handles.push(handle);
        queue.threads += 1;
        Ok(())
    }

    /// Performs queued calls until the pool is closed or the thread is no longer needed.
    fn run(&self, lasts: Lasts) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some((_, Job(work))) = queue.jobs.pop() {
                drop(queue);
                work();
                queue = lock(&self.queue);
                continue;
            }
            if queue.is_closed {
                return;
            }
            queue.idle += 1;
            let time = if lasts == Lasts::AsThePool { Duration::MAX } else { IDLE_TIME };
            let waited = self.changed.wait_timeout(queue, time);
            let (reacquired, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = reacquired;
            queue.idle -= 1;
            if timeout.timed_out() && lasts == Lasts::WhileBusy && queue.jobs.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
        // The handles are kept until the threads have ended, so that `join` waits for this thread.
        let (ended, running) =
            std::mem::take(&mut queue.handles).into_iter().partition(JoinHandle::is_finished);
        queue.handles = running;
        drop(queue);
        drop::<Vec<_>>(ended);
    }

    fn close(&self) -> Vec<JoinHandle<()>> {
        let mut queue = lock(&self.queue);
        queue.is_closed = true;
        let (jobs, handles) = (std::mem::take(&mut queue.jobs), std::mem::take(&mut queue.handles));
        drop(queue);
        self.changed.notify_all();
        // Dropped after the lock was released, because their owners may start further calls.
        drop(jobs);
        handles
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// Starts a thread that runs no signal handlers.
fn spawn(name: &'static str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    with_signals_blocked(|| Builder::new().name(name.to_owned()).spawn(body))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn wait<T>(mut task: BlockingTask<T>) -> io::Result<T> {
        struct Unpark(thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match Pin::new(&mut task).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(done) => return done,
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Keeps a thread of the current pool busy until the sender is dropped. Returns once the thread
    /// has begun.
    fn busy() -> (mpsc::Sender<()>, BlockingTask<()>) {
        let (ends, ended) = mpsc::channel::<()>();
        let (begins, begun) = mpsc::channel::<()>();
        let task = start(move || {
            _ = begins.send(());
            Ok(_ = ended.recv())
        });
        begun.recv().unwrap();
        (ends, task)
    }

    #[test]
    fn a_panic_fails_its_task_and_the_thread_goes_on() {
        let pool = BlockingPool::start("test", 1).unwrap();
        let _entered = pool.enter();
        let panicked = wait(start(|| -> io::Result<()> { panic!("for the test") }));
        assert_eq!(panicked.unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(wait(start(|| Ok(1))).unwrap(), 1);
        assert_eq!(lock(&pool.0.queue).handles.len(), 1);
    }

    #[test]
    fn a_cancelled_task_is_not_performed_and_others_wait_for_a_thread() {
        let pool = BlockingPool::start("test", 2).unwrap();
        let _entered = pool.enter();
        let (first, second) = (busy(), busy());
        let (sender, performed) = mpsc::channel();
        let (cancelled, kept) = (sender.clone(), sender);
        drop(start(move || Ok(cancelled.send("cancelled"))));
        let kept = start(move || Ok(kept.send("kept")));
        assert_eq!(lock(&pool.0.queue).handles.len(), 2);
        drop((first.0, second.0));
        wait(kept).unwrap().unwrap();
        assert_eq!(performed.iter().collect::<Vec<_>>(), ["kept"]);
    }

    #[test]
    fn a_peer_with_many_calls_does_not_delay_those_of_others() {
        let pool = BlockingPool::start("test", 1).unwrap();
        let _entered = pool.enter();
        let (ends, running) = busy();
        let (sender, performed) = mpsc::channel();
        // Four peers of network 1 have 200 calls each, then peers of two other networks have a few.
        let many = (0..800).map(|at| Peer::new(at % 4, 1));
        let few = [5, 6, 5, 6].map(|id| Peer::new(id, id));
        let calls: Vec<_> = many
            .chain(few)
            .map(|peer| {
                let sender = sender.clone();
                start_for(peer, move || Ok(_ = sender.send(peer.id())))
            })
            .collect();
        drop((ends, sender));
        for call in calls {
            wait(call).unwrap();
        }
        wait(running).unwrap();
        let order: Vec<_> = performed.iter().collect();
        assert_eq!((&order[..6], order.len()), (&[0, 5, 6, 1, 5, 6][..], 804));
    }

    #[test]
    fn closing_a_pool_fails_the_queued_tasks_and_waits_for_the_running_one() {
        let pool = BlockingPool::start("test", 1).unwrap();
        let entered = pool.enter();
        let (ends, running) = busy();
        let queued = start(|| Ok(()));
        drop(entered);
        let joining = thread::spawn(|| pool.join());
        assert!(wait(queued).is_err());
        drop(ends);
        joining.join().unwrap();
        wait(running).unwrap();
    }

    #[test]
    fn a_thread_without_a_pool_uses_a_thread_of_its_own() {
        let here = thread::current().id();
        assert_ne!(wait(start(|| Ok(thread::current().id()))).unwrap(), here);
    }
}
