//! Why there is no certificate yet.

use std::fmt;
use std::time::Duration;

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// The last part of the type of the authority's problem (RFC 8555, 6.7), `rateLimited`.
    pub(crate) problem: Option<String>,
    /// When the authority wants to be asked again at the soonest.
    pub(crate) retry_after: Option<Duration>,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), problem: None, retry_after: None }
    }

    pub(crate) fn is(&self, problem: &str) -> bool {
        self.problem.as_deref() == Some(problem)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
