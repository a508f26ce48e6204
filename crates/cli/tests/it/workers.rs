//! Workers, with a shell script in R's place: what happens before an R serves. Those that do are in r/tests/testthat/test-workers.R.

use rookery_test_support::tls_file;
use std::process::Command;

use crate::hand_over::Installed;
use crate::support::{Running, executable, folder};

#[test]
fn when_no_worker_becomes_ready_its_words_are_there_and_the_status_is_3() {
    let installed = Installed::new();
    executable(
        &installed.r(),
        "#!/bin/bash\necho \"no such package ($ROOKERY_WORKER of $ROOKERY_WORKER_COUNT)\" >&2\n\
         printf '%s\\n' \"$PWD\" \"$ROOKERY_INTERNAL_SETTINGS\"\nexit 7\n",
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
    // Once, and not once for each worker and each retry; and first in what is said at the end.
    let words: Vec<&str> = said.lines().filter(|line| line.starts_with('[')).collect();
    assert!(words.len() == 1 && words[0].contains("no such package ("), "{said}");
    assert_eq!(said.matches("it is started again").count(), 3, "{said}");
    let last = said.split("rookery: ").last().expect("there are lines");
    assert!(last.starts_with("The app did not start: no such package ("), "{said}");
    assert!(last.contains("No worker became ready"), "{said}");
    // What a worker is told is what R is for; what is between the client and the supervisor is the supervisor's.
    for line in [
        "/my app",
        "target=",
        "cli:text:error_detail=full",
        "cli:number:request_timeout=90",
        "log=nothing",
    ] {
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
    assert_eq!((status, out.as_str()), (Some(4), ""), "{said}");
    assert!(said.contains("is in use"), "{said}");
}

#[test]
fn signals_ask_for_a_worker_more_and_one_less_and_status_says_how_many_are_wanted() {
    let installed = Installed::new();
    executable(
        &installed.r(),
        "#!/bin/bash\necho \"started of $ROOKERY_WORKER_COUNT.\" >&2\nexec sleep 1000\n",
    );
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command
        .args(["serve", ".", "--workers", "2", "--port", "0", "--no-log"])
        .current_dir(app.path());
    let mut it = Running::start(installed.on_path(&mut command).env("TMPDIR", app.path()));
    it.await_line("started of 2.");
    it.signal(libc::SIGTTIN);
    it.await_line("one worker more: 3");
    let status = || {
        let mut status = crate::support::rookery();
        let output = status.arg("status").env("TMPDIR", app.path()).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(status().contains(": starting, 3 workers\n"), "{}", status());
    it.signal(libc::SIGTTOU);
    it.await_line("one worker less: 2");
    it.signal(libc::SIGTTOU);
    it.await_line("one worker less: 1");
    assert!(status().contains(": starting, 1 worker\n"), "{}", status());
    it.signal(libc::SIGTTOU);
    it.await_line("there is one worker, which stays");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.said);
}

#[test]
fn options_about_workers_are_for_one_as_well() {
    let installed = Installed::new();
    executable(
        &installed.r(),
        "#!/bin/bash\necho \"${ROOKERY_WORKER_COUNT} ${ROOKERY_INTERNAL_LISTEN_FD:+listens}\" \
         >&2\nexit 3\n",
    );
    let app = folder(&[("app.R", "1")]);
    for (words, said) in [
        (&[][..], "1 listens"),
        (&["--workers", "1"], "1 listens"),
        (&["--spares", "1"], "2 listens"),
    ] {
        let mut command = Command::new(installed.program());
        command.args([
            "serve",
            ".",
            "--port",
            "0",
            "--no-log",
            "--start-retries",
            "0",
            "--drain",
            "5s",
        ]);
        let mut it = Running::start(installed.on_path(command.args(words).current_dir(app.path())));
        it.await_line(said);
        assert_eq!(it.end().0.code(), Some(3), "{}", it.said);
    }
}

#[test]
fn a_script_that_has_finished_ends_the_server_with_status_0() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho done\n");
    let app = folder(&[("app.R", "1")]);
    for words in [&[][..], &["--workers", "2"], &["--restart", "never"]] {
        let mut command = Command::new(installed.program());
        command.args(["serve", ".", "--port", "0", "--no-log"]).args(words).current_dir(app.path());
        let (status, out, said) = installed.run(&mut command);
        assert_eq!(status, Some(0), "{said}");
        assert!(out.contains("done") && said.contains("has finished"), "{said}");
    }
}

#[test]
fn without_restarts_the_status_is_that_of_r_or_128_and_its_signal() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    for (script, status) in [("exit 77", 77), ("kill -KILL $$", 137)] {
        executable(&installed.r(), &format!("#!/bin/bash\n{script}\n"));
        let mut command = Command::new(installed.program());
        command
            .args(["serve", ".", "--port", "0", "--no-log", "--restart", "never"])
            .current_dir(app.path());
        let (found, _, said) = installed.run(&mut command);
        assert_eq!(found, Some(status), "{said}");
        assert!(said.contains("`--restart never`"), "{said}");
    }
}

#[test]
fn an_app_that_cannot_be_served_at_all_is_not_tried_again() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho 'rookery: `x` is no app.' >&2\nexit 78\n");
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command.args(["serve", ".", "--port", "0", "--no-log"]).current_dir(app.path());
    let (status, _, said) = installed.run(&mut command);
    assert_eq!(status, Some(3), "{said}");
    assert!(
        !said.contains("started again") && said.contains("did not start: `x` is no app."),
        "{said}"
    );
}

#[test]
fn a_signal_ends_workers_that_are_not_ready() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho started >&2\nexec sleep 1000\n");
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command
        .args(["serve", ".", "--workers", "2", "--port", "0", "--no-log"])
        .current_dir(app.path());
    let mut it = Running::start(installed.on_path(&mut command));
    it.await_line("started");
    it.signal(libc::SIGTERM);
    let (status, _) = it.end();
    assert_eq!(status.code(), Some(0), "{}", it.said);
}

#[test]
fn a_signal_that_the_parent_session_passes_on_is_no_second_one() {
    let installed = Installed::new();
    // It goes on after a SIGTERM, so that the program is still ending when the second one comes.
    executable(
        &installed.r(),
        "#!/bin/bash\ntrap '' TERM\necho started >&2\nfor i in {1..1000}; do sleep 0.1; done\n",
    );
    let app = folder(&[("app.R", "1")]);
    // A shell that passes SIGTERM on, as an R session does that has started the program.
    let script = "\"$0\" serve . --workers 2 --port 0 --no-log & child=$!\ntrap 'kill -TERM \
                  $child; echo passed-on >&2' TERM\necho \"child $child\" >&2\nuntil wait $child; \
                  code=$?; ((code < 128)) || ! kill -0 $child 2>/dev/null; do :; done\necho \
                  \"status $code\" >&2";
    let mut command = Command::new("/bin/bash");
    command
        .arg("-c")
        .arg(format!("export ROOKERY_INTERNAL_PARENT_PID=$$\n{script}"))
        .arg(installed.program());
    let mut it = Running::start(installed.on_path(command.current_dir(app.path())));
    let line = it.await_line("child ");
    let child: libc::pid_t = line.trim().trim_start_matches("child ").parse().unwrap();
    it.await_line("started");
    // SAFETY: plain calls; the process is a child of the shell, which has not waited for it yet.
    unsafe { libc::kill(child, libc::SIGTERM) };
    it.signal(libc::SIGTERM);
    it.await_line("passed-on");
    it.await_line("status ");
    // A second signal would end the program by SIGTERM, which a shell shows as 143.
    assert!(it.said.contains("status 0"), "{}", it.said);
}

#[test]
fn workers_that_are_starting_are_ended_soon_also_where_they_do_not_listen() {
    let installed = Installed::new();
    // As an R process that is busy in C code, which no signal interrupts.
    executable(
        &installed.r(),
        "#!/bin/bash\ntrap '' TERM\necho started >&2\nfor i in {1..1000}; do sleep 0.1; done\n",
    );
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command
        .args(["serve", ".", "--workers", "2", "--port", "0", "--no-log"])
        .current_dir(app.path());
    let mut it = Running::start(installed.on_path(&mut command));
    it.await_line("started");
    let asked = std::time::Instant::now();
    it.signal(libc::SIGTERM);
    it.await_line("stopping: no worker is ready yet");
    assert_eq!(it.end().0.code(), Some(0), "{}", it.said);
    // A worker that serves has 15 s to end.
    assert!(asked.elapsed() < std::time::Duration::from_secs(12), "{:?}", asked.elapsed());
}

#[test]
fn workers_have_no_variables_that_are_for_the_program() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\nenv | grep ^ROOKERY_ | cut -d= -f1 >&2\nexit 3\n");
    let app = folder(&[("app.R", "1")]);
    for several in ["1", "2"] {
        let mut command = Command::new(installed.program());
        command.args(["serve", "."]).current_dir(app.path());
        for (name, value) in [
            ("HOST", "127.0.0.1"),
            ("PORT", "0"),
            ("TLS_CERT", tls_file("localhost.pem").to_str().unwrap()),
            ("TLS_KEY", tls_file("localhost.key").to_str().unwrap()),
            ("HSTS", "60"),
            ("WORKERS", several),
            ("DRAIN", "5s"),
            ("START_RETRIES", "0"),
            ("LOG", "none"),
            ("PROXY_PROTOCOL", "off"),
            // This one is for R as well.
            ("ERROR_DETAIL", "full"),
        ] {
            command.env(format!("ROOKERY_{name}"), value);
        }
        let (status, _, said) = installed.run(&mut command);
        assert_eq!(status, Some(3), "{said}");
        let has = |name: &str| said.lines().any(|line| line.ends_with(name));
        assert!(has("ROOKERY_INTERNAL_SETTINGS") && has("ROOKERY_ERROR_DETAIL"), "{said}");
        for name in rookery_settings::environment::program_variables() {
            // A worker's own variable has this name for one more release.
            assert!(!has(&name) || name == "ROOKERY_WORKERS", "{name}: {said}");
        }
    }
}
