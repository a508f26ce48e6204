//! Servers and listeners, as an application holds them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use rookery_error::Reports;
use rookery_exchange::{AppWaker, Budget, Link, ListenerId};

use crate::accept::Bound;
use crate::access_log::{AccessLog, Slot};
use crate::bind::{self, SocketFile};
use crate::config::Config;
use crate::descriptor;
use crate::io_thread::{Control, Order, run};
use crate::memory;
use crate::rejection::Rejection;
use crate::spool_folder::SpoolFolder;
use crate::static_files::StaticFiles;

/// What a listener serves.
#[derive(Debug, Clone, Default)]
pub struct Site {
    /// Files served without the application. May be changed while the listener runs.
    pub files: StaticFiles,
    /// Whether the application sees the head of a request before its body is read
    /// ([`Event::Head`](rookery_exchange::Event::Head)).
    pub sees_heads: bool,
    /// Where bodies lie that do not stay in memory.
    pub spool: Arc<SpoolFolder>,
}

/// A server: any number of listeners, one link to the application, and one I/O thread, which runs while there is a
/// listener or a connection.
///
/// Dropping it ends every connection, also those that the application owes a reply, stops its listeners and joins the
/// thread.
pub struct Server {
    core: Arc<Core>,
}

struct Core {
    link: Arc<Link>,
    config: Config,
    log: Arc<Slot>,
    reports: Arc<Reports<Rejection>>,
    budget: Arc<Budget>,
    thread: Mutex<Option<Thread>>,
}

/// Listeners' ids are unique in the process.
static NEXT_LISTENER: AtomicU32 = AtomicU32::new(1);

struct Thread {
    control: Arc<Control>,
    handle: JoinHandle<()>,
}

/// A listening socket. Dropping it stops it.
#[derive(Debug)]
pub struct Listener {
    core: Arc<Core>,
    id: ListenerId,
    local: Option<SocketAddr>,
    file: Option<SocketFile>,
    is_stopped: bool,
}

/// Why a listener could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListenError {
    /// The address is in use, or not this machine's, or not allowed.
    Bind {
        /// What was asked for.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The I/O thread could not be started, or ended before it listened.
    Thread(io::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::Bind { address, source } => match source.kind() {
                io::ErrorKind::AddrInUse => {
                    // Scripts look for these words, which are libuv's.
                    write!(
                        f,
                        "address already in use: {address} is another server's; stop it, or choose another port"
                    )
                }
                io::ErrorKind::PermissionDenied => {
                    write!(f, "permission denied: {address} is not for this user; choose a port above 1023")
                }
                io::ErrorKind::AddrNotAvailable => {
                    write!(
                        f,
                        "address not available: {address} is not this machine's; use 127.0.0.1 or 0.0.0.0"
                    )
                }
                _ => write!(f, "cannot listen on {address}: {source}"),
            },
            ListenError::Thread(source) => {
                write!(f, "cannot start the I/O thread: {source}")?;
                if descriptor::is_exhausted(source) {
                    f.write_str(": close files or connections, or raise the limit on them (`ulimit -n`)")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ListenError::Bind { source, .. } | ListenError::Thread(source) => Some(source),
        }
    }
}

impl Server {
    /// Makes a server without listeners; no thread runs yet. `app_waker` is how an application that does not wait
    /// on the link is woken.
    pub fn new(config: Config, app_waker: Box<dyn AppWaker>) -> Server {
        let waiting = memory::waiting(&config.limits).min(config.queue.message_bytes);
        let queue = rookery_exchange::Limits { message_bytes: waiting, ..config.queue };
        let link = Link::new(queue, app_waker);
        let reports = Arc::new(Reports::new());
        let budget = memory::budget(&config.limits);
        Server {
            core: Arc::new(Core {
                link,
                config,
                log: Arc::default(),
                reports,
                budget,
                thread: Mutex::new(None),
            }),
        }
    }

    /// Counts what was rejected, and queues it for an application that asks for it
    /// ([`Reports::set_delivery`]): each with the id of its request.
    pub fn reports(&self) -> &Arc<Reports<Rejection>> {
        &self.core.reports
    }

    /// What peers make the server hold, and what they may ([`Limits::memory`](crate::Limits::memory)).
    pub fn budget(&self) -> &Arc<Budget> {
        &self.core.budget
    }

    /// Where the application finds events and leaves commands. The same for all listeners.
    pub fn link(&self) -> &Arc<Link> {
        &self.core.link
    }

    /// Logs the requests of all listeners from now on; `None` ends that. The log before is dropped when the requests
    /// under way have been logged to it.
    pub fn set_access_log(&self, log: Option<Arc<AccessLog>>) {
        self.core.log.set(log);
    }

    /// Listens on a TCP address; port 0 takes a free one. When this returns, clients can connect.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn listen_tcp(&self, address: SocketAddr, site: Site) -> Result<Listener, ListenError> {
        descriptor::raise_limit(self.core.config.limits.connections);
        let (socket, local) = bind::tcp(address)
            .map_err(|source| ListenError::Bind { address: address.to_string(), source })?;
        let id = self.core.start(Bound::Tcp(socket), site)?;
        Ok(Listener { core: Arc::clone(&self.core), id, local: Some(local), file: None, is_stopped: false })
    }

    /// Listens on a Unix socket. A socket file that nobody listens on is replaced; the file is removed when the
    /// listener stops, unless it is another by then. `mask` is the umask it is made with (none: the process's): at no
    /// time has it wider permissions.
    ///
    /// # Errors
    /// When the path cannot be bound.
    pub fn listen_unix(&self, path: &Path, mask: Option<u32>, site: Site) -> Result<Listener, ListenError> {
        descriptor::raise_limit(self.core.config.limits.connections);
        let (socket, file) = bind::unix(path, mask)
            .map_err(|source| ListenError::Bind { address: path.display().to_string(), source })?;
        let id = self.core.start(Bound::Unix(socket), site).inspect_err(|_| file.remove())?;
        Ok(Listener { core: Arc::clone(&self.core), id, local: None, file: Some(file), is_stopped: false })
    }

    /// Makes the I/O thread panic, so that an application can test what it does then.
    pub fn break_down(&self) {
        self.core.order(|done| Order::Break { done });
    }

    /// In a forked child: closes the listeners and connections that the parent serves, of all servers. A child then
    /// forgets (`std::mem::forget`) its copies of [`Server`] and [`Listener`] and may make new ones. Takes no lock and
    /// allocates nothing.
    pub fn close_inherited() {
        descriptor::close_inherited();
    }
}

impl Listener {
    /// The id that events carry.
    pub fn id(&self) -> ListenerId {
        self.id
    }

    /// The address bound; `None` for a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// The path of a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(SocketFile::path)
    }

    /// Stops listening and ends connections as their replies are done; returns at once. Idle ones end now,
    /// WebSockets are closed with 1001.
    pub fn drain(&self) {
        self.core.order(|done| Order::Drain { listener: self.id, done });
    }

    /// How many connections and WebSockets of this listener are left.
    pub fn connections(&self) -> usize {
        self.core.order(|done| Order::Count { listener: self.id, done }).unwrap_or(0)
    }

    /// Stops listening. Replies on their way are given
    /// [`stop_time`](crate::Limits::stop_time), WebSockets are closed with 1001; a request that the application
    /// still has is answered when it answers. When this returns the port is free.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.is_stopped, true) {
            return;
        }
        if let Some(file) = &self.file {
            file.remove();
        }
        self.core.order(|done| Order::Stop { listener: self.id, done });
        self.core.join_if_over(false);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end();
    }
}

impl Core {
    /// Gives a socket to the I/O thread, which is started if none runs.
    fn start(&self, bound: Bound, site: Site) -> Result<ListenerId, ListenError> {
        let listener = NEXT_LISTENER.fetch_add(1, Ordering::Relaxed);
        let (done, listens) = mpsc::channel();
        let mut order = Order::Listen { listener, bound, site, done };
        let mut thread = self.thread();
        if let Some(running) = &*thread {
            let control = Arc::clone(&running.control);
            match control.push(order) {
                Ok(()) => {
                    drop(thread);
                    return started(listener, &listens, &control);
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
        let (link, limits, log) = (Arc::clone(&self.link), self.config.limits.clone(), Arc::clone(&self.log));
        let (reports, theirs) = (Arc::clone(&self.reports), Arc::clone(&control));
        let budget = Arc::clone(&self.budget);
        let handle = with_signals_blocked(|| {
            std::thread::Builder::new()
                .name("rookery-io".to_owned())
                .spawn(move || run(&link, limits, log, reports, budget, &theirs))
        })
        .map_err(ListenError::Thread)?;
        *thread = Some(Thread { control: Arc::clone(&control), handle });
        drop(thread);
        started(listener, &listens, &control)
    }

    /// Gives an order and waits until it has been carried out; `None` when there is no thread to carry it out.
    fn order<T>(&self, order: impl FnOnce(mpsc::Sender<T>) -> Order) -> Option<T> {
        let (done, wait) = mpsc::channel();
        let control = Arc::clone(&self.thread().as_ref()?.control);
        control.push(order(done)).ok()?;
        wait.recv().ok()
    }

    /// Joins the thread if it has nothing left to do; `is_forced` waits for that.
    fn join_if_over(&self, is_forced: bool) {
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

/// Waits until the I/O thread listens.
fn started(
    listener: ListenerId,
    listens: &mpsc::Receiver<io::Result<()>>,
    control: &Control,
) -> Result<ListenerId, ListenError> {
    match listens.recv() {
        Ok(Ok(())) => Ok(listener),
        Ok(Err(source)) => Err(ListenError::Thread(source)),
        // It dropped the order: it has ended.
        Err(mpsc::RecvError) => Err(ListenError::Thread(control.failure())),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.core.order(|done| Order::Halt { done });
        self.core.join_if_over(true);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("link", &self.core.link).finish_non_exhaustive()
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

/// Runs `start` with every signal blocked, so that the thread it starts never runs a handler of R's.
pub(crate) fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets have room; sigfillset fills the first before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = start();
    // SAFETY: the call above filled `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}
