#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]
#![doc = include_str!("../README.md")]
//!
//! # Hooks
//! A hook is current for the code that runs within [`with_hook`], until a guard of [`set_hook`] is
//! dropped, or during each poll of an [`ErrorHookFuture`].
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use rookery_error::{Error, ErrorHook, ErrorId, throw, with_hook};
//!
//! #[derive(Default)]
//! struct Count(AtomicUsize);
//! impl ErrorHook for Count {
//!     fn throw(&self, _: Error) -> ErrorId {
//!         ErrorId::from(1 + self.0.fetch_add(1, Ordering::Relaxed))
//!     }
//!     fn clear(&self, _: &ErrorId) {}
//! }
//!
//! let count = Arc::new(Count::default());
//! let hook: Arc<dyn ErrorHook> = count.clone();
//! let id = with_hook(&hook, || throw("not found"));
//! assert_eq!(id, ErrorId::from(1));
//! assert_eq!(count.0.load(Ordering::Relaxed), 1);
//! ```
//!
//! # Features
//! No feature is enabled by default.
//! - `tracing`: a hook that writes errors as events. It depends on `tracing`, without its default
//!   features.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod chain;
mod content;
mod context;
mod convert;
mod error;
mod hook;
mod message;
mod repr;
mod request;
mod text;
#[cfg(feature = "tracing")]
mod tracing;

pub use chain::Chain;
pub use context::Context;
pub use error::Error;
pub use hook::{
    ErrorHook, ErrorHookFuture, ErrorId, HookGuard, clear, current_hook, set_hook, throw,
    with_hook, with_hook_option,
};
pub use repr::StaticError;
pub use request::{Delivery, Kind, QUEUED_REPORTS, Report, Reports, RequestHook};
#[cfg(feature = "tracing")]
pub use tracing::TracingHook;

/// A `Result` with the error type [`Error`] as default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The names that the crate `throw_error` uses, for code that migrates from it: `use
/// rookery_error::compat::*`.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use rookery_error::compat::{
///     Error, ErrorHook, ErrorHookFuture, ErrorId, get_error_hook, set_error_hook, throw,
/// };
///
/// #[derive(Default)]
/// struct Messages(Mutex<Vec<String>>);
/// impl ErrorHook for Messages {
///     fn throw(&self, error: Error) -> ErrorId {
///         let mut messages = self.0.lock().expect("no panic");
///         messages.push(error.to_string());
///         ErrorId::from(messages.len())
///     }
///     fn clear(&self, _: &ErrorId) {}
/// }
///
/// let messages = Arc::new(Messages::default());
/// let reset = set_error_hook(messages.clone());
/// throw("not found");
/// let future = ErrorHookFuture::new(async { throw("later") });
/// drop(reset);
/// assert!(get_error_hook().is_none());
/// # drop(future);
/// # assert_eq!(*messages.0.lock().expect("no panic"), ["not found"]);
/// ```
pub mod compat {
    pub use crate::hook::{current_hook as get_error_hook, set_hook as set_error_hook};
    pub use crate::{
        Error, ErrorHook, ErrorHookFuture, ErrorId, HookGuard as ResetErrorHookOnDrop, Result,
        clear, throw,
    };
}

/// Functions that the macros of this crate call. They are not part of the public interface.
#[doc(hidden)]
pub mod private {
    pub use crate::message::is_plain;
}
