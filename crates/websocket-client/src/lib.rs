//! WebSocket clients (RFC 6455) for an application with an event loop of its own that must never wait, such as R.
//!
//! [`Clients`] has one thread, which runs while there is a client. [`Clients::open`] returns at once; what happens to the client comes as
//! [`Event`]s from [`Clients::event`], and a [`Wake`] tells the application that some are there. Sending and closing return at once as
//! well. Every wait of the thread has an end: [`Settings`].
//!
//! The connection is `rookery_websocket`'s; TLS is rustls's, with the roots of the system ([`Roots`]).

mod address;
mod clients;
mod connecting;
mod events;
mod inherited;
mod running;
mod settings;
mod thread;
mod tls;

pub use address::{Address, BadAddress};
pub use clients::{CLIENTS, Clients, Given, OpenError};
pub use events::{Content, Event, READ_AHEAD, Wake};
pub use inherited::close_inherited;
pub use settings::Settings;
pub use thread::STOP_TIME;
pub use tls::{BadRoots, Roots, trusting};
