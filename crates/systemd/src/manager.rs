//! Telling the service manager where the service is.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a manager sets for a service, and is not for the processes that the service starts.
pub const NAMES: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

/// The service manager that has started this process. Without one, all of this does nothing.
#[derive(Debug, Default)]
pub struct Manager {
    to: Option<Arc<Way>>,
    watchdog: Option<Watchdog>,
}

/// How often it is tried again to tell a manager that has no room.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// How much waits to be told again; of more the oldest is forgotten. What a manager acts on is said a few times in a service's life.
const WAITING: usize = 16;

/// The way to a manager.
#[derive(Debug)]
struct Way {
    socket: UnixDatagram,
    address: Address,
    /// What the manager acts on and had no room for, in order. While there is any, a thread tries.
    waiting: Mutex<VecDeque<String>>,
}

/// Where it hears.
#[derive(Debug, PartialEq, Eq)]
enum Address {
    Path(PathBuf),
    /// A name of Linux's abstract sockets, without the zero before it.
    Abstract(Vec<u8>),
}

#[derive(Debug)]
struct Watchdog {
    /// Half of what it waits.
    every: Duration,
    told: Mutex<Option<Instant>>,
}

impl Manager {
    /// The one that the environment names, which is left as it is. A manager that cannot be reached is none: the service goes on.
    pub fn of_environment() -> Manager {
        Manager::of(|name| std::env::var_os(name), std::process::id())
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>, pid: u32) -> Manager {
        let to = variable("NOTIFY_SOCKET").and_then(|name| address(&name)).and_then(|address| {
            let socket = UnixDatagram::unbound().ok()?;
            // One that does not read must not hold up the service.
            socket.set_nonblocking(true).ok()?;
            Some(Arc::new(Way { socket, address, waiting: Mutex::default() }))
        });
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        // Without the process id it is for whoever reads it.
        let is_ours =
            variable("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(pid.into());
        let every = number("WATCHDOG_USEC").filter(|it| is_ours && *it > 0);
        let watchdog = every.map(|microseconds| Watchdog {
            every: Duration::from_micros(microseconds / 2),
            told: Mutex::default(),
        });
        Manager { watchdog: watchdog.filter(|_| to.is_some()), to }
    }

    /// The service serves. `status` is a line for people.
    pub fn ready(&self, status: &str) {
        self.insist(&format!("READY=1\nSTATUS={}\nMAINPID={}", line(status), std::process::id()));
    }

    /// It replaces what serves, until it says that it is [ready](Self::ready).
    pub fn reloading(&self, status: &str) {
        let now = monotonic_microseconds();
        self.insist(&format!("RELOADING=1\nMONOTONIC_USEC={now}\nSTATUS={}", line(status)));
    }

    /// It finishes what it has, and ends.
    pub fn stopping(&self, status: &str) {
        self.insist(&format!("STOPPING=1\nSTATUS={}", line(status)));
    }

    /// How it is doing.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", line(status)));
    }

    /// Why it ends, for people, and its exit status.
    pub fn failed(&self, status: &str, code: u8) {
        self.send(&format!("STATUS={}\nEXIT_STATUS={code}", line(status)));
    }

    /// How often [`is_alive`](Self::is_alive) is to be called, if somebody watches.
    pub fn watches_every(&self) -> Option<Duration> {
        self.watchdog.as_ref().map(|watchdog| watchdog.every)
    }

    /// The service is not stuck: to be called by what would be, as often as it likes. The manager is told twice in the time that it waits.
    pub fn is_alive(&self) {
        let Some(watchdog) = &self.watchdog else { return };
        let mut told = lock(&watchdog.told);
        // A little sooner than is due, since it is asked from time to time only.
        if told.is_none_or(|told| told.elapsed() * 4 >= watchdog.every * 3)
            && self.send("WATCHDOG=1")
        {
            *told = Some(Instant::now());
        }
    }

    /// What is lost is not said again: a manager that has no room for a line has worse troubles. Says whether it is not lost.
    fn send(&self, text: &str) -> bool {
        self.to.as_ref().is_none_or(|way| !has_no_room(&way.send(text)))
    }

    /// What it acts on, such as `READY=1`, for which it would wait: said again until it has room, in order, and waited for by nobody here.
    fn insist(&self, text: &str) {
        let Some(way) = &self.to else { return };
        let mut waiting = lock(&way.waiting);
        if waiting.is_empty() && !has_no_room(&way.send(text)) {
            return;
        }
        let is_tried = !waiting.is_empty();
        if waiting.len() == WAITING {
            waiting.pop_front();
        }
        waiting.push_back(text.to_owned());
        drop(waiting);
        if !is_tried {
            let its = Arc::clone(way);
            let trying = std::thread::Builder::new().name("rookery-notify".to_owned());
            if with_signals_blocked(|| trying.spawn(move || its.tell_what_waits())).is_err() {
                // Without a thread it is as lost as a status line, and what comes next is tried anew.
                lock(&way.waiting).clear();
            }
        }
    }
}

impl Way {
    fn send(&self, text: &str) -> io::Result<()> {
        self.address.send(&self.socket, text.as_bytes())
    }

    /// Until nothing waits. A manager that has gone takes it, too.
    fn tell_what_waits(&self) {
        loop {
            std::thread::sleep(TRY_EVERY);
            let mut waiting = lock(&self.waiting);
            while waiting.front().is_some_and(|text| !has_no_room(&self.send(text))) {
                waiting.pop_front();
            }
            if waiting.is_empty() {
                return;
            }
        }
    }
}

/// Whether it may be told later: its queue is full, or the system has no memory.
fn has_no_room(sent: &io::Result<()>) -> bool {
    sent.as_ref().is_err_and(|error| {
        error.kind() == io::ErrorKind::WouldBlock
            || matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
    })
}

/// Runs `start` with every signal blocked: the thread that it starts runs no handler of the service's, which may be R's.
fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets have room; sigfillset fills the first before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let value = start();
    // SAFETY: the call above filled `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    value
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One line of it.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn address(name: &OsStr) -> Option<Address> {
    match name.as_bytes() {
        [b'/', ..] => Some(Address::Path(name.into())),
        [b'@', rest @ ..] if !rest.is_empty() => Some(Address::Abstract(rest.into())),
        // `vsock:` of a virtual machine's host, and what is none.
        _ => None,
    }
}

impl Address {
    #[cfg(target_os = "linux")]
    fn send(&self, socket: &UnixDatagram, bytes: &[u8]) -> io::Result<()> {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::SocketAddr;

        let sent = match self {
            Address::Path(path) => socket.send_to(bytes, path),
            Address::Abstract(name) => {
                socket.send_to_addr(bytes, &SocketAddr::from_abstract_name(name)?)
            }
        };
        sent.map(drop)
    }

    #[cfg(not(target_os = "linux"))]
    fn send(&self, socket: &UnixDatagram, bytes: &[u8]) -> io::Result<()> {
        match self {
            Address::Path(path) => socket.send_to(bytes, path).map(drop),
            Address::Abstract(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

fn monotonic_microseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec to write to; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // Neither is negative: it counts from the machine's start.
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(values: &[(&str, &str)]) -> Manager {
        Manager::of(
            |name| values.iter().find(|(it, _)| *it == name).map(|(_, value)| value.into()),
            42,
        )
    }

    fn receive(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 1024];
        let read = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..read].to_vec()).unwrap()
    }

    #[test]
    fn it_is_told_over_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let it = manager(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
        it.ready("2 of 2\nREADY=0");
        let pid = std::process::id();
        assert_eq!(receive(&socket), format!("READY=1\nSTATUS=2 of 2 READY=0\nMAINPID={pid}"));
        it.reloading("new app");
        let said = receive(&socket);
        assert!(said.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{said}");
        assert!(monotonic_microseconds() >= said.lines().nth(1).unwrap()[15..].parse().unwrap());
        it.stopping("");
        assert_eq!(receive(&socket), "STOPPING=1\nSTATUS=");
        it.failed("no", 3);
        assert_eq!(receive(&socket), "STATUS=no\nEXIT_STATUS=3");
        // It has gone, and nobody minds.
        drop((socket, folder));
        it.status("alone");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn it_is_told_over_an_abstract_name() {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::SocketAddr;

        let name = format!("rookery-systemd-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        manager(&[("NOTIFY_SOCKET", &format!("@{name}"))]).status("here");
        assert_eq!(receive(&socket), "STATUS=here");
    }

    #[test]
    fn what_a_manager_without_room_has_to_know_is_said_when_it_has_some() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let it = manager(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
        let mut filled = 0;
        while it.send("STATUS=full") {
            filled += 1;
            assert!(filled < 1 << 20, "its queue has no end");
        }
        for round in 0..WAITING + 3 {
            it.ready(&round.to_string());
        }
        it.stopping("now");
        for _ in 0..filled {
            assert_eq!(receive(&socket), "STATUS=full");
        }
        // The oldest have been forgotten, and the order is kept.
        for round in 4..WAITING + 3 {
            let said = receive(&socket);
            assert!(said.starts_with(&format!("READY=1\nSTATUS={round}\n")), "{round}: {said}");
        }
        assert_eq!(receive(&socket), "STOPPING=1\nSTATUS=now");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_thread_that_says_it_again_takes_no_signals() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let it = manager(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
        while it.send("STATUS=full") {}
        it.ready("");
        let began = Instant::now();
        // A thread names itself, so not at once. That of another test will do as well.
        let blocked = loop {
            let threads = std::fs::read_dir("/proc/self/task").unwrap();
            let mut states = threads
                .filter_map(|it| std::fs::read_to_string(it.ok()?.path().join("status")).ok());
            if let Some(state) = states.find(|state| state.starts_with("Name:\trookery-notify\n")) {
                let blocked =
                    state.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
                break u64::from_str_radix(blocked, 16).unwrap();
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it has no thread");
        };
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGALRM] {
            assert!(blocked >> (signal - 1) & 1 == 1, "{signal}: {blocked:x}");
        }
        drop(socket);
    }

    #[test]
    fn a_watchdog_is_told_twice_in_its_time_whoever_asks_how_often() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let to = ("NOTIFY_SOCKET", path.to_str().unwrap());
        let it = manager(&[to, ("WATCHDOG_USEC", "400000"), ("WATCHDOG_PID", "42")]);
        assert_eq!(it.watches_every(), Some(Duration::from_millis(200)));
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(500) {
            it.is_alive();
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut said = 0;
        while let Ok(read) = socket.recv(&mut [0; 64]) {
            assert_eq!(read, "WATCHDOG=1".len());
            said += 1;
        }
        // One at once, and one after each 150 ms.
        assert!((2..=4).contains(&said), "{said}");
        for values in [
            &[to, ("WATCHDOG_USEC", "400000"), ("WATCHDOG_PID", "43")][..],
            &[to, ("WATCHDOG_USEC", "0")],
            &[to, ("WATCHDOG_USEC", "soon")],
            &[("WATCHDOG_USEC", "400000")],
        ] {
            assert_eq!(manager(values).watches_every(), None, "{values:?}");
        }
        assert!(manager(&[to, ("WATCHDOG_USEC", "400000")]).watches_every().is_some());
    }

    #[test]
    fn without_a_manager_nothing_is_done() {
        for name in ["", "@", "notify", "vsock:2:1234"] {
            assert!(manager(&[("NOTIFY_SOCKET", name)]).to.is_none(), "{name}");
        }
        manager(&[]).ready("");
    }
}
