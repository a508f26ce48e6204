//! Tests of the program as PID 1 of a process namespace, where such namespaces are allowed.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::r_processes::Installed;
use crate::support::{Running, TEST_TIMEOUT, executable, folder};

/// Wraps a command so that it runs as PID 1 of a new namespace. Returns `None`, and prints the
/// reason, where that is not allowed.
fn as_first(program: &std::path::Path) -> Option<Command> {
    // The namespace has the host's files and a /proc of its own. Killing `unshare` kills the
    // command.
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

/// Returns the process that is PID 1 in the namespace of `unshare`.
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
    // SAFETY: the call takes no pointers, and the process belongs to this test.
    assert_eq!(unsafe { libc::kill(pid, number) }, 0);
}

#[test]
fn a_static_site_shuts_down_gracefully_as_pid_1() {
    let site = folder(&[("index.html", "home")]);
    let Some(mut command) = as_first(env!("CARGO_BIN_EXE_rookery").as_ref()) else { return };
    let mut it =
        Running::start(command.arg("serve").arg(site.path()).args(["--port", "0", "--log=none"]));
    let port = it.port();
    assert!(crate::support::get(port, "/").ends_with("home"));
    signal(first_of(it.id()), libc::SIGTERM);
    let (status, _) = it.end();
    assert_eq!(status.code(), Some(0), "{}", it.stderr);
}

#[test]
fn sockets_and_watchdog_of_pid_1_reach_the_server() {
    let site = folder(&[("index.html", "home")]);
    let Some(mut command) = as_first(env!("CARGO_BIN_EXE_rookery").as_ref()) else { return };
    let (notify, tcp) =
        (site.path().join("notify"), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let manager = std::os::unix::net::UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let port = tcp.local_addr().unwrap().port();
    crate::socket_activation::hand_over(&mut command, vec![tcp.into()]);
    command.envs([("LISTEN_PID", "1"), ("WATCHDOG_PID", "1"), ("WATCHDOG_USEC", "200000")]);
    command.env("NOTIFY_SOCKET", &notify).arg("serve").arg(site.path()).args([
        "--port",
        "0",
        "--log=none",
    ]);
    let mut it = Running::start(&mut command);
    let printed = it.await_line("Serving on ");
    assert!(printed.contains(&format!("http://127.0.0.1:{port} ")), "{printed}");
    assert!(crate::support::get(port, "/").ends_with("home"));
    let mut bytes = [0; 4096];
    while manager.recv(&mut bytes).is_ok_and(|read| &bytes[..read] != b"WATCHDOG=1") {}
    assert!(bytes.starts_with(b"WATCHDOG=1"));
    signal(first_of(it.id()), libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn pid_1_reaps_orphans_and_exits_with_the_status_of_r() {
    let installed = Installed::new();
    executable(
        &installed.r(),
        // The background processes outlive their parent.
        "#!/bin/bash\n(sleep 0.2 & sleep 0.3 &)\necho started as $$ >&2\nwhile [ ! -e end ]; do \
         sleep 0.05; done\nexit 9\n",
    );
    let app = folder(&[("app.R", "1")]);
    let Some(mut command) = as_first(&installed.program()) else { return };
    command.arg("serve").arg(app.path()).args(["--port", "0", "--log=none", "--restart", "never"]);
    let mut it = Running::start(installed.on_path(&mut command));
    let printed = it.await_line("started as ");
    assert!(!printed.contains("started as 1\n"), "R is not the first process: {printed}");
    let first = first_of(it.id());
    let began = Instant::now();
    loop {
        let children =
            std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap();
        // Only the supervisor is left, and neither a running nor a dead orphan.
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
    assert_eq!(status.code(), Some(9), "{}", it.stderr);
}

#[test]
fn pid_1_reports_termination_by_a_signal_like_a_shell() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\nkill -KILL $$\n");
    let app = folder(&[("app.R", "1")]);
    let Some(mut command) = as_first(&installed.program()) else { return };
    command.arg("serve").arg(app.path()).args(["--port", "0", "--log=none", "--restart", "never"]);
    let mut it = Running::start(installed.on_path(&mut command));
    assert_eq!(it.end().0.code(), Some(137), "{}", it.stderr);
}
