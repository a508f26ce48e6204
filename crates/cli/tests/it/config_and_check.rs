//! Tests of `rookery config` and `rookery check`, with a shell script in place of R.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::Command;

use crate::r_processes::Installed;
use crate::support::{executable, folder};

/// Runs a command, and asserts that it starts no R process.
fn run(
    installed: &Installed,
    words: &[&str],
    app: &std::path::Path,
) -> (Option<i32>, String, String) {
    executable(&installed.r(), "#!/bin/bash\necho STARTED >&2\nexit 7\n");
    let mut command = Command::new(installed.program());
    command.args(words).current_dir(app);
    let (status, out, printed) = installed.run(command.env("ROOKERY_ERROR_DETAIL", "full"));
    assert!(!printed.contains("STARTED"), "{printed}");
    (status, out, printed)
}

#[test]
fn config_lists_values_and_sources_without_starting_r() {
    let installed = Installed::new();
    let text =
        "engine: rookery\napp: app.R\noptions:\n  port: 9000\n  limits: {max_body_size: 10MB}\n";
    let app = folder(&[("_server.yml", text), ("app.R", "1")]);
    let (status, out, printed) =
        run(&installed, &["config", ".", "--log-format", "json", "-p", "1"], app.path());
    assert_eq!((status, printed.as_str()), (Some(0), ""), "{out}");
    let line = |name: &str| {
        out.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap_or_default()
    };
    for (name, value, source) in [
        ("port", " 1 ", "command line"),
        ("max_body_size", "10 MB", "_server.yml`, line 5"),
        ("error_detail", "full", "ROOKERY_ERROR_DETAIL"),
        ("log_format", "json", "command line"),
        ("idle_timeout", "2 min", "default"),
    ] {
        assert!(line(name).contains(value) && line(name).ends_with(source), "{name}: {out}");
    }
    assert!(out.contains("R was not started"), "{out}");
    // A `_server.yml` also applies to the file of the app beside it.
    let (status, out, printed) = run(&installed, &["config", "app.R"], app.path());
    assert_eq!((status, printed.as_str()), (Some(0), ""), "{out}");
    assert!(out.lines().any(|line| line.contains(" 9000 ")), "{out}");
}

#[test]
fn an_unusable_temporary_folder_is_named() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1"), ("file", "")]);
    let file = app.path().join("file");
    for unusable in [std::path::Path::new("/nowhere/tmp"), &file] {
        let mut command = Command::new(installed.program());
        command.args(["serve", ".", "--port=0", "--log=none"]).current_dir(app.path());
        let (status, _, printed) = installed.run(command.env("TMPDIR", unusable));
        assert_eq!(status, Some(1), "{printed}");
        let folder = format!("the temporary folder {} cannot be used", unusable.display());
        assert!(printed.contains(&folder), "{printed}");
    }
}

#[test]
fn a_mistyped_environment_variable_is_reported_with_the_nearest_name() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command.args(["check", ".", "--port=0"]).current_dir(app.path());
    let (status, _, printed) = installed.run(command.env("ROOKERY_MAX_BODYSIZE", "10MB"));
    assert_eq!(status, Some(0));
    assert_eq!(
        printed,
        "rookery: the environment variable ROOKERY_MAX_BODYSIZE does not belong to a setting and \
         has no effect. Did you mean ROOKERY_MAX_BODY_SIZE?\n"
    );
}

#[test]
fn check_reports_what_would_keep_the_server_from_starting() {
    let installed = Installed::new();
    let apps = folder(&[
        ("fine/app.R", "1"),
        ("empty/notes.txt", ""),
        ("misspelt/_server.yml", "engine: rookery\napp: a.R\noptions: {prot: 1}\n"),
        ("misspelt/a.R", "1"),
        ("unnamed/_server.yml", "# nothing\n"),
        ("broken/_server.yml", "engine: [a\n"),
        ("foreign/_server.yml", "engine: plumber2\nx: !tag 1\n"),
        ("site/index.html", "home"),
    ]);
    let check = |words: &[&str]| run(&installed, &[&["check"], words].concat(), apps.path());
    let (status, out, printed) = check(&["fine", "--port=0"]);
    assert_eq!((status, printed.as_str()), (Some(0), ""));
    let code_is_unchecked = "\nR was not started, so errors in the app's code are not found.\n";
    assert!(out.ends_with(&format!("/fine can be served: app.R.{code_is_unchecked}")), "{out}");
    assert!(check(&["site", "--port=0"]).1.ends_with("a site.\n"));
    for (words, status, says) in [
        (&["empty"][..], 1, "cannot be served: it contains no"),
        (&["misspelt"], 1, "Did you mean `port:`?"),
        (&["unnamed"], 1, "there is no `engine:` that names an R package"),
        (&["broken"], 1, "this is not valid YAML"),
        (&["foreign", "--port=0"], 0, ""),
        (&["fine", "--tls-cert=/nowhere/cert.pem"], 1, "there is no file /nowhere/cert.pem"),
        (&["fine", "--log=/nowhere/log"], 1, "does not exist"),
        (&["fine", "--host=192.0.2.1"], 4, "No network interface of this machine"),
        (&["fine", "--host=unix:fine"], 4, "a folder has this path"),
        (&["fine", "--host=unix:fine/app.R"], 4, "a file that is not a socket has this path"),
        (&["fine", &format!("--host=unix:{}", "x".repeat(108))], 4, "path must be shorter than"),
        (
            &["fine", "--port=0", "--admin=192.0.2.1:9100"],
            4,
            "Cannot listen on the admin address 192.0.2.1:9100",
        ),
        (
            &["fine", "--port=0", "--admin=unix:fine/app.R"],
            4,
            "a file that is not a socket has this path",
        ),
        (&["fine", "--drain=soon"], 2, "`--drain` must be a time"),
        (&["missing"], 1, "does not exist"),
    ] {
        let (found, _, printed) = check(words);
        assert_eq!(found, Some(status), "{words:?}: {printed}");
        assert!(printed.contains(says), "{words:?}: {printed}");
    }
}

#[test]
fn check_accepts_an_address_that_is_in_use_because_the_server_may_use_it() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (status, out, _) = run(&installed, &["check", ".", "--port", &port], app.path());
    assert_eq!(status, Some(0));
    assert!(out.contains("Note: Port") && out.contains("is in use"), "{out}");
    let _socket = UnixListener::bind(app.path().join("s")).unwrap();
    let words = ["check", ".", "--host=unix:s", "--admin", &format!("127.0.0.1:{port}")];
    let (status, out, _) = run(&installed, &words, app.path());
    assert_eq!(status, Some(0));
    assert!(
        out.contains("Note: Cannot listen on the socket") && out.contains("listens there"),
        "{out}"
    );
    assert!(
        out.contains(&format!("Note: The address of `--admin`, 127.0.0.1:{port}, is in use.")),
        "{out}"
    );
}
