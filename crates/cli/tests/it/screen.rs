//! What a terminal shows: the start-up screen, `--open`, `rookery new` and `rookery --version --verbose`.

use rookery_test_support::TEST_TIMEOUT;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::hand_over::Installed;
use crate::support::{Running, executable, folder, get, rookery};

/// Returns what a site shows at its start, in an environment without variables about colour.
fn shown(words: &[&str], variables: &[(&str, &str)]) -> (String, u16) {
    let site = folder(&[("index.html", "home")]);
    let mut command = rookery();
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"] {
        command.env_remove(name);
    }
    command.arg("serve").arg(site.path()).args(["-p", "0", "--log", "none"]).args(words);
    let mut it = Running::start(command.envs(variables.iter().copied()));
    // The second line, in which colour stands around the address.
    let line = it.await_line("Serving on ");
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let port = line.split("//").nth(1).and_then(|rest| rest.rsplit(':').next()).map(digits);
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.said);
    let root = fs::canonicalize(site.path()).unwrap().display().to_string();
    (it.said.replace(&root, "ROOT"), port.unwrap().parse().unwrap())
}

#[test]
fn the_screen_is_plain_in_a_log_and_coloured_where_that_is_forced() {
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
fn on_all_interfaces_the_address_for_other_machines_is_shown_if_there_is_one() {
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
fn open_has_the_browser_show_the_address_once_it_is_served() {
    let root = folder(&[("site/index.html", "home"), ("bin/none", "")]);
    let told = root.path().join("told");
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
            .env("TOLD", &told)
            .env("ROOKERY_PORT", "0")
            .envs(variables.iter().copied());
        command.arg("serve").arg(root.path().join("site")).args(["--log", "none", "--open"]);
        Running::start(&mut command)
    };
    if cfg!(not(target_os = "macos")) {
        let mut it = start(&[("DISPLAY", ":0")]);
        let port = it.port();
        let until = Instant::now() + TEST_TIMEOUT;
        while !told.exists() {
            assert!(Instant::now() < until, "no browser is opened: {}", it.said);
            std::thread::sleep(Duration::from_millis(5));
        }
        // The browser has none of the program's own variables.
        let text = fs::read_to_string(&told).unwrap();
        assert_eq!(text, format!("1 http://127.0.0.1:{port} []\n"));
        assert!(get(port, "/").ends_with("home"));
        fs::remove_file(&told).unwrap();
    }
    let mut it = start(&[("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22")]);
    let line = it.await_line("over SSH");
    assert!(
        line.contains(
            "`--open` does not open a browser over SSH; the address is http://127.0.0.1:"
        ),
        "{line}"
    );
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.said);
    assert!(!told.exists());
}

#[test]
fn a_new_app_passes_the_check_and_is_not_overwritten() {
    let installed = Installed::new();
    let root = folder(&[]);
    for (kind, made) in [("shiny", "a Shiny app"), ("api", "a plumber API"), ("site", "a site")] {
        let new = || {
            let mut command = Command::new(installed.program());
            command.args(["new", kind, kind]).current_dir(root.path());
            installed.run(&mut command)
        };
        let (status, out, said) = new();
        assert_eq!((status, said.as_str()), (Some(0), ""));
        assert!(out.starts_with(&format!("Wrote {made} to {kind}:\n  _server.yml\n")), "{out}");
        assert!(out.ends_with(&format!("\nNext: rookery dev {kind}\n")), "{out}");
        let (status, _, said) = new();
        assert_eq!(status, Some(1));
        assert!(said.contains("no file is overwritten"), "{said}");
        let mut check = Command::new(installed.program());
        check.args(["check", kind, "--port", "0"]).current_dir(root.path());
        let (status, out, said) = installed.run(&mut check);
        assert_eq!((status, said.as_str()), (Some(0), ""), "{out}");
        assert!(out.contains("can be served: "), "{out}");
    }
}

#[test]
fn the_verbose_version_names_the_r_and_the_package_and_no_variable_of_the_environment() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/sh\necho 'R version 9.8.7 (a test)'\necho more\n");
    let mut command = Command::new(installed.program());
    command.args(["--version", "--verbose"]).env("ROOKERY_TOKEN", "hush-hush");
    let (status, out, said) = installed.run(&mut command);
    assert_eq!((status, said.as_str()), (Some(0), ""));
    assert!(out.starts_with(&format!("rookery {}\n", env!("CARGO_PKG_VERSION"))), "{out}");
    assert!(
        out.contains("\nR:        R version 9.8.7 (a test), ") && out.contains("/bin/R\n"),
        "{out}"
    );
    assert!(out.contains("\ntarget:   ") && out.contains("/lib of r/rookery\n"), "{out}");
    assert!(!out.contains("hush-hush") && !out.contains("more"), "{out}");
}

/// Returns what a site shows on a terminal, up to the end of the line with the address.
fn shown_on_terminal(variables: &[(&str, &str)]) -> String {
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: room for two descriptors; neither a name nor settings of the terminal are asked for.
    let opened = unsafe {
        libc::openpty(
            &raw mut master,
            &raw mut slave,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    assert_eq!(opened, 0);
    // SAFETY: just opened, and owned by nobody else.
    let (master, slave) = unsafe { (fs::File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    let site = folder(&[("index.html", "home")]);
    let mut command = rookery();
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"] {
        command.env_remove(name);
    }
    command.arg("serve").arg(site.path()).args(["-p", "0", "--log", "none"]).env("TERM", "xterm");
    let mut it = command.envs(variables.iter().copied()).stderr(slave).spawn().unwrap();
    // The command has a copy of the terminal, which would keep it from ending.
    drop(command);
    let (told, hears) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(master).lines() {
            let Ok(line) = line else { return };
            if told.send(line).is_err() {
                return;
            }
        }
    });
    let mut text = String::new();
    while !text.contains("Ctrl-C stops") {
        match hears.recv_timeout(TEST_TIMEOUT) {
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
fn a_terminal_has_colours_unless_variables_say_otherwise() {
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
