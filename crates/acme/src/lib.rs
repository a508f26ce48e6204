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
//! The crate instant-acme implements the protocol.
//!
//! | file | contents |
//! |---|---|
//! | `settings` | the settings, and the errors in them |
//! | `storage` | the files: account, certificate, and state of the attempts |
//! | `schedule` | times of renewals and waits after failures, computed without a clock |
//! | `http` | a request over HTTPS and its response |
//! | `failure` | the reason why there is no certificate, from problem documents of the authority |
//! | `account` | the account at the authority, and its renewal information |
//! | `order` | an order, from its creation to the certificate |
//! | `acme` | the certificate with its settings and storage, before and while it is renewed |
//! | `renewer` | the thread that renews certificates |

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

/// Parses `bytes` from the fuzzer as a problem document (an error report of the authority). Returns
/// its message.
#[doc(hidden)]
pub fn read_for_fuzzer(bytes: &[u8]) -> Option<String> {
    let problem = serde_json::from_slice::<instant_acme::Problem>(bytes).ok()?;
    Some(failure::Failure::from(&problem).text)
}

mod account;
mod acme;
mod failure;
mod http;
mod order;
mod renewer;
mod schedule;
mod settings;
mod storage;

pub use acme::Acme;
pub use renewer::Renewer;
pub use schedule::RetrySchedule;
pub use settings::{BadSettings, Challenge, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, Settings};
