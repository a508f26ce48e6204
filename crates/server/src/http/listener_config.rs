//! The configuration of a listener.

use std::sync::Arc;

use rookery_websocket::protocol::handshake::OriginPolicy;

use crate::http::request::session_cookie::SessionCookie;
use crate::http::request::spool_folder::SpoolFolder;
use crate::net::tls::certificate_store::Tls;
use crate::net::trusted_proxies::TrustedProxies;
use crate::static_files::StaticFiles;

/// The configuration of a listener: what it serves, and how.
#[derive(Debug, Clone, Default)]
pub struct ListenerConfig {
    /// The files that are served without the application. They may be changed while the listener
    /// runs.
    pub files: StaticFiles,
    /// True if the application receives the head of a request before the body is read
    /// ([`Event::Head`](rookery_exchange::Event::Head)).
    pub sees_heads: bool,
    /// The folder for bodies that are too large to stay in memory.
    pub spool: Arc<SpoolFolder>,
    /// The TLS configuration; `None` for plaintext HTTP.
    pub tls: Option<Tls>,
    /// The HTTPS server that all requests are redirected to by a 308 response with the same path
    /// and query. `None` if the listener serves requests itself.
    pub redirect: Option<Arc<Redirect>>,
    /// The proxies whose `X-Forwarded-Proto` header is used.
    pub proxies: TrustedProxies,
    /// True if every connection begins with a PROXY protocol header (version 1 or 2), which
    /// contains the client's address. If there are trusted [`proxies`](Self::proxies), only they
    /// may send it. Without trusted proxies, any client that can reach the listener can claim any
    /// address.
    pub proxy_protocol: bool,
    /// The origins of pages that may open WebSockets. Pages of other origins get a 403 response,
    /// and the application is not called. `None` allows all origins.
    pub origins: Option<OriginPolicy>,
    /// True if responses of the application contain the request's id in an `X-Request-Id` header.
    pub sends_request_id: bool,
    /// The session cookie by which the supervisor of this process routes a client to the same
    /// worker, if the application keeps state for each client.
    pub session_cookie: Option<Arc<SessionCookie>>,
    /// The kind of program that connects to the listener.
    pub downstream: Downstream,
    /// The function that receives notices for the person who operates the server.
    pub notice: Notice,
}

/// The kind of program that connects to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Downstream {
    /// Clients, and proxies that forward their requests.
    #[default]
    Clients,
    /// The supervisor of this process. It adds a worker header to each request, and its connections
    /// are not closed for being idle or slow. No other program may connect.
    /// [`Server::listen_supervised`](crate::Server::listen_supervised) sets this value.
    Supervisor,
}

/// The HTTPS server that plaintext requests are redirected to.
#[derive(Debug)]
pub struct Redirect {
    /// The TLS configuration of the HTTPS server. Requests get a 421 response if their host is
    /// neither covered by a certificate nor the address that the client connected to.
    pub tls: Tls,
    /// The port of the HTTPS server.
    pub port: u16,
}

impl ListenerConfig {
    /// Returns true if only the supervisor of this process connects.
    pub(crate) fn is_supervised(&self) -> bool {
        self.downstream == Downstream::Supervisor
    }

    /// Returns true if a TLS handshake or a PROXY protocol header precedes the first request.
    pub(crate) fn has_handshake(&self) -> bool {
        self.tls.is_some() || self.proxy_protocol
    }
}

/// A function that is called on the I/O thread with one line of text. The default does nothing.
#[derive(Debug, Clone, Copy)]
pub struct Notice(pub fn(&str));

impl Default for Notice {
    fn default() -> Notice {
        Notice(|_| ())
    }
}
