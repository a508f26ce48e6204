//! Receives the events of the Windows console that stop the program or request a reload.
//!
//! Ctrl-C, the closing of the console window, the end of the session and the shutdown of the system
//! stop the program. Ctrl-Break requests a reload.

use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rookery_server::output;
use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT,
    SetConsoleCtrlHandler,
};
use windows_sys::core::BOOL;

use super::Signals;
use crate::failure::Failure;
use crate::stderr::output_deadline;

/// The exit status of a program that Ctrl-C has ended (`STATUS_CONTROL_C_EXIT`).
const CONTROL_C_EXIT: u32 = 0xC000_013A;

/// The sender of the queue to which the console's events are added. It is set by
/// [`Signals::start`].
static SENDER: Mutex<Option<Sender<ReceivedSignal>>> = Mutex::new(None);

/// An event of the console that the process received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceivedSignal {
    /// The number of the event (`CTRL_C_EVENT`, for example).
    event: u32,
}

impl ReceivedSignal {
    /// Returns true if the event is a Ctrl-Break, which requests a reload.
    pub(crate) fn is_reload(self) -> bool {
        self.event == CTRL_BREAK_EVENT
    }

    /// Returns false, because no event of the console requests that the log file is opened again.
    pub(crate) fn is_log_reopen(self) -> bool {
        false
    }

    /// Returns false, because there are no events for servers with workers.
    pub(crate) fn is_for_workers_only(self) -> bool {
        false
    }

    /// Returns true if the event requests that the server stops.
    pub(crate) fn is_stop(self) -> bool {
        !self.is_reload()
    }

    /// Terminates the process with the exit status by which Windows shows that Ctrl-C ended it.
    pub(crate) fn terminate_process(self) -> ! {
        output::flush_until(output_deadline());
        std::process::exit(CONTROL_C_EXIT.cast_signed())
    }
}

impl Signals {
    /// Starts to receive events of the console. From then on, they no longer terminate the process.
    ///
    /// # Errors
    /// Fails if Windows refuses the handler.
    pub(crate) fn start() -> Result<Signals, Failure> {
        let (sender, receiver) = mpsc::channel();
        *SENDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        // SAFETY: the function has the required type and lives as long as the process.
        if unsafe { SetConsoleCtrlHandler(Some(on_console_event), 1) } == 0 {
            return Err(Failure::Unavailable(format!(
                "Ctrl-C cannot be handled: {}. Start the program in another console.",
                std::io::Error::last_os_error()
            )));
        }
        Ok(Signals(receiver))
    }
}

/// Requests that the server stops, as Ctrl-C does.
pub(crate) fn request_stop() {
    if let Some(sender) = &*SENDER.lock().unwrap_or_else(PoisonError::into_inner) {
        // Fails if the server has stopped.
        let _ = sender.send(ReceivedSignal { event: CTRL_C_EVENT });
    }
}

/// Adds an event to the queue. Windows calls this function on a thread of its own.
unsafe extern "system" fn on_console_event(event: u32) -> BOOL {
    let is_final = match event {
        CTRL_C_EVENT | CTRL_BREAK_EVENT => false,
        CTRL_CLOSE_EVENT | CTRL_LOGOFF_EVENT | CTRL_SHUTDOWN_EVENT => true,
        _ => return 0,
    };
    let sender = SENDER.lock().unwrap_or_else(PoisonError::into_inner);
    let is_queued = sender.as_ref().is_some_and(|it| it.send(ReceivedSignal { event }).is_ok());
    drop(sender);
    while is_final && is_queued {
        // Windows ends the process as soon as this function returns, and otherwise after five
        // seconds. The main thread uses this time to finish requests, and then ends the process.
        std::thread::sleep(Duration::from_secs(60));
    }
    BOOL::from(is_queued)
}

/// A counter of how often the server was requested to stop.
#[derive(Debug)]
pub(crate) struct StopCounter(u32);

impl StopCounter {
    pub(crate) fn new() -> StopCounter {
        StopCounter(0)
    }

    /// Records an event, and returns how many times the server was requested to stop.
    pub(crate) fn record(&mut self, _signal: ReceivedSignal) -> u32 {
        self.0 += 1;
        self.0
    }
}
