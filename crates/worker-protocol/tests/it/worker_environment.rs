//! Tests of the descriptors that a worker inherits, and that its own children do not.

use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::Command;

use rookery_worker_protocol::{
    DESCRIPTORS, GATE_FD, Inherited, Message, NAMES, PRELOAD, RINGS_FDS, Received,
};

use crate::support::start;

/// Returns a line for each descriptor of a process above the standard three.
fn descriptors(process: &str) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/fd")).unwrap() {
        let entry = entry.unwrap();
        let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
        // The folder that is being read is itself a descriptor, which disappears.
        if let Some(to) = std::fs::read_link(entry.path()).ok().filter(|_| number > 2) {
            let to = to.to_str().unwrap().to_owned();
            if !to.starts_with("/proc/") {
                all.push(to.split(':').next().unwrap().to_owned());
            }
        }
    }
    all.sort();
    all
}

/// Checks that programs which this process starts inherit only the standard streams.
pub(crate) fn assert_children_have_no_descriptors() {
    let child = Command::new("sh").args(["-c", "ls /proc/$$/fd"]).output().unwrap();
    let of_child = String::from_utf8(child.stdout).unwrap();
    assert!(
        of_child.split_whitespace().all(|fd| matches!(fd, "0" | "1" | "2" | "10" | "255")),
        "{of_child}"
    );
}

#[test]
fn a_worker_inherits_only_its_descriptors_and_its_children_none() {
    // A descriptor without the close-on-exec flag, as the supervisor may have inherited from its
    // own parent. SAFETY: an open descriptor is duplicated.
    let copied = unsafe { libc::dup(std::io::stderr().as_fd().as_raw_fd()) };
    // SAFETY: the descriptor has just been opened and belongs to nothing else.
    let _leaky = unsafe { OwnedFd::from_raw_fd(copied) };
    let mut worker = start("worker_environment::reports_its_descriptors", "");
    let mut said = String::new();
    worker.process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(worker.process.wait().unwrap().success(), "{said}");
    assert_eq!(worker.control.receive(), Received::Message(Message::Pong(17)));
    assert_eq!(worker.control.receive(), Received::End);
    assert_eq!(worker.scoreboard.read().pid, worker.process.id());
}

/// Runs in the worker process.
#[test]
#[ignore = "started by the test above"]
fn reports_its_descriptors() {
    let mut before = descriptors("self");
    // The control channel, the scoreboard, and five of the rings.
    assert_eq!(before.len(), 7, "{before:?}");
    // SAFETY: no other thread uses the environment, and the descriptors belong to nothing else.
    let inherited = unsafe { Inherited::take() }.unwrap().unwrap();
    // SAFETY: the reason is the same as above.
    assert!(unsafe { Inherited::take() }.unwrap().is_none());
    for name in NAMES {
        // The others are not set for this worker.
        let others = [GATE_FD, PRELOAD, RINGS_FDS];
        let is_taken = DESCRIPTORS.contains(&name) || others.contains(&name);
        assert_eq!(std::env::var_os(name).is_none(), is_taken, "{name}");
    }
    assert_eq!(std::env::var("ROOKERY_WORKER").unwrap(), "2");
    assert_eq!(std::env::var("ROOKERY_WORKER_COUNT").unwrap(), "4");
    assert_eq!(std::env::var("ROOKERY_WORKERS").unwrap(), "4");
    assert_eq!(std::env::var("ROOKERY_GENERATION").unwrap(), "7");
    assert_eq!(std::env::var("ROOKERY_INTERNAL_WORKER_ID").unwrap(), "00ff");
    // The memory is mapped, so its descriptor is closed.
    let after = descriptors("self");
    before.retain(|name| !name.starts_with("/memfd"));
    assert_eq!(after, before);
    assert_eq!(after.iter().filter(|name| *name == "socket").count(), 3, "{after:?}");
    assert_children_have_no_descriptors();
    inherited.scoreboard.set_process(std::process::id(), 0);
    inherited.control.send(Message::Pong(17)).unwrap();
    assert_eq!(inherited.control.receive(), Received::Nothing);
}
