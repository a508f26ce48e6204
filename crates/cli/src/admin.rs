//! The admin listener: it answers those who look after a server, and never its clients.

use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::sync::Mutex;

#[cfg(target_os = "linux")]
use rookery_server::{Config, Limits, ListenError, Listener, Server, Site};
#[cfg(target_os = "linux")]
use rookery_supervisor::{ADMIN_SOCKET, Status};

use crate::failure::Failure;
#[cfg(target_os = "linux")]
use crate::failure::tell;
use crate::path::settle;

/// Where it listens, and is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdminAt {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl AdminAt {
    /// # Errors
    /// When it is no address.
    pub(crate) fn of(text: &str) -> Result<AdminAt, Failure> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(AdminAt::Unix(settle(Path::new(path))));
        }
        // A port alone would leave open for whom.
        text.parse().map(AdminAt::Tcp).map_err(|_| {
            Failure::CommandLine(format!(
                "`--admin` must be an address with its port, such as 127.0.0.1:9100, or unix:/path/of/a/socket, not `{text}`."
            ))
        })
    }
}

/// Those who ask at a time: probes, a collector of metrics, people.
#[cfg(target_os = "linux")]
const CONNECTIONS: usize = 64;

/// Bytes of a request's body, which nobody reads: 413 for more, so that nothing goes to a disk.
#[cfg(target_os = "linux")]
const BODY_BYTES: u64 = 64 << 10;

/// Bits that the file of its Unix socket does not have: it is this user's alone.
#[cfg(target_os = "linux")]
const OTHERS: u32 = 0o177;

/// See the module.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Admin {
    server: Server,
    listeners: Mutex<Vec<Listener>>,
}

#[cfg(target_os = "linux")]
impl Admin {
    /// Answers at the address, if there is one.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(crate) fn start(status: Status, at: Option<&AdminAt>) -> Result<Admin, Failure> {
        let limits = Limits { connections: CONNECTIONS, body_bytes: BODY_BYTES, ..Limits::default() };
        let config = Config { limits, ..Config::default() };
        let server = Server::of_answers(config, move |exchange| status.answer(exchange));
        let listener = at.map(|at| match at {
            AdminAt::Tcp(address) => server.listen_tcp(*address, Site::default()),
            AdminAt::Unix(path) => server.listen_unix(path, Some(OTHERS), Site::default()),
        });
        let listener = listener.transpose().map_err(|error| {
            Failure::Address(match error {
                ListenError::Bind { address, source } => refused(at, &address, &source),
                other => format!("Cannot listen for `--admin`: {other}."),
            })
        })?;
        Ok(Admin { server, listeners: Mutex::new(listener.into_iter().collect()) })
    }

    /// Answers in a folder, too, where `rookery status` looks.
    pub(crate) fn listen_in(&self, folder: &Path) {
        match self.server.listen_unix(&folder.join(ADMIN_SOCKET), Some(OTHERS), Site::default()) {
            Ok(listener) => {
                self.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(listener);
            }
            // What is served goes on.
            Err(error) => tell(&format!("`rookery status` will not find this server: {error}")),
        }
    }
}

/// Why, and what helps.
#[cfg(target_os = "linux")]
fn refused(at: Option<&AdminAt>, address: &str, source: &std::io::Error) -> String {
    let hint = match at {
        Some(AdminAt::Unix(path)) if source.kind() == std::io::ErrorKind::AddrInUse => {
            let is_socket = std::fs::metadata(path).is_ok_and(|file| file.file_type().is_socket());
            if is_socket {
                "\nAnother server answers there: choose another path, or end that server."
            } else {
                "\nThat file is no socket, and is left as it is: choose another path, or move it away."
            }
        }
        Some(AdminAt::Tcp(_)) if source.kind() == std::io::ErrorKind::AddrInUse => {
            "\nAnother process has this port: choose another one."
        }
        _ => "",
    };
    format!("Cannot listen for `--admin` on {address}: {source}.{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::said;

    #[test]
    fn it_is_an_address_with_a_port_or_a_socket() {
        assert_eq!(AdminAt::of("[::1]:9100").unwrap(), AdminAt::Tcp("[::1]:9100".parse().unwrap()));
        assert_eq!(AdminAt::of("unix:/run/r/admin").unwrap(), AdminAt::Unix("/run/r/admin".into()));
        assert!(matches!(AdminAt::of("unix:a").unwrap(), AdminAt::Unix(path) if path.is_absolute()));
        for wrong in ["9100", ":9100", "localhost:9100", "127.0.0.1", "unix:", "127.0.0.1:65536"] {
            assert!(said(AdminAt::of(wrong)).ends_with(&format!("not `{wrong}`.")), "{wrong}");
        }
    }
}
