//! Tests of workers before they are ready, with a shell script in place of R.
//! r/tests/testthat/test-workers.R tests workers that serve.

use rookery_test_support::tls_file;
use std::process::Command;

use crate::r_processes::Installed;
use crate::support::{Running, executable, folder};

#[test]
fn exits_with_status_3_and_the_apps_message_if_no_worker_is_ready() {
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
    let (status, out, printed) = installed.run(command.current_dir(app.path()));
    assert_eq!(status, Some(3), "{printed}");
    // The app's message occurs once, and not once per worker and retry. It begins the final
    // message.
    let words: Vec<&str> = printed.lines().filter(|line| line.starts_with('[')).collect();
    assert!(words.len() == 1 && words[0].contains("no such package ("), "{printed}");
    assert_eq!(printed.matches("it is started again").count(), 3, "{printed}");
    let last = printed.split("rookery: ").last().expect("there are lines");
    assert!(last.starts_with("The app did not start: no such package ("), "{printed}");
    assert!(printed.contains("no worker became ready after 4 starts"), "{printed}");
    // A worker gets the settings that are options of R, and no access log.
    for line in [
        "/my app",
        "target=",
        "cli:text:error_detail=full",
        "cli:number:request_timeout=90",
        "cli:text:trusted_proxies=unix",
        "log=nothing",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!out.contains("log_file"), "{out}");
}

#[test]
fn reports_a_busy_port_before_starting_workers() {
    let installed = Installed::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("it has one").port().to_string();
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command
        .args(["serve", ".", "--workers", "auto", "--drain", "5s", "--port", &port])
        .current_dir(app.path());
    command.env("WEB_CONCURRENCY", "3");
    let (status, out, printed) = installed.run(&mut command);
    assert_eq!((status, out.as_str()), (Some(4), ""), "{printed}");
    assert!(printed.contains("is in use"), "{printed}");
}

#[test]
fn signals_change_the_number_of_workers() {
    let installed = Installed::new();
    executable(
        &installed.r(),
        "#!/bin/bash\necho \"started of $ROOKERY_WORKER_COUNT.\" >&2\nexec sleep 1000\n",
    );
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command
        .args(["serve", ".", "--workers", "2", "--port", "0", "--log=none"])
        .current_dir(app.path());
    let mut it = Running::start(installed.on_path(&mut command).env("TMPDIR", app.path()));
    it.await_line("started of 2.");
    it.signal(libc::SIGTTIN);
    it.await_line("added one worker: 3 in total");
    let status = || {
        let mut status = crate::support::rookery();
        let output = status.arg("status").env("TMPDIR", app.path()).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(status().contains(": starting, 3 workers\n"), "{}", status());
    it.signal(libc::SIGTTOU);
    it.await_line("removed one worker: 2 in total");
    it.signal(libc::SIGTTOU);
    it.await_line("removed one worker: 1 in total");
    assert!(status().contains(": starting, 1 worker\n"), "{}", status());
    it.signal(libc::SIGTTOU);
    it.await_line("no worker is removed: one worker is the minimum");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn options_for_workers_apply_to_a_single_worker() {
    let installed = Installed::new();
    executable(
        &installed.r(),
        "#!/bin/bash\necho \"${ROOKERY_WORKER_COUNT} ${ROOKERY_INTERNAL_RINGS_FDS:+listens}\" \
         >&2\nexit 3\n",
    );
    let app = folder(&[("app.R", "1")]);
    for (words, printed) in [
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
            "--log=none",
            "--start-retries",
            "0",
            "--drain",
            "5s",
        ]);
        let mut it = Running::start(installed.on_path(command.args(words).current_dir(app.path())));
        it.await_line(printed);
        assert_eq!(it.end().0.code(), Some(3), "{}", it.stderr);
    }
}

#[test]
fn a_finished_script_stops_the_server_with_status_0() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho done\n");
    let app = folder(&[("app.R", "1")]);
    for words in [&[][..], &["--workers", "2"], &["--restart", "never"]] {
        let mut command = Command::new(installed.program());
        command
            .args(["serve", ".", "--port", "0", "--log=none"])
            .args(words)
            .current_dir(app.path());
        let (status, out, printed) = installed.run(&mut command);
        assert_eq!(status, Some(0), "{printed}");
        assert!(out.contains("done") && printed.contains("has finished"), "{printed}");
    }
}

#[test]
fn without_restarts_exits_with_the_status_of_r() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    for (script, status) in [("exit 77", 77), ("kill -KILL $$", 137)] {
        executable(&installed.r(), &format!("#!/bin/bash\n{script}\n"));
        let mut command = Command::new(installed.program());
        command
            .args(["serve", ".", "--port", "0", "--log=none", "--restart", "never"])
            .current_dir(app.path());
        let (found, _, printed) = installed.run(&mut command);
        assert_eq!(found, Some(status), "{printed}");
        assert!(printed.contains("`--restart never`"), "{printed}");
    }
}

#[test]
fn an_app_that_cannot_be_served_is_not_retried() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho 'rookery: `x` is no app.' >&2\nexit 78\n");
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command.args(["serve", ".", "--port", "0", "--log=none"]).current_dir(app.path());
    let (status, _, printed) = installed.run(&mut command);
    assert_eq!(status, Some(3), "{printed}");
    assert!(!printed.contains("started again"), "{printed}");
    // The reason is printed once, and the last line names the place.
    assert_eq!(printed.matches("`x` is no app.").count(), 1, "{printed}");
    assert!(printed.ends_with("The app did not start: its messages are above.\n"), "{printed}");
}

#[test]
fn a_signal_stops_workers_that_are_not_ready() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\necho started >&2\nexec sleep 1000\n");
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command
        .args(["serve", ".", "--workers", "2", "--port", "0", "--log=none"])
        .current_dir(app.path());
    let mut it = Running::start(installed.on_path(&mut command));
    it.await_line("started");
    it.signal(libc::SIGTERM);
    let (status, _) = it.end();
    assert_eq!(status.code(), Some(0), "{}", it.stderr);
}

#[test]
fn a_signal_forwarded_by_the_parent_session_is_no_second_signal() {
    let installed = Installed::new();
    // The worker ignores SIGTERM, so that the program is still stopping at the second signal.
    executable(
        &installed.r(),
        "#!/bin/bash\ntrap '' TERM\necho started >&2\nfor i in {1..1000}; do sleep 0.1; done\n",
    );
    let app = folder(&[("app.R", "1")]);
    // A shell that forwards SIGTERM, like an R session that started the program.
    let script = "\"$0\" serve . --workers 2 --port 0 --log=none & child=$!\ntrap 'kill -TERM \
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
    // SAFETY: the calls take no pointers. The shell has not waited for the process yet.
    unsafe { libc::kill(child, libc::SIGTERM) };
    it.signal(libc::SIGTERM);
    it.await_line("passed-on");
    it.await_line("status ");
    // A second signal would terminate the program by SIGTERM, which a shell reports as 143.
    assert!(it.stderr.contains("status 0"), "{}", it.stderr);
}

#[test]
fn workers_that_are_starting_are_killed_if_they_do_not_stop() {
    let installed = Installed::new();
    // Like an R process in C code that no signal interrupts.
    executable(
        &installed.r(),
        "#!/bin/bash\ntrap '' TERM\necho started >&2\nfor i in {1..1000}; do sleep 0.1; done\n",
    );
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command
        .args(["serve", ".", "--workers", "2", "--port", "0", "--log=none"])
        .current_dir(app.path());
    let mut it = Running::start(installed.on_path(&mut command));
    it.await_line("started");
    let requested = std::time::Instant::now();
    it.signal(libc::SIGTERM);
    it.await_line("stopping: nothing is being served yet, since no worker is ready");
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
    // A worker that is ready has 15 s to stop.
    assert!(requested.elapsed() < std::time::Duration::from_secs(12), "{:?}", requested.elapsed());
}

#[test]
fn workers_do_not_inherit_variables_of_the_program() {
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
            // This setting is also meant for R.
            ("ERROR_DETAIL", "full"),
        ] {
            command.env(format!("ROOKERY_{name}"), value);
        }
        let (status, _, printed) = installed.run(&mut command);
        assert_eq!(status, Some(3), "{printed}");
        let has = |name: &str| printed.lines().any(|line| line.ends_with(name));
        assert!(has("ROOKERY_INTERNAL_SETTINGS") && has("ROOKERY_ERROR_DETAIL"), "{printed}");
        for name in rookery_settings::environment::program_variables() {
            // The supervisor sets a variable with this name for workers, for one more release.
            assert!(!has(&name) || name == "ROOKERY_WORKERS", "{name}: {printed}");
        }
    }
}
