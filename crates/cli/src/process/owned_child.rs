//! Child processes that end together with the processes that they have started.

use std::io;
use std::process::{Child, Command, ExitStatus};

use crate::process::own_group;

/// A child process in a group of its own. When it is dropped, the child and the processes that the
/// child has started are killed. On Windows, this also happens when this program ends for whatever
/// reason, because the processes are in a job object.
#[derive(Debug)]
pub(crate) struct OwnedChild {
    child: Child,
    #[cfg(windows)]
    job: std::os::windows::io::OwnedHandle,
}

impl OwnedChild {
    /// Starts a command.
    ///
    /// # Errors
    /// Returns the system's error if the program cannot be started.
    pub(crate) fn start(command: &mut Command) -> io::Result<OwnedChild> {
        own_group(command);
        #[cfg(unix)]
        {
            receive_all_signals(command);
            Ok(OwnedChild { child: command.spawn()? })
        }
        #[cfg(windows)]
        {
            let job = job::create()?;
            let mut child = command.spawn()?;
            if let Err(error) = job::assign(&job, &child) {
                let _ = child.kill();
                return Err(error);
            }
            Ok(OwnedChild { child, job })
        }
    }

    /// Requests the child to end: by SIGTERM, on Windows by Ctrl-Break, which interrupts R.
    #[cfg_attr(
        all(target_os = "linux", not(feature = "portable")),
        allow(dead_code, reason = "the supervisor ends workers in another way")
    )]
    pub(crate) fn request_end(&self) {
        #[cfg(unix)]
        self.signal(libc::SIGTERM);
        #[cfg(windows)]
        self.interrupt();
    }

    /// Interrupts the child and the processes that it has started, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        #[cfg(unix)]
        self.signal(libc::SIGINT);
        #[cfg(windows)]
        // SAFETY: the call takes no pointers. The child is the first process of its group, whose id
        // is the child's. A failure means that the child has ended or has no console, and it is
        // killed after the time limit.
        unsafe {
            use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent};
            GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, self.child.id());
        }
    }

    /// Kills the child and the processes that it has started.
    pub(crate) fn kill(&mut self) {
        #[cfg(unix)]
        self.signal(libc::SIGKILL);
        #[cfg(windows)]
        job::terminate(&self.job);
        let _ = self.child.wait();
    }

    /// Returns the exit status of the child if the child has ended.
    pub(crate) fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    #[cfg(unix)]
    fn signal(&self, signal: libc::c_int) {
        let group = libc::pid_t::try_from(self.child.id()).expect("the system has it in this type");
        // SAFETY: the call passes no memory. If the child has ended, its group has the processes
        // that it has started, or none.
        unsafe { libc::kill(-group, signal) };
    }
}

/// Lets the process that a command starts receive all signals, and not ignore SIGINT. This process
/// may block signals for which one of its threads waits, and a shell that has started it in the
/// background makes it ignore SIGINT. The child would inherit both.
#[cfg(unix)]
fn receive_all_signals(command: &mut Command) {
    let reset = || {
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `none` has space for a set, which the first call fills, and SIGINT is a signal.
        unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            libc::signal(libc::SIGINT, libc::SIG_DFL);
        }
        Ok(())
    };
    // SAFETY: the closure calls only functions that are async-signal-safe.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, reset) };
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(windows)]
mod job {
    //! Job objects of Windows: groups of processes that end together.

    use std::io;
    use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
    use std::process::Child;

    use windows_sys::Win32::System::JobObjects::{
        AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
        JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation,
        SetInformationJobObject, TerminateJobObject,
    };

    /// Creates a job object whose processes are killed when its last handle is closed, and so when
    /// this program ends.
    pub(super) fn create() -> io::Result<OwnedHandle> {
        // SAFETY: both pointers may be null: the object has the default security and no name.
        let job = unsafe { CreateJobObjectW(std::ptr::null(), std::ptr::null()) };
        if job.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just created the handle, so nothing else owns it.
        let job = unsafe { OwnedHandle::from_raw_handle(job) };
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        let size = u32::try_from(size_of_val(&limits)).unwrap_or(u32::MAX);
        // SAFETY: the pointer refers to a structure of the kind and the size that are given.
        let is_set = unsafe {
            SetInformationJobObject(
                job.as_raw_handle(),
                JobObjectExtendedLimitInformation,
                (&raw const limits).cast(),
                size,
            )
        };
        if is_set == 0 { Err(io::Error::last_os_error()) } else { Ok(job) }
    }

    /// Adds a process to a job object, and so the processes that it starts from now on.
    pub(super) fn assign(job: &OwnedHandle, child: &Child) -> io::Result<()> {
        // SAFETY: both handles are open.
        let is_done =
            unsafe { AssignProcessToJobObject(job.as_raw_handle(), child.as_raw_handle()) };
        if is_done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Kills all processes of a job object.
    pub(super) fn terminate(job: &OwnedHandle) {
        // SAFETY: the handle is open. A failure means that no process is left.
        unsafe { TerminateJobObject(job.as_raw_handle(), 1) };
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_dropped_child_takes_its_processes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "sleep 1000 & echo $! > pid; wait"]).current_dir(folder.path());
        let child = OwnedChild::start(&mut command).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let pid = loop {
            let text = std::fs::read_to_string(folder.path().join("pid")).unwrap_or_default();
            if let Ok(pid) = text.trim().parse::<libc::pid_t>() {
                break pid;
            }
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        };
        drop(child);
        let is_alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
        };
        while is_alive() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_child_ends_on_request() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "trap 'exit 7' TERM; while :; do sleep 0.01; done"]);
        let mut child = OwnedChild::start(&mut command).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert!(child.exit_status().unwrap().is_none());
        child.request_end();
        let until = Instant::now() + Duration::from_secs(20);
        let status = loop {
            if let Some(status) = child.exit_status().unwrap() {
                break status;
            }
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(7));
    }
}
