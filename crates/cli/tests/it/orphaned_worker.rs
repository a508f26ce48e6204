//! Tests of the address of a server whose supervisor was killed. A sleeping process stands in for
//! the worker that still has the address. r/tests/testthat/test-workers-direct.R tests this with R.

use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use crate::support::{Running, folder, get, rookery};

/// A process that has a listener and accepts no connections.
struct Holder(Child);

impl Holder {
    fn start(listener: impl Into<OwnedFd>, is_worker: bool) -> Holder {
        let listener = listener.into();
        let number = listener.as_raw_fd();
        let mut command = Command::new("sleep");
        command.arg("100");
        if is_worker {
            command.env("ROOKERY_INTERNAL_CONTROL_FD", "9");
        }
        let keep = move || {
            // SAFETY: the call is async-signal-safe, and the descriptor is open.
            unsafe { libc::fcntl(number, libc::F_SETFD, 0) };
            Ok(())
        };
        // SAFETY: the closure allocates nothing and takes no lock.
        unsafe { command.pre_exec(keep) };
        Holder(command.spawn().unwrap())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const WAITS: &str =
    "until a worker whose supervisor was killed has finished its requests: sleep (process ";

#[test]
fn waits_for_the_worker_of_a_killed_supervisor() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let holder = Holder::start(listener, true);
    let site = folder(&[("index.html", "the successor")]);
    let mut command = rookery();
    command.args(["serve", ".", "--port", &port.to_string()]).current_dir(site.path());
    let mut it = Running::start(&mut command);
    it.await_line(WAITS);
    assert!(!it.stderr.contains("Serving on"), "{}", it.stderr);
    drop(holder);
    assert_eq!(it.port(), port);
    assert!(get(port, "/").ends_with("the successor"));
    assert_eq!(it.stderr.matches(WAITS).count(), 1, "{}", it.stderr);
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0));
}

#[test]
fn waits_for_a_worker_on_a_unix_socket_and_can_be_stopped() {
    use std::os::unix::process::ExitStatusExt as _;
    let site = folder(&[("index.html", "home")]);
    let path = site.path().join("s o c k e t");
    let holder = Holder::start(UnixListener::bind(&path).unwrap(), true);
    let host = format!("unix:{}", path.display());
    let start = || {
        let mut command = rookery();
        command.args(["serve", ".", "--host", &host]).current_dir(site.path());
        Running::start(&mut command)
    };
    let (mut ended, mut serves) = (start(), start());
    ended.await_line(WAITS);
    ended.signal(libc::SIGTERM);
    assert_eq!(ended.end().0.signal(), Some(libc::SIGTERM), "{}", ended.stderr);
    serves.await_line(WAITS);
    drop(holder);
    serves.await_line("Serving on ");
}

#[test]
fn does_not_wait_for_other_processes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let _holder = Holder::start(listener, false);
    let site = folder(&[("index.html", "home")]);
    let mut command = rookery();
    command.args(["serve", ".", "--port", &port.to_string()]).current_dir(site.path());
    let mut it = Running::start(&mut command);
    assert_eq!(it.end().0.code(), Some(4));
    assert!(it.stderr.contains("is in use") && !it.stderr.contains("was killed"), "{}", it.stderr);
}
