//! Why nothing is served, and how that is told.

use std::process::ExitCode;

use rookery_server::output;
use rookery_service::Manager;
use rookery_settings::Source;

/// Why nothing is served, each with its remedy.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong: status 2.
    CommandLine(String),
    /// What it asks for cannot be had: status 1.
    Serving(String),
    /// No worker ever became ready: status 3.
    NeverReady,
    /// All workers end again and again, and `--fail-fast` was given: status 5.
    CrashLoop,
    /// The address cannot be had: status 4.
    Address(String),
}

impl Failure {
    /// Returns the failure for a setting of this source that cannot be used.
    pub(crate) fn of_source(source: Source, message: String) -> Failure {
        if source == Source::CommandLine { Failure::CommandLine(message) } else { Failure::Serving(message) }
    }

    /// What is said of it.
    pub(crate) fn message(self) -> String {
        match self {
            Failure::CommandLine(message) | Failure::Serving(message) | Failure::Address(message) => message,
            Failure::NeverReady | Failure::CrashLoop => String::new(),
        }
    }

    /// Says it on stderr, and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        let (message, hint, status) = match self {
            Failure::CommandLine(message) => (message.as_str(), "\nTry `rookery --help`.", 2),
            Failure::Serving(message) => (message.as_str(), "", 1),
            Failure::Address(message) => (message.as_str(), "", 4),
            Failure::CrashLoop => (
                "All workers end again and again without having answered anything: what the app said is above (`--fail-fast`).",
                "",
                5,
            ),
            Failure::NeverReady => (
                "No worker became ready: what the app said is above. Without `--workers` it may be easier to find.",
                "",
                3,
            ),
        };
        tell(&format!("{message}{hint}"));
        // A line is what a service manager shows of it.
        Manager::of_environment().failed(message.lines().next().unwrap_or_default(), status);
        ExitCode::from(status)
    }
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
