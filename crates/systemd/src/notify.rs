//! Notifications from a service to its service manager: readiness, state and watchdog pings
//! (`sd_notify(3)`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rookery_system::clock;

/// The maximum time for which an important notification, such as `READY=1`, is retried while the
/// service manager's queue is full. The calling thread is blocked meanwhile.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause between two attempts to send a notification while the service manager's queue is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The connection to the service manager that started this process. Without a service manager, all
/// methods do nothing.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<NotifySocket>,
    watchdog: Option<Watchdog>,
}

/// The socket from which this process sends notifications, and the address of the service manager's
/// socket.
#[derive(Debug)]
struct NotifySocket {
    socket: UnixDatagram,
    address: Address,
}

/// The address of the socket on which the service manager receives notifications.
#[derive(Debug, PartialEq, Eq)]
enum Address {
    Path(PathBuf),
    /// The name of an abstract Unix socket of Linux, without the leading zero byte.
    Abstract(Vec<u8>),
}

#[derive(Debug)]
struct Watchdog {
    /// The interval at which the service should ping the watchdog: half of the watchdog's timeout.
    interval: Duration,
    last_ping: Mutex<Option<Instant>>,
}

impl ServiceManager {
    /// Connects to the service manager that the environment variables of this process name. Does
    /// not remove these variables.
    ///
    /// A service manager that cannot be reached counts as absent, so that the service runs anyway.
    pub fn from_environment() -> ServiceManager {
        ServiceManager::from_variables(|name| std::env::var_os(name), std::process::id())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>, pid: u32) -> ServiceManager {
        let address = variable("NOTIFY_SOCKET").and_then(|name| Address::parse(&name));
        let socket = address.and_then(|address| {
            let socket = UnixDatagram::unbound().ok()?;
            // A manager that does not read must not block the service.
            socket.set_nonblocking(true).ok()?;
            Some(NotifySocket { socket, address })
        });
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        // Without WATCHDOG_PID the watchdog is meant for any process that reads the variable.
        let is_ours =
            variable("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(pid.into());
        let timeout = number("WATCHDOG_USEC").filter(|timeout| is_ours && *timeout > 0);
        let watchdog = timeout.map(|microseconds| Watchdog {
            interval: Duration::from_micros(microseconds / 2),
            last_ping: Mutex::default(),
        });
        ServiceManager { watchdog: watchdog.filter(|_| socket.is_some()), socket }
    }

    /// Notifies the service manager that the service is ready. `status` is a line for people.
    pub fn ready(&self, status: &str) {
        let pid = std::process::id();
        self.send_or_wait(&format!("READY=1\nSTATUS={}\nMAINPID={pid}", one_line(status)));
    }

    /// Notifies the service manager that the service is reloading. Call [`ready`](Self::ready) when
    /// the reload is complete.
    pub fn reloading(&self, status: &str) {
        let now = clock::nanoseconds() / 1000;
        let status = one_line(status);
        self.send_or_wait(&format!("RELOADING=1\nMONOTONIC_USEC={now}\nSTATUS={status}"));
    }

    /// Notifies the service manager that the service is finishing its work and will then exit.
    pub fn stopping(&self, status: &str) {
        self.send_or_wait(&format!("STOPPING=1\nSTATUS={}", one_line(status)));
    }

    /// Sends the service manager a line for people about the state of the service. The line is lost
    /// if the service manager's queue is full.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    /// Notifies the service manager that the service has failed and will exit with the status
    /// `code`. `status` is the reason, as text for people. The notification is lost if the service
    /// manager's queue is full.
    pub fn failed(&self, status: &str, code: u8) {
        self.send(&format!("STATUS={}\nEXIT_STATUS={code}", one_line(status)));
    }

    /// Returns the interval at which [`ping_watchdog`](Self::ping_watchdog) must be called, or
    /// `None` if the service manager has no watchdog for this service.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.as_ref().map(|watchdog| watchdog.interval)
    }

    /// Reports to the service manager's watchdog that the service makes progress. May be called
    /// more often than needed, because at most two pings are sent within the watchdog's timeout.
    ///
    /// Call this on the thread that the watchdog should monitor.
    pub fn ping_watchdog(&self) {
        let Some(watchdog) = &self.watchdog else { return };
        let mut last_ping = watchdog.last_ping.lock().unwrap_or_else(PoisonError::into_inner);
        // After three quarters of the interval, because the next call may come too late.
        let is_due = |last: Instant| last.elapsed() * 4 >= watchdog.interval * 3;
        if last_ping.is_none_or(is_due) && self.send("WATCHDOG=1") {
            *last_ping = Some(Instant::now());
        }
    }

    /// Sends a notification without waiting. Returns false if the service manager's queue is full
    /// and the notification is lost.
    fn send(&self, text: &str) -> bool {
        self.socket.as_ref().is_none_or(|socket| !is_full(&socket.send(text)))
    }

    /// Sends an important notification, such as `READY=1`. While the service manager's queue is
    /// full, this function waits for at most [`SEND_TIMEOUT`]. After that, the notification is
    /// lost.
    fn send_or_wait(&self, text: &str) {
        let deadline = Instant::now() + SEND_TIMEOUT;
        while !self.send(text) && Instant::now() < deadline {
            std::thread::sleep(RETRY_INTERVAL);
        }
    }
}

/// Returns true if sending a notification failed only temporarily, because the service manager's
/// queue is full or the system has no memory for the datagram.
fn is_full(sent: &io::Result<()>) -> bool {
    sent.as_ref().is_err_and(|error| {
        error.kind() == io::ErrorKind::WouldBlock
            || matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
    })
}

/// Replaces the line ends in a text by spaces, because a line end would begin the next variable of
/// a notification.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

impl NotifySocket {
    #[cfg(target_os = "linux")]
    fn send(&self, text: &str) -> io::Result<()> {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::SocketAddr;

        let sent = match &self.address {
            Address::Path(path) => self.socket.send_to(text.as_bytes(), path),
            Address::Abstract(name) => {
                self.socket.send_to_addr(text.as_bytes(), &SocketAddr::from_abstract_name(name)?)
            }
        };
        sent.map(drop)
    }

    #[cfg(not(target_os = "linux"))]
    fn send(&self, text: &str) -> io::Result<()> {
        match &self.address {
            Address::Path(path) => self.socket.send_to(text.as_bytes(), path).map(drop),
            Address::Abstract(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Address {
    /// Returns the address that the value of `NOTIFY_SOCKET` names. Returns `None` if this crate
    /// cannot send to such an address, for example to `vsock:`, which names the host of a virtual
    /// machine.
    fn parse(name: &OsStr) -> Option<Address> {
        match name.as_bytes() {
            [b'/', ..] => Some(Address::Path(name.into())),
            [b'@', rest @ ..] if !rest.is_empty() => Some(Address::Abstract(rest.into())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(values: &[(&str, &str)]) -> ServiceManager {
        ServiceManager::from_variables(
            |name| values.iter().find(|(own, _)| *own == name).map(|(_, value)| value.into()),
            42,
        )
    }

    fn receive(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 1024];
        let read = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..read].to_vec()).unwrap()
    }

    #[test]
    fn notifications_reach_a_socket_with_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = manager(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
        manager.ready("2 of 2\nREADY=0");
        let pid = std::process::id();
        assert_eq!(receive(&socket), format!("READY=1\nSTATUS=2 of 2 READY=0\nMAINPID={pid}"));
        manager.reloading("new app");
        let text = receive(&socket);
        assert!(text.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{text}");
        assert!(clock::nanoseconds() / 1000 >= text.lines().nth(1).unwrap()[15..].parse().unwrap());
        manager.stopping("");
        assert_eq!(receive(&socket), "STOPPING=1\nSTATUS=");
        manager.failed("no", 3);
        assert_eq!(receive(&socket), "STATUS=no\nEXIT_STATUS=3");
        // A manager that no longer exists is no error.
        drop((socket, folder));
        manager.ready("");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn notifications_reach_an_abstract_socket() {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::SocketAddr;

        let name = format!("rookery-systemd-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        manager(&[("NOTIFY_SOCKET", &format!("@{name}"))]).status("here");
        assert_eq!(receive(&socket), "STATUS=here");
    }

    #[test]
    fn a_full_queue_delays_readiness_for_a_limited_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = manager(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
        let mut filled = 0;
        while manager.send("STATUS=full") {
            filled += 1;
            assert!(filled < 1 << 20, "the queue has no end");
        }
        let began = Instant::now();
        manager.ready("lost");
        let waited = began.elapsed();
        assert!(waited >= SEND_TIMEOUT && waited < Duration::from_secs(60), "{waited:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| manager.ready("in time"));
            for _ in 0..filled {
                assert_eq!(receive(&socket), "STATUS=full");
            }
            assert!(receive(&socket).starts_with("READY=1\nSTATUS=in time\n"));
        });
    }

    #[test]
    fn the_watchdog_gets_two_pings_within_its_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let to = ("NOTIFY_SOCKET", path.to_str().unwrap());
        let own = manager(&[to, ("WATCHDOG_USEC", "400000"), ("WATCHDOG_PID", "42")]);
        assert_eq!(own.watchdog_interval(), Some(Duration::from_millis(200)));
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(500) {
            own.ping_watchdog();
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut pings = 0;
        while let Ok(read) = socket.recv(&mut [0; 64]) {
            assert_eq!(read, "WATCHDOG=1".len());
            pings += 1;
        }
        // One at once, and one after each 150 ms.
        assert!((2..=4).contains(&pings), "{pings}");
        for values in [
            &[to, ("WATCHDOG_USEC", "400000"), ("WATCHDOG_PID", "43")][..],
            &[to, ("WATCHDOG_USEC", "0")],
            &[to, ("WATCHDOG_USEC", "soon")],
            &[("WATCHDOG_USEC", "400000")],
        ] {
            assert_eq!(manager(values).watchdog_interval(), None, "{values:?}");
        }
        assert!(manager(&[to, ("WATCHDOG_USEC", "400000")]).watchdog_interval().is_some());
    }

    #[test]
    fn without_a_manager_nothing_is_sent() {
        for name in ["", "@", "notify", "vsock:2:1234"] {
            assert!(manager(&[("NOTIFY_SOCKET", name)]).socket.is_none(), "{name}");
        }
        manager(&[]).ready("");
    }
}
