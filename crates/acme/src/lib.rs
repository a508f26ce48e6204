//! Certificates from an authority that speaks ACME (RFC 8555), ordered and renewed while a server runs.
//!
//! [`Acme::prepare`] checks what is wished for and where it is kept, and says what the server's TLS is made of; [`Acme::start_renewer`] starts a
//! thread that talks to the authority, until the [`Renewer`] is dropped. The server answers the authority's questions
//! ([`Challenges`](rookery_server::tls::Challenges)); nothing here runs on its I/O thread.
//!
//! Written by hand, over hyper, rustls and ring: instant-acme 0.8 cannot be had with ring and without rcgen, which needs Rust 1.88 or
//! brings a `time` with an advisory (RUSTSEC-2026-0009); it loses the `Retry-After` of an error, gives up after three nonces, and reads
//! a renewal's window with `time` alone.
//!
//! | file | owns |
//! |---|---|
//! | `settings` | what is wished for, and what is wrong with it |
//! | `storage` | the files: account, certificate, and how the attempts went |
//! | `schedule` | when to renew, and how long to wait after a failure: arithmetic without a clock |
//! | `http` | one request over HTTPS, and its reply |
//! | `jws` | the account's key, and what is signed with it (RFC 7515) |
//! | `protocol` | the authority's directory, nonces, and problems |
//! | `order` | one order, from its beginning to a certificate |
//! | `renewer` | the thread |

/// What of an authority's bytes is read: the line that is made of a problem, and a moment. For the fuzzer.
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
