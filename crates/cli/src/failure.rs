//! Why nothing is served, and how that is told.

use std::process::ExitCode;

use rookery_settings::Source;
use rookery_systemd::ServiceManager;

use crate::stderr::log_line;

/// Why nothing is served, each with its remedy.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) enum Failure {
    /// The command line is wrong: status 2.
    CommandLine(String),
    /// What it asks for cannot be had: status 1.
    Unavailable(String),
    /// No worker ever became ready, with the app's own message: status 3.
    NeverReady(Option<String>),
    /// All workers end again and again, and `--fail-fast` was given: status 5.
    CrashLoop,
    /// The worker has ended, and `--restart never` was given: its own status, or 128 and its signal.
    WorkerExited(u8),
    /// The address cannot be had: status 4.
    Address(String),
}

impl Failure {
    /// Returns the failure for a setting of this source that cannot be used.
    pub(crate) fn from_source(source: Source, message: String) -> Failure {
        if source == Source::CommandLine {
            Failure::CommandLine(message)
        } else {
            Failure::Unavailable(message)
        }
    }

    /// Returns what is said of it.
    pub(crate) fn message(&self) -> String {
        match self {
            Failure::CommandLine(message) | Failure::Unavailable(message) | Failure::Address(message) => {
                message.clone()
            }
            Failure::NeverReady(Some(message)) => {
                format!("The app did not start: {message}\nNo worker became ready (see above).")
            }
            Failure::NeverReady(None) => "No worker became ready: the app's messages are above.".to_owned(),
            Failure::CrashLoop => "All workers keep crashing before they respond to a request (`--fail-fast`): the app's messages are above."
                .to_owned(),
            Failure::WorkerExited(status) => {
                format!("The worker exited with status {status} and is not restarted (`--restart never`).")
            }
        }
    }

    /// Returns the exit status.
    fn status(&self) -> u8 {
        match self {
            Failure::Unavailable(_) => 1,
            Failure::CommandLine(_) => 2,
            Failure::NeverReady(_) => 3,
            Failure::Address(_) => 4,
            Failure::CrashLoop => 5,
            Failure::WorkerExited(status) => *status,
        }
    }

    /// Says it on stderr, and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        let (message, status) = (self.message(), self.status());
        let is_command_line = matches!(self, Failure::CommandLine(_));
        log_line(&format!(
            "{message}{}",
            if is_command_line { "\nTry `rookery --help`." } else { "" }
        ));
        // A line is what a service manager shows of it.
        ServiceManager::from_environment()
            .failed(message.lines().next().unwrap_or_default(), status);
        ExitCode::from(status)
    }
}

/// What is said of the failure that a test expects.
#[cfg(test)]
pub(crate) fn message_of<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
    match result {
        Err(Failure::CommandLine(text) | Failure::Unavailable(text) | Failure::Address(text)) => {
            text
        }
        other => panic!("{other:?}"),
    }
}
