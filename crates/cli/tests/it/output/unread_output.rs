//! Tests of standard streams that are not read, for example because a log shipper hangs or a
//! terminal is stopped by Ctrl-S. The server must keep serving, and stop on request.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rookery_test_support::wait_until;

use crate::authority::free_port;
use crate::r_processes::Installed;
use crate::support::{TEST_TIMEOUT, executable, folder, get, rookery};

/// Makes a full pipe. Returns its reader and its writer.
fn full_pipe() -> (fs::File, OwnedFd) {
    let mut ends = [-1; 2];
    // SAFETY: `ends` has space for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: the descriptors were just created, and no other code owns them.
    let (reader, writer) =
        unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    let mut writer = fs::File::from(writer);
    let set = |flags: libc::c_int| {
        // SAFETY: the call only sets flags of an open descriptor.
        assert_eq!(unsafe { libc::fcntl(ends[1], libc::F_SETFL, flags) }, 0);
    };
    set(libc::O_NONBLOCK);
    while writer.write(&[b'x'; 4096]).is_ok() {}
    // Writes single bytes, because the last page may have some space left.
    while writer.write(b"x").is_ok() {}
    set(0);
    (fs::File::from(reader), writer.into())
}

/// A process that is killed when a test fails.
struct Running(Child);

impl Running {
    fn signal(&self, number: i32) {
        // SAFETY: the child has not been waited for, so the process id is its own.
        assert_eq!(unsafe { libc::kill(i32::try_from(self.0.id()).expect("an id"), number) }, 0);
    }

    /// Waits for the end of the process.
    fn end(&mut self) -> ExitStatus {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = self.0.try_wait().expect("our child") {
                return status;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_static_site_works_while_its_output_is_unread() {
    let site = folder(&[("index.html", "hello")]);
    let port = free_port();
    let ((_unread, out), (_unread_too, err)) = (full_pipe(), full_pipe());
    let mut command = rookery();
    command.args(["serve", ".", "--port", &port.to_string()]).current_dir(site.path());
    let mut it = Running(command.stdout(out).stderr(err).spawn().expect("it starts"));
    wait_until("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    for _ in 0..100 {
        assert!(get(port, "/").ends_with("hello"));
    }
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().code(), Some(0));
}

/// Returns the shortest time in which one of three servers stops.
fn fastest_end(start: impl Fn() -> Running) -> Duration {
    let end = || {
        let mut it = start();
        let begun = Instant::now();
        it.signal(libc::SIGTERM);
        assert_eq!(it.end().code(), Some(0));
        begun.elapsed()
    };
    (0..3).map(|_| end()).min().expect("three")
}

#[test]
fn the_exit_waits_once_for_all_unread_outputs() {
    let app = folder(&[("site/index.html", "hello"), ("app.R", "1")]);
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\ntouch \"$LOUD_DIR/$$\"\nexec sleep 1000\n");
    let start = |what: &str, out: std::process::Stdio, err: std::process::Stdio| {
        let (port, started) = (free_port(), folder(&[]));
        let mut command = Command::new(installed.program());
        command
            .args(["serve", what, "--log", "-", "--port", &port.to_string()])
            .current_dir(app.path());
        let command = installed.on_path(&mut command).env("LOUD_DIR", started.path());
        let it = Running(command.stdout(out).stderr(err).spawn().expect("it starts"));
        wait_until("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        if what == "site" {
            get(port, "/");
        } else {
            wait_until("the worker runs", || those_done(started.path()).len() == 1);
        }
        it
    };
    for what in ["site", "app.R"] {
        let read =
            fastest_end(|| start(what, std::process::Stdio::null(), std::process::Stdio::null()));
        let ((_unread, out), (_unread_too, err)) = (full_pipe(), full_pipe());
        let copy = |end: &OwnedFd| end.try_clone().expect("a copy").into();
        let unread = fastest_end(|| start(what, copy(&out), copy(&err)));
        // The exit waits for one second in total, and not once for each output.
        assert!(unread < read + Duration::from_millis(1700), "{what}: {unread:?}, else {read:?}");
    }
}

/// A program in place of R that writes more than pipes hold, and then a file.
const LOUD: &str = "#!/bin/bash\nfor i in {1..1800}; do printf '%01000d\\n' $i; printf \
                    '%01000d\\n' $i >&2; done\ntouch \"$LOUD_DIR/$$\"\nexec sleep 1000\n";

/// Returns the workers that have written all their output.
fn those_done(folder: &Path) -> Vec<i32> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Starts a worker with much output. Its supervisor has these streams.
fn loud(installed: &Installed, [done, app]: [&Path; 2], out: OwnedFd, err: OwnedFd) -> Running {
    executable(&installed.r(), LOUD);
    let mut command = Command::new(installed.program());
    command.args(["serve", ".", "--port", "0"]).current_dir(app);
    let command = installed.on_path(&mut command).env("LOUD_DIR", done);
    Running(command.stdout(out).stderr(err).spawn().expect("it starts"))
}

#[test]
fn workers_are_supervised_while_the_output_is_unread() {
    let installed = Installed::new();
    let (done, app) = (folder(&[]), folder(&[("app.R", "1")]));
    let ((_unread, out), (_unread_too, err)) = (full_pipe(), full_pipe());
    let mut it = loud(&installed, [done.path(), app.path()], out, err);
    wait_until("it has written all", || those_done(done.path()).len() == 1);
    for pid in those_done(done.path()) {
        // SAFETY: the supervisor is alive and has not waited for the process.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    }
    wait_until("another has taken its place", || those_done(done.path()).len() == 2);
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().code(), Some(0));
}

#[test]
fn a_second_signal_stops_a_supervisor_with_unread_output() {
    let installed = Installed::new();
    let (done, app) = (folder(&[]), folder(&[("app.R", "1")]));
    let ((_unread, out), (_unread_too, err)) = (full_pipe(), full_pipe());
    let mut it = loud(&installed, [done.path(), app.path()], out, err);
    wait_until("it has written all", || those_done(done.path()).len() == 1);
    it.signal(libc::SIGTERM);
    it.signal(libc::SIGINT);
    it.end();
}

#[test]
fn lost_lines_are_counted() {
    let installed = Installed::new();
    let (done, app) = (folder(&[]), folder(&[("app.R", "1")]));
    let ((_unread, out), (mut late, err)) = (full_pipe(), full_pipe());
    let mut it = loud(&installed, [done.path(), app.path()], out, err);
    wait_until("it has written all", || those_done(done.path()).len() == 1);
    let reading = std::thread::spawn(move || {
        let mut printed = Vec::new();
        late.read_to_end(&mut printed).expect("it is read to its end");
        String::from_utf8_lossy(&printed).into_owned()
    });
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().code(), Some(0));
    let printed = reading.join().expect("it is read");
    assert!(
        printed.contains("rookery: ") && printed.contains(" lines were lost: "),
        "{} bytes",
        printed.len()
    );
}
