//! Tests of `rookery config` and `rookery check`, with a shell script in place of R.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::r_processes::Installed;
use crate::support::{Running, TEST_TIMEOUT, executable, folder};

/// Makes `R` a script that finds no mistake in an app, and fails if R is started for another
/// purpose.
fn approve_apps(installed: &Installed) {
    executable(
        &installed.r(),
        "#!/bin/bash\ncase $ROOKERY_INTERNAL_SETTINGS in *check=true*) exit 0 ;; esac\n\
         echo STARTED >&2\nexit 7\n",
    );
}

/// Runs a command, and asserts that it starts no R process except one that approves of the app.
fn run(installed: &Installed, words: &[&str], app: &Path) -> (Option<i32>, String, String) {
    approve_apps(installed);
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
    approve_apps(&installed);
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
        ("rokery/_server.yml", "engine: rokery\napp: a.R\n"),
        ("site/index.html", "home"),
    ]);
    let check = |words: &[&str]| run(&installed, &[&["check"], words].concat(), apps.path());
    let (status, out, printed) = check(&["fine", "--port=0"]);
    assert_eq!((status, printed.as_str()), (Some(0), ""));
    let was_not_run =
        "\nThe app's code was parsed and not run: `rookery check --load` also runs it.\n";
    assert!(out.ends_with(&format!("/fine can be served: app.R.{was_not_run}")), "{out}");
    let (_, out, _) = check(&["fine", "--port=0", "--load"]);
    assert!(out.ends_with("/fine can be served: app.R.\n"), "{out}");
    assert!(check(&["site", "--port=0"]).1.ends_with("a site.\n"));
    for (words, status, says) in [
        (&["empty"][..], 1, "cannot be served: it contains no"),
        (&["misspelt"], 1, "Did you mean `port:`?"),
        (&["unnamed"], 1, "there is no `engine:` that names an R package"),
        (&["broken"], 1, "this is not valid YAML"),
        (&["rokery"], 1, "`engine:` is `rokery`, which runs no apps. Did you mean `rookery`?"),
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
fn check_reports_that_the_development_certificate_cannot_be_stored() {
    let installed = Installed::new();
    approve_apps(&installed);
    let app = folder(&[("app.R", "1")]);
    for (data, status) in [("new", 0), ("app.R/below", 1)] {
        let mut command = Command::new(installed.program());
        command.args(["check", ".", "--tls=dev", "--port=0"]).current_dir(app.path());
        command.env("R_USER_DATA_DIR", app.path().join(data));
        let (found, out, printed) = installed.run(&mut command);
        assert_eq!(found, Some(status), "{out}{printed}");
        let is_reported = printed.contains("The development certificate cannot be stored in ");
        assert_eq!(is_reported, status == 1, "{printed}");
    }
    assert!(!app.path().join("new").exists(), "a check changes nothing");
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

/// Returns a command that checks the app in a folder.
fn check_command(installed: &Installed, words: &[&str], app: &Path) -> Command {
    let mut command = Command::new(installed.program());
    command.args(["check", ".", "--port=0"]).args(words).current_dir(app);
    command
}

#[test]
fn r_parses_the_app_in_its_folder_and_loads_it_only_on_request() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    executable(&installed.r(), "#!/bin/bash\npwd\necho \"$ROOKERY_INTERNAL_SETTINGS\"\n");
    for (words, loads, is_verbose) in
        [(&[][..], false, false), (&["--load", "--verbose", "--max-body-size=1MB"], true, true)]
    {
        let (status, out, printed) =
            installed.run(&mut check_command(&installed, words, app.path()));
        assert_eq!((status, printed.as_str()), (Some(0), ""));
        let path = fs::canonicalize(app.path()).unwrap();
        assert!(out.starts_with(&format!("{0}\ntarget={0}\n", path.display())), "{out}");
        let has = |line: &str| out.lines().any(|found| found == line);
        assert!(has("check=true"), "{out}");
        assert_eq!((has("load=true"), has("verbose=true")), (loads, is_verbose), "{out}");
        assert_eq!(has("cli:number:max_body_size=1000000"), loads, "{out}");
    }
}

#[test]
fn a_check_fails_with_the_mistakes_that_r_has_printed() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    for (script, says) in [
        ("echo 'Error (app.R:1): wrong' >&2\nexit 1", "cannot be served: the reason is above."),
        ("echo 'Error (app.R:1): wrong' >&2\nexit 7", "it ended by exit status: 7."),
        ("echo 'Error (app.R:1): wrong' >&2\nkill -SEGV $$", "it ended by signal: 11"),
    ] {
        executable(&installed.r(), &format!("#!/bin/bash\n{script}\n"));
        let (status, out, printed) = installed.run(&mut check_command(&installed, &[], app.path()));
        assert_eq!((status, out.as_str()), (Some(1), ""), "{printed}");
        let (mistake, reason) = printed.split_once('\n').unwrap();
        assert_eq!(mistake, "Error (app.R:1): wrong");
        assert!(reason.starts_with("rookery: ") && reason.contains(says), "{printed}");
    }
}

#[test]
fn an_app_that_takes_too_long_to_load_is_interrupted() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    executable(
        &installed.r(),
        "#!/bin/bash\ntrap 'echo \"Error (app.R:3): the time is over\" >&2; exit 1' INT\n\
         while :; do sleep 0.05; done\n",
    );
    let words = ["--load", "--start-timeout=5s"];
    let (status, out, printed) = installed.run(&mut check_command(&installed, &words, app.path()));
    assert_eq!((status, out.as_str()), (Some(1), ""), "{printed}");
    assert!(printed.starts_with("Error (app.R:3): the time is over\nrookery: "), "{printed}");
    let says = "its code was not loaded within 5 s (`--start-timeout`).";
    assert!(printed.contains(says), "{printed}");
}

#[test]
fn a_check_that_is_stopped_takes_r_and_its_processes_with_it() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    executable(
        &installed.r(),
        "#!/bin/bash\nsleep 1000 &\necho $! > pid.new\nmv pid.new pid\necho begun >&2\nwait\n",
    );
    let mut command = check_command(&installed, &["--load"], app.path());
    let mut it = Running::start(installed.on_path(&mut command));
    it.await_line("begun");
    it.signal(libc::SIGTERM);
    it.end();
    let pid = fs::read_to_string(app.path().join("pid")).unwrap();
    let is_running = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
    };
    let until = Instant::now() + TEST_TIMEOUT;
    while is_running() {
        assert!(Instant::now() < until, "process {pid} still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}
