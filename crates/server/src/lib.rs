//! An HTTP/1.1 and WebSocket server that hands exchanges to an application over a [`Link`](rookery_exchange::Link).
//!
//! It knows no R. What it rejects is thrown to the hook of the request ([`Server::reports`]). One I/O thread owns every connection; hyper reads and writes HTTP behind the seam of `connection`
//! and `stream`.
//!
//! ```no_run
//! # struct Waker;
//! # impl rookery_exchange::AppWaker for Waker { fn wake(&self) {} }
//! use rookery_exchange::{Command, Event};
//! use rookery_server::{Config, Server, Site};
//!
//! let server = Server::new(Config::default(), Box::new(Waker));
//! let _listener = server.listen_tcp("127.0.0.1:8000".parse()?, Site::default())?;
//! loop {
//!     server.link().wait(std::time::Duration::from_secs(1));
//!     while let Some(event) = server.link().next() {
//!         let Event::Request(mut exchange) = event else { continue };
//!         exchange.begin_reply(200);
//!         exchange.set_reply_body(b"Hello, World!");
//!         server.link().send(Command::Respond(exchange));
//!     }
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accept;
pub mod access_log;
mod alarm;
mod answer;
mod bind;
mod closing;
pub mod compress;
mod config;
mod connection;
mod descriptor;
mod files;
mod hub;
mod io_thread;
mod job;
mod memory;
mod outbound;
mod overload;
mod pace;
mod pending;
mod pulse;
mod rejection;
mod reply;
mod request;
mod seats;
mod server;
mod socket;
mod spool;
mod spool_folder;
pub mod static_files;
mod stream;

pub use config::{Config, Limits, Shares};
pub use rejection::Rejection;
pub use server::{ListenError, Listener, Server, Site};
pub use spool_folder::SpoolFolder;
