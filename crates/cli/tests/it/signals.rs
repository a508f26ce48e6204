//! Tests of signals, with a shell script in place of R.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::r_processes::Installed;
use crate::support::{Running, executable, folder, get, rookery};

/// Makes a command start with an ignored signal, as `nohup` does.
fn ignores(command: &mut Command, number: libc::c_int) {
    let ignore = move || {
        // SAFETY: the call is async-signal-safe, and the number is that of a signal.
        unsafe { libc::signal(number, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(ignore) };
}

/// Replaces R by a program that only prints that it has started.
fn quiet(installed: &Installed) {
    executable(
        &installed.r(),
        "#!/bin/bash\necho \"started in generation $ROOKERY_GENERATION of $ROOKERY_WORKER_COUNT\" \
         >&2\nexec sleep 1000\n",
    );
}

#[test]
fn sighup_reloads_workers_even_under_nohup() {
    let installed = Installed::new();
    quiet(&installed);
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command
        .args(["serve", ".", "--workers", "2", "--port", "0", "--log=none"])
        .current_dir(app.path());
    ignores(installed.on_path(&mut command), libc::SIGHUP);
    let mut it = Running::start(&mut command);
    it.await_line("started in generation 0");
    it.signal(libc::SIGHUP);
    it.await_line("reloading: 2 workers are replaced one after the other");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn sigusr2_replaces_workers_like_sighup() {
    let installed = Installed::new();
    quiet(&installed);
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    command
        .args(["serve", ".", "--workers", "2", "--port", "0", "--log=none"])
        .current_dir(app.path());
    let mut it = Running::start(installed.on_path(&mut command));
    it.await_line("started in generation 0");
    it.signal(libc::SIGUSR2);
    it.await_line("reloading: 2 workers are replaced one after the other");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn a_static_site_ignores_signals_for_workers() {
    let site = folder(&[("index.html", "hello")]);
    let mut command = rookery();
    command.args(["serve", ".", "--port", "0", "--log=none"]).current_dir(site.path());
    ignores(&mut command, libc::SIGHUP);
    let mut it = Running::start(&mut command);
    let port = it.port();
    for number in [libc::SIGUSR2, libc::SIGHUP, libc::SIGUSR2] {
        it.signal(number);
        assert!(get(port, "/").ends_with("hello"));
    }
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn automatic_workers_work_on_one_processor() {
    let installed = Installed::new();
    quiet(&installed);
    let app = folder(&[("app.R", "1")]);
    let mut command = Command::new(installed.program());
    // The options of deploy/systemd/rookery.service.
    command.args(["serve", ".", "--workers", "auto", "--drain", "60s", "--port", "0"]);
    command.args(["--admin", "unix:admin", "--log", "access.log"]).current_dir(app.path());
    command.env("WEB_CONCURRENCY", "1");
    let mut it = Running::start(installed.on_path(&mut command));
    let line = it.await_line("started in generation 0 of 1");
    assert!(line.starts_with("started"), "{line}");
    it.signal(libc::SIGUSR1);
    it.signal(libc::SIGHUP);
    it.await_line("reloading: the worker is replaced");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn localhost_listens_on_the_loopback_address() {
    let site = folder(&[("index.html", "hello")]);
    let mut command = rookery();
    command
        .args(["serve", ".", "--host", "localhost", "--port", "0", "--log=none"])
        .current_dir(site.path());
    let mut it = Running::start(&mut command);
    let port = it.port();
    assert!(get(port, "/").ends_with("hello"));
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}
