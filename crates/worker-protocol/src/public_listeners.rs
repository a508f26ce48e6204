//! The public listeners, which are the sockets that clients connect to. The supervisor opens them
//! and passes them on to its worker.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rookery_system::descriptor;

/// The public listeners (the sockets that clients connect to) and their settings, as a supervisor
/// passes them on to a worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct PublicDescriptors<'fd> {
    /// The sockets that listen at the server's address.
    pub sockets: &'fd [OwnedFd],
    /// The sockets on which plaintext HTTP requests are redirected to HTTPS.
    pub redirects: &'fd [OwnedFd],
    /// The descriptor to which the worker writes the access log. If `None`, the worker writes it to
    /// its standard output.
    pub log: Option<BorrowedFd<'fd>>,
    /// The cookie by which clients are assigned to the worker: the value of the environment
    /// variable [`COOKIE`](crate::COOKIE).
    pub cookie: Option<&'fd str>,
}

impl<'fd> PublicDescriptors<'fd> {
    /// Returns the descriptors of the public listeners as the value of the environment variable
    /// [`PUBLIC_FDS`](crate::PUBLIC_FDS), or `None` if there is no public listener.
    pub(crate) fn text(&self) -> Option<String> {
        let list = |sockets: &[OwnedFd]| {
            let numbers: Vec<_> = sockets.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
            numbers.join(",")
        };
        match (list(self.sockets), list(self.redirects)) {
            (sockets, _) if sockets.is_empty() => None,
            (sockets, redirects) if redirects.is_empty() => Some(sockets),
            (sockets, redirects) => Some(format!("{sockets}/{redirects}")),
        }
    }

    /// Returns all descriptors that are passed on to the worker: the public listeners and the
    /// access log.
    pub(crate) fn all(&self) -> impl Iterator<Item = BorrowedFd<'fd>> {
        self.sockets.iter().chain(self.redirects).map(AsFd::as_fd).chain(self.log)
    }
}

/// The public listeners (the sockets that clients connect to) that a worker has inherited.
#[derive(Debug, Default)]
pub struct PublicSockets {
    /// The sockets that listen at the server's address.
    pub sockets: Vec<OwnedFd>,
    /// The sockets on which plaintext HTTP requests are redirected to HTTPS.
    pub redirects: Vec<OwnedFd>,
}

impl PublicSockets {
    /// Parses the value of [`PUBLIC_FDS`](crate::PUBLIC_FDS). Returns two lists of descriptors: the
    /// sockets that listen at the server's address, and those on which HTTP is redirected to HTTPS.
    ///
    /// # Errors
    /// Returns a message if the text is malformed, or if a descriptor occurs twice or is not a
    /// listening socket.
    pub(crate) fn read(text: &str) -> Result<[Vec<RawFd>; 2], String> {
        let (sockets, redirects) = text.split_once('/').unwrap_or((text, ""));
        let numbers = |list: &str| -> Result<Vec<RawFd>, String> {
            let names = list.split(',').filter(|_| !list.is_empty());
            names
                .map(|name| {
                    let is_number =
                        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
                    let number = if is_number { name.parse().ok() } else { None };
                    number.filter(|number: &RawFd| *number > 2).ok_or_else(|| {
                        format!("is {text:?}, which is not a list of descriptors above 2")
                    })
                })
                .collect()
        };
        let both = [numbers(sockets)?, numbers(redirects)?];
        let all: Vec<_> = both.iter().flatten().collect();
        if (1..all.len()).any(|at| all[..at].contains(&all[at])) {
            return Err("names a descriptor twice".to_owned());
        }
        for number in all {
            // SAFETY: a call on a descriptor that is not open returns an error, which is checked.
            let fd = unsafe { BorrowedFd::borrow_raw(*number) };
            if !is_listening(fd) {
                return Err(format!("names {number}, which is not a listening stream socket"));
            }
        }
        Ok(both)
    }

    /// Takes ownership of the public listeners' descriptors, which [`read`](Self::read) has
    /// returned.
    ///
    /// # Errors
    /// Returns the system's error if the close-on-exec flag of a descriptor cannot be set.
    ///
    /// # Safety
    /// - The descriptors are open and belong to no other code.
    pub(crate) unsafe fn own(numbers: [Vec<RawFd>; 2]) -> io::Result<PublicSockets> {
        let [sockets, redirects] = numbers.map(|numbers| {
            // SAFETY: the caller guarantees that the descriptors are open and belong to no other
            // code.
            numbers
                .into_iter()
                .map(|number| unsafe { OwnedFd::from_raw_fd(number) })
                .collect::<Vec<_>>()
        });
        for fd in sockets.iter().chain(&redirects) {
            descriptor::set_close_on_exec(fd.as_fd(), true)?;
        }
        Ok(PublicSockets { sockets, redirects })
    }

    /// Returns true if there is no public listener, neither at the server's address nor for
    /// redirects.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }
}

/// Returns true if a descriptor is a listening TCP socket or a listening Unix stream socket.
fn is_listening(fd: BorrowedFd<'_>) -> bool {
    let family = descriptor::socket_family(fd);
    [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX].into_iter().any(|known| family == Some(known))
        && descriptor::socket_option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
        && descriptor::socket_option(fd, libc::SO_ACCEPTCONN) == Some(1)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn accepts_only_distinct_listening_sockets() {
        let listeners = [(); 3].map(|()| OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap()));
        let [a, b, c] = [0, 1, 2].map(|at: usize| listeners[at].as_raw_fd());
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let given = PublicDescriptors {
            sockets: &listeners[..2],
            redirects: &listeners[2..],
            ..PublicDescriptors::default()
        };
        assert_eq!(given.text().unwrap(), format!("{a},{b}/{c}"));
        assert_eq!(PublicSockets::read(&given.text().unwrap()), Ok([vec![a, b], vec![c]]));
        let given = PublicDescriptors { sockets: &listeners[..1], ..PublicDescriptors::default() };
        assert_eq!(PublicSockets::read(&given.text().unwrap()), Ok([vec![a], vec![]]));
        assert_eq!(PublicDescriptors::default().text(), None);
        for wrong in [
            format!("{a},{a}"),
            format!("{a}/{a}"),
            format!("{a},"),
            format!("{a}/x"),
            "2".to_owned(),
            "-4".to_owned(),
            "1000000".to_owned(),
            "99999999999999999999".to_owned(),
            other.as_raw_fd().to_string(),
        ] {
            assert!(PublicSockets::read(&wrong).is_err(), "{wrong}");
        }
    }
}
