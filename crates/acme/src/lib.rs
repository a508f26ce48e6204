//! An ACME client (RFC 8555), which orders TLS certificates from a certificate authority and renews
//! them while a server runs.
//!
//! - [`Acme::prepare`] checks the settings and the storage folder. The returned [`Acme`] contains
//!   what the server needs for TLS: the certificates to serve, and the store for the responses to
//!   the certificate authority's challenges ([`Challenges`](rookery_server::tls::Challenges)). The
//!   server itself sends these responses.
//! - [`Acme::start_renewer`] starts a thread that orders and renews the certificate until the
//!   returned [`Renewer`] is dropped. No code of this crate runs on the server's I/O thread.
//!
//! The crate does not use instant-acme 0.8, because instant-acme ignores the `Retry-After` header
//! of error responses and gives up after three rejected nonces.
//!
//! | file | contents |
//! |---|---|
//! | `settings` | the settings, and the errors in them |
//! | `storage` | the files: account, certificate, and state of the attempts |
//! | `schedule` | times of renewals and waits after failures, computed without a clock |
//! | `http` | a request over HTTPS and its response |
//! | `jws` | the account's key and its signatures (RFC 7515) |
//! | `protocol` | the certificate authority's directory, nonces, and problem documents |
//! | `order` | an order, from its creation to the certificate |
//! | `acme` | the certificate with its settings and storage, before and while it is renewed |
//! | `renewer` | the thread that renews certificates |

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

// instant-acme also depends on rcgen, which needs Rust 1.88, or else a version of `time` with a
// security advisory (RUSTSEC-2026-0009).

/// Parses `bytes` from the fuzzer in two ways: as a problem document (an error report of the
/// authority), and as a time in the format of RFC 3339. Returns the message of the document, and
/// the time.
#[doc(hidden)]
pub fn read_for_fuzzer(bytes: &[u8]) -> (Option<String>, Option<std::time::SystemTime>) {
    let problem = serde_json::from_slice(bytes).unwrap_or_default();
    (
        protocol::describe_problem(&problem).0,
        std::str::from_utf8(bytes).ok().and_then(schedule::parse_rfc3339),
    )
}

mod acme;
mod failure;
mod http;
mod jws;
mod order;
mod protocol;
mod renewer;
mod schedule;
mod settings;
mod storage;

pub use acme::Acme;
pub use renewer::Renewer;
pub use schedule::RetrySchedule;
pub use settings::{BadSettings, Challenge, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, Settings};
