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

mod application;
mod blocking;
mod config;
mod http;
mod net;
mod observe;
mod peers;
mod rejection;
mod runtime;
pub mod static_files;
mod websocket;

pub use config::{Config, Limits, Shares};
pub use http::compress;
pub use http::site::Site;
pub use http::spool_folder::SpoolFolder;
pub use observe::access_log;
pub use rejection::Rejection;
pub use runtime::{ListenError, Listener, Server};
