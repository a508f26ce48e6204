//! The error of an attempt to get a certificate.

use std::fmt;
use std::time::Duration;

/// The reason why an attempt to get a certificate failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// The last part of the type in the authority's problem document (RFC 8555, 6.7), such as
    /// `rateLimited`.
    pub(crate) problem: Option<String>,
    /// The time after which the authority accepts the next request.
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
