//! WebSocket clients (RFC 6455) for applications with an event loop that must never block, such as
//! R.
//!
//! [`Clients`] runs all clients on one thread. Opening a client ([`Clients::open`]), sending and
//! closing never block. When a client has an event, a [`Wake`] callback notifies the application,
//! which takes the event with [`Clients::next_event`].
//!
//! The crate `rookery_websocket` implements the protocol. rustls implements TLS, with the system's
//! root certificates or given ones ([`Roots`]).

mod address;
mod client_task;
mod client_thread;
mod clients;
mod connect;
mod events;
mod settings;
mod state;
mod tls;

pub use address::{Address, AddressError};
pub use client_thread::STOP_TIMEOUT;
pub use clients::{Clients, MAX_CLIENTS, OpenError, SendOutcome};
pub use connect::close_inherited;
pub use events::{Content, Event, Wake};
pub use settings::Settings;
pub use state::READ_AHEAD;
pub use tls::{Roots, RootsError, tls_config};
