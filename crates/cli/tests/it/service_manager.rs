//! Tests with a service manager: notifications, socket activation, logs and `rookery status`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::r_processes::Installed;
use crate::socket_activation::{hand_over, with_own_pid};
use crate::support::{Running, TEST_TIMEOUT, executable, folder, get, rookery};

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &Path) -> Manager {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        Manager(socket)
    }

    /// Returns the next notification that is not a watchdog ping.
    fn next(&self) -> String {
        loop {
            let mut bytes = [0; 4096];
            let read = self.0.recv(&mut bytes).expect("it says something");
            let printed = String::from_utf8_lossy(&bytes[..read]).into_owned();
            if printed != "WATCHDOG=1" {
                return printed;
            }
        }
    }

    /// Waits for a watchdog ping.
    fn hears_a_sign(&self) {
        let mut bytes = [0; 4096];
        loop {
            let read = self.0.recv(&mut bytes).expect("it says something");
            if &bytes[..read] == b"WATCHDOG=1" {
                return;
            }
        }
    }
}

#[test]
fn a_static_site_notifies_its_state_and_pings_the_watchdog() {
    let site = folder(&[("index.html", "home")]);
    let manager = Manager::at(&site.path().join("notify"));
    let mut command = rookery();
    command.arg("serve").arg(site.path()).args(["--port", "0", "--log=none"]);
    command.env("NOTIFY_SOCKET", site.path().join("notify")).env("WATCHDOG_USEC", "400000");
    let mut it = Running::start(&mut command);
    let port = it.port();
    let printed = manager.next();
    assert!(
        printed.starts_with(&format!(
            "READY=1\nSTATUS=Serving on http://127.0.0.1:{port}\nMAINPID={}",
            it.id()
        )),
        "{printed}"
    );
    for _ in 0..3 {
        manager.hears_a_sign();
    }
    // As ExecReload= of the systemd unit does.
    it.signal(libc::SIGHUP);
    let printed = manager.next();
    assert!(printed.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{printed}");
    assert!(manager.next().starts_with("READY=1\nSTATUS=Serving on "));
    it.signal(libc::SIGQUIT);
    assert_eq!(manager.next(), "STOPPING=1\nSTATUS=Finishing the responses in progress");
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn a_failure_is_reported_with_its_exit_status() {
    let site = folder(&[("index.html", "home")]);
    let manager = Manager::at(&site.path().join("notify"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut command = rookery();
    command.arg("serve").arg(site.path()).args(["--port", &port, "--log=none"]);
    let mut it = Running::start(command.env("NOTIFY_SOCKET", site.path().join("notify")));
    assert_eq!(it.end().0.code(), Some(4), "{}", it.stderr);
    let printed = manager.next();
    assert!(
        printed.starts_with(&format!("STATUS=Port {port} of 127.0.0.1 is in use"))
            && printed.ends_with("\nEXIT_STATUS=4"),
        "{printed}"
    );
}

#[test]
fn workers_do_not_inherit_the_service_managers_variables() {
    let installed = Installed::new();
    executable(
        &installed.r(),
        "#!/bin/bash\necho \"heard: $NOTIFY_SOCKET$WATCHDOG_USEC$LISTEN_FDS$LISTEN_PID\" >&2\n\
         echo \"sockets: $(ls -l /proc/$$/fd | grep -c socket:)\" >&2\nexec sleep 1000\n",
    );
    for workers in ["1", "2"] {
        let app = folder(&[("app.R", "1")]);
        let manager = Manager::at(&app.path().join("notify"));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut command = with_own_pid(&installed.program());
        // The program does not bind the port, which the service manager has.
        let port = tcp.local_addr().unwrap().port().to_string();
        command.args(["serve", ".", "--workers", workers, "--log=none", "--port", &port]);
        command.env("NOTIFY_SOCKET", app.path().join("notify")).env("WATCHDOG_USEC", "60000000");
        hand_over(command.current_dir(app.path()), vec![tcp.into()]);
        let mut it = Running::start(installed.on_path(&mut command));
        let printed = it.await_line("heard: ");
        assert!(printed.trim_end().ends_with("heard:"), "{printed}");
        // A worker inherits its control channel and the sockets of its rings.
        assert!(it.await_line("sockets: ").ends_with("sockets: 3\n"), "{}", it.stderr);
        it.signal(libc::SIGTERM);
        assert_eq!(manager.next(), "STOPPING=1\nSTATUS=Finishing the requests in progress");
        assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
    }
}

#[test]
fn sigusr1_reopens_a_renamed_log() {
    let site = folder(&[("index.html", "home")]);
    let (log, old) = (site.path().join("access.log"), site.path().join("access.log.1"));
    let mut it = Running::start(
        rookery().arg("serve").arg(site.path()).args(["--port", "0"]).arg("--log").arg(&log),
    );
    let port = it.port();
    get(port, "/first");
    let has =
        |path: &Path, word: &str| fs::read_to_string(path).is_ok_and(|text| text.contains(word));
    let until = |what: &dyn Fn() -> bool| {
        let until = Instant::now() + TEST_TIMEOUT;
        while !what() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until(&|| has(&log, "/first"));
    fs::rename(&log, &old).unwrap();
    it.signal(libc::SIGUSR1);
    // The signal is handled with a delay; until then lines go to the renamed file.
    until(&|| {
        get(port, "/second");
        has(&log, "/second")
    });
    assert!(has(&old, "/first") && !has(&log, "/first"));
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn reports_a_busy_admin_address_with_a_remedy() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1"), ("file", "mine")]);
    let _server = UnixListener::bind(app.path().join("socket")).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("127.0.0.1:{}", tcp.local_addr().unwrap().port());
    for (at, says) in [
        (
            "unix:file",
            "That file is not a socket and is not replaced: choose another path, or move the file.",
        ),
        (
            "unix:socket",
            "Another server is listening there: choose another path, or stop that server.",
        ),
        (port.as_str(), "Another process is using this port: choose another port."),
    ] {
        let mut command = Command::new(installed.program());
        command.args(["serve", ".", "--workers", "2", "--port", "0", "--log=none", "--admin", at]);
        let (status, _, printed) = installed.run(command.current_dir(app.path()));
        assert_eq!(status, Some(4), "{printed}");
        assert!(
            printed.contains("Cannot listen on the admin address ") && printed.contains(says),
            "{printed}"
        );
    }
    assert_eq!(fs::read_to_string(app.path().join("file")).unwrap(), "mine");
}

#[test]
fn a_second_signal_kills_workers_and_terminates_the_server() {
    let installed = Installed::new();
    executable(
        &installed.r(),
        "#!/bin/bash\ntrap '' TERM\necho \"process $$.\" >&2\nwhile :; do sleep 1; done\n",
    );
    for (first, second) in [
        (libc::SIGTERM, libc::SIGTERM),
        (libc::SIGINT, libc::SIGINT),
        (libc::SIGQUIT, libc::SIGTERM),
        (libc::SIGTERM, libc::SIGQUIT),
    ] {
        let app = folder(&[("app.R", "1")]);
        let manager = Manager::at(&app.path().join("notify"));
        let mut command = Command::new(installed.program());
        command
            .args(["serve", ".", "--workers", "2", "--port", "0", "--log=none"])
            .current_dir(app.path());
        // Prevents SIGQUIT from writing a core file. SAFETY: the closure makes only a system call,
        // with a limit that is on the stack.
        let no_core = || match unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 })
        } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        };
        // SAFETY: see above; the closure allocates nothing.
        unsafe { command.pre_exec(no_core) };
        command.env("NOTIFY_SOCKET", app.path().join("notify"));
        let mut it = Running::start(installed.on_path(&mut command));
        let printed = it.await_line("process ");
        let pid = printed.trim_end().trim_end_matches('.').rsplit(' ').next().unwrap().to_owned();
        it.signal(first);
        assert_eq!(manager.next(), "STOPPING=1\nSTATUS=Finishing the requests in progress");
        it.signal(second);
        assert_eq!(it.end().0.signal(), Some(second), "{first}: {}", it.stderr);
        let until = Instant::now() + TEST_TIMEOUT;
        while fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
        {
            assert!(Instant::now() < until, "{pid} lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn sigusr1_reopens_the_log_with_several_workers() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho started >&2\nexec sleep 1000\n");
    let app = folder(&[("app.R", "1")]);
    let (path, log, old) =
        (app.path().join("s"), app.path().join("access.log"), app.path().join("access.log.1"));
    let mut command = Command::new(installed.program());
    command.args(["serve", ".", "--workers", "2", "--host", "unix:s", "--log", "access.log"]);
    let mut it = Running::start(installed.on_path(command.current_dir(app.path())));
    it.await_line("started");
    // A request that the front end refuses is logged as well.
    let ask = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.write_all(b"no request\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    };
    let until = |file: &Path| {
        let until = Instant::now() + TEST_TIMEOUT;
        while fs::read_to_string(file).unwrap_or_default().is_empty() {
            assert!(Instant::now() < until, "nothing in {}", file.display());
            ask();
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(&log);
    // The line has the fields of several workers, which are empty because no worker got the
    // request.
    let text = fs::read_to_string(&log).unwrap();
    let line = text.lines().next().unwrap();
    assert!(
        line.starts_with("- - - [")
            && line.ends_with(&" -".repeat(9))
            && !line.ends_with(&" -".repeat(10)),
        "{line}"
    );
    fs::rename(&log, &old).unwrap();
    it.signal(libc::SIGUSR1);
    until(&log);
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn status_reports_that_there_is_no_server() {
    let empty = folder(&[]);
    let run = |words: &[&str]| {
        let output =
            rookery().arg("status").args(words).env("TMPDIR", empty.path()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, printed) = run(&["999999999"]);
    assert_eq!(status, Some(1));
    assert!(
        printed.starts_with("rookery: Process 999999999 is not an app server of this user."),
        "{printed}"
    );
    assert!(
        run(&["unix:/none/there"])
            .1
            .starts_with("rookery: No server responds at unix:/none/there: ")
    );
    assert!(
        run(&["some/app"])
            .1
            .contains("some/app. A server with another TMPDIR is found by its `--admin` address")
    );
    let (status, printed) = run(&["a", "b"]);
    assert_eq!(status, Some(2));
    assert!(printed.starts_with("rookery: `b` is an unexpected argument."), "{printed}");
}

#[test]
fn status_finds_servers_by_process_app_and_address() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho started >&2\nexec sleep 1000\n");
    let app = folder(&[("my app/app.R", "1"), ("tmp/none", "")]);
    std::os::unix::fs::symlink("my app", app.path().join("current")).unwrap();
    let socket = app.path().join("admin.sock");
    let mut command = Command::new(installed.program());
    command.args(["serve", "current", "--workers", "2", "--port", "0", "--log=none"]);
    command.arg("--admin").arg(format!("unix:{}", socket.display()));
    command.current_dir(app.path()).env("TMPDIR", app.path().join("tmp"));
    let mut it = Running::start(installed.on_path(&mut command));
    it.await_line("started");
    let pid = it.id().to_string();
    let unix = format!("unix:{}", socket.display());
    let pid = pid.as_str();
    let unix = unix.as_str();
    let socket_path = socket.to_str().unwrap();
    for words in [
        &[pid][..],
        &["my app"],
        &["current"],
        &[],
        &[unix],
        &[socket_path],
        &[pid, "--json"],
        &["current", "--json"],
    ] {
        let mut status = rookery();
        status
            .arg("status")
            .args(words)
            .current_dir(app.path())
            .env("TMPDIR", app.path().join("tmp"));
        let output = status.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let names = if words.contains(&"--json") {
            format!("\"pid\":{pid},")
        } else {
            format!(", process {pid}, up ")
        };
        assert!(printed.contains(&names) && printed.contains("/current"), "{words:?}: {printed}");
        assert!(printed.contains("starting"), "{printed}");
    }
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    // A server that does not respond is not reported as missing.
    it.signal(libc::SIGSTOP);
    let mut status = rookery();
    status.args(["status", "my app"]).current_dir(app.path()).env("TMPDIR", app.path().join("tmp"));
    let output = status.output().unwrap();
    it.signal(libc::SIGCONT);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains(&format!(
            "Process {pid} does not report what it serves: it has sent nothing for 5 seconds. Its \
             socket is unix:"
        )) && printed.contains("Waiting for the server at unix:"),
        "{printed}"
    );
    // A response that the client does not read is not kept.
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
        .write_all(
            b"POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n",
        )
        .unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
    assert!(!socket.exists());
}

#[test]
fn reports_crash_loops_and_exits_with_fail_fast() {
    let installed = Installed::new();
    // An app that starts and exits without serving.
    executable(&installed.r(), "#!/bin/bash\nexit 9\n");
    let app = folder(&[("app.R", "1")]);
    let start = |words: &[&str]| {
        let _ = fs::remove_file(app.path().join("notify"));
        let manager = Manager::at(&app.path().join("notify"));
        let mut command = Command::new(installed.program());
        command.args(["serve", ".", "--port=0", "--log=none", "--start-retries=1000"]).args(words);
        command.env("NOTIFY_SOCKET", app.path().join("notify")).current_dir(app.path());
        (Running::start(installed.on_path(&mut command)), manager)
    };
    let (mut it, manager) = start(&[]);
    let printed = manager.next();
    let storm = "STATUS=Starting, 0 of 1 workers ready, workers have failed ";
    assert!(printed.starts_with(storm) && printed.ends_with(" times within a minute"), "{printed}");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
    let (mut it, manager) = start(&["--fail-fast"]);
    assert_eq!(it.end().0.code(), Some(5), "{}", it.stderr);
    let until_end =
        std::iter::repeat_with(|| manager.next()).find(|printed| printed.contains("EXIT_STATUS"));
    let printed = until_end.unwrap();
    assert!(
        printed.starts_with("STATUS=All workers keep crashing")
            && printed.ends_with("EXIT_STATUS=5"),
        "{printed}"
    );
}

#[test]
fn failures_of_a_certificate_authority_are_counted_in_the_metrics() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\nexec sleep 1000\n");
    let app = folder(&[("app.R", "1")]);
    let socket = app.path().join("admin");
    let mut command = Command::new(installed.program());
    command.args([
        "serve",
        ".",
        "--port=0",
        "--host=127.0.0.1",
        "--log=none",
        "--admin=unix:admin",
    ]);
    command.args(["--domain=a.example", "--agree-tos"]).current_dir(app.path());
    command.env("ROOKERY_ACME_DIRECTORY", "https://127.0.0.1:1/").env("ROOKERY_ACME_DIR", "acme");
    let mut it = Running::start(installed.on_path(&mut command));
    it.await_line("ACME: no certificate for a.example");
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    assert!(metrics.contains("\nrookery_acme_failures_total 1\n"), "{metrics}");
    it.signal(libc::SIGTERM);
    it.end();
}

#[test]
fn a_cancelled_reload_does_not_report_readiness() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho \"it starts\" >&2\nexec sleep 1000\n");
    let text = "engine: rookery\napp: app.R\noptions:\n  port: 0\n";
    let app = folder(&[("_server.yml", text), ("app.R", "1")]);
    let manager = Manager::at(&app.path().join("notify"));
    let mut command = Command::new(installed.program());
    command.args(["serve", ".", "--log=none"]).env("NOTIFY_SOCKET", app.path().join("notify"));
    let mut it = Running::start(installed.on_path(command.current_dir(app.path())));
    it.await_line("it starts");
    fs::write(app.path().join("_server.yml"), "engine: rookery\napp: nowhere.R\n").unwrap();
    it.signal(libc::SIGHUP);
    let line = it.await_line("the reload is refused");
    assert!(line.contains("`app:` names"), "{line}");
    it.signal(libc::SIGTERM);
    assert_eq!(manager.next(), "STOPPING=1\nSTATUS=Finishing the requests in progress");
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}
