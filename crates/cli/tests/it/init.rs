//! The program as the first process of a container: in a process namespace of its own, where that is allowed.

use rookery_test_support::TEST_TIMEOUT;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::hand_over::Installed;
use crate::support::{Running, executable, folder};

/// Puts a command into a namespace in which it is process 1; `None`, with the reason told, where that is not allowed.
fn as_first(program: &std::path::Path) -> Option<Command> {
    // The host's files, with a /proc of its own; what ends `unshare` ends it.
    let wrapped = |command: &mut Command| {
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    };
    let mut probe = Command::new("unshare");
    wrapped(&mut probe);
    match probe.arg("true").output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            eprintln!(
                "skipped: no process namespace ({})",
                String::from_utf8_lossy(&output.stderr).trim()
            );
            return None;
        }
        Err(error) => {
            eprintln!("skipped: no unshare ({error})");
            return None;
        }
    }
    let mut command = Command::new("unshare");
    wrapped(&mut command);
    command.arg(program);
    Some(command)
}

/// The process whose number is 1 in the namespace that `unshare` has made.
fn first_of(unshare: u32) -> i32 {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let children =
            std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
        if let Some(first) = children.split_ascii_whitespace().next() {
            return first.parse().unwrap();
        }
        assert!(Instant::now() < until, "unshare starts nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(pid: i32, number: i32) {
    // SAFETY: passes no memory; a process of this test's.
    assert_eq!(unsafe { libc::kill(pid, number) }, 0);
}

#[test]
fn a_site_ends_in_order_when_the_container_is_stopped() {
    let site = folder(&[("index.html", "home")]);
    let Some(mut command) = as_first(env!("CARGO_BIN_EXE_rookery").as_ref()) else { return };
    let mut it =
        Running::start(command.arg("serve").arg(site.path()).args(["--port", "0", "--no-log"]));
    let port = it.port();
    assert!(crate::support::get(port, "/").ends_with("home"));
    signal(first_of(it.id()), libc::SIGTERM);
    let (status, _) = it.end();
    assert_eq!(status.code(), Some(0), "{}", it.said);
}

#[test]
fn sockets_and_a_watchdog_of_the_first_process_are_the_servers() {
    let site = folder(&[("index.html", "home")]);
    let Some(mut command) = as_first(env!("CARGO_BIN_EXE_rookery").as_ref()) else { return };
    let (notify, tcp) =
        (site.path().join("notify"), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let manager = std::os::unix::net::UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let port = tcp.local_addr().unwrap().port();
    crate::service::hand_over(&mut command, vec![tcp.into()]);
    command.envs([("LISTEN_PID", "1"), ("WATCHDOG_PID", "1"), ("WATCHDOG_USEC", "200000")]);
    command
        .env("NOTIFY_SOCKET", &notify)
        .arg("serve")
        .arg(site.path())
        .args(["--port", "0", "--no-log"]);
    let mut it = Running::start(&mut command);
    let said = it.await_line("Serving on ");
    assert!(said.contains(&format!("http://127.0.0.1:{port} ")), "{said}");
    assert!(crate::support::get(port, "/").ends_with("home"));
    let mut bytes = [0; 4096];
    while manager.recv(&mut bytes).is_ok_and(|read| &bytes[..read] != b"WATCHDOG=1") {}
    assert!(bytes.starts_with(b"WATCHDOG=1"));
    signal(first_of(it.id()), libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.said);
}

#[test]
fn orphans_are_buried_and_the_exit_status_is_that_of_r() {
    let installed = Installed::new();
    executable(
        &installed.r(),
        // What it leaves behind ends later, and its parent has gone by then.
        "#!/bin/bash\n(sleep 0.2 & sleep 0.3 &)\necho started as $$ >&2\nwhile [ ! -e end ]; do \
         sleep 0.05; done\nexit 9\n",
    );
    let app = folder(&[("app.R", "1")]);
    let Some(mut command) = as_first(&installed.program()) else { return };
    command.arg("serve").arg(app.path()).args(["--port", "0", "--no-log", "--restart", "never"]);
    let mut it = Running::start(installed.on_path(&mut command));
    let said = it.await_line("started as ");
    assert!(!said.contains("started as 1\n"), "R is not the first process: {said}");
    let first = first_of(it.id());
    let began = Instant::now();
    loop {
        let children =
            std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap();
        // Only the supervisor is left, and no orphan that sleeps or is dead.
        if children.split_ascii_whitespace().count() == 1
            && began.elapsed() > Duration::from_secs(1)
        {
            break;
        }
        assert!(began.elapsed() < TEST_TIMEOUT, "{children}");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::write(app.path().join("end"), "").unwrap();
    let (status, _) = it.end();
    assert_eq!(status.code(), Some(9), "{}", it.said);
}

#[test]
fn a_death_by_a_signal_is_told_as_shells_do() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\nkill -KILL $$\n");
    let app = folder(&[("app.R", "1")]);
    let Some(mut command) = as_first(&installed.program()) else { return };
    command.arg("serve").arg(app.path()).args(["--port", "0", "--no-log", "--restart", "never"]);
    let mut it = Running::start(installed.on_path(&mut command));
    assert_eq!(it.end().0.code(), Some(137), "{}", it.said);
}
