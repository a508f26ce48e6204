//! The I/O thread: it wires the rest, accepts, carries out orders, sweeps, stops and drains.

mod accept;
mod alarm;
mod announcements;
mod clocks;
mod core;
mod drain;
mod gate;
mod io_thread;
mod listen_error;
mod listener;
mod listening;
mod orders;
mod patience;
mod public;
mod server;
mod shared;
mod supervision;

pub use self::listen_error::ListenError;
pub use self::listener::{Listener, Pulse};
pub use self::server::Server;
pub use self::supervision::{Confirmation, Request as SupervisorRequest, Supervision};
