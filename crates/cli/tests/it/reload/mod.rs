//! Tests of reloads with a changed `_server.yml`, with a shell script in place of R.

mod development;
mod releases;
mod shortcuts;

use std::process::Command;
use std::time::{Duration, Instant};

use rookery_test_support::tls_file;

use tempfile::TempDir;

use crate::r_processes::Installed;
use crate::support::{Running, TEST_TIMEOUT, executable, folder};

/// Replaces `R` by a script that writes its generation and its settings to a file and keeps
/// running. A file is used because output on stderr is held back while no worker is ready.
fn print_settings(installed: &Installed) {
    executable(
        &installed.r(),
        "#!/bin/bash\necho \"generation $ROOKERY_GENERATION of $ROOKERY_WORKER_COUNT:\" \
         $ROOKERY_INTERNAL_SETTINGS >>told.txt\nexec sleep 1000\n",
    );
}

/// Waits until a worker has written `words`, and returns the line.
fn await_note(app: &TempDir, words: &str) -> String {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let text = notes(app);
        if let Some(line) =
            text.split_inclusive('\n').find(|it| it.contains(words) && it.ends_with('\n'))
        {
            return line.to_owned();
        }
        assert!(Instant::now() < until, "no worker notes {words:?}: {text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn notes(app: &TempDir) -> String {
    std::fs::read_to_string(app.path().join("told.txt")).unwrap_or_default()
}

fn app(options: &str) -> TempDir {
    folder(&[("_server.yml", &file(options)), ("app.R", "1")])
}

fn file(options: &str) -> String {
    format!("engine: rookery\napp: app.R\noptions:\n{options}")
}

fn write(app: &TempDir, options: &str) {
    std::fs::write(app.path().join("_server.yml"), file(options)).unwrap();
}

fn serve(installed: &Installed, app: &TempDir, words: &[&str]) -> Running {
    print_settings(installed);
    let mut command = Command::new(installed.program());
    command.args(["serve", ".", "--log", "none"]).args(words).current_dir(app.path());
    command.env("ROOKERY_ERROR_DETAIL", "message");
    Running::start(installed.on_path(&mut command))
}

fn end(mut it: Running) {
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn sighup_reads_the_file_again_and_names_settings_that_need_a_restart() {
    let installed = Installed::new();
    let app =
        app("  port: 0\n  reconnect: always\n  limits: {max_body_size: 1MB, request_timeout: 9}\n");
    let mut it = serve(&installed, &app, &["--request-timeout=7"]);
    let line = await_note(&app, "generation 0 of 1:");
    for given in ["file:text:reconnect=always", " cli:number:request_timeout=7"] {
        assert!(line.contains(given), "{given}: {line}");
    }
    // The environment and the command line have not changed.
    write(
        &app,
        "  port: 64999\n  reconnect: never\n  error_detail: full\n  admin: 127.0.0.1:0\n  sticky: \
         none\n  limits: {max_body_size: 2MB, request_timeout: 10}\n",
    );
    it.signal(libc::SIGHUP);
    let left = it.await_line("keep their old values until the server is restarted");
    assert!(left.ends_with(": `port`, `sticky`, `admin`\n"), "{left}");
    let line = await_note(&app, "generation 1 of 1:");
    for given in [
        "file:text:reconnect=never",
        " cli:number:request_timeout=7",
        "environment:text:error_detail=message",
    ] {
        assert!(line.contains(given), "{given}: {line}");
    }
    end(it);
}

#[test]
fn a_mistake_in_the_file_cancels_the_reload() {
    let installed = Installed::new();
    let app = app("  port: 0\n  reconnect: always\n");
    let mut it = serve(&installed, &app, &[]);
    await_note(&app, "generation 0");
    for (wrong, says) in [
        ("  port: 0\n  prot: 1\n", "line 5, column 3: `prot:` is not a setting under `options:`."),
        ("  port: 0\n  tls: {cert: /nowhere/cert.pem}\n", "there is no file /nowhere/cert.pem"),
        ("  port: 0\n  host: app.test\n", "must be `localhost` or an IP address of this machine"),
        // RFC 5737 reserves this address (TEST-NET-1) for documentation.
        ("  port: 0\n  host: 192.0.2.1\n", "Cannot listen on 192.0.2.1 port 0"),
        ("  host: unix:app.R\n", "a file that is not a socket has this path"),
        (
            "  port: 0\n  admin: 192.0.2.1:9100\n",
            "Cannot listen on the admin address 192.0.2.1:9100",
        ),
    ] {
        write(&app, wrong);
        it.signal(libc::SIGHUP);
        let line = it.await_line("the reload is refused, and no worker is replaced:");
        assert!(line.contains(says), "{line}");
    }
    assert!(!notes(&app).contains("generation 1"), "{}", it.stderr);
    write(&app, "  port: 0\n  reconnect: never\n");
    it.signal(libc::SIGHUP);
    let line = await_note(&app, "generation 1");
    assert!(line.contains("file:text:reconnect=never"), "{line}");
    end(it);
}

#[test]
fn a_reload_changes_the_number_of_workers_and_the_limits_of_the_front_end() {
    let installed = Installed::new();
    let app = app("  port: 0\n  limits: {max_body_size: 1MB}\n");
    let it = serve(&installed, &app, &[]);
    await_note(&app, "generation 0 of 1:");
    write(&app, "  port: 0\n  workers: 2\n  limits: {max_body_size: 2MB}\n");
    it.signal(libc::SIGHUP);
    await_note(&app, "generation 1 of 2:");
    assert!(!it.stderr.contains("max_body_size"), "{}", it.stderr);
    end(it);
}

#[test]
fn a_changed_file_triggers_a_reload_with_watching() {
    let installed = Installed::new();
    let app = app("  port: 0\n  reload: on\n");
    let mut it = serve(&installed, &app, &[]);
    await_note(&app, "generation 0");
    write(&app, "  port: 0\n  reload: on\n  reconnect: never\n");
    it.await_line("`_server.yml` has changed");
    let line = await_note(&app, "generation 1");
    assert!(line.contains("file:text:reconnect=never"), "{line}");
    write(&app, "  port: 0\n  reload: on\n  reconnect: sometimes\n");
    it.await_line("the reload is refused");
    end(it);
}

#[test]
fn a_reload_applies_new_certificates_but_does_not_turn_https_on() {
    let installed = Installed::new();
    let options = |name: &str| {
        let [cert, key] = ["pem", "key"].map(|kind| tls_file(&format!("{name}.{kind}")));
        format!("  port: 0\n  tls: {{cert: {}, key: {}}}\n", cert.display(), key.display())
    };
    let app = app(&options("localhost"));
    let mut it = serve(&installed, &app, &[]);
    await_note(&app, "generation 0");
    write(&app, &options("other"));
    it.signal(libc::SIGHUP);
    it.await_line("TLS: the certificates have been read again");
    await_note(&app, "generation 1");
    write(&app, "  port: 0\n");
    it.signal(libc::SIGHUP);
    it.await_line("until the server is restarted: `tls.cert`, `tls.key`");
    end(it);
}
