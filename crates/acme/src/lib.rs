//! Certificates from an ACME authority (RFC 8555), which are ordered and renewed while a server
//! runs.
//!
//! [`Acme::prepare`] checks the settings and opens the storage. [`Acme::start_renewer`] starts a
//! thread that communicates with the authority until the [`Renewer`] is dropped. The server
//! responds to the authority's challenges ([`Challenges`](rookery_server::tls::Challenges)).
//! Nothing here runs on the server's I/O thread.
//!
//! The crate is written over hyper, rustls and ring instead of instant-acme 0.8. That crate cannot
//! be used with ring without rcgen, which needs Rust 1.88 or a version of `time` with an advisory
//! (RUSTSEC-2026-0009). It also loses the `Retry-After` of an error, gives up after three nonces,
//! and reads a renewal window only with `time`.
//!
//! | file | content |
//! |---|---|
//! | `settings` | the settings of a certificate, and the mistakes in them |
//! | `storage` | the files: account, certificate, and the state of the attempts |
//! | `schedule` | the time of renewals and of retries, as arithmetic without a clock |
//! | `http` | one request over HTTPS, and its response |
//! | `jws` | the account's key and its signatures (RFC 7515) |
//! | `protocol` | the authority's directory, nonces and problem documents |
//! | `order` | one order, from its creation to a certificate |
//! | `renewer` | the thread that orders and renews |

/// Parses bytes of an authority as a problem document and as a time, for the fuzzer.
#[doc(hidden)]
pub fn read_for_fuzzer(bytes: &[u8]) -> (Option<String>, Option<std::time::SystemTime>) {
    let problem = serde_json::from_slice(bytes).unwrap_or_default();
    (
        protocol::describe_problem(&problem).0,
        std::str::from_utf8(bytes).ok().and_then(schedule::parse_rfc3339),
    )
}

mod failure;
mod http;
mod jws;
mod order;
mod protocol;
mod renewer;
mod schedule;
mod settings;
mod storage;

pub use renewer::{Acme, Renewer};
pub use schedule::RetrySchedule;
pub use settings::{BadSettings, Challenge, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, Settings};
