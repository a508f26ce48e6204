//! WebSocket clients (RFC 6455) for applications with an event loop that must never block, such as
//! R.
//!
//! [`Clients`] runs all clients on one thread. [`Clients::open`] returns at once. When a client has
//! an event, a [`Wake`] callback notifies the application, which takes the event with
//! [`Clients::next_event`]. Sending and closing do not block either. A timeout in [`Settings`]
//! limits every wait of the thread.
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
