//! The layer between the I/O thread and the application.
//!
//! The I/O thread's tasks call an [`Application`](application::Application) through
//! [`Dispatch`](dispatch::Dispatch), which keeps the table of requests in flight. This folder
//! contains two implementations of `Application`: the [link] to an application on another thread
//! (R), and a [closure] that runs on the I/O thread. A third implementation, the pool of worker
//! processes, is in crates/supervisor.

#[allow(clippy::module_inception, reason = "the layer is named after the trait")]
pub(crate) mod application;
pub(crate) mod closure;
pub(crate) mod dispatch;
mod exchange_pool;
mod in_flight;
pub(crate) mod link;
