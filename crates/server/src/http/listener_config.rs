//! What a listener serves.

use std::sync::Arc;

use rookery_websocket::protocol::handshake::OriginPolicy;

use crate::http::request::session_cookie::SessionCookie;
use crate::http::request::spool_folder::SpoolFolder;
use crate::net::tls::certificate_store::Tls;
use crate::net::trusted_proxies::TrustedProxies;
use crate::static_files::StaticFiles;

/// What a listener serves.
#[derive(Debug, Clone, Default)]
pub struct ListenerConfig {
    /// Files served without the application. May be changed while the listener runs.
    pub files: StaticFiles,
    /// Whether the application sees the head of a request before its body is read
    /// ([`Event::Head`](rookery_exchange::Event::Head)).
    pub sees_heads: bool,
    /// Where bodies lie that do not stay in memory.
    pub spool: Arc<SpoolFolder>,
    /// What TLS is spoken with; none: HTTP in the clear.
    pub tls: Option<Tls>,
    /// Where all requests are sent on to, without the application: by 308, with path and query. None: they are served here.
    pub redirect: Option<Arc<Redirect>>,
    /// Whose `X-Forwarded-Proto` says whether a client came by `https`.
    pub proxies: TrustedProxies,
    /// Whether every connection begins with the header of the PROXY protocol (versions 1 and 2), which names the client. Only the
    /// [`proxies`](Self::proxies) may send it, where there are any; without them whoever reaches the listener can claim to be
    /// anybody.
    pub proxy_protocol: bool,
    /// Of which origins pages may open WebSockets: others get 403, and the application is not asked. None: it does not matter.
    pub origins: Option<OriginPolicy>,
    /// Whether replies of the application tell the request's id, in `X-Request-Id`.
    pub sends_request_id: bool,
    /// The cookie by which the supervisor of this process knows its clients, where the application keeps something for each of them.
    pub session_cookie: Option<Arc<SessionCookie>>,
    /// Who connects.
    pub downstream: Downstream,
    /// Who is told, with a line, of what a person who runs the server wants to know.
    pub notice: Notice,
}

/// Who connects to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Downstream {
    /// Clients, and proxies for them.
    #[default]
    Clients,
    /// The supervisor of this process: it says of each request whose it is, its connections are not ended for being idle or slow, and
    /// nobody else is listened to. [`Server::listen_supervised`](crate::Server::listen_supervised) sets it.
    Supervisor,
}

/// Where requests in the clear are sent on to.
#[derive(Debug)]
pub struct Redirect {
    /// What TLS is spoken with there. Requests for a host that it has no certificate for, and that is not the address that was reached,
    /// get 421.
    pub tls: Tls,
    /// The port there.
    pub port: u16,
}

impl ListenerConfig {
    /// Whether all who connect are the supervisor of this process.
    pub(crate) fn is_supervised(&self) -> bool {
        self.downstream == Downstream::Supervisor
    }

    /// Whether something is said before the first request.
    pub(crate) fn has_handshake(&self) -> bool {
        self.tls.is_some() || self.proxy_protocol
    }
}

/// Called with one line, on the I/O thread; nobody by default.
#[derive(Debug, Clone, Copy)]
pub struct Notice(pub fn(&str));

impl Default for Notice {
    fn default() -> Notice {
        Notice(|_| ())
    }
}
