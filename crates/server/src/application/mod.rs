//! The layer between the I/O thread and the application.
//!
//! The layers above call an [`Application`](application::Application) through
//! [`Dispatch`](dispatch::Dispatch), which keeps the requests in flight. Two implementations are in
//! this folder: the [link] to an application on another thread (R), and the
//! [closure], which runs on the I/O thread. A third one, the pool of worker processes, is
//! in crates/supervisor.

#[allow(clippy::module_inception, reason = "the layer is named after the trait")]
pub(crate) mod application;
pub(crate) mod closure;
pub(crate) mod dispatch;
mod exchange_pool;
mod in_flight;
pub(crate) mod link;
