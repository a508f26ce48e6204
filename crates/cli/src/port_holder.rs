//! Who listens on a port: from `/proc`, so on Linux, and for the processes whose descriptors this user may see.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Characters of a command line that are shown.
const SHOWN: usize = 120;

/// "R (process 1234: its command line, in its folder)" for the process that listens on a port.
pub(crate) fn port_holder(port: u16) -> Option<String> {
    let wanted: Vec<String> =
        listening_inodes(port).into_iter().map(|inode| format!("socket:[{inode}]")).collect();
    if wanted.is_empty() {
        return None;
    }
    let is_holder = |process: &Path| {
        let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
        descriptors.flatten().any(|descriptor| {
            fs::read_link(descriptor.path()).is_ok_and(|link| {
                wanted.iter().any(|socket| link.as_os_str().as_bytes() == socket.as_bytes())
            })
        })
    };
    let mut processes = fs::read_dir("/proc").ok()?.flatten().filter(|entry| {
        entry.file_name().as_bytes().iter().all(u8::is_ascii_digit) && is_holder(&entry.path())
    });
    processes.next().map(|entry| describe(&entry.path()))
}

fn listening_inodes(port: u16) -> Vec<String> {
    let local = format!(":{port:04X}");
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    rows.filter_map(|row| {
        let fields: Vec<&str> = row.split_ascii_whitespace().collect();
        // State 0A is LISTEN; the tenth field is the inode.
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
    // The command line of an R that serves says little of what it serves.
    if let Ok(folder) = fs::read_link(process.join("cwd")) {
        let _ = write!(about, ", in {}", folder.display());
    }
    format!("{} (process {pid}{about})", name.trim_end())
}
