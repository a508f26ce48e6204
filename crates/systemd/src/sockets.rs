//! Sockets that the service manager has opened, and listens on until the service does: none who connects meanwhile is refused.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

/// The first descriptor that is handed over (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// More than that are a mistake: nobody has as many sockets for one service.
const MOST: RawFd = 64;

/// A socket that listens.
#[derive(Debug)]
pub enum Activated {
    /// With an address and a port.
    Tcp(TcpListener),
    /// With a path, or an abstract name.
    Unix(UnixListener),
}

/// What this process was handed.
#[derive(Debug, Default)]
pub struct Activation {
    /// Each with the name that `FileDescriptorName=` gives it; `unknown` where there is none.
    pub sockets: Vec<(String, Activated)>,
}

/// Why sockets that were handed over cannot be used.
#[derive(Debug)]
pub struct ActivationError(String);

impl fmt::Display for ActivationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ActivationError {}

impl Activation {
    /// Whether this process has been handed any, by what the environment says. Nothing is taken.
    pub fn is_there() -> bool {
        count(&|name| std::env::var_os(name), std::process::id()).is_ok_and(|count| count > 0)
    }

    /// Takes them. From then on nothing that this process starts has them. Empty where there are none for this process.
    ///
    /// # Errors
    /// When one is no socket that listens for streams, or the variables are not what they should be.
    ///
    /// # Safety
    /// The descriptors that the variables name are nobody else's in this process, and this is called once.
    pub unsafe fn take() -> Result<Activation, ActivationError> {
        // SAFETY: the caller's duty.
        unsafe { Activation::of(&|name| std::env::var_os(name), std::process::id(), FIRST) }
    }

    /// # Safety
    /// As for [`take`](Self::take), from descriptor `first` on.
    unsafe fn of(
        variable: &dyn Fn(&str) -> Option<OsString>,
        pid: u32,
        first: RawFd,
    ) -> Result<Activation, ActivationError> {
        let count = count(variable, pid)?;
        let names = variable("LISTEN_FDNAMES").unwrap_or_default().to_string_lossy().into_owned();
        let mut names = names.split(':').filter(|name| !name.is_empty());
        let families: Vec<libc::c_int> =
            (first..first + count).map(look).collect::<Result<_, _>>()?;
        let mut sockets = Vec::new();
        for (fd, family) in (first..).zip(families) {
            // SAFETY: open, as has been looked, and nobody's: the caller's duty.
            let owned = unsafe { OwnedFd::from_raw_fd(fd) };
            settle(&owned).map_err(|error| wrong(fd, &format!("cannot be used ({error})")))?;
            let socket = if family == libc::AF_UNIX {
                Activated::Unix(owned.into())
            } else {
                Activated::Tcp(owned.into())
            };
            sockets.push((names.next().unwrap_or("unknown").to_owned(), socket));
        }
        Ok(Activation { sockets })
    }
}

/// How many there are for this process.
fn count(variable: &dyn Fn(&str) -> Option<OsString>, pid: u32) -> Result<RawFd, ActivationError> {
    let (Some(told), Some(count)) = (variable("LISTEN_PID"), variable("LISTEN_FDS")) else {
        return Ok(0);
    };
    // For a process that started this one: it has left them in the environment.
    if told.to_str().and_then(|told| told.parse::<u32>().ok()) != Some(pid) {
        return Ok(0);
    }
    match count.to_str().and_then(|count| count.parse::<RawFd>().ok()) {
        Some(count @ 0..=MOST) => Ok(count),
        _ => Err(ActivationError(format!(
            "LISTEN_FDS is {count:?}, which is no number of sockets from 0 to {MOST}"
        ))),
    }
}

/// The family of a socket that listens for streams.
fn look(fd: RawFd) -> Result<libc::c_int, ActivationError> {
    if option(fd, libc::SO_ACCEPTCONN) != Some(1)
        || option(fd, libc::SO_TYPE) != Some(libc::SOCK_STREAM)
    {
        return Err(wrong(
            fd,
            "is no socket that listens for streams: a unit has ListenStream= and Accept=no",
        ));
    }
    match family(fd) {
        Some(family @ (libc::AF_UNIX | libc::AF_INET | libc::AF_INET6)) => Ok(family),
        _ => Err(wrong(fd, "is of no family that is served: TCP and Unix sockets are")),
    }
}

fn wrong(fd: RawFd, what: &str) -> ActivationError {
    ActivationError(format!("descriptor {fd}, which the service manager has handed over, {what}"))
}

fn option(fd: RawFd, name: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: a value of the size said to write to; a descriptor that is none is an error.
    let told = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut size)
    };
    (told == 0).then_some(value)
}

fn family(fd: RawFd) -> Option<libc::c_int> {
    // SAFETY: all zeros is an address of no family.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: an address of the size said to write to; a descriptor that is none is an error.
    let told = unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut size) };
    (told == 0).then(|| address.ss_family.into())
}

/// Closed in what a process becomes, and waited for by nobody.
fn settle(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: an open descriptor, and flags alone.
    unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        if flags < 0
            || libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) < 0
            || libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) < 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd as _;

    use super::*;

    /// Takes those from `first` on.
    fn of(values: &[(&str, &str)], first: RawFd) -> Result<Activation, String> {
        let variable =
            |name: &str| values.iter().find(|(it, _)| *it == name).map(|(_, value)| value.into());
        // SAFETY: what is named is the test's to give away.
        unsafe { Activation::of(&variable, 42, first) }.map_err(|error| error.to_string())
    }

    /// Has descriptors lie in a row from a number on that nothing else uses.
    fn in_a_row(fds: Vec<OwnedFd>, first: RawFd) {
        for (to, fd) in (first..).zip(fds) {
            // SAFETY: a number that is free.
            assert_eq!(unsafe { libc::dup2(fd.as_raw_fd(), to) }, to);
        }
    }

    #[test]
    fn sockets_are_taken_with_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(folder.path().join("s")).unwrap();
        let (address, six) = (tcp.local_addr().unwrap(), TcpListener::bind("[::1]:0"));
        let mut all: Vec<OwnedFd> = vec![tcp.into(), unix.into()];
        all.extend(six.map(OwnedFd::from));
        let count = all.len().to_string();
        in_a_row(all, 500);
        let values =
            [("LISTEN_PID", "42"), ("LISTEN_FDS", &*count), ("LISTEN_FDNAMES", "web:side")];
        let it = of(&values, 500).unwrap();
        let names: Vec<&str> = it.sockets.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(&names[..2], ["web", "side"]);
        assert!(names[2..].iter().all(|name| *name == "unknown"));
        assert!(
            matches!(&it.sockets[0].1, Activated::Tcp(it) if it.local_addr().unwrap() == address)
        );
        assert!(matches!(&it.sockets[1].1, Activated::Unix(_)));
        for (_, socket) in &it.sockets {
            let fd = match socket {
                Activated::Tcp(it) => it.as_raw_fd(),
                Activated::Unix(it) => it.as_raw_fd(),
            };
            // SAFETY: asks only.
            let (flags, status) =
                unsafe { (libc::fcntl(fd, libc::F_GETFD), libc::fcntl(fd, libc::F_GETFL)) };
            assert!(flags & libc::FD_CLOEXEC != 0 && status & libc::O_NONBLOCK != 0);
        }
    }

    #[test]
    fn what_is_not_for_us_is_left() {
        for values in [
            &[][..],
            &[("LISTEN_PID", "42")],
            &[("LISTEN_FDS", "1")],
            &[("LISTEN_PID", "43"), ("LISTEN_FDS", "1")],
            &[("LISTEN_PID", "42"), ("LISTEN_FDS", "0")],
            &[("LISTEN_PID", ""), ("LISTEN_FDS", "x")],
        ] {
            assert!(of(values, 600).unwrap().sockets.is_empty(), "{values:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_and_left_open() {
        for wrong in ["-1", "65", "99999999999", "one", ""] {
            let said = of(&[("LISTEN_PID", "42"), ("LISTEN_FDS", wrong)], 700).unwrap_err();
            assert!(said.contains("no number of sockets"), "{said}");
        }
        let one = [("LISTEN_PID", "42"), ("LISTEN_FDS", "1")];
        // Not open; a file; a socket of datagrams; one that is bound and does not listen.
        let file = tempfile::tempfile().unwrap();
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        in_a_row(vec![file.into(), datagrams.into(), stream.into()], 701);
        for first in 700..704 {
            let said = of(&one, first).unwrap_err();
            assert!(said.starts_with(&format!("descriptor {first}, which")), "{said}");
        }
        for first in 701..704 {
            // SAFETY: the test's own, and still open.
            drop(unsafe { OwnedFd::from_raw_fd(first) });
        }
        let _ = TcpListener::bind("127.0.0.1:0").unwrap().into_raw_fd();
    }
}
