//! Finds the process that listens on a TCP port or Unix socket. The search reads `/proc`, so it
//! works only on Linux. It finds only processes whose file descriptors this user may see.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::process::session::parent_session;

/// Whether this module can find the process that has a socket open.
pub(crate) const SEES_PROCESSES: bool = true;

/// The maximum number of characters of a command line that the description of a process shows.
const SHOWN: usize = 120;

/// Returns a description of the process that listens on a TCP port, such as
/// "R (process 1234: R --no-save, in /srv/app)".
pub(crate) fn port_owner(port: u16) -> Option<String> {
    owners(&inodes_of_port(port)).next().map(|process| describe(&process))
}

/// Returns true if a process listens on a TCP port.
pub(crate) fn is_listening_on_port(port: u16) -> bool {
    !inodes_of_port(port).is_empty()
}

/// Returns true if a process listens at the path of a Unix socket. Does not connect to the socket.
pub(crate) fn is_listening(path: &Path) -> bool {
    !inodes_of_path(path).is_empty()
}

/// Returns the folders in `/proc` of the processes that have one of the sockets `inodes` open.
fn owners(inodes: &[String]) -> impl Iterator<Item = PathBuf> {
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let is_owner = move |process: &Path| {
        let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
        descriptors.flatten().any(|descriptor| {
            fs::read_link(descriptor.path()).is_ok_and(|link| {
                wanted.iter().any(|socket| link.as_os_str().as_bytes() == socket.as_bytes())
            })
        })
    };
    let processes = if inodes.is_empty() { None } else { fs::read_dir("/proc").ok() };
    let processes = processes.into_iter().flatten().flatten();
    let processes =
        processes.filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit));
    processes.map(|entry| entry.path()).filter(move |process| is_owner(process))
}

/// Returns the inodes of the Unix sockets that listen at a path.
fn inodes_of_path(path: &Path) -> Vec<String> {
    /// The flag in `/proc/net/unix` of a socket that listens (`__SO_ACCEPTCON`).
    const LISTENS: &str = "00010000";
    let table = fs::read("/proc/net/unix").unwrap_or_default();
    let rows = table.split(|byte| *byte == b'\n').skip(1);
    rows.filter_map(|row| {
        let prefix = row.strip_suffix(path.as_os_str().as_bytes())?;
        // The columns are Num RefCount Protocol Flags Type St Inode Path.
        match std::str::from_utf8(prefix).ok()?.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [_, _, _, LISTENS, _, _, inode] => Some(inode.to_owned()),
            _ => None,
        }
    })
    .collect()
}

/// Returns the inodes of the TCP sockets that listen on a port.
fn inodes_of_port(port: u16) -> Vec<String> {
    let local = format!(":{port:04X}");
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|table| fs::read_to_string(table).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    rows.filter_map(|row| {
        let fields: Vec<&str> = row.split_ascii_whitespace().collect();
        // State 0A is LISTEN; the tenth column is the inode.
        match fields[..] {
            [_, address, _, "0A", _, _, _, _, _, inode, ..] if address.ends_with(&local) => {
                Some(inode.to_owned())
            }
            _ => None,
        }
    })
    .collect()
}

fn describe(process: &Path) -> String {
    let pid = process.file_name().unwrap_or_default().to_string_lossy();
    let name = fs::read_to_string(process.join("comm")).unwrap_or_else(|_| "a process".to_owned());
    let mut about = String::new();
    let command = fs::read(process.join("cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let command = command.trim();
    if command.chars().count() > SHOWN {
        let _ = write!(about, ": {}...", command.chars().take(SHOWN - 3).collect::<String>());
    } else if !command.is_empty() {
        let _ = write!(about, ": {command}");
    }
    // The command line of an R worker does not name its app, but its folder does.
    if let Ok(folder) = fs::read_link(process.join("cwd")) {
        let _ = write!(about, ", in {}", folder.display());
    }
    // Only a server in R looks for the owner of a port that its own process uses. A program that an
    // R session has started reports to that session.
    let session = parent_session().and_then(|pid| u32::try_from(pid).ok());
    let is_own = [Some(std::process::id()), session].contains(&pid.parse().ok());
    let name = if is_own { "this R session" } else { name.trim_end() };
    format!("{name} (process {pid}{about})")
}
