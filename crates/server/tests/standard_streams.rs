//! The standard streams of a process when nobody reads them. The test program starts itself again
//! in a certain mode.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![cfg(unix)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rookery_server::{captured_output, output};
use rookery_test_support::TEST_TIMEOUT;

/// The variable with the mode in which the program was started again.
const MODE: &str = "ROOKERY_OUTPUT_MODE";

#[test]
fn does_what_it_was_started_again_for() {
    match std::env::var(MODE).as_deref() {
        Ok("panic") => {
            output::write_panics();
            let panicked = std::thread::spawn(|| panic!("on purpose")).join();
            output::flush();
            std::process::exit(if panicked.is_err() { 7 } else { 1 });
        }
        Ok("lines") => {
            for number in 0..20_000 {
                output::stderr().write(format!("line {number:0100}\n").as_bytes());
            }
            let lost = output::lines_lost();
            output::flush();
            std::process::exit(if lost > 0 { 7 } else { 1 });
        }
        Ok("end") => {
            // SAFETY: the default action for a signal runs no code of this process.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            for _ in 0..200 {
                captured_output::begin().unwrap();
                captured_output::end();
            }
            std::process::exit(7);
        }
        Ok("child") => {
            captured_output::begin().unwrap();
            let script = "echo during >&2; sleep 0.5; echo after >&2; printf done >&2";
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(200));
            captured_output::end();
            let status = child.wait().unwrap();
            // The output of the child goes through a thread of this process.
            std::thread::sleep(Duration::from_millis(500));
            std::process::exit(if status.success() { 7 } else { 1 });
        }
        _ => {}
    }
}

/// Returns both ends of a new pipe.
fn pipe() -> (File, OwnedFd) {
    let mut ends = [-1; 2];
    // SAFETY: The array has room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: The descriptors were just made, and are owned by nothing else.
    unsafe { (File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) }
}

/// Runs this program in a mode, and returns its exit status.
fn run(mode: &str, stderr: OwnedFd) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["does_what_it_was_started_again_for", "--exact", "--nocapture"]);
    let mut child = command.env(MODE, mode).stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns a full pipe, so that writing to it blocks.
fn full_pipe() -> (File, OwnedFd) {
    use std::os::fd::AsRawFd as _;
    let (reader, writer) = pipe();
    let mut file = File::from(writer);
    let set = |flags: libc::c_int| {
        // SAFETY: The descriptor is open, and only its flags are changed.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) }, 0);
    };
    set(libc::O_NONBLOCK);
    while (&file).write(&[b'x'; 4096]).is_ok() {}
    while (&file).write(b"x").is_ok() {}
    set(0);
    file.flush().unwrap();
    (reader, file.into())
}

#[test]
fn a_panic_whose_message_nobody_reads_blocks_nothing() {
    let (_unread, writer) = full_pipe();
    assert_eq!(run("panic", writer).code(), Some(7));
}

#[test]
fn a_panic_is_written_with_its_thread_and_place() {
    let (mut reader, writer) = pipe();
    assert_eq!(run("panic", writer).code(), Some(7));
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(said.contains("thread '<unnamed>' panicked at "), "{said}");
    assert!(said.contains("standard_streams.rs") && said.contains("on purpose"), "{said}");
}

#[test]
fn lines_that_nobody_reads_are_dropped_and_the_process_ends() {
    let (_unread, writer) = full_pipe();
    assert_eq!(run("lines", writer).code(), Some(7));
}

#[test]
fn the_end_of_the_conversion_writes_to_no_closed_pipe() {
    let (_unread, writer) = pipe();
    assert_eq!(run("end", writer).code(), Some(7));
}

#[test]
fn output_of_a_child_that_outlives_the_conversion_still_becomes_json() {
    let (mut reader, writer) = pipe();
    assert_eq!(run("child", writer).code(), Some(7));
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    for message in ["during", "after", "done"] {
        let end = format!("\"stream\":\"stderr\",\"message\":\"{message}\"}}");
        assert_eq!(said.lines().filter(|line| line.ends_with(&end)).count(), 1, "{said}");
    }
}
