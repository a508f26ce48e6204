//! The configuration of a listener (a socket that accepts connections).

use std::net::IpAddr;
use std::sync::Arc;

use rookery_websocket::protocol::handshake::OriginPolicy;

use crate::http::request::spool_folder::SpoolFolder;
use crate::http::response::error_page::ErrorPages;
use crate::http::response::page_script::PageScript;
use crate::net::tls::certificate_store::Tls;
use crate::net::trusted_proxies::TrustedProxies;
use crate::static_files::StaticFiles;

/// The configuration of a listener: the static files that it serves, its TLS settings, the proxies
/// that it trusts, and similar settings.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct ListenerConfig {
    /// The static files that the listener serves without calling the application. They may be
    /// changed while the listener runs.
    pub files: StaticFiles,
    /// True if the application receives the head of a request before the body is read
    /// ([`Event::Head`](rookery_exchange::Event::Head)).
    pub sees_heads: bool,
    /// The folder for temporary files that hold request bodies which are too large for memory.
    pub spool: Arc<SpoolFolder>,
    /// The TLS configuration of the listener, or `None` if it serves plaintext HTTP.
    pub tls: Option<Tls>,
    /// The HTTPS server that the listener redirects all requests to, by a 308 response with the
    /// same path and query. `None` if the listener serves requests itself.
    pub redirect: Option<Arc<Redirect>>,
    /// The trusted proxies, whose forwarding headers contain the client's address
    /// (`X-Forwarded-For` or `Forwarded`), the scheme that the client used (`X-Forwarded-Proto`)
    /// and the request's id (`X-Request-Id`). With the PROXY protocol, a proxy is trusted if it is
    /// the peer of the connection or the client that the PROXY header names.
    pub proxies: TrustedProxies,
    /// The load balancers that may send a PROXY protocol header (version 1 or 2), which contains
    /// the client's address, or `None` if connections begin without this header. Otherwise every
    /// connection must begin with it. If the list is empty, any client that can reach the listener
    /// may send it, and can pretend to have any address.
    pub proxy_protocol: Option<TrustedProxies>,
    /// True if the application gets the headers `Shiny-Server-Credentials` and
    /// `Shiny-Shared-Secret` of every client. If false, only those of trusted
    /// [`proxies`](Self::proxies) are passed on, because Shiny takes the user of a session from
    /// them.
    pub keeps_identity_headers: bool,
    /// The host names that requests may be for, in addition to `localhost` and IP addresses. An
    /// element `*.example.org` stands for every name below `example.org`. `None` allows all names.
    /// Without names, a web page of any site whose name resolves to this server's address (DNS
    /// rebinding) can read what a browser behind the same firewall can.
    pub hosts: Option<Arc<[String]>>,
    /// The origins of web pages that may open WebSockets. Pages of other origins get a 403
    /// response, and the application is not called. `None` allows all origins.
    pub origins: Option<OriginPolicy>,
    /// True if the server adds the request id to the application's responses, in an `X-Request-Id`
    /// header.
    pub sends_request_id: bool,
    /// The pages that replace the server's own error pages, or `None` to keep those.
    pub error_pages: Option<Arc<ErrorPages>>,
    /// The script that is inserted into HTML pages; `None` except during development.
    pub page_script: Option<Arc<PageScript>>,
    /// True if the server adds the times of a request in the queue and in the application to the
    /// response, in a `Server-Timing` header. The supervisor adds it to the responses of its
    /// workers.
    pub sends_timing: bool,
    /// The function that receives notices for the operator of the server.
    pub notice: Notice,
}

/// The HTTPS server that plaintext requests are redirected to.
#[derive(Debug)]
pub struct Redirect {
    /// The TLS configuration of the HTTPS server. A plaintext request is redirected only if one of
    /// its certificates covers the requested host, or if the host is the address that the client
    /// connected to. Otherwise the request gets a 421 response.
    pub tls: Tls,
    /// The TCP port of the HTTPS server that requests are redirected to.
    pub port: u16,
}

impl ListenerConfig {
    /// Returns true if each connection to the listener begins with a TLS handshake or a PROXY
    /// protocol header.
    pub(crate) fn has_handshake(&self) -> bool {
        self.tls.is_some() || self.proxy_protocol.is_some()
    }

    /// Returns true if the connections from this address are those of many clients, because it
    /// belongs to a trusted proxy or to a load balancer that may send a PROXY header. `None` stands
    /// for a client of a Unix socket.
    pub(crate) fn is_shared_address(&self, peer: Option<IpAddr>) -> bool {
        let senders = self.proxy_protocol.as_ref();
        self.proxies.contains(peer) || senders.is_some_and(|senders| senders.contains(peer))
    }
}

/// A function that receives notices to the operator, each as one line of text. It is called on the
/// I/O thread. The default function does nothing.
#[derive(Debug, Clone, Copy)]
pub struct Notice(pub fn(&str));

impl Default for Notice {
    fn default() -> Notice {
        Notice(|_| ())
    }
}
