//! The functions of `port_owner.rs` for systems that do not say which process has a socket open.

#[cfg(unix)]
use std::path::Path;

/// Whether this module can find the process that has a socket open.
pub(crate) const SEES_PROCESSES: bool = false;

/// Returns `None`, because the process that listens on a TCP port is unknown.
pub(crate) fn port_owner(_port: u16) -> Option<String> {
    None
}

/// Returns false, because it is unknown whether a process listens on a TCP port.
pub(crate) fn is_listening_on_port(_port: u16) -> bool {
    false
}

/// Returns false, because it is unknown whether a process listens at the path of a Unix socket. The
/// server finds out when it begins to listen.
#[cfg(unix)]
pub(crate) fn is_listening(_path: &Path) -> bool {
    false
}
