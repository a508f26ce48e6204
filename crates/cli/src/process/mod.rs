//! The process that runs the program `rookery`: its signals, its memory allocator, and its duties
//! as the first process of a container (PID 1).

use std::process::Command;
use std::sync::OnceLock;

#[cfg(target_os = "linux")]
pub(crate) mod allocator;
pub(crate) mod owned_child;
#[cfg(target_os = "linux")]
pub(crate) mod pid1;
pub(crate) mod session;
pub(crate) mod signals;

/// The function that returns unused memory to the operating system, for
/// [`rookery_server::Config::trim`]. `None` on systems other than Linux, where the program uses the
/// system's allocator.
#[cfg(target_os = "linux")]
pub(crate) const TRIM: Option<fn(bool)> = Some(allocator::trim);
#[cfg(not(target_os = "linux"))]
pub(crate) const TRIM: Option<fn(bool)> = None;

/// The failure of a thread that the program depends on.
static FAILED_THREAD: OnceLock<String> = OnceLock::new();

/// Returns the failure of a thread that [`start_essential_thread`] has started, if one has failed.
pub(crate) fn failed_thread() -> Option<String> {
    FAILED_THREAD.get().cloned()
}

/// Starts a thread without which the program cannot be controlled. If the thread panics, the
/// program ends ([`failed_thread`]).
///
/// # Errors
/// Fails if the system has no resources for another thread.
#[cfg(unix)]
pub(crate) fn start_essential_thread(
    name: &'static str,
    body: impl FnOnce() + Send + 'static,
) -> Result<(), crate::failure::Failure> {
    start_thread(name, move || {
        // The panic has been printed.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
            let _ = FAILED_THREAD.set(format!("the thread `{name}` has failed"));
        }
    })
}

/// Starts a thread of the program.
///
/// # Errors
/// Fails if the system has no resources for another thread.
pub(crate) fn start_thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<(), crate::failure::Failure> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    started.map(drop).map_err(|error| {
        crate::failure::Failure::Unavailable(format!(
            "The thread `{name}` cannot be started: {error}. Raise the limit of processes (`ulimit \
             -u`)."
        ))
    })
}

/// Makes a command start a process in a group of its own, which Ctrl-C at the terminal does not
/// reach.
pub(crate) fn own_group(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(windows)]
    std::os::windows::process::CommandExt::creation_flags(
        command,
        windows_sys::Win32::System::Threading::CREATE_NEW_PROCESS_GROUP,
    );
}
