//! The seam to whoever answers calls and speaks over WebSockets.
//!
//! Everything above asks an [`Application`](application::Application) through [`Dispatch`](dispatch::Dispatch), which keeps
//! what is in flight. Two are here: [the link](link) to an application on another thread (R), and [a closure](closure) that
//! answers on the I/O thread itself. A third, the pool of processes, is in crates/supervisor.

#[allow(clippy::module_inception, reason = "the layer is named after the trait")]
pub(crate) mod application;
pub(crate) mod closure;
pub(crate) mod dispatch;
mod exchange_pool;
mod in_flight;
pub(crate) mod link;
