//! The admin listener, through which a server's status, metrics and probes are available. The admin
//! listener has a thread of its own, so it responds even when the server's other threads are busy.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rookery_server::{
    Config, InheritedSockets, Limits, ListenError, Listener, ListenerConfig, Server,
};

use crate::admin_handler::AdminHandler;
use crate::live::{AdminApplication, Viewers};
use crate::run_folder::admin_socket;

/// The address of the admin listener: a network address or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminAddress {
    /// An IP address with a port. A port alone is not accepted, because the address decides which
    /// machines can reach the admin listener.
    Tcp(SocketAddr),
    /// The path of the Unix socket on which the admin listener accepts connections.
    Unix(PathBuf),
}

impl AdminAddress {
    /// Parses the address of an admin listener, such as `127.0.0.1:9100` or
    /// `unix:/path/of/a/socket`. Returns `None` for any other form.
    pub fn parse(text: &str) -> Option<AdminAddress> {
        match text.strip_prefix("unix:") {
            Some("") => None,
            Some(path) => Some(AdminAddress::Unix(path.into())),
            None => text.parse().ok().map(AdminAddress::Tcp),
        }
    }
}

/// The maximum number of simultaneous connections to the admin listener. Few connections suffice,
/// because the only clients are probes, a metrics collector and people.
const CONNECTIONS: usize = 64;

/// The maximum size in bytes of the body of a request to the admin listener. A request with a
/// larger body gets status 413.
const BODY_BYTES: u64 = 64 << 10;

/// The permissions that are removed from the file of the admin listener's Unix socket, so that only
/// the server's user can connect.
const OTHERS: u32 = 0o177;

/// A running admin listener, which stops when this value is dropped.
#[derive(Debug)]
pub struct AdminListener {
    server: Server,
    listeners: Mutex<Vec<Listener>>,
    /// The address over TCP.
    local: Option<SocketAddr>,
    answers: AdminHandler,
}

impl AdminListener {
    /// Starts an admin listener that responds to requests with the handler `answers`. It accepts
    /// connections at the address `at`. Without an address, it only accepts connections on sockets
    /// that [`listen_in`](Self::listen_in) opens.
    ///
    /// # Errors
    /// Returns an error if the server cannot listen at the address.
    pub fn start(
        answers: AdminHandler,
        at: Option<&AdminAddress>,
    ) -> Result<AdminListener, AdminListenerError> {
        let limits = Limits {
            max_connections: CONNECTIONS,
            // Only viewers of the live page keep their connections. There are fewer viewers than
            // connections, so that a probe always gets one.
            evicts_at_once: true,
            max_body_size: BODY_BYTES,
            ..Limits::default()
        };
        let config = Config { limits, ..Config::default() };
        let own = answers.clone();
        let viewers = Viewers::start(&answers).map_err(|source| AdminListenerError {
            at: None,
            source: Box::new(ListenError::Thread(source)),
        })?;
        let viewers = Arc::new(viewers);
        let server = Server::with_application(
            config,
            Arc::new(move |waker| {
                Box::new(AdminApplication::new(answers.clone(), Arc::clone(&viewers), waker))
            }),
        );
        let listener = at.map(|at| match at {
            AdminAddress::Tcp(address) => server.listen_tcp(*address, ListenerConfig::default()),
            AdminAddress::Unix(path) => {
                server.listen_unix(path, Some(OTHERS), ListenerConfig::default())
            }
        });
        let listener = listener
            .transpose()
            .map_err(|source| AdminListenerError { at: at.cloned(), source: Box::new(source) })?;
        let local = listener.as_ref().and_then(Listener::local_addr);
        if let Some(local) = local {
            own.set_page_address(local);
        }
        let listeners = Mutex::new(listener.into_iter().collect());
        Ok(AdminListener { server, listeners, local, answers: own })
    }

    /// Accepts connections also on sockets that another process, such as a service manager, has
    /// opened and passed to this process.
    ///
    /// # Errors
    /// Returns an error if the sockets cannot be used.
    pub fn listen_inherited(&mut self, sockets: &InheritedSockets) -> Result<(), ListenError> {
        let listener = self.server.listen_inherited(sockets, ListenerConfig::default())?;
        self.local = self.local.or(listener.local_addr());
        if let Some(local) = self.local {
            self.answers.set_page_address(local);
        }
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
        Ok(())
    }

    /// Returns the address of the admin listener over TCP, with the port that the system has chosen
    /// if port 0 was requested. Returns `None` if the admin listener has no such address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Returns the URL of the live page, which contains the access token. Returns `None` if the
    /// admin listener has no address over TCP, because a browser can open no other.
    pub fn page_url(&self) -> Option<String> {
        self.answers.page_url()
    }

    /// Returns the reason why the listener's thread has failed, once, or `None` if it has not.
    pub fn take_failure(&self) -> Option<String> {
        let link = self.server.link();
        link.has_failed().then(|| link.take_failure()).flatten()
    }

    /// Opens a further Unix socket (on Windows: named pipe) of the admin listener, at the address
    /// of the server's run folder. The command
    /// `rookery status` connects to this socket.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be created.
    pub fn listen_in(&self, folder: &Path) -> Result<(), ListenError> {
        let listener = self.server.listen_unix(
            &admin_socket(folder),
            Some(OTHERS),
            ListenerConfig::default(),
        )?;
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
        Ok(())
    }
}

/// The error for an admin listener that could not be started. The message tells the user what to
/// do.
#[derive(Debug)]
pub struct AdminListenerError {
    at: Option<AdminAddress>,
    source: Box<ListenError>,
}

impl fmt::Display for AdminListenerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ListenError::Bind { address, source } = &*self.source else {
            return write!(f, "Cannot listen on the admin address: {}.", self.source);
        };
        let hint = match &self.at {
            Some(AdminAddress::Unix(path)) if source.kind() == io::ErrorKind::AddrInUse => {
                if is_socket(path) {
                    "\nAnother server is listening there: choose another path, or stop that server."
                } else {
                    "\nThat file is not a socket and is not replaced: choose another path, or move \
                     the file."
                }
            }
            Some(AdminAddress::Tcp(_)) if source.kind() == io::ErrorKind::AddrInUse => {
                "\nAnother process is using this port: choose another port."
            }
            _ => "",
        };
        write!(f, "Cannot listen on the admin address {address}: {source}.{hint}")
    }
}

/// Returns true if a path leads to a socket, or on Windows is the name of a pipe.
fn is_socket(path: &Path) -> bool {
    #[cfg(unix)]
    return std::fs::metadata(path)
        .is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()));
    #[cfg(not(unix))]
    {
        let _ = path;
        true
    }
}

impl std::error::Error for AdminListenerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_an_address_with_a_port_or_a_socket() {
        assert_eq!(
            AdminAddress::parse("[::1]:9100"),
            Some(AdminAddress::Tcp("[::1]:9100".parse().unwrap()))
        );
        assert_eq!(
            AdminAddress::parse("unix:/run/r/admin"),
            Some(AdminAddress::Unix("/run/r/admin".into()))
        );
        for wrong in
            ["9100", ":9100", "localhost:9100", "127.0.0.1", "unix:", "127.0.0.1:65536", ""]
        {
            assert_eq!(AdminAddress::parse(wrong), None, "{wrong}");
        }
    }
}
