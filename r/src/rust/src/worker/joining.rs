//! The beginning of this R process as a worker: it takes what its supervisor has passed on, and
//! carries out the commands of the supervisor. Workers exist only on Linux.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rookery_server::{Supervision, SupervisorRequest, WorkerRings, output};
use rookery_worker_protocol::{EXIT_TIMEOUT, Inherited, ORPHAN_EXIT_TIMEOUT};

use crate::core::{self, Core, Worker, WorkerState};
use crate::entry;

/// The C functions by which the I/O thread carries out commands of the supervisor.
#[derive(Debug, Clone, Copy)]
struct WorkerCallbacks {
    /// The C function that interrupts the R code of the current request.
    interrupt: extern "C" fn(),
    /// The C function that makes R collect garbage and return free memory. R does so when it next
    /// waits for events.
    collect: extern "C" fn(),
    /// The C function that ends the process as SIGTERM would, unless a signal is already ending the
    /// process. With a number other than 0, R is interrupted if it has not finished after a second.
    end: extern "C" fn(i32),
}

impl Core {
    /// Makes this process a worker if a supervisor has started it. Takes the file descriptors and
    /// environment variables that the supervisor has passed on. If the R package is unloaded and
    /// loaded again, this function reconnects to the supervisor.
    ///
    /// # Safety
    /// The requirements are those of [`Inherited::take`].
    unsafe fn join(&mut self, callbacks: WorkerCallbacks) {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        match unsafe { Inherited::take() } {
            Ok(None) => {}
            Ok(Some(inherited)) => {
                inherited.scoreboard.set_own_process();
                // The supervisor has set it to a folder for this worker only.
                self.profiling.folder = std::env::var_os("TMPDIR").map(Into::into);
                if let Some(folder) = &self.profiling.folder {
                    let _ = TEMPORARY_FILES.set((std::process::id(), folder.clone()));
                }
                let schedule = core::schedule();
                let (supervision, rings) = Supervision::new(inherited, move |asked| {
                    if asked == SupervisorRequest::RecordsArrived {
                        if let Some(schedule) = schedule {
                            schedule();
                        }
                        return;
                    }
                    on_supervisor_request(asked, callbacks);
                });
                let supervision = Arc::new(supervision);
                let rings = Box::new(WorkerRings::new(rings, &self.link));
                self.worker_state = WorkerState::Worker(Worker {
                    supervision,
                    listening: None,
                    files: None,
                    origins: None,
                    rings,
                    is_leaving: false,
                });
            }
            Err(error) => self.worker_state = WorkerState::Failed(error.to_string()),
        }
        if let WorkerState::Worker(_) = &self.worker_state {
            // The I/O thread of a worker starts here.
            self.start_tracing();
        }
        self.attach_supervisor();
    }
}

/// Carries out a command of the supervisor, for example to stop this worker. Runs on the I/O
/// thread.
fn on_supervisor_request(request: SupervisorRequest, callbacks: WorkerCallbacks) {
    match request {
        SupervisorRequest::Drain => end_process(callbacks, false),
        SupervisorRequest::Stop => {
            end_process_later(EXIT_TIMEOUT);
            end_process(callbacks, true);
        }
        SupervisorRequest::Disconnected => {
            ignore_broken_output();
            remove_files_at_exit();
            end_process_later(ORPHAN_EXIT_TIMEOUT);
            end_process(callbacks, false);
        }
        SupervisorRequest::Interrupt => (callbacks.interrupt)(),
        SupervisorRequest::Collect => (callbacks.collect)(),
        SupervisorRequest::RecordsArrived => {}
    }
}

/// Ends this worker process as SIGTERM would: `serve()` shuts down gracefully, and a process
/// without `serve()` ends at once. If `is_time_over` is true, R is interrupted after a second, also
/// if this function was called before.
fn end_process(callbacks: WorkerCallbacks, is_time_over: bool) {
    (callbacks.end)(is_time_over.into());
}

/// Makes writes to standard output and error have no effect. The supervisor, which read them, was
/// killed, and R's handler of SIGPIPE would raise an error in whatever R code prints.
fn ignore_broken_output() {
    // SAFETY: no handler is installed. R installs its handler once, when it starts.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Makes this worker process remove its temporary files when it exits, because its supervisor was
/// killed and cannot remove them. R's own files are removed before that.
fn remove_files_at_exit() {
    // SAFETY: the function takes no arguments and does not unwind. If it cannot be registered, the
    // next server of this user removes the files.
    unsafe { libc::atexit(remove_files) };
}

/// Removes the temporary files of this worker process, whose supervisor was killed.
extern "C" fn remove_files() {
    let is_worker = |(pid, _): &&(u32, PathBuf)| *pid == std::process::id();
    if let Some((_, folder)) = TEMPORARY_FILES.get().filter(is_worker) {
        rookery_status::remove_orphaned(folder);
    }
}

/// The process id of this worker, which forked child processes do not have, and the folder of its
/// temporary files.
static TEMPORARY_FILES: OnceLock<(u32, PathBuf)> = OnceLock::new();

/// Ends this worker process after `timeout`, even if R is still busy. The wait needs its own
/// thread, because the I/O thread may end earlier.
fn end_process_later(timeout: Duration) {
    static IS_COUNTING: AtomicBool = AtomicBool::new(false);
    if IS_COUNTING.swap(true, Ordering::Relaxed) {
        return;
    }
    // The thread blocks all signals, as the thread that starts it does.
    let counting = std::thread::Builder::new().name("rookery-end".to_owned()).spawn(move || {
        std::thread::sleep(timeout);
        crate::write_log_line(
            "the supervisor has asked this worker to stop, or has exited, and R is still busy: the \
             worker exits now",
        );
        output::flush();
        remove_files();
        // SAFETY: `_exit` does not return and runs no code of R.
        unsafe { libc::_exit(1) };
    });
    if counting.is_err() {
        // Without the thread, nothing would end the process later.
        // SAFETY: `_exit` does not return and runs no code of R.
        unsafe { libc::_exit(1) };
    }
}

/// Makes this process a worker if a supervisor has started it. The arguments are C functions that
/// the I/O thread calls: `interrupt` interrupts the R code of a request, `collect` makes R return
/// free memory, and `end` ends the process.
#[unsafe(no_mangle)]
pub extern "C" fn rk_worker_join(
    interrupt: extern "C" fn(),
    collect: extern "C" fn(),
    end: extern "C" fn(i32),
) {
    let callbacks = WorkerCallbacks { interrupt, collect, end };
    // SAFETY: called on R's main thread while the package is loaded; no other thread changes the
    // environment of the process, and only a supervisor sets these variables.
    entry((), || core::with(|core| unsafe { core.join(callbacks) }));
}
