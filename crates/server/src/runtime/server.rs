//! A server, as an application holds it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http::StatusCode;
use rookery_error::Reports;
use rookery_exchange::{AppWaker, Budget, Exchange, Link};
use rookery_worker::Scoreboard;

use super::core::Core;
use super::listen_error::ListenError;
use super::listener::Listener;
use super::orders::Order;
use super::public::Group;
use super::supervision::Supervision;
use crate::application::application::{Application, MakeApplication};
use crate::application::closure::{Answering, Closure};
use crate::config::Config;
use crate::http::listener_config::{Downstream, ListenerConfig};
use crate::logging::access_log::AccessLog;
use crate::net::given::GivenSockets;
use crate::net::listen::{self, Bound};
use crate::net::proxies::Proxies;
use crate::net::{descriptor, unix};
use crate::rejection::Rejection;
use crate::static_files::error_body;

/// A server: any number of listeners, one link to the application, and one I/O thread, which runs while there is a
/// listener or a connection.
///
/// Dropping it ends every connection, also those that the application owes a reply, stops its listeners and joins the
/// thread.
pub struct Server {
    core: Arc<Core>,
}

impl Server {
    /// Makes a server without listeners; no thread runs yet. `app_waker` is how an application that does not wait
    /// on the link is woken.
    pub fn new(config: Config, app_waker: Box<dyn AppWaker>) -> Server {
        Server { core: Arc::new(Core::new(config, app_waker, None)) }
    }

    /// Makes a server whose I/O thread answers by itself: `answer` writes the reply to each request, every WebSocket is
    /// accepted, and each message is sent back. Nothing comes over its [`link`](Self::link). For tests and measurements
    /// of what is on this side of the link; `answer` must not block.
    pub fn answering(
        config: Config,
        answer: impl Fn(&mut Exchange) + Send + Sync + 'static,
    ) -> Server {
        Server::of_closure(config, Answering { answer: Arc::new(answer), is_echo: true })
    }

    /// Makes a server of files ([`ListenerConfig::files`]) without an application: what they leave to one, such as the handshake of a
    /// WebSocket, is answered with 404. Nothing comes over its [`link`](Self::link).
    pub fn of_files(config: Config) -> Server {
        Server::of_closure(config, Answering { answer: Arc::new(not_found), is_echo: false })
    }

    /// Makes a server whose I/O thread answers by itself: `answer` writes the reply to each request, the handshakes of WebSockets
    /// included, and must not block. Nothing comes over its [`link`](Self::link).
    pub fn of_answers(
        config: Config,
        answer: impl Fn(&mut Exchange) + Send + Sync + 'static,
    ) -> Server {
        Server::of_closure(config, Answering { answer: Arc::new(answer), is_echo: false })
    }

    fn of_closure(config: Config, answering: Answering) -> Server {
        Server::with_application(
            config,
            Arc::new(move |_| Box::new(Closure::new(answering.clone())) as Box<dyn Application>),
        )
    }

    /// Makes a server whose application lives on its I/O thread. Nothing comes over its [`link`](Self::link).
    pub fn with_application(config: Config, application: MakeApplication) -> Server {
        Server { core: Arc::new(Core::new(config, Box::new(Nobody), Some(application))) }
    }

    /// Counts what was rejected, and queues it for an application that asks for it
    /// ([`Reports::set_delivery`]): each with the id of its request.
    pub fn reports(&self) -> &Arc<Reports<Rejection>> {
        &self.core.reports
    }

    /// What peers make the server hold, and what they may ([`Limits::memory`](crate::Limits::memory)).
    pub fn budget(&self) -> &Arc<Budget> {
        &self.core.budget
    }

    /// Where the application finds events and leaves commands. The same for all listeners.
    pub fn link(&self) -> &Arc<Link> {
        &self.core.link
    }

    /// Logs the requests of all listeners from now on; `None` ends that. The log before is dropped when the requests
    /// under way have been logged to it.
    pub fn set_access_log(&self, log: Option<Arc<AccessLog>>) {
        self.core.log.set(log);
    }

    /// Listens on a TCP address; port 0 takes a free one. When this returns, clients can connect.
    ///
    /// # Errors
    /// When the address cannot be bound, and when the I/O thread cannot be started.
    pub fn listen_tcp(
        &self,
        address: SocketAddr,
        site: ListenerConfig,
    ) -> Result<Listener, ListenError> {
        descriptor::raise_limit(self.core.config.limits.connections);
        let (socket, local) = listen::tcp(address)
            .map_err(|source| ListenError::Bind { address: address.to_string(), source })?;
        let id = self.core.start(vec![Bound::Tcp(socket)], site)?;
        Ok(Listener::new(&self.core, id, Some(local), None))
    }

    /// Listens on a Unix socket. A socket file that nobody listens on is replaced; the file is removed when the
    /// listener stops, unless it is another by then. `mask` is the umask it is made with (none: the process's): at no
    /// time has it wider permissions.
    ///
    /// # Errors
    /// When the path cannot be bound, and when the I/O thread cannot be started.
    pub fn listen_unix(
        &self,
        path: &Path,
        mask: Option<u32>,
        site: ListenerConfig,
    ) -> Result<Listener, ListenError> {
        descriptor::raise_limit(self.core.config.limits.connections);
        let (socket, file) = unix::bind(path, mask)
            .map_err(|source| ListenError::Bind { address: path.display().to_string(), source })?;
        let id = self.core.start(vec![Bound::Unix(socket)], site).inspect_err(|_| file.remove())?;
        Ok(Listener::new(&self.core, id, None, Some(file)))
    }

    /// Listens on sockets that somebody else has bound and listens on, such as a service manager: who has connected before is served. They
    /// outlive the listener: what connects after that waits for the next one.
    ///
    /// # Errors
    /// When a socket cannot be made non-blocking or copied, when the I/O thread cannot be started, and when a socket cannot be watched there.
    pub fn listen_given(
        &self,
        sockets: &GivenSockets,
        site: ListenerConfig,
    ) -> Result<Listener, ListenError> {
        descriptor::raise_limit(self.core.config.limits.connections);
        let (sockets, local) = sockets.copies().map_err(given)?;
        let id = self.core.start(sockets, site)?;
        Ok(Listener::new(&self.core, id, local, None))
    }

    /// Listens on the socket that the supervisor of this process has made and passes requests on to. What is said there of a client is
    /// what [`Call`](rookery_worker::Call) says; [`ListenerConfig::tls`], [`ListenerConfig::proxies`] and [`ListenerConfig::proxy_protocol`] are not heeded there. The
    /// socket outlives the listener: what connects after that waits for the next one.
    ///
    /// Where the supervisor has handed over its public listeners, the listener accepts on these as well while the
    /// supervisor wants that, and serves clients there as `site` says.
    ///
    /// # Errors
    /// When the socket cannot be had a second time, when the I/O thread cannot be started, and when the socket cannot be watched there.
    pub fn listen_inherited(
        &self,
        supervision: &Arc<Supervision>,
        site: ListenerConfig,
    ) -> Result<Listener, ListenError> {
        descriptor::raise_limit(self.core.config.limits.connections);
        let failed =
            |source| ListenError::Bind { address: "the socket of this worker".to_owned(), source };
        let mut groups = supervision.public_groups(&site).map_err(failed)?;
        let site = ListenerConfig {
            downstream: Downstream::Supervisor,
            tls: None,
            redirect: None,
            proxies: Proxies::default(),
            proxy_protocol: false,
            session_cookie: None,
            ..site
        };
        let bound = vec![Bound::Unix(supervision.socket().map_err(failed)?)];
        groups.push(Group { bound, site: Box::new(site), is_public: false });
        let id = self.core.start_groups(groups, Some(Arc::clone(supervision)))?;
        Ok(Listener::new(&self.core, id, None, None))
    }

    /// Has the I/O thread hear the supervisor of this process, from now on and whether there are listeners or not, and tell it by the
    /// scoreboard what the application is handed. To be called before anything listens.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn attend(&self, supervision: Arc<Supervision>) -> Result<(), ListenError> {
        self.core.attend(supervision)
    }

    /// Has a process without a supervisor know by a scoreboard of its own what the application is handed, and requests when they were
    /// ([`Exchange::times`]); `None` ends that. It counts from the next start of the I/O thread on, so before anything listens.
    pub fn measure(&self, board: Option<Arc<Scoreboard>>) {
        self.core.measure(board);
    }

    /// Does not hear the supervisor any more: the I/O thread may end.
    pub fn unattend(&self) {
        self.core.order(|done| Order::Unattend { done });
        self.core.join_if_over(false);
    }

    /// Makes the I/O thread panic, so that an application can test what it does then.
    pub fn break_down(&self) {
        self.core.order(|done| Order::Break { done });
    }

    /// In a forked child: closes the listeners and connections that the parent serves, of all servers. A child then
    /// forgets (`std::mem::forget`) its copies of [`Server`] and [`Listener`] and may make new ones. Takes no lock and
    /// allocates nothing.
    pub fn close_inherited() {
        descriptor::close_inherited();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.core.order(|done| Order::Halt { done });
        self.core.join_if_over(true);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("link", &self.core.link).finish_non_exhaustive()
    }
}

/// What is wrong with sockets that were given.
fn given(source: io::Error) -> ListenError {
    ListenError::Bind { address: "the sockets that were given".to_owned(), source }
}

/// As a static path answers where nothing is.
fn not_found(exchange: &mut Exchange) {
    let status = StatusCode::NOT_FOUND;
    exchange.begin_reply(status.as_u16());
    exchange.set_reply_body(error_body(status).as_bytes());
}

/// There is no application to wake.
struct Nobody;

impl AppWaker for Nobody {
    fn wake(&self) {}
}
