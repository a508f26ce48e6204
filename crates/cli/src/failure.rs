//! The failures that end the program. Each has a message and an exit status.

use rookery_settings::Source;
use rookery_systemd::ServiceManager;

use crate::process::session;
use crate::stderr::{for_user, log_error};

/// The reason why the program failed. Each message also says how to correct the problem.
#[derive(Debug)]
#[cfg_attr(any(not(target_os = "linux"), feature = "portable"), allow(dead_code))]
pub(crate) enum Failure {
    /// The command line is wrong. The exit status is 2.
    CommandLine(String),
    /// Something that a setting needs, such as a file, is not available. The exit status is 1.
    Unavailable(String),
    /// No worker (R process) became ready, which the supervisor has logged. The exit status is 3.
    NeverReady {
        /// The error message of the app, if there is one.
        reason: Option<String>,
        /// The number of failed starts. After a single one, the app's output is directly above.
        starts: u32,
    },
    /// All workers keep crashing, and `--fail-fast` is set. The exit status is 5.
    CrashLoop,
    /// A thread that the program depends on has failed. The text says which and why. The exit
    /// status is 6.
    Thread(String),
    /// The worker exited, and `--restart never` is set. The program exits with the worker's exit
    /// status, or with 128 plus the number of the signal that ended the worker.
    WorkerExited(u8),
    /// The address to listen on is not available. The exit status is 4.
    Address(String),
    /// The port to listen on is in use by another process. The exit status is 4.
    PortInUse(String),
}

/// The message about an app whose own messages were printed directly above.
const MESSAGES_ABOVE: &str = "The app did not start: its messages are above.";

impl Failure {
    /// Returns the failure for a setting that cannot be used: [`CommandLine`](Failure::CommandLine)
    /// if the command line gives it, otherwise [`Unavailable`](Failure::Unavailable).
    pub(crate) fn from_source(source: Source, message: String) -> Failure {
        if source == Source::CommandLine {
            Failure::CommandLine(message)
        } else {
            Failure::Unavailable(message)
        }
    }

    /// Returns the error message for the user.
    pub(crate) fn message(&self) -> String {
        match self {
            Failure::CommandLine(message)
            | Failure::Unavailable(message)
            | Failure::Thread(message)
            | Failure::Address(message)
            | Failure::PortInUse(message) => message.clone(),
            Failure::NeverReady { reason: Some(reason), .. } => {
                format!("The app did not start: {reason}")
            }
            Failure::NeverReady { reason: None, .. } => MESSAGES_ABOVE.to_owned(),
            Failure::CrashLoop => "All workers keep crashing before they respond to a request \
                                   (`--fail-fast`): the app's messages are above."
                .to_owned(),
            Failure::WorkerExited(status) => format!(
                "The worker exited with status {status} and is not restarted (`--restart never`)."
            ),
        }
    }

    /// Returns the exit status of the program for this failure.
    fn status(&self) -> u8 {
        match self {
            Failure::Unavailable(_) => 1,
            Failure::CommandLine(_) => 2,
            Failure::NeverReady { .. } => 3,
            Failure::Address(_) | Failure::PortInUse(_) => 4,
            Failure::CrashLoop => 5,
            Failure::Thread(_) => 6,
            Failure::WorkerExited(status) => *status,
        }
    }

    /// Returns the class of the condition that R raises for the failure besides `rookery_exit`, or
    /// an empty string. R raises the same class if it serves an app itself.
    pub(crate) fn condition_class(&self) -> &'static str {
        match self {
            Failure::PortInUse(_) => "rookery_port_in_use",
            Failure::Address(_) => "rookery_no_address",
            _ => "",
        }
    }

    /// Reports the failure to the R session that has started this program, or logs it. Reports it
    /// to the service manager, and returns the exit status of the program.
    pub(crate) fn report(&self) -> u8 {
        let (message, status) = (self.message(), self.status());
        if !session::fail(self.condition_class(), &for_user(&message)) {
            match self {
                Failure::NeverReady { starts: 1, .. } => log_error(MESSAGES_ABOVE),
                Failure::CommandLine(_) => log_error(&format!("{message}\nTry `rookery --help`.")),
                _ => log_error(&message),
            }
        }
        // Service managers show only one line of the status.
        ServiceManager::from_environment()
            .failed(message.lines().next().unwrap_or_default(), status);
        status
    }
}

/// Returns the error message of a result, for a test. Panics if the result is not an error.
#[cfg(test)]
pub(crate) fn message_of<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
    match result {
        Err(failure) => failure.message(),
        Ok(value) => panic!("{value:?}"),
    }
}
