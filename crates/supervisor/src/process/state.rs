//! Functions that query whether a worker process is stopped, and wait until it has ended, without
//! reaping it.
//!
//! A descriptor of the process becomes readable at its end. Where the system refuses such
//! descriptors (Linux before 5.3, some sandboxes), a thread waits instead.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

/// The interval at which the supervisor checks whether a worker process has ended, if the system
/// has no resources for a thread that waits.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The stack size in bytes of a thread that waits for a process. The thread makes only one system
/// call.
const STACK_SIZE: usize = 64 << 10;

/// Waits until a child process has ended. The process remains a zombie until it is
/// [reaped](super::reap), so the system cannot reuse its id yet.
pub(crate) async fn wait(pid: libc::pid_t) {
    if let Ok(descriptor) = descriptor(pid) {
        // The descriptor of an ended process stays readable. `readable` fails only while the
        // runtime shuts down.
        while !has_ended(pid, libc::WNOHANG) {
            if descriptor.readable().await.is_err() {
                break;
            }
        }
    }
    wait_on_thread(pid).await;
}

/// Does the same as [`wait`], with a thread that blocks until the process has ended. Returns at
/// once, without a thread, if the process has already ended.
async fn wait_on_thread(pid: libc::pid_t) {
    if has_ended(pid, libc::WNOHANG) {
        return;
    }
    let (sender, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("rookery-wait".to_owned());
    let thread = thread.stack_size(STACK_SIZE).spawn(move || {
        while !has_ended(pid, 0) {}
        // Sending fails only if the supervisor has ended.
        let _ = sender.send(());
    });
    if thread.is_ok() {
        let _ = ended.await;
    }
    while !has_ended(pid, libc::WNOHANG) {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Returns true if a child process has ended. Does not reap the process. Blocks until the process
/// has ended or a signal arrives, unless `options` contains `WNOHANG`.
fn has_ended(pid: libc::pid_t, options: libc::c_int) -> bool {
    match has_changed(pid, libc::WEXITED | options) {
        Ok(is_ended) => is_ended,
        // Any other error means that something else has reaped the process.
        Err(error) => error.kind() != io::ErrorKind::Interrupted,
    }
}

/// Returns true if a child process is stopped by SIGSTOP or a debugger.
pub(crate) fn is_stopped(pid: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process name, in parentheses, may contain any character, including parentheses.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

/// Returns true if a child process has changed its state as `options` describes. The system keeps
/// the change for later calls.
fn has_changed(pid: libc::pid_t, options: libc::c_int) -> io::Result<bool> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let id = libc::id_t::try_from(pid).unwrap_or(libc::id_t::MAX);
    // SAFETY: `info` is valid for writes of a `siginfo_t`.
    if unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), options | libc::WNOWAIT) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a `siginfo_t` of zeros is valid. The system leaves it unchanged unless there is a
    // change to report.
    Ok(unsafe { info.assume_init().si_pid() != 0 })
}

/// Opens a descriptor of a process that becomes readable when the process ends.
fn descriptor(pid: libc::pid_t) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the call passes no memory.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = match libc::c_int::try_from(descriptor) {
        // SAFETY: the call has just created the descriptor, so nothing else owns it. The system
        // closes it when this process executes another program.
        Ok(descriptor) if descriptor >= 0 => unsafe { OwnedFd::from_raw_fd(descriptor) },
        _ => return Err(io::Error::last_os_error()),
    };
    // SAFETY: the `OwnedFd` owns its descriptor, which therefore stays open and the same until the
    // `OwnedFd` is dropped.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }
        .map_err(|refused| refused.into_parts().1)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_thread_waits_for_the_end_and_leaves_the_zombie() {
        let mut child = Command::new("/bin/sleep").arg("0.2").spawn().unwrap();
        let pid = libc::pid_t::try_from(child.id()).unwrap();
        let start = Instant::now();
        wait_on_thread(pid).await;
        assert!(start.elapsed() >= Duration::from_millis(100));
        // A process that has ended is not waited for again.
        wait_on_thread(pid).await;
        assert!(has_ended(pid, libc::WNOHANG));
        assert!(child.wait().unwrap().success());
        // Something else has reaped the process.
        wait_on_thread(pid).await;
    }

    #[test]
    fn a_process_is_stopped_until_it_is_continued_or_killed() {
        let mut child = Command::new("/bin/sleep").arg("100").spawn().unwrap();
        let pid = libc::pid_t::try_from(child.id()).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        for (signal, expected) in
            [(libc::SIGCONT, false), (libc::SIGSTOP, true), (libc::SIGCONT, false)]
        {
            // SAFETY: the call passes no memory. The child has not been waited for.
            unsafe { libc::kill(pid, signal) };
            while is_stopped(pid) != expected {
                assert!(Instant::now() < until, "{signal}");
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(!has_ended(pid, libc::WNOHANG));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(pid) && !is_stopped(0));
    }
}
