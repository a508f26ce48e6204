//! `--workers`, with a shell script in R's place: what happens before an R serves. Those that do are in r/tests/testthat/test-workers.R.

use std::process::Command;

use crate::hand_over::Installed;
use crate::support::{Running, executable, folder};

#[test]
fn when_no_worker_becomes_ready_its_words_are_there_and_the_status_is_3() {
    let installed = Installed::new();
    executable(
        &installed.r(),
        "#!/bin/bash\necho \"no such package ($ROOKERY_WORKER of $ROOKERY_WORKERS)\" >&2\n\
         printf '%s\\n' \"$PWD\" \"$ROOKERY_CLI\"\nexit 7\n",
    );
    let app = folder(&[("my app/app.R", "1")]);
    let mut command = Command::new(installed.program());
    command.args([
        "serve",
        "my app",
        "--workers",
        "2",
        "--port",
        "0",
        "--log",
        "access.log",
        "--error-detail",
        "full",
    ]);
    command.args(["--request-timeout", "90s", "--trusted-proxies", "unix"]);
    let (status, out, said) = installed.run(command.current_dir(app.path()));
    assert_eq!(status, Some(3), "{said}");
    for number in 1..=2 {
        let line = said.lines().find(|line| line.contains(&format!("no such package ({} of 2)", number - 1)));
        assert!(line.is_some_and(|line| line.starts_with(&format!("[{number} "))), "{said}");
    }
    assert!(said.contains(") ended with status 7 before it was ready, as all others did"), "{said}");
    assert!(said.contains("No worker became ready"), "{said}");
    // What a worker is told is what R is for; what is between the client and the supervisor is the supervisor's.
    for line in ["/my app", "target=", "error_detail=full", "limit=request_time=90s", "log=nothing"] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!out.contains("trusted_proxies") && !out.contains("log_file"), "{out}");
}

#[test]
fn a_port_that_is_taken_is_said_before_anything_is_started() {
    let installed = Installed::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("it has one").port().to_string();
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command
        .args(["serve", ".", "--workers", "auto", "--drain", "5s", "--port", &port])
        .current_dir(app.path());
    command.env("WEB_CONCURRENCY", "3");
    let (status, out, said) = installed.run(&mut command);
    assert_eq!((status, out.as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("is in use"), "{said}");
}

#[test]
fn a_signal_ends_workers_that_are_not_ready() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho started >&2\nexec sleep 1000\n");
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command.args(["serve", ".", "--workers", "2", "--port", "0", "--no-log"]).current_dir(app.path());
    let mut it = Running::start(installed.on_path(&mut command));
    it.await_line("started");
    it.await_line("started");
    it.signal(libc::SIGTERM);
    let (status, _) = it.end();
    assert_eq!(status.code(), Some(0), "{}", it.said);
}
