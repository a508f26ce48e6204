//! WebSocket clients (RFC 6455) for an application with an event loop of its own that must never wait, such as R.
//!
//! [`Clients`] has one thread, which runs while there is a client. [`Clients::open`] returns at once; what happens to the client comes as
//! [`Event`]s from [`Clients::next_event`], and a [`Wake`] tells the application that some are there. Sending and closing return at once as
//! well. Every wait of the thread has an end: [`Settings`].
//!
//! The connection is `rookery_websocket`'s; TLS is rustls's, with the roots of the system ([`Roots`]).

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
