//! A worker in a process of its own, which runs this test program.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::FromRawFd as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rookery_exchange::{AppWaker, Event};
use rookery_server::static_files::{StaticFiles, StaticPath};
use rookery_server::{Config, Confirmation, Server, Supervision, SupervisorRequest};
use rookery_worker_protocol::{ErrorReport, Inherited, Message, RState, now};

use crate::support::fake_worker::{App, Gate, answer};

/// The environment variable with the mode of a worker process, in which tests make it fail.
pub(crate) const MODE: &str = "FAKE_WORKER_MODE";

/// Returns the command that starts a worker process.
pub(crate) fn command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "support::worker_program::runs_a_worker_if_started_as_one",
        "--exact",
        "--nocapture",
        "--quiet",
    ]);
    command
}

/// Serves a folder at `/static` from now on if the request is `/static-is/` and the folder, and no
/// folder if the request is `/static-is-none`. The path is announced before the response, as an R
/// process does it.
fn set_static_path(files: &StaticFiles, supervision: &Supervision, path: &[u8]) {
    let folder = path.strip_prefix(b"/static-is");
    let Some(folder) = folder.map(|folder| std::str::from_utf8(folder).unwrap()) else { return };
    let path = StaticPath { path: folder.into(), ..StaticPath::default() };
    let paths = (folder != "-none").then(|| ("/static".to_owned(), path));
    files.replace(paths).unwrap();
    supervision.announce(files);
    assert_eq!(supervision.wait_until_applied(), Confirmation::Applied);
}

struct NoWaker;

impl AppWaker for NoWaker {
    fn wake(&self) {}
}

#[test]
fn runs_a_worker_if_started_as_one() {
    let mode = std::env::var(MODE).unwrap_or_default();
    // SAFETY: the threads of the test harness do not read the environment, and use no descriptors
    // but the standard streams.
    let Some(inherited) = (unsafe { Inherited::take() }).unwrap() else { return };
    if let Ok(gate) = std::env::var("ROOKERY_INTERNAL_GATE_FD") {
        // SAFETY: the variable names a descriptor that this process has inherited and that nothing
        // else uses.
        let mut gate = unsafe { File::from_raw_fd(gate.parse().unwrap()) };
        if gate.read(&mut [0]).unwrap() == 0 {
            std::process::exit(0);
        }
    }
    match mode.as_str() {
        "stale" => std::process::exit(79),
        "explains" | "explains and stays" => {
            let folder = std::path::PathBuf::from(std::env::var_os("TMPDIR").unwrap());
            std::fs::write(folder.join("rookery-start-error.html"), "<p>").unwrap();
            std::fs::write(folder.join("rookery-start-error.txt"), "a mistake").unwrap();
            if mode == "explains" {
                std::process::exit(1);
            }
            std::thread::sleep(Duration::from_secs(60));
        }
        "slow" => std::thread::sleep(Duration::from_millis(500)),
        "fails" => {
            println!("the app has a mistake");
            std::process::exit(1);
        }
        "finishes" => std::process::exit(0),
        "misconfigured" => std::process::exit(78),
        "never ready" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        "deaf" => {
            // SAFETY: the call passes no memory, and no handler is installed.
            unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
        }
        _ => {}
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&is_over);
    let (is_deaf, is_busy) = (mode == "deaf", mode == "busy");
    let (supervision, rings) = Supervision::new(inherited, move |asked| {
        let is_end = !matches!(
            asked,
            SupervisorRequest::Interrupt
                | SupervisorRequest::Collect
                | SupervisorRequest::RecordsArrived
        );
        if is_end {
            // R in the mode "busy" ends only when it is interrupted.
            let ends = !is_deaf && (!is_busy || asked == SupervisorRequest::Stop);
            theirs.store(ends, Ordering::Relaxed);
        }
    });
    let supervision = Arc::new(supervision);
    let server = Server::new(Config::default(), Box::new(NoWaker));
    server.watch_supervisor(Arc::clone(&supervision)).unwrap();
    let is_sticky = mode == "sticky";
    let listener = server.listen_supervised().unwrap();
    let slot = std::env::var(rookery_worker_protocol::WORKER).unwrap().parse().unwrap();
    let (gate, scoreboard) = (Gate::default(), supervision.scoreboard());
    let files = StaticFiles::new();
    gate.open();
    scoreboard.set_process(std::process::id(), std::process::id());
    supervision.send(Message::Ready { sees_heads: false, is_sticky }).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let mut app = App::new(Arc::clone(server.link()), rings, ended);
    while !is_over.load(Ordering::Relaxed) {
        scoreboard.set_r_state(RState::Idle, now());
        app.wait(Duration::from_millis(20));
        if mode == "stalls" {
            // R in this mode never takes the events.
            continue;
        }
        while let Some(event) = app.next() {
            scoreboard.set_r_state(RState::Busy, now());
            if let Event::Request(exchange) = &event {
                set_static_path(&files, &supervision, exchange.path());
                report_errors(&supervision, exchange.path());
            }
            answer(slot, &mut app, scoreboard, &gate, event);
            // The app stops its server after its response, and starts another one.
            if mode == "starts another" {
                supervision.send(Message::Leaving).unwrap();
                std::thread::sleep(Duration::from_millis(500));
                supervision.send(Message::Ready { sees_heads: false, is_sticky: false }).unwrap();
            }
            // The app calls `stopAllServers()` in its handler, and starts no other server.
            if mode == "stops its server" {
                supervision.send(Message::Leaving).unwrap();
            }
            // The app calls `stopApp()` after its response.
            if mode == "finishes later" {
                is_over.store(true, Ordering::Relaxed);
            }
        }
    }
    if mode == "finishes later" {
        supervision.send(Message::Leaving).unwrap();
        listener.drain();
        // A thread of the server writes the response meanwhile.
        std::thread::sleep(Duration::from_millis(200));
        listener.stop();
        std::process::exit(0);
    }
    listener.stop();
    std::process::exit(0);
}

/// Reports as many errors as the path says, such as `/errors/3`.
fn report_errors(supervision: &Supervision, path: &[u8]) {
    let count = path.strip_prefix(b"/errors/").map(|count| String::from_utf8_lossy(count));
    let count: u32 = count.map_or(0, |count| count.parse().unwrap());
    let folder = std::path::PathBuf::from(std::env::var_os("TMPDIR").unwrap());
    for number in 1..=count {
        if std::env::var(MODE).as_deref() == Ok("describes errors") {
            let page = folder.join(format!("rookery-error-{number}.html"));
            std::fs::write(page, format!("4f2a\n<p>error {number}")).unwrap();
        }
        supervision.report_error(&ErrorReport {
            request_id: format!("{number:032x}"),
            route: "GET /errors".into(),
            label: "call".into(),
            message: format!("error {number}"),
            trace: "f()\n".repeat(500),
        });
    }
}
