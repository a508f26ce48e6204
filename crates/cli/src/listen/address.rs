//! The address that the server listens on, and the error messages for an address that is not
//! available.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use rookery_server::{ListenError, Listener, ListenerConfig, Server, literal_address};

use crate::failure::Failure;
use crate::listen::port_owner::{self, port_owner};
use crate::user_paths::{absolute, parent_folder};

/// The maximum number of further ports that are tried if the usual port is in use.
const MAX_TRIED_PORTS: usize = 100;

/// The address that the server listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A TCP address. `host` is the text that the user gave, which may include the zone of an IPv6
    /// address.
    Tcp { host: String, socket: SocketAddr },
    /// The absolute path of a Unix socket to listen on.
    Unix(PathBuf),
}

impl Address {
    /// Returns the address to listen on for the values of `--host` and `--port`.
    ///
    /// # Errors
    /// Fails if the host is not an address of this machine, or the folder of a Unix socket does not
    /// exist.
    pub(crate) fn parse(host: &str, port: u16) -> Result<Address, Failure> {
        if let Some(path) = host.strip_prefix("unix:") {
            if cfg!(windows) {
                return Err(Failure::Unavailable(format!(
                    "`host` must be an IP address, not `{host}`: Windows has no Unix sockets."
                )));
            }
            let path = absolute(Path::new(path));
            let folder = parent_folder(&path);
            if path.file_name().is_none() || !folder.is_dir() {
                let folder = folder.display();
                return Err(Failure::Unavailable(format!(
                    "The folder of the socket, `{folder}`, does not exist: create it, or choose \
                     another path."
                )));
            }
            return Ok(Address::Unix(path));
        }
        // IPv4 is preferred, because clients for which the name has both addresses try IPv4 as
        // well.
        let host = match host {
            "localhost" if TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).is_err() => "::1",
            "localhost" => "127.0.0.1",
            host => host,
        };
        match literal_address(host, port) {
            Some(socket) => Ok(Address::Tcp { host: host.to_owned(), socket }),
            None => Err(Failure::Unavailable(format!(
                "`host` must be `localhost` or an IP address of this machine, not \"{host}\": \
                 \"127.0.0.1\" accepts connections from this machine only, \"0.0.0.0\" and \"::\" \
                 from all networks."
            ))),
        }
    }

    /// Returns the host address with which a server listens on all network interfaces. The address
    /// is `::` if that also accepts IPv4 connections on this system, otherwise `0.0.0.0`.
    pub(crate) fn all_interfaces() -> &'static str {
        let is_alone = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only")
            .is_ok_and(|text| text.trim() == "1");
        let takes_both = !is_alone && TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
        if takes_both { "::" } else { "0.0.0.0" }
    }

    /// Checks that the server can listen on the address. Returns a message if the address is in
    /// use, which is expected if this server is already running.
    ///
    /// # Errors
    /// Fails if the server cannot listen on the address for another reason.
    pub(crate) fn check(&self) -> Result<Option<String>, Failure> {
        match self.try_to_bind() {
            Ok(()) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Ok(Some(self.bind_failure(&error).message()))
            }
            Err(error) => Err(self.bind_failure(&error)),
        }
    }

    /// Checks that the address is free, so that the error is reported before R is started.
    ///
    /// # Errors
    /// Fails if the address cannot be bound.
    #[cfg(any(not(target_os = "linux"), feature = "portable", test))]
    pub(crate) fn check_free(&self) -> Result<(), Failure> {
        self.try_to_bind().map_err(|error| self.bind_failure(&error))
    }

    /// Returns the address with a free port instead of port 0, so that the port is known before R
    /// listens. Keeps the port of the current address if the host is the same. Otherwise the system
    /// chooses a port, which another program could take before R does.
    ///
    /// # Errors
    /// Fails if the system has no free port for the host.
    #[cfg(any(not(target_os = "linux"), feature = "portable", test))]
    pub(crate) fn with_free_port(&self, current: Option<&Address>) -> Result<Address, Failure> {
        let socket = match self {
            Address::Tcp { socket, .. } if socket.port() == 0 => socket,
            _ => return Ok(self.clone()),
        };
        match current {
            Some(Address::Tcp { socket: used, .. }) if used.ip() == socket.ip() => {
                self.with_port(used.port())
            }
            _ => {
                let bound = TcpListener::bind(socket).and_then(|listener| listener.local_addr());
                self.with_port(bound.map_err(|error| self.bind_failure(&error))?.port())
            }
        }
    }

    /// Checks whether the server can listen on the address. Binds a TCP port and closes it again.
    /// For a Unix socket, only checks the path, because binding would create a file.
    ///
    /// # Errors
    /// Fails with the error of the system, which is [`AddrInUse`](io::ErrorKind::AddrInUse) if
    /// another server uses the port or path.
    pub(crate) fn try_to_bind(&self) -> io::Result<()> {
        let path = match self {
            Address::Tcp { socket, .. } => {
                return TcpListener::bind(socket).map(drop).map_err(|error| in_use(error, *socket));
            }
            Address::Unix(path) => path,
        };
        #[cfg(unix)]
        return check_socket_path(path);
        #[cfg(windows)]
        Err(io::Error::new(io::ErrorKind::Unsupported, path.display().to_string()))
    }

    /// Returns this address if it is free, or else the one with the next free port. In this case
    /// also returns a message about the process that uses the port. An address for which no free
    /// port is found is returned unchanged, because listening on it reports the reason.
    pub(crate) fn or_next_port(&self) -> (Address, Option<String>) {
        let unchanged = || (self.clone(), None);
        let Address::Tcp { host, socket } = self else { return unchanged() };
        let is_in_use = |error: io::Error| error.kind() == io::ErrorKind::AddrInUse;
        if !self.try_to_bind().is_err_and(is_in_use) {
            return unchanged();
        }
        let later = (socket.port()..=u16::MAX).skip(1).take(MAX_TRIED_PORTS);
        let free = later
            .filter_map(|port| self.with_port(port).ok())
            .find(|address| address.try_to_bind().is_ok());
        let Some(free) = free else { return unchanged() };
        let port = free.port().unwrap_or_default();
        let message = format!("{}: the app gets port {port}", in_use_text(host, socket.port()));
        (free, Some(message))
    }

    /// Returns an address with the same host and another port, for the listener that redirects HTTP
    /// requests to this address.
    ///
    /// # Errors
    /// Fails for a Unix socket, which has no port.
    pub(crate) fn with_port(&self, port: u16) -> Result<Address, Failure> {
        match self {
            Address::Tcp { host, socket } => {
                Ok(Address::Tcp { host: host.clone(), socket: SocketAddr::new(socket.ip(), port) })
            }
            Address::Unix(_) => Err(Failure::CommandLine(
                "`--redirect-from` cannot be used with a Unix socket: leave it out, or use a port."
                    .to_owned(),
            )),
        }
    }

    /// Returns the port, or `None` for a Unix socket.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Address::Tcp { socket, .. } => Some(socket.port()),
            Address::Unix(_) => None,
        }
    }

    /// Opens a listener on the address.
    ///
    /// # Errors
    /// Fails if the address is not available.
    pub(crate) fn listen(
        &self,
        server: &Server,
        site: ListenerConfig,
    ) -> Result<Listener, Failure> {
        let listener = match self {
            Address::Tcp { socket, .. } => server.listen_tcp(*socket, site),
            Address::Unix(path) => server.listen_unix(path, None, site),
        };
        listener.map_err(|error| match error {
            ListenError::Bind { source, .. } => self.bind_failure(&source),
            other => Failure::Unavailable(format!("{other}.")),
        })
    }

    pub(crate) fn bind_failure(&self, error: &io::Error) -> Failure {
        match self {
            Address::Unix(path) if error.kind() == io::ErrorKind::AddrInUse => {
                Failure::Address(format!(
                    "Cannot listen on the socket `{}`: another server listens there, or the file \
                     is not a socket. Stop that server, or choose another path.",
                    path.display()
                ))
            }
            Address::Unix(path) => {
                let path = path.display();
                Failure::Address(format!("Cannot listen on the socket `{path}`: {error}."))
            }
            Address::Tcp { host, socket } => port_failure(host, socket.port(), error),
        }
    }

    /// Returns the URL of the server for a browser, or the path of its Unix socket. `port` is the
    /// actual port of the listener, which the system may have chosen. `domain` is the public name
    /// of the host, if it has one.
    pub(crate) fn url(
        &self,
        port: Option<u16>,
        scheme: &str,
        domain: Option<&str>,
    ) -> impl fmt::Display {
        match (self, domain) {
            (Address::Unix(path), _) => path.display().to_string(),
            // The public name, under which clients find the server.
            (Address::Tcp { socket, .. }, Some(domain)) => match port.unwrap_or(socket.port()) {
                443 => format!("{scheme}://{domain}"),
                port => format!("{scheme}://{domain}:{port}"),
            },
            (Address::Tcp { host, socket }, None) => {
                let host = match socket.ip() {
                    IpAddr::V4(Ipv4Addr::UNSPECIFIED) => "127.0.0.1",
                    IpAddr::V6(Ipv6Addr::UNSPECIFIED) => "::1",
                    _ => host.as_str(),
                };
                let port = port.unwrap_or(socket.port());
                if socket.is_ipv6() {
                    format!("{scheme}://[{host}]:{port}")
                } else {
                    format!("{scheme}://{host}:{port}")
                }
            }
        }
    }
}

/// Returns the error [`AddrInUse`](io::ErrorKind::AddrInUse) in place of a refused permission to
/// bind a port on which a process already listens. That process may be a service manager, which has
/// opened the port for this server. Linux checks the permission before the use of the port.
fn in_use(error: io::Error, socket: SocketAddr) -> io::Error {
    let is_taken = || port_owner::is_listening_on_port(socket.port());
    if error.kind() == io::ErrorKind::PermissionDenied && is_taken() {
        return io::ErrorKind::AddrInUse.into();
    }
    error
}

/// Checks that a server can listen on a Unix socket with this path.
#[cfg(unix)]
fn check_socket_path(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    // Fails if the path is too long for a socket.
    std::os::unix::net::SocketAddr::from_pathname(path)?;
    if !parent_folder(path).is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "its folder does not exist"));
    }
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.file_type().is_socket() => {
            if port_owner::is_listening(path) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            Ok(())
        }
        Ok(found) => {
            let what = if found.is_dir() { "a folder" } else { "a file that is not a socket" };
            let message = format!("{what} has this path; choose another path, or remove it");
            Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
        }
    }
}

fn port_failure(host: &str, port: u16, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            let other = if port < u16::MAX { port + 1 } else { 8000 };
            return Failure::PortInUse(format!(
                "{}.\nChoose another port with `--port {other}`, or let the system choose one with \
                 `--port 0`.",
                in_use_text(host, port)
            ));
        }
        io::ErrorKind::PermissionDenied => {
            "\nOn most systems only root may listen on ports below 1024: choose a higher port, or \
             allow lower ones (CAP_NET_BIND_SERVICE, or `sysctl \
             net.ipv4.ip_unprivileged_port_start=80`)."
                .to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            format!(
                "\nNo network interface of this machine has the address {host}; \"0.0.0.0\" \
                 listens on all interfaces."
            )
        }
        _ => String::new(),
    };
    Failure::Address(format!("Cannot listen on {host} port {port}: {error}.{hint}"))
}

/// Returns the statement that a port is in use, with the process that uses it if this user can see
/// it.
fn in_use_text(host: &str, port: u16) -> String {
    let by = match port_owner(port) {
        Some(owner) => format!("by {owner}"),
        None if port_owner::SEES_PROCESSES => {
            format!("by a process that this user cannot see; {}", port_owner_command(port))
        }
        None => format!("by another process; {}", port_owner_command(port)),
    };
    format!("Port {port} of {host} is in use, {by}")
}

/// Returns a shell command with which the user can find the process that uses a TCP port.
fn port_owner_command(port: u16) -> String {
    if cfg!(target_os = "macos") {
        format!("`sudo lsof -nP -iTCP:{port} -sTCP:LISTEN` may show it")
    } else if cfg!(windows) {
        format!("`Get-NetTCPConnection -State Listen -LocalPort {port}` in PowerShell shows it")
    } else {
        format!("`sudo ss -ltnp 'sport = :{port}'` may show it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::message_of;

    #[test]
    fn accepts_ip_addresses_and_localhost_as_host() {
        let ip = |host: &str| match Address::parse(host, 7).unwrap() {
            Address::Tcp { socket, .. } => socket.ip(),
            Address::Unix(path) => panic!("{path:?}"),
        };
        assert!(ip("::").is_ipv6() && ip("localhost").is_loopback());
        assert!(message_of(Address::parse("example.org", 1)).contains("not \"example.org\""));
    }

    #[test]
    fn a_unix_socket_needs_an_existing_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let host = format!("unix:{}", path.display());
        assert_eq!(Address::parse(&host, 1).unwrap(), Address::Unix(path));
        for host in ["unix:/no/such/folder/s", "unix:/"] {
            assert!(message_of(Address::parse(host, 1)).contains("does not exist"), "{host}");
        }
    }

    #[test]
    fn a_busy_port_is_reported_with_its_owner() {
        let busy = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = busy.local_addr().unwrap().port();
        let message = Address::parse("127.0.0.1", port).unwrap().check().unwrap().unwrap();
        assert!(
            message.starts_with(&format!("Port {port} of 127.0.0.1 is in use, by ")),
            "{message}"
        );
        assert!(message.contains(&format!("`--port {}`", port.wrapping_add(1))), "{message}");
        if cfg!(all(target_os = "linux", not(feature = "portable"))) {
            assert!(message.contains(&format!("(process {}: ", std::process::id())), "{message}");
        }
        drop(busy);
        assert_eq!(Address::parse("127.0.0.1", port).unwrap().check().unwrap(), None);
    }

    #[test]
    fn the_next_free_port_takes_the_place_of_a_busy_one() {
        let busy = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = busy.local_addr().unwrap().port();
        let wanted = Address::parse("127.0.0.1", port).unwrap();
        // None of the next hundred ports is free if the system has chosen the last one.
        if let (found, Some(message)) = wanted.or_next_port() {
            let other = found.port().unwrap();
            assert!(other > port && found.try_to_bind().is_ok());
            assert!(
                message.starts_with(&format!("Port {port} of 127.0.0.1 is in use")),
                "{message}"
            );
            assert!(message.ends_with(&format!(": the app gets port {other}")), "{message}");
        } else {
            assert_eq!(port, u16::MAX);
        }
        drop(busy);
        assert_eq!(wanted.or_next_port(), (wanted.clone(), None));
    }

    #[test]
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    fn a_privileged_port_of_a_service_manager_is_in_use_and_not_forbidden() {
        let busy = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = busy.local_addr().unwrap();
        let kind = |error: io::ErrorKind| in_use(error.into(), address).kind();
        assert_eq!(kind(io::ErrorKind::PermissionDenied), io::ErrorKind::AddrInUse);
        assert_eq!(kind(io::ErrorKind::AddrNotAvailable), io::ErrorKind::AddrNotAvailable);
        drop(busy);
        assert_eq!(kind(io::ErrorKind::PermissionDenied), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn an_address_without_an_interface_is_reported() {
        // RFC 5737 reserves this address (TEST-NET-1) for documentation.
        let message = message_of(Address::parse("192.0.2.1", 0).unwrap().check());
        assert!(
            message.starts_with("Cannot listen on 192.0.2.1 port 0: ")
                && message.contains("No network"),
            "{message}"
        );
    }

    #[test]
    fn checks_a_socket_path_without_binding_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| Address::Unix(folder.path().join(name));
        std::fs::write(folder.path().join("file"), "").unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        for (name, expected) in [
            ("file", "a file that is not a socket has this path"),
            ("folder", "a folder has this path"),
            ("no/s", "its folder does not exist"),
            (&"x".repeat(108), "path must be shorter than"),
        ] {
            let message = message_of(at(name).check());
            assert!(
                message.starts_with("Cannot listen on the socket `") && message.contains(expected),
                "{message}"
            );
        }
        assert_eq!(at("s").check().unwrap(), None);
        assert!(!folder.path().join("s").exists());
        let listens = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
        if cfg!(all(target_os = "linux", not(feature = "portable"))) {
            assert!(at("s").check().unwrap().unwrap().contains("another server listens there"));
        }
        // The file of a server that was killed is replaced.
        drop(listens);
        assert_eq!(at("s").check().unwrap(), None);
    }

    #[test]
    fn urls_can_be_opened_in_a_browser() {
        for (host, shown) in [
            ("127.0.0.1", "http://127.0.0.1:80"),
            ("0.0.0.0", "http://127.0.0.1:80"),
            ("::1", "http://[::1]:80"),
            ("::", "http://[::1]:80"),
        ] {
            assert_eq!(
                Address::parse(host, 80).unwrap().url(None, "http", None).to_string(),
                shown
            );
        }
        let chosen =
            Address::parse("127.0.0.1", 0).unwrap().url(Some(81), "https", None).to_string();
        assert_eq!(chosen, "https://127.0.0.1:81");
        for (port, shown) in
            [(443, "https://app.example.org"), (8443, "https://app.example.org:8443")]
        {
            let address = Address::parse("0.0.0.0", port).unwrap();
            assert_eq!(address.url(None, "https", Some("app.example.org")).to_string(), shown);
        }
    }
}
