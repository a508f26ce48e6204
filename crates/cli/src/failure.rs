//! Why nothing is served, and how that is told.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Instant;

use rookery_server::output;
use rookery_settings::Source;
use rookery_systemd::ServiceManager;

/// Why nothing is served, each with its remedy.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) enum Failure {
    /// The command line is wrong: status 2.
    CommandLine(String),
    /// What it asks for cannot be had: status 1.
    Serving(String),
    /// No worker ever became ready, with the app's own message: status 3.
    NeverReady(Option<String>),
    /// All workers end again and again, and `--fail-fast` was given: status 5.
    CrashLoop,
    /// The worker has ended, and `--restart never` was given: its own status, or 128 and its signal.
    Ended(u8),
    /// The address cannot be had: status 4.
    Address(String),
}

impl Failure {
    /// Returns the failure for a setting of this source that cannot be used.
    pub(crate) fn of_source(source: Source, message: String) -> Failure {
        if source == Source::CommandLine {
            Failure::CommandLine(message)
        } else {
            Failure::Serving(message)
        }
    }

    /// Returns what is said of it.
    pub(crate) fn message(&self) -> String {
        match self {
            Failure::CommandLine(message) | Failure::Serving(message) | Failure::Address(message) => {
                message.clone()
            }
            Failure::NeverReady(Some(message)) => {
                format!("The app has not started: {message}\nNo worker became ready (see above).")
            }
            Failure::NeverReady(None) => "No worker became ready: what the app said is above.".to_owned(),
            Failure::CrashLoop => "All workers end again and again without having answered anything: what the app said is above \
                                   (`--fail-fast`)."
                .to_owned(),
            Failure::Ended(status) => {
                format!("The worker has ended, and is not started again (`--restart never`): status {status}.")
            }
        }
    }

    /// Returns the exit status.
    fn status(&self) -> u8 {
        match self {
            Failure::Serving(_) => 1,
            Failure::CommandLine(_) => 2,
            Failure::NeverReady(_) => 3,
            Failure::Address(_) => 4,
            Failure::CrashLoop => 5,
            Failure::Ended(status) => *status,
        }
    }

    /// Says it on stderr, and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        let (message, status) = (self.message(), self.status());
        let is_command_line = matches!(self, Failure::CommandLine(_));
        tell(&format!("{message}{}", if is_command_line { "\nTry `rookery --help`." } else { "" }));
        // A line is what a service manager shows of it.
        ServiceManager::from_environment()
            .failed(message.lines().next().unwrap_or_default(), status);
        ExitCode::from(status)
    }
}

/// Returns until when the end of the program waits for outputs that accept no data: for one second
/// in all, which the first call begins.
pub(crate) fn output_deadline() -> Instant {
    static DEADLINE: OnceLock<Instant> = OnceLock::new();
    *DEADLINE.get_or_init(|| Instant::now() + output::FLUSH_TIME)
}

/// Writes one line to stderr, from any thread. Never blocks, even if nobody reads stderr.
pub(crate) fn tell(line: &str) {
    say(&format!("rookery: {line}"));
}

/// Writes lines to stderr, from any thread. Never blocks, even if nobody reads stderr.
pub(crate) fn say(lines: &str) {
    output::stderr().write(format!("{lines}\n").as_bytes());
}

/// What is said of the failure that a test expects.
#[cfg(test)]
pub(crate) fn said<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
    match result {
        Err(Failure::CommandLine(text) | Failure::Serving(text) | Failure::Address(text)) => text,
        other => panic!("{other:?}"),
    }
}
