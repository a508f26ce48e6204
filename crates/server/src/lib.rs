//! An HTTP and WebSocket server that passes requests to an application over a
//! [`Link`](rookery_exchange::Link), which contains a queue for each direction.
//!
//! One I/O thread owns all connections. It uses the library hyper for HTTP/1.1 and h2 for HTTP/2.
//! [`Server::reports`] counts the requests that the server has rejected without the application.
//! This crate does not depend on R.
//!
//! ```no_run
//! # struct Waker;
//! # impl rookery_exchange::AppWaker for Waker { fn wake(&self) {} }
//! use rookery_exchange::{Command, Event};
//! use rookery_server::{Config, Server, ListenerConfig};
//!
//! let server = Server::new(Config::default(), Box::new(Waker));
//! let _listener = server.listen_tcp("127.0.0.1:8000".parse()?, ListenerConfig::default())?;
//! loop {
//!     server.link().wait(std::time::Duration::from_secs(1));
//!     while let Some(event) = server.link().next() {
//!         let Event::Request(mut exchange) = event else { continue };
//!         exchange.begin_response(200);
//!         exchange.set_response_body(b"Hello, World!");
//!         server.link().send(Command::Respond(exchange));
//!     }
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

mod application;
mod blocking;
mod config;
mod connections;
mod http;
mod logging;
mod net;
mod rejection;
mod runtime;
pub mod static_files;
mod websocket;

pub use application::application::{Application, MakeApplication};
pub use config::{Config, Limits};
#[doc(hidden)]
pub use http::connection::head_start::rejected_head_for_fuzzer;
#[doc(hidden)]
pub use http::http2::frames_for_fuzzer;
pub use http::listener_config::{ListenerConfig, Notice, Redirect};
#[doc(hidden)]
pub use http::request::client_address::{forwarded, x_forwarded_for};
pub use http::request::cookies;
pub use http::request::spool_folder::SpoolFolder;
pub use http::response::compress;
pub use http::response::error_page::ErrorPages;
pub use http::response::page_script::{MAX_PAGE_SIZE, PageScript};
#[cfg(unix)]
pub use logging::captured_output;
pub use logging::digits::{push_address, push_number};
pub use logging::{access_log, output};
pub use net::descriptor::close_in_child;
pub use net::inherited_sockets::{InheritedAddress, InheritedSockets};
pub use net::literal_address::literal_address;
pub use net::network_address::network_address;
pub use net::proxy_header;
pub use net::trusted_proxies::{InvalidProxy, TrustedProxies};
pub use rejection::{Rejection, RejectionReports};
pub use rookery_websocket::protocol::handshake::OriginPolicy;
pub use runtime::{
    Confirmation, LimitsControl, ListenError, Listener, LivenessProbe, Server, Supervision,
    SupervisorRequest, WorkerRings,
};

pub mod tls {
    //! The TLS settings of a listener ([`ListenerConfig::tls`](crate::ListenerConfig::tls)), and
    //! the errors in them.
    //!
    //! ```no_run
    //! use rookery_server::ListenerConfig;
    //! use rookery_server::tls::{CertificatePair, Pem, Tls, TlsSettings};
    //!
    //! let (certificate, key) = (Pem::File("cert.pem".into()), Pem::File("key.pem".into()));
    //! let pair = CertificatePair { certificate, key };
    //! let settings = TlsSettings { pairs: vec![pair], ..TlsSettings::default() };
    //! let tls = Tls::new(settings, |line| eprintln!("{line}"))?;
    //! let config = ListenerConfig { tls: Some(tls.clone()), ..ListenerConfig::default() };
    //! // Loads renewed files at once. The server also checks the files every ten seconds.
    //! tls.reload()?;
    //! # Ok::<(), rookery_server::tls::TlsError>(())
    //! ```

    pub use crate::net::tls::certificate::IssuedCertificate;
    pub use crate::net::tls::certificate_store::Tls;
    pub use crate::net::tls::challenges::Challenges;
    pub use crate::net::tls::development::DevelopmentCertificate;
    pub use crate::net::tls::identity::ServedCertificate;
    pub use crate::net::tls::pem::Pem;
    pub use crate::net::tls::settings::{CertificatePair, Hsts, TlsSettings, TlsVersion};
    pub use crate::net::tls::tls_error::{TlsError, TlsPart};
}
