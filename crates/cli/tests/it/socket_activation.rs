//! Tests of listening sockets that a service manager has opened.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::r_processes::Installed;
use crate::support::{Running, TEST_TIMEOUT, ask, executable, folder, get, rookery};

/// Makes a command inherit these sockets, as a service manager does.
pub(crate) fn hand_over(command: &mut Command, sockets: Vec<OwnedFd>) {
    command.env("LISTEN_FDS", sockets.len().to_string());
    let hand_over = move || {
        // Copied first to numbers above those that the sockets will have.
        let mut above = Vec::new();
        for socket in &sockets {
            // SAFETY: the calls take no pointers.
            above.push(unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD, 100) });
        }
        for (to, from) in (3..).zip(above) {
            // SAFETY: as above. The copy stays open after `exec`.
            unsafe { libc::dup2(from, to) };
            // SAFETY: as above.
            unsafe { libc::close(from) };
        }
        Ok(())
    };
    // SAFETY: at most one more thread exists, and it takes no lock that allocating needs.
    unsafe { command.pre_exec(hand_over) };
}

/// Returns a command that sets `LISTEN_PID` to its own process id, which is not known in advance.
pub(crate) fn with_own_pid(program: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""]).arg(program);
    command
}

fn ask_unix(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn inherited_sockets_are_served_and_not_removed() {
    let site = folder(&[("index.html", "home")]);
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let path = site.path().join("web.sock");
    let unix = UnixListener::bind(&path).unwrap();
    let port = tcp.local_addr().unwrap().port();
    for round in 0..2 {
        // A client that connects before the server runs has to wait.
        let waits = std::thread::spawn(move || get(port, "/"));
        let mut command = with_own_pid(env!("CARGO_BIN_EXE_rookery").as_ref());
        command.arg("serve").arg(site.path()).args(["--log=none", "--port", "1"]);
        hand_over(
            &mut command,
            vec![tcp.try_clone().unwrap().into(), unix.try_clone().unwrap().into()],
        );
        let mut it = Running::start(&mut command);
        let printed = it.await_line("Serving on ");
        assert!(
            printed.contains(&format!("http://127.0.0.1:{port} and {}", path.display())),
            "{printed}"
        );
        let wanted = format!(
            "the server accepts connections on 127.0.0.1:{port} and {}, the sockets that the \
             service manager (systemd) has opened, and ignores `--host` and `--port`",
            path.display()
        );
        assert!(waits.join().unwrap().ends_with("home"), "{round}");
        assert!(ask_unix(&path).ends_with("home"));
        it.signal(libc::SIGTERM);
        assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
        assert!(it.stderr.contains(&wanted), "{}", it.stderr);
        // The socket file belongs to the service manager.
        assert!(path.exists());
    }
}

#[test]
fn an_inherited_port_for_http_redirects_to_the_inherited_port_for_https() {
    let site = folder(&[("index.html", "home")]);
    let [https, http] = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [secure, plain] = [&https, &http].map(|it| it.local_addr().unwrap().port());
    // Both sockets of one unit have its name, so their ports say to which listener they belong.
    let mut command = with_own_pid(env!("CARGO_BIN_EXE_rookery").as_ref());
    command.arg("serve").arg(site.path()).args(["--log=none", "--domain=a.example", "--agree-tos"]);
    command.args(["--host=127.0.0.1", &format!("--port={secure}")]);
    command.arg(format!("--redirect-from={plain}"));
    command.env("ROOKERY_ACME_DIRECTORY", "https://127.0.0.1:1/");
    command.env("ROOKERY_ACME_DIR", site.path().join("acme"));
    command.env("LISTEN_FDNAMES", "rookery.socket:rookery.socket");
    hand_over(&mut command, vec![http.into(), https.into()]);
    let mut it = Running::start(&mut command);
    let printed = it.await_line("Serving on ");
    assert!(printed.contains(&format!(" https://a.example:{secure} (")), "{printed}");
    let moved = ask(plain, "GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    assert!(
        moved.starts_with("HTTP/1.1 308 ")
            && moved.contains(&format!("\r\nLocation: https://a.example:{secure}/x\r\n")),
        "{moved}"
    );
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn a_socket_named_admin_serves_the_status_to_its_owner_only() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho started >&2\nexec sleep 1000\n");
    for (mode, is_served) in [(0o666, false), (0o600, true)] {
        let app = folder(&[("app.R", "1")]);
        let path = app.path().join("admin.sock");
        let admin = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut command = with_own_pid(&installed.program());
        command.args(["serve", ".", "--log=none", "--admin", "127.0.0.1:1"]);
        command.env("LISTEN_FDNAMES", "admin:app").current_dir(app.path());
        hand_over(&mut command, vec![admin.into(), web.into()]);
        let mut it = Running::start(installed.on_path(&mut command));
        if is_served {
            it.await_line("started");
            let status = rookery().arg("status").arg(&path).output().unwrap();
            assert!(String::from_utf8_lossy(&status.stdout).contains("starting"), "{status:?}");
            it.signal(libc::SIGTERM);
        }
        let status = it.end().0.code();
        assert_eq!(status, Some(if is_served { 0 } else { 4 }), "{}", it.stderr);
        assert_eq!(it.stderr.contains("add `SocketMode=0600`"), !is_served, "{}", it.stderr);
    }
}

#[test]
fn an_inherited_socket_that_belongs_to_no_listener_is_reported() {
    let site = folder(&[("index.html", "home")]);
    for (name, expected) in [
        ("admin", "`admin` at 127.0.0.1:"),
        ("redirect", "the server redirects no requests to HTTPS"),
    ] {
        let mut command = with_own_pid(env!("CARGO_BIN_EXE_rookery").as_ref());
        command.arg("serve").arg(site.path()).args(["--log=none", "--port", "0"]);
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        hand_over(command.env("LISTEN_FDNAMES", name), vec![socket.into()]);
        let mut it = Running::start(&mut command);
        assert_eq!(it.end().0.code(), Some(4));
        assert!(it.stderr.contains(expected), "{}", it.stderr);
    }
}

#[test]
fn an_inherited_descriptor_that_is_no_socket_is_reported() {
    let site = folder(&[("index.html", "home")]);
    let mut command = with_own_pid(env!("CARGO_BIN_EXE_rookery").as_ref());
    command.arg("serve").arg(site.path()).args(["--log=none", "--port", "0"]);
    hand_over(&mut command, vec![fs::File::open(site.path().join("index.html")).unwrap().into()]);
    let mut it = Running::start(&mut command);
    assert_eq!(it.end().0.code(), Some(4));
    assert!(
        it.stderr.contains(
            "descriptor 3, inherited from the service manager, is not a listening stream socket"
        ),
        "{}",
        it.stderr
    );
}

#[test]
fn works_with_systemd_socket_activate() {
    let has_it = Command::new("systemd-socket-activate").arg("--version").output();
    if !has_it.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no systemd-socket-activate");
        return;
    }
    let site = folder(&[("index.html", "home")]);
    let path = site.path().join("web.sock");
    let mut command = Command::new("systemd-socket-activate");
    command.arg("--listen").arg(&path).arg("--fdname=web").arg(env!("CARGO_BIN_EXE_rookery"));
    let mut it = Running::start(command.arg("serve").arg(site.path()).args(["--log=none"]));
    it.await_line("Listening on ");
    assert!(ask_unix(&path).ends_with("home"));
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}
