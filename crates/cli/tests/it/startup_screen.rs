//! Tests of terminal output: the start-up screen, `--open`, `rookery new` and `rookery --version
//! --verbose`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::r_processes::Installed;
use crate::support::{Running, TEST_TIMEOUT, executable, folder, get, open_terminal, rookery};

/// Returns the start-up screen of a static site, without environment variables about colour.
fn shown(words: &[&str], variables: &[(&str, &str)]) -> (String, u16) {
    let site = folder(&[("index.html", "home")]);
    let mut command = rookery();
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"] {
        command.env_remove(name);
    }
    command.arg("serve").arg(site.path()).args(["-p", "0", "--log", "none"]).args(words);
    let mut it = Running::start(command.envs(variables.iter().copied()));
    // On the second line, colour codes surround the address.
    let line = it.await_line("Serving on ");
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let port = line.split("//").nth(1).and_then(|rest| rest.rsplit(':').next()).map(digits);
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
    let root = fs::canonicalize(site.path()).unwrap().display().to_string();
    (it.stderr.replace(&root, "ROOT"), port.unwrap().parse().unwrap())
}

#[test]
fn the_screen_has_colour_in_a_log_only_if_forced() {
    let version = env!("CARGO_PKG_VERSION");
    let (text, port) = shown(&[], &[]);
    assert_eq!(
        text,
        format!(
            "rookery {version}: site in ROOT\nServing on http://127.0.0.1:{port} (Ctrl-C stops)\n"
        )
    );
    let (text, _) = shown(&[], &[("CLICOLOR_FORCE", "1")]);
    assert!(
        text.contains("\x1b[1mrookery\x1b[0m ") && text.contains("Serving on \x1b[1;36mhttp"),
        "{text}"
    );
    let (text, _) = shown(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]);
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn shows_the_network_address_on_all_interfaces() {
    let (text, port) = shown(&["--host", "0.0.0.0"], &[]);
    assert!(
        text.contains(&format!("Serving on http://127.0.0.1:{port} (Ctrl-C stops)\n")),
        "{text}"
    );
    for line in text.lines().skip(2) {
        let own = line.strip_prefix("  Network:     http://").expect("no other line");
        assert!(own.ends_with(&format!(":{port}")) && !own.starts_with("127."), "{text}");
    }
}

#[test]
fn opens_the_browser_once_the_server_is_ready() {
    let root = folder(&[("site/index.html", "home"), ("bin/none", "")]);
    let url_file = root.path().join("told");
    executable(
        &root.path().join("bin/xdg-open"),
        "#!/bin/sh\necho \"$# $1 [$ROOKERY_PORT$NOTIFY_SOCKET]\" > \"$TOLD.new\"\nmv \
         \"$TOLD.new\" \"$TOLD\"\n",
    );
    let start = |variables: &[(&str, &str)]| {
        let mut command = rookery();
        for name in ["SSH_CONNECTION", "SSH_TTY", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"] {
            command.env_remove(name);
        }
        let path = format!("{}:/usr/bin:/bin", root.path().join("bin").display());
        command
            .env("PATH", path)
            .env("TOLD", &url_file)
            .env("ROOKERY_PORT", "0")
            .envs(variables.iter().copied());
        command.arg("serve").arg(root.path().join("site")).args(["--log", "none", "--open"]);
        Running::start(&mut command)
    };
    if cfg!(not(target_os = "macos")) {
        let mut it = start(&[("DISPLAY", ":0")]);
        let port = it.port();
        let until = Instant::now() + TEST_TIMEOUT;
        while !url_file.exists() {
            assert!(Instant::now() < until, "no browser is opened: {}", it.stderr);
            std::thread::sleep(Duration::from_millis(5));
        }
        // The browser does not inherit the variables of the program.
        let text = fs::read_to_string(&url_file).unwrap();
        assert_eq!(text, format!("1 http://127.0.0.1:{port} []\n"));
        assert!(get(port, "/").ends_with("home"));
        fs::remove_file(&url_file).unwrap();
    }
    let mut it = start(&[("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22")]);
    let line = it.await_line("over SSH");
    assert!(
        line.contains(
            "the server does not open a browser over SSH; the address is http://127.0.0.1:"
        ),
        "{line}"
    );
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
    assert!(!url_file.exists());
}

#[test]
fn a_new_app_passes_the_check_and_is_not_overwritten() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/sh\nexit 0\n");
    let root = folder(&[]);
    for (kind, made, first) in [
        ("shiny", "a Shiny app", "_server.yml"),
        ("api", "a plumber API", "_server.yml"),
        ("chat", "a chat with an event stream", "_server.yml"),
        ("site", "a site", "index.html"),
    ] {
        let new = || {
            let mut command = Command::new(installed.program());
            command.args(["new", kind, kind]).current_dir(root.path());
            installed.run(&mut command)
        };
        let (status, out, printed) = new();
        assert_eq!((status, printed.as_str()), (Some(0), ""));
        assert!(out.starts_with(&format!("Wrote {made} to {kind}:\n  {first}\n")), "{out}");
        assert!(out.ends_with(&format!("\nNext: rookery dev {kind}\n")), "{out}");
        let (status, _, printed) = new();
        assert_eq!(status, Some(1));
        assert!(printed.contains("no file is overwritten"), "{printed}");
        let mut check = Command::new(installed.program());
        check.args(["check", kind, "--port", "0"]).current_dir(root.path());
        let (status, out, printed) = installed.run(&mut check);
        assert_eq!((status, printed.as_str()), (Some(0), ""), "{out}");
        assert!(out.contains("can be served: "), "{out}");
    }
}

#[test]
fn the_verbose_version_names_r_and_the_package_but_no_environment() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/sh\necho 'R version 9.8.7 (a test)'\necho more\n");
    let mut command = Command::new(installed.program());
    command.args(["--version", "--verbose"]).env("ROOKERY_TOKEN", "hush-hush");
    let (status, out, printed) = installed.run(&mut command);
    assert_eq!((status, printed.as_str()), (Some(0), ""));
    assert!(out.starts_with(&format!("rookery {}\n", env!("CARGO_PKG_VERSION"))), "{out}");
    assert!(
        out.contains("\nR:        R version 9.8.7 (a test), ") && out.contains("/bin/R\n"),
        "{out}"
    );
    assert!(out.contains("\ntarget:   ") && out.contains("/lib of r/rookery\n"), "{out}");
    assert!(!out.contains("hush-hush") && !out.contains("more"), "{out}");
}

/// Returns the start-up screen of a static site on a terminal, up to the line with the address.
fn shown_on_terminal(variables: &[(&str, &str)]) -> String {
    let (master, slave) = open_terminal();
    let site = folder(&[("index.html", "home")]);
    let mut command = rookery();
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"] {
        command.env_remove(name);
    }
    command.arg("serve").arg(site.path()).args(["-p", "0", "--log", "none"]).env("TERM", "xterm");
    let mut it = command.envs(variables.iter().copied()).stderr(slave).spawn().unwrap();
    // The command has a copy of the terminal, which would otherwise stay open.
    drop(command);
    let (lines, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(master).lines() {
            let Ok(line) = line else { return };
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    let mut text = String::new();
    while !text.contains("Ctrl-C stops") {
        match receiver.recv_timeout(TEST_TIMEOUT) {
            Ok(line) => text.extend([&line, "\n"]),
            Err(_) => break,
        }
    }
    let _ = it.kill();
    let _ = it.wait();
    assert!(text.contains("Ctrl-C stops"), "{text}");
    text
}

#[test]
fn uses_colour_on_a_terminal_unless_variables_say_otherwise() {
    let text = shown_on_terminal(&[]);
    assert!(
        text.contains("\x1b[1mrookery\x1b[0m ") && text.contains("Serving on \x1b[1;36mhttp"),
        "{text}"
    );
    for variables in [[("NO_COLOR", "1")], [("CLICOLOR", "0")], [("TERM", "dumb")]] {
        let text = shown_on_terminal(&variables);
        assert!(
            !text.contains('\x1b') && text.contains("Serving on http"),
            "{variables:?}: {text}"
        );
    }
}
