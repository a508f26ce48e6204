//! WebSocket clients (RFC 6455) for applications such as R whose event loop must never block.
//!
//! [`Clients`] runs one thread while there are clients. [`Clients::open`] returns at once; later
//! events of the client are taken with [`Clients::next_event`], and a [`Wake`] callback notifies
//! the application of new events. Sending and closing do not block either. Every wait of the thread
//! is limited by a timeout in [`Settings`].
//!
//! The crate `rookery_websocket` implements the protocol, and rustls implements TLS, with the root
//! certificates of the system ([`Roots`]).

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
