//! The folder of spooled bodies: too small, missing, and the log lines about it.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use rookery_server::{Config, Limits, ListenerConfig, Rejection, SpoolFolder};

use crate::support::{App, echo, hello, wait_until};

const MIB: usize = 1 << 20;

/// Starts a server that spools bodies of more than 1,000 bytes to `folder`.
fn app_spooling_to(folder: &Path, notice: fn(&str)) -> App {
    let limits = Limits { body_buffer_size: 1000, ..Limits::default() };
    let site = ListenerConfig {
        spool: Arc::new(SpoolFolder::new(folder, notice)),
        ..ListenerConfig::default()
    };
    App::with(Config { limits, ..Config::default() }, site, echo(hello))
}

fn upload(app: &App, len: usize) -> u16 {
    let mut client = app.connect();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
    // Writing may fail if the server rejects the body before its end. The response can be read
    // nevertheless.
    let _ = std::io::Write::write_all(&mut client.socket, &vec![b'a'; len]);
    client.response().unwrap().status
}

/// A file system of 16 MiB in memory, as `/tmp` often is.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"])
            .arg(dir.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDisk(dir)),
            other => {
                eprintln!("skipped: a tmpfs can only be mounted by root: {other:?}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_small_tmpfs_takes_uploads_up_to_a_tenth_of_it() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let Some(disk) = SmallDisk::mount() else { return };
    let app = app_spooling_to(disk.0.path(), |line| SAID.lock().unwrap().push(line.to_owned()));
    assert_eq!(upload(&app, 8 * MIB), 200);
    assert!(SAID.lock().unwrap().is_empty());
    // The reserve is a tenth, so that 14.4 MiB can be used.
    assert_eq!(upload(&app, 15 * MIB), 507);
    assert_eq!(app.server.reports().count(Rejection::DiskFull), 1);
    let said = SAID.lock().unwrap().clone();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains(disk.0.path().to_str().unwrap()) && said[0].contains("must stay free"),
        "{said:?}"
    );
    // The space of the rejected body is free once a thread has closed its file.
    wait_until("room again", || upload(&app, 8 * MIB) == 200);
}

#[test]
fn a_folder_that_has_gone_is_named() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("spool");
    std::fs::create_dir(&folder).unwrap();
    let app = app_spooling_to(&folder, |line| SAID.lock().unwrap().push(line.to_owned()));
    assert_eq!(upload(&app, 2000), 200);
    std::fs::remove_dir(&folder).unwrap();
    assert_eq!(upload(&app, 2000), 507);
    assert_eq!(upload(&app, 2000), 507);
    let said = SAID.lock().unwrap().clone();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains(folder.to_str().unwrap()), "{said:?}");
    assert_eq!(upload(&app, 1000), 200);
}
