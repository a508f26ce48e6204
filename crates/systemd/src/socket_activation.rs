//! Socket activation: the service manager opens the listening sockets and passes them on to the
//! service (`sd_listen_fds(3)`). No client is refused while the service starts, because the service
//! manager already listens.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

use rookery_system::descriptor::{self, AddressFamily, SocketType};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// The number of the first descriptor that a service manager passes on (`SD_LISTEN_FDS_START`).
const FIRST_FD: RawFd = 3;

/// The largest accepted number of inherited sockets. A larger number in the environment must be a
/// mistake.
const MAX_SOCKETS: RawFd = 64;

/// A listening socket that the service manager opened.
#[derive(Debug)]
pub enum ActivatedSocket {
    /// A listening TCP socket, with an IP address and a port.
    Tcp(TcpListener),
    /// A listening Unix socket, with a path or an abstract name.
    Unix(UnixListener),
}

/// The listening sockets that this process inherited from the service manager.
#[derive(Debug, Default)]
pub struct Activation {
    /// The sockets, each with the name from `FileDescriptorName=` in its systemd unit, or
    /// `unknown`.
    pub sockets: Vec<(String, ActivatedSocket)>,
}

/// The error for sockets from the service manager that cannot be used. It contains the reason.
#[derive(Debug)]
pub struct ActivationError(String);

impl fmt::Display for ActivationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ActivationError {}

impl Activation {
    /// Returns true if this process inherited sockets from a service manager, according to its
    /// environment variables. The sockets are left unchanged.
    pub fn has_sockets() -> bool {
        count(&|name| std::env::var_os(name), std::process::id()).is_ok_and(|count| count > 0)
    }

    /// Takes ownership of the sockets that this process inherited from the service manager, if
    /// there are any. Processes that this process starts afterwards do not inherit the sockets.
    ///
    /// # Errors
    /// Fails if a descriptor is not a listening stream socket, or if a variable has an invalid
    /// value.
    ///
    /// # Safety
    /// - No other code in this process uses the descriptors that the variables name.
    /// - This function is called at most once.
    pub unsafe fn take() -> Result<Activation, ActivationError> {
        // SAFETY: the caller's duty.
        unsafe {
            Activation::take_from(&|name| std::env::var_os(name), std::process::id(), FIRST_FD)
        }
    }

    /// Takes ownership of the inherited sockets, whose descriptors begin at `first`. `variable`
    /// returns the value of an environment variable, and `pid` is the id of this process.
    ///
    /// # Safety
    /// - No other code in this process uses the inherited descriptors.
    /// - The descriptors are taken at most once.
    unsafe fn take_from(
        variable: &dyn Fn(&str) -> Option<OsString>,
        pid: u32,
        first: RawFd,
    ) -> Result<Activation, ActivationError> {
        let count = count(variable, pid)?;
        let names = variable("LISTEN_FDNAMES").unwrap_or_default().to_string_lossy().into_owned();
        let mut names = names.split(':').filter(|name| !name.is_empty());
        let families: Vec<AddressFamily> =
            (first..first + count).map(listener_family).collect::<Result<_, _>>()?;
        let mut sockets = Vec::new();
        for (fd, family) in (first..).zip(families) {
            // SAFETY: `listener_family` found that the descriptor is open, and the caller promises
            // that no other code uses it.
            let owned = unsafe { OwnedFd::from_raw_fd(fd) };
            set_flags(&owned)
                .map_err(|error| unusable(fd, &format!("cannot be used ({error})")))?;
            let socket = if family == AddressFamily::UNIX {
                ActivatedSocket::Unix(owned.into())
            } else {
                ActivatedSocket::Tcp(owned.into())
            };
            sockets.push((names.next().unwrap_or("unknown").to_owned(), socket));
        }
        Ok(Activation { sockets })
    }
}

/// Returns how many sockets the service manager has passed on to the process `pid`, according to
/// the environment variables that `variable` returns.
fn count(variable: &dyn Fn(&str) -> Option<OsString>, pid: u32) -> Result<RawFd, ActivationError> {
    let (Some(listen_pid), Some(count)) = (variable("LISTEN_PID"), variable("LISTEN_FDS")) else {
        return Ok(0);
    };
    // A parent process may have left the variables for its own sockets in the environment.
    if listen_pid.to_str().and_then(|text| text.parse::<u32>().ok()) != Some(pid) {
        return Ok(0);
    }
    match count.to_str().and_then(|count| count.parse::<RawFd>().ok()) {
        Some(count @ 0..=MAX_SOCKETS) => Ok(count),
        _ => Err(ActivationError(format!(
            "LISTEN_FDS must be a number of sockets from 0 to {MAX_SOCKETS}, not {count:?}"
        ))),
    }
}

/// Returns the address family of an inherited descriptor, or an error if the descriptor is not a
/// listening stream socket.
fn listener_family(fd: RawFd) -> Result<AddressFamily, ActivationError> {
    // SAFETY: the calls below return an error for a descriptor that is not open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    if descriptor::socket_type(socket) != Some((SocketType::STREAM, true)) {
        return Err(unusable(
            fd,
            "is not a listening stream socket: use ListenStream= and Accept=no in the socket unit",
        ));
    }
    match descriptor::socket_family(socket) {
        Some(family @ (AddressFamily::UNIX | AddressFamily::INET | AddressFamily::INET6)) => {
            Ok(family)
        }
        _ => Err(unusable(fd, "must be a TCP or Unix socket")),
    }
}

fn unusable(fd: RawFd, what: &str) -> ActivationError {
    ActivationError(format!("descriptor {fd}, inherited from the service manager, {what}"))
}

/// Makes an inherited descriptor non-blocking, and sets its close-on-exec flag.
fn set_flags(fd: &OwnedFd) -> io::Result<()> {
    descriptor::set_close_on_exec(fd.as_fd(), true)?;
    fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, IntoRawFd as _};

    use super::*;

    /// Takes ownership of inherited sockets whose descriptors begin at `first`. `values` are the
    /// names and values of the environment variables.
    fn take(values: &[(&str, &str)], first: RawFd) -> Result<Activation, String> {
        let variable =
            |name: &str| values.iter().find(|(it, _)| *it == name).map(|(_, value)| value.into());
        // SAFETY: only the calling test uses these descriptors.
        unsafe { Activation::take_from(&variable, 42, first) }.map_err(|error| error.to_string())
    }

    /// Copies descriptors to consecutive numbers from `first` on. No other code may use these
    /// numbers.
    fn renumber(fds: Vec<OwnedFd>, first: RawFd) {
        for (to, fd) in (first..).zip(fds) {
            // SAFETY: the number is not in use.
            assert_eq!(unsafe { libc::dup2(fd.as_raw_fd(), to) }, to);
        }
    }

    #[test]
    fn takes_sockets_with_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(folder.path().join("s")).unwrap();
        let (address, six) = (tcp.local_addr().unwrap(), TcpListener::bind("[::1]:0"));
        let mut all: Vec<OwnedFd> = vec![tcp.into(), unix.into()];
        all.extend(six.map(OwnedFd::from));
        let count = all.len().to_string();
        renumber(all, 500);
        let values =
            [("LISTEN_PID", "42"), ("LISTEN_FDS", &*count), ("LISTEN_FDNAMES", "web:side")];
        let activation = take(&values, 500).unwrap();
        let names: Vec<&str> = activation.sockets.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(&names[..2], ["web", "side"]);
        assert!(names[2..].iter().all(|name| *name == "unknown"));
        assert!(matches!(
            &activation.sockets[0].1,
            ActivatedSocket::Tcp(it) if it.local_addr().unwrap() == address
        ));
        assert!(matches!(&activation.sockets[1].1, ActivatedSocket::Unix(_)));
        for (_, socket) in &activation.sockets {
            let fd = match socket {
                ActivatedSocket::Tcp(it) => it.as_raw_fd(),
                ActivatedSocket::Unix(it) => it.as_raw_fd(),
            };
            // SAFETY: only reads flags of open descriptors.
            let (flags, status) =
                unsafe { (libc::fcntl(fd, libc::F_GETFD), libc::fcntl(fd, libc::F_GETFL)) };
            assert!(flags & libc::FD_CLOEXEC != 0 && status & libc::O_NONBLOCK != 0);
        }
    }

    #[test]
    fn ignores_sockets_for_another_process() {
        for values in [
            &[][..],
            &[("LISTEN_PID", "42")],
            &[("LISTEN_FDS", "1")],
            &[("LISTEN_PID", "43"), ("LISTEN_FDS", "1")],
            &[("LISTEN_PID", "42"), ("LISTEN_FDS", "0")],
            &[("LISTEN_PID", ""), ("LISTEN_FDS", "x")],
        ] {
            assert!(take(values, 600).unwrap().sockets.is_empty(), "{values:?}");
        }
    }

    #[test]
    fn refuses_descriptors_that_do_not_listen_and_leaves_them_open() {
        for wrong in ["-1", "65", "99999999999", "one", ""] {
            let message = take(&[("LISTEN_PID", "42"), ("LISTEN_FDS", wrong)], 700).unwrap_err();
            assert!(message.contains("must be a number of sockets"), "{message}");
        }
        let one = [("LISTEN_PID", "42"), ("LISTEN_FDS", "1")];
        // A closed descriptor, a file, a datagram socket and a connected stream socket are
        // rejected.
        let file = tempfile::tempfile().unwrap();
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        renumber(vec![file.into(), datagrams.into(), stream.into()], 701);
        for first in 700..704 {
            let message = take(&one, first).unwrap_err();
            assert!(message.starts_with(&format!("descriptor {first}, inherited")), "{message}");
        }
        for first in 701..704 {
            // SAFETY: the descriptor belongs to this test and is still open.
            drop(unsafe { OwnedFd::from_raw_fd(first) });
        }
        let _ = TcpListener::bind("127.0.0.1:0").unwrap().into_raw_fd();
    }
}
