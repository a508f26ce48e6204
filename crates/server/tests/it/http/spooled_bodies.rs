//! The folder of spooled bodies: too small, missing, and the log lines about it.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rookery_exchange::Share;
use rookery_server::{Config, Limits, ListenerConfig, Rejection, SpoolFolder};

use crate::support::{App, Client, echo, hello, wait_until};

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

/// Sends the first `sent` bytes of a body of `len` bytes.
fn begin_upload(app: &App, len: usize, sent: usize) -> Client {
    let mut client = app.connect();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
    // Writing may fail if the server rejects the body before its end. The response can be read
    // nevertheless.
    let _ = client.socket.write_all(&vec![b'a'; sent]);
    client
}

fn upload(app: &App, len: usize) -> u16 {
    begin_upload(app, len, len).response().unwrap().status
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
    // Other files leave 3 MiB. The reserve is a tenth of all, so that 1.4 MiB can be used.
    std::fs::write(disk.0.path().join("other"), vec![0; 13 * MIB]).unwrap();
    assert_eq!(upload(&app, MIB), 200);
    assert!(SAID.lock().unwrap().is_empty());
    assert_eq!(upload(&app, 2 * MIB), 507);
    assert_eq!(app.server.reports().count(Rejection::DiskFull), 1);
    let said = SAID.lock().unwrap().clone();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains(disk.0.path().to_str().unwrap()) && said[0].contains("must stay free"),
        "{said:?}"
    );
    // The space of the rejected body is free once a thread has closed its file.
    wait_until("room again", || upload(&app, MIB) == 200);
}

#[test]
fn a_small_tmpfs_takes_bodies_up_to_a_quota_that_leaves_room_for_small_ones() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let Some(disk) = SmallDisk::mount() else { return };
    let app = app_spooling_to(disk.0.path(), |line| SAID.lock().unwrap().push(line.to_owned()));
    // The quota is 12 MiB, of which a network may take four fifths, and one body four fifths of
    // that.
    assert_eq!(upload(&app, 8 * MIB), 507);
    let said = SAID.lock().unwrap().clone();
    assert!(said.len() == 1 && said[0].contains("all request bodies take"), "{said:?}");
    wait_until("room again", || upload(&app, 7 * MIB) == 200);
    let mut greedy = begin_upload(&app, 8 * MIB, 7 * MIB);
    greedy.wait_until_server_has_read();
    assert_eq!(upload(&app, 2 * MIB), 200, "a small body has room");
    assert_eq!(upload(&app, 4 * MIB), 507, "a second large one has none");
    greedy.send(vec![b'a'; MIB]);
    assert_eq!(greedy.response().unwrap().status, 507);
}

/// Returns a folder of a file system in memory, or prints that the test is skipped.
#[cfg(target_os = "linux")]
fn folder_in_memory() -> Option<&'static Path> {
    let shared = Path::new("/dev/shm");
    let folder = std::fs::File::open(shared);
    if folder.is_ok_and(|folder| rookery_system::disk::is_in_memory(&folder)) {
        return Some(shared);
    }
    eprintln!("skipped: /dev/shm is no file system in memory");
    None
}

#[cfg(target_os = "linux")]
#[test]
fn a_body_in_a_folder_in_memory_is_charged_until_its_response() {
    let Some(shared) = folder_in_memory() else { return };
    for (folder, is_charged) in [(shared, true), (Path::new("/var/tmp"), false)] {
        let spool = Arc::new(SpoolFolder::new(folder, |_| ()));
        let site = ListenerConfig { spool, ..ListenerConfig::default() };
        let holds = Arc::new(AtomicBool::new(true));
        let held = Arc::clone(&holds);
        let app = App::with(
            Config::default(),
            site,
            echo(move |exchange| {
                while held.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                hello(exchange);
            }),
        );
        let used = || app.server.budget().used(Share::Incoming);
        let mut client = begin_upload(&app, 6 * MIB, 5 * MIB);
        if is_charged {
            wait_until("what has arrived is charged", || used() >= 4 * MIB);
        }
        client.send(vec![b'a'; MIB]);
        app.await_event("request /");
        assert_eq!(used() >= 6 * MIB, is_charged, "{}", used());
        holds.store(false, Ordering::Relaxed);
        assert_eq!(client.response().unwrap().status, 200);
        wait_until("nothing is charged", || used() == 0);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn bodies_in_a_folder_in_memory_take_no_more_than_their_share() {
    let Some(shared) = folder_in_memory() else { return };
    let spool = Arc::new(SpoolFolder::new(shared, |_| ()));
    let site = ListenerConfig { spool, ..ListenerConfig::default() };
    let limits =
        Limits { max_client_memory: Some(40 << 20), max_connections: 99, ..Limits::default() };
    let app = App::with(Config { limits, ..Config::default() }, site, echo(hello));
    let limit = app.server.budget().limit(Share::Incoming);
    assert_eq!(limit, 12 * MIB);
    let slow: Vec<Client> = (0..5).map(|_| begin_upload(&app, 7 * MIB, 6 * MIB)).collect();
    wait_until("the largest are rejected", || app.server.reports().count(Rejection::Overload) >= 3);
    assert_eq!(upload(&app, 2 * MIB), 200, "a small body has room");
    wait_until("no more than the share", || app.server.budget().used(Share::Incoming) <= limit);
    drop(slow);
    wait_until("nothing is charged", || app.server.budget().used(Share::Incoming) == 0);
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
