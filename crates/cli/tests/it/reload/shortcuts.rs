//! Tests of the shortcuts of `rookery dev`, which are typed at a pseudo-terminal here.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::r_processes::Installed;
use crate::support::{Running, TEST_TIMEOUT, executable, folder, get, open_terminal, rookery};

const KEYS: &str = "  Keys:        r restarts, o opens a browser, q quits";

/// Starts a command whose standard input is a terminal. Returns the running program, and the side
/// of the terminal at which a user types.
fn at_terminal(command: &mut Command) -> (Running, fs::File) {
    let (user, terminal) = open_terminal();
    let it = Running::start(command.stdin(terminal));
    // Otherwise the command keeps the terminal open.
    command.stdin(Stdio::null());
    (it, user)
}

fn await_file(path: &Path) -> String {
    let until = Instant::now() + TEST_TIMEOUT;
    while !path.exists() {
        assert!(Instant::now() < until, "{} is never written", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_site_is_opened_and_stopped_from_the_terminal() {
    let root = folder(&[("site/index.html", "home"), ("bin/none", "")]);
    let url_file = root.path().join("url");
    executable(
        &root.path().join("bin/xdg-open"),
        "#!/bin/sh\necho \"$1\" >\"$URL_FILE.new\"\nmv \"$URL_FILE.new\" \"$URL_FILE\"\n",
    );
    let mut command = rookery();
    command.arg("dev").arg(root.path().join("site")).args(["--port=0", "--log=none", "--open=no"]);
    for name in ["SSH_CONNECTION", "SSH_TTY", "WAYLAND_DISPLAY", "BROWSER"] {
        command.env_remove(name);
    }
    let path = format!("{}:/usr/bin:/bin", root.path().join("bin").display());
    command.env("PATH", path).env("URL_FILE", &url_file).env("DISPLAY", ":0");
    let (mut it, mut user) = at_terminal(&mut command);
    let port = it.port();
    it.await_line(KEYS);
    // Other lines are ignored.
    user.write_all(b"\nhello\nh\n").unwrap();
    it.await_line("o + Enter: open the address in a browser");
    it.await_line("h + Enter");
    if cfg!(not(target_os = "macos")) {
        user.write_all(b"o\n").unwrap();
        assert_eq!(await_file(&url_file), format!("http://127.0.0.1:{port}\n"));
    }
    user.write_all(b"q\n").unwrap();
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
    assert_eq!(it.stderr.matches(KEYS).count(), 1, "{}", it.stderr);
}

#[test]
fn the_app_is_started_again_from_the_terminal() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho \"start $ROOKERY_GENERATION\" >&2\nexit 1\n");
    let app = folder(&[("app.R", "stop(")]);
    let mut command = Command::new(installed.program());
    command.args(["dev", ".", "--port=0", "--log=none", "--open=no"]).current_dir(app.path());
    let (mut it, mut user) = at_terminal(installed.on_path(&mut command));
    it.await_line(KEYS);
    it.await_line("it is started again when a file of the app changes");
    user.write_all(b"r\n").unwrap();
    it.await_line("start 1");
    user.write_all(b"q\n").unwrap();
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn without_a_terminal_or_development_there_are_no_shortcuts() {
    let site = folder(&[("index.html", "home")]);
    for (word, has_terminal) in [("serve", true), ("dev", false)] {
        let mut command = rookery();
        command.arg(word).arg(site.path()).args(["--port=0", "--log=none", "--open=no"]);
        let (mut it, mut user) = if has_terminal {
            at_terminal(&mut command)
        } else {
            (Running::start(command.stdin(Stdio::null())), tempfile::tempfile().unwrap())
        };
        let port = it.port();
        user.write_all(b"q\n").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(get(port, "/").ends_with("home"), "{word}: {}", it.stderr);
        it.signal(libc::SIGTERM);
        assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
        assert!(!it.stderr.contains("Keys:"), "{word}: {}", it.stderr);
    }
}
