//! The error type of the ACME client, which says why no certificate could be obtained from the
//! certificate authority.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::time::Duration;

use instant_acme::Problem;

/// The maximum length in bytes of an authority's error message in the log. Longer messages are
/// truncated.
const MAX_MESSAGE_LENGTH: usize = 500;

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

impl Error for Failure {}

/// Converts the error that a problem document of the authority (RFC 9457) describes.
impl From<&Problem> for Failure {
    fn from(problem: &Problem) -> Failure {
        let kind = problem.r#type.as_deref().and_then(|kind| kind.rsplit(':').next());
        let mut text = problem.detail.clone().unwrap_or_default();
        for part in &problem.subproblems {
            if let Some(detail) = &part.detail {
                let whose = part.identifier.as_ref().map(|host| host.authorized(false).to_string());
                // Writing to a string cannot fail.
                let _ = write!(text, "; {}: {detail}", whose.unwrap_or_default());
            }
        }
        let text = match (&*text, kind) {
            ("", None) => "the authority sent an error without a reason".to_owned(),
            ("", Some(kind)) => printable(kind),
            (text, None) => printable(text),
            (text, Some(kind)) => format!("{} ({})", printable(text), printable(kind)),
        };
        Failure { problem: kind.map(printable), ..Failure::new(text) }
    }
}

/// Converts an error of the protocol. The error of a request is a [`Failure`] already.
impl From<instant_acme::Error> for Failure {
    fn from(error: instant_acme::Error) -> Failure {
        match error {
            instant_acme::Error::Api(problem) => Failure::from(&problem),
            instant_acme::Error::Other(error) => match error.downcast::<Failure>() {
                Ok(failure) => *failure,
                Err(error) => Failure::new(printable(&error.to_string())),
            },
            error => Failure::new(printable(&format!("the order failed: {error}"))),
        }
    }
}

/// Makes a message of the authority safe for the log: replaces control characters by spaces, and
/// truncates the text to [`MAX_MESSAGE_LENGTH`].
fn printable(text: &str) -> String {
    let clean = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let mut out = String::new();
    for char in clean {
        if out.len() + char.len_utf8() > MAX_MESSAGE_LENGTH {
            out.push_str("...");
            break;
        }
        out.push(char);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn failure(problem: &Value) -> Failure {
        Failure::from(&serde_json::from_str::<Problem>(&problem.to_string()).unwrap())
    }

    #[test]
    fn a_problem_document_becomes_one_line() {
        let it = failure(&json!({
            "type": "urn:ietf:params:acme:error:rejectedIdentifier", "detail": "no\nway",
            "subproblems": [
                { "detail": "forbidden", "identifier": { "type": "dns", "value": "a.b" } },
                {},
            ],
        }));
        assert_eq!(it.text, "no way; a.b: forbidden (rejectedIdentifier)");
        assert!(it.is("rejectedIdentifier"));
        assert_eq!(failure(&json!({ "type": "a:b" })).text, "b");
        assert_eq!(failure(&json!({})).text, "the authority sent an error without a reason");
        let long = failure(&json!({ "detail": "\u{e4}".repeat(9999) })).text;
        assert!(long.len() <= MAX_MESSAGE_LENGTH + 3 && long.ends_with("..."), "{}", long.len());
    }
}
