//! The error type of the ACME client, which says why no certificate could be obtained from the
//! certificate authority.

use std::fmt;
use std::time::Duration;

/// The reason why an attempt to get a certificate from an ACME authority failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// The kind of error that the ACME authority reported, such as `rateLimited`: the last part of
    /// the type in its problem document (RFC 8555, 6.7).
    pub(crate) problem: Option<String>,
    /// The time that the ACME authority asks the client to wait before its next request
    /// (`Retry-After`). `None` if the authority did not ask for a wait.
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
