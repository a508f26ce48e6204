//! Tests of `rookery live`.

use std::fs;
use std::process::Command;

use crate::r_processes::Installed;
use crate::support::{Running, ask, executable, folder, restore_signals, rookery};

/// Returns a command that runs `rookery live` for the server with this process id. Its browser
/// writes its argument, and the file of that name, to a file `opened` in `folder`.
fn live(installed: &Installed, pid: u32, folder: &std::path::Path) -> Command {
    executable(
        &folder.join("xdg-open"),
        "#!/bin/sh\n{ echo \"$@\"; ls -l \"$1\"; cat \"$1\"; } >\"${0%/*}/new\"\n\
         mv \"${0%/*}/new\" \"${0%/*}/opened\"\n",
    );
    let mut command = Command::new(installed.program());
    command.arg("live").arg(pid.to_string()).env("PATH", {
        let path = std::env::var("PATH").unwrap_or_default();
        format!("{}:{path}", folder.display())
    });
    command
        .env("TMPDIR", folder)
        .env("DISPLAY", ":none")
        .env_remove("SSH_CONNECTION")
        .env_remove("SSH_TTY");
    restore_signals(&mut command);
    command
}

#[test]
fn a_server_that_is_missing_or_does_not_respond_is_explained() {
    let folder = folder(&[]);
    let silent = folder.path().join("silent");
    let _listens = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    let run = |which: &str| {
        let mut command = rookery();
        command.args(["live", "--no-open", which]).env("TMPDIR", folder.path());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run("999999999");
    assert!(said.contains("`rookery live unix:/path/of/the/socket`"), "{said}");
    let silent = format!("unix:{}", silent.display());
    let said = run(&silent);
    for part in [
        format!("Waiting for the server at {silent}, for at most 5 seconds\n"),
        format!("the server at {silent} does not respond: it has sent nothing for 5 seconds."),
    ] {
        assert!(said.contains(&part), "{said}");
    }
    let said = run("unix:/none/there");
    assert!(said.contains("the server at unix:/none/there does not respond: "), "{said}");
}

#[test]
fn the_live_page_is_opened_over_the_socket_and_its_token_is_no_argument() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho started >&2\nexec sleep 1000\n");
    for admin in ["127.0.0.1:0", "unix:admin.sock"] {
        let app = folder(&[("app.R", "1")]);
        let mut command = Command::new(installed.program());
        command.args(["serve", ".", "--port", "0", "--log=none", "--admin", admin]);
        command.current_dir(app.path()).env("TMPDIR", app.path());
        let mut it = Running::start(installed.on_path(&mut command));
        it.await_line("started");
        let mut command = live(&installed, it.id(), app.path());
        let mut opens = Running::start(&mut command);
        let opened = app.path().join("opened");
        rookery_test_support::wait_until("the browser is opened", || opened.exists());
        let text = fs::read_to_string(&opened).unwrap();
        let argument = text.lines().next().unwrap();
        assert!(argument.starts_with('/') && !argument.contains("token"), "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with("-rw-------"), "{text}");
        let (_, url) = text.split_once("content=\"0;url=http://127.0.0.1:").unwrap();
        let (port, target) = url.split_once('"').unwrap().0.split_once('/').unwrap();
        let port = port.parse().unwrap();
        let get = |target: &str, headers: &str| {
            ask(
                port,
                &format!(
                    "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
                ),
            )
        };
        assert!(get("/live/", "").starts_with("HTTP/1.1 403 "), "{admin}");
        let exchanged = get(&format!("/{target}"), "");
        let (_, cookie) = exchanged.split_once("Set-Cookie: ").expect(&exchanged);
        let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
        assert!(get("/live/", &cookie).contains("uPlot"), "{admin}");
        opens.signal(libc::SIGTERM);
        opens.end();
        it.signal(libc::SIGTERM);
        let status = it.end().0.code();
        assert_eq!(status, Some(0), "{}", it.stderr);
        assert!(!it.stderr.contains("token="), "{}", it.stderr);
    }
}
