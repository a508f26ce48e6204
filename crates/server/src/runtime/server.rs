//! A server, as an application holds it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http::StatusCode;
use rookery_error::Reports;
use rookery_exchange::{AppWaker, Budget, Exchange, Link};
use rookery_worker_protocol::SharedScoreboard;

use super::commands::IoCommand;
use super::listen_error::ListenError;
use super::listener::Listener;
use super::listening::socket_group::SocketGroup;
use super::server_state::ServerState;
use super::supervised::supervision::Supervision;
use crate::application::application::{Application, MakeApplication};
use crate::application::closure::{ClosureApplication, ClosureConfig};
use crate::config::Config;
use crate::http::listener_config::{Downstream, ListenerConfig};
use crate::logging::access_log::AccessLog;
use crate::net::inherited_sockets::InheritedSockets;
use crate::net::listen::{self, ListeningSocket};
use crate::net::trusted_proxies::TrustedProxies;
use crate::net::{descriptor, socket_file};
use crate::rejection::Rejection;
use crate::static_files::error_body;

/// A server: any number of listeners, one link to the application, and one I/O thread, which runs while there is a
/// listener or a connection.
///
/// Dropping it ends every connection, also those that the application owes a reply, stops its listeners and joins the
/// thread.
pub struct Server {
    state: Arc<ServerState>,
}

impl Server {
    /// Makes a server without listeners; no thread runs yet. `app_waker` is how an application that does not wait
    /// on the link is woken.
    pub fn new(config: Config, app_waker: Box<dyn AppWaker>) -> Server {
        Server { state: Arc::new(ServerState::new(config, app_waker, None)) }
    }

    /// Makes a server whose I/O thread answers by itself: `answer` writes the reply to each request, every WebSocket is
    /// accepted, and each message is sent back. Nothing comes over its [`link`](Self::link). For tests and measurements
    /// of what is on this side of the link; `answer` must not block.
    pub fn with_closure_and_echo(
        config: Config,
        respond: impl Fn(&mut Exchange) + Send + Sync + 'static,
    ) -> Server {
        Server::with_closure_config(
            config,
            ClosureConfig { respond: Arc::new(respond), is_echo: true },
        )
    }

    /// Makes a server of files ([`ListenerConfig::files`]) without an application: what they leave to one, such as the handshake of a
    /// WebSocket, is answered with 404. Nothing comes over its [`link`](Self::link).
    pub fn for_static_files(config: Config) -> Server {
        Server::with_closure_config(
            config,
            ClosureConfig { respond: Arc::new(not_found), is_echo: false },
        )
    }

    /// Makes a server whose I/O thread answers by itself: `answer` writes the reply to each request, the handshakes of WebSockets
    /// included, and must not block. Nothing comes over its [`link`](Self::link).
    pub fn with_closure(
        config: Config,
        respond: impl Fn(&mut Exchange) + Send + Sync + 'static,
    ) -> Server {
        Server::with_closure_config(
            config,
            ClosureConfig { respond: Arc::new(respond), is_echo: false },
        )
    }

    fn with_closure_config(config: Config, closure_config: ClosureConfig) -> Server {
        Server::with_application(
            config,
            Arc::new(move |_| {
                Box::new(ClosureApplication::new(closure_config.clone())) as Box<dyn Application>
            }),
        )
    }

    /// Makes a server whose application lives on its I/O thread. Nothing comes over its [`link`](Self::link).
    pub fn with_application(config: Config, application: MakeApplication) -> Server {
        Server { state: Arc::new(ServerState::new(config, Box::new(NoWaker), Some(application))) }
    }

    /// Counts what was rejected, and queues it for an application that asks for it
    /// ([`Reports::set_delivery`]): each with the id of its request.
    pub fn reports(&self) -> &Arc<Reports<Rejection>> {
        &self.state.reports
    }

    /// What peers make the server hold, and what they may ([`Limits::memory`](crate::Limits::memory)).
    pub fn budget(&self) -> &Arc<Budget> {
        &self.state.budget
    }

    /// Where the application finds events and leaves commands. The same for all listeners.
    pub fn link(&self) -> &Arc<Link> {
        &self.state.link
    }

    /// Logs the requests of all listeners from now on; `None` ends that. The log before is dropped when the requests
    /// under way have been logged to it.
    pub fn set_access_log(&self, log: Option<Arc<AccessLog>>) {
        self.state.log.set(log);
    }

    /// Listens on a TCP address; port 0 takes a free one. When this returns, clients can connect.
    ///
    /// # Errors
    /// When the address cannot be bound, and when the I/O thread cannot be started.
    pub fn listen_tcp(
        &self,
        address: SocketAddr,
        config: ListenerConfig,
    ) -> Result<Listener, ListenError> {
        descriptor::raise_limit(self.state.config.limits.connections);
        let (socket, local) = listen::bind_tcp(address)
            .map_err(|source| ListenError::Bind { address: address.to_string(), source })?;
        let id = self.state.listen(vec![ListeningSocket::Tcp(socket)], config)?;
        Ok(Listener::new(&self.state, id, Some(local), None))
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
        umask: Option<u32>,
        config: ListenerConfig,
    ) -> Result<Listener, ListenError> {
        descriptor::raise_limit(self.state.config.limits.connections);
        let (socket, file) = socket_file::bind(path, umask)
            .map_err(|source| ListenError::Bind { address: path.display().to_string(), source })?;
        let id = self
            .state
            .listen(vec![ListeningSocket::Unix(socket)], config)
            .inspect_err(|_| file.remove())?;
        Ok(Listener::new(&self.state, id, None, Some(file)))
    }

    /// Listens on sockets that somebody else has bound and listens on, such as a service manager: who has connected before is served. They
    /// outlive the listener: what connects after that waits for the next one.
    ///
    /// # Errors
    /// When a socket cannot be made non-blocking or copied, when the I/O thread cannot be started, and when a socket cannot be watched there.
    pub fn listen_inherited(
        &self,
        sockets: &InheritedSockets,
        config: ListenerConfig,
    ) -> Result<Listener, ListenError> {
        descriptor::raise_limit(self.state.config.limits.connections);
        let (sockets, local) = sockets.copies().map_err(inherited_error)?;
        let id = self.state.listen(sockets, config)?;
        Ok(Listener::new(&self.state, id, local, None))
    }

    /// Listens on the socket that the supervisor of this process has made and passes requests on to. What is said there of a client is
    /// what [`WorkerHeader`](rookery_worker_protocol::WorkerHeader) says; [`ListenerConfig::tls`], [`ListenerConfig::proxies`] and [`ListenerConfig::proxy_protocol`] are not heeded there. The
    /// socket outlives the listener: what connects after that waits for the next one.
    ///
    /// Where the supervisor has handed over its public listeners, the listener accepts on these as well while the
    /// supervisor wants that, and serves clients there as `site` says.
    ///
    /// # Errors
    /// When the socket cannot be had a second time, when the I/O thread cannot be started, and when the socket cannot be watched there.
    pub fn listen_supervised(
        &self,
        supervision: &Arc<Supervision>,
        config: ListenerConfig,
    ) -> Result<Listener, ListenError> {
        descriptor::raise_limit(self.state.config.limits.connections);
        let bind_error =
            |source| ListenError::Bind { address: "the worker's socket".to_owned(), source };
        let mut groups = supervision.public_groups(&config).map_err(bind_error)?;
        let config = ListenerConfig {
            downstream: Downstream::Supervisor,
            tls: None,
            redirect: None,
            proxies: TrustedProxies::default(),
            proxy_protocol: false,
            session_cookie: None,
            ..config
        };
        let bound = vec![ListeningSocket::Unix(supervision.socket().map_err(bind_error)?)];
        groups.push(SocketGroup { sockets: bound, config: Box::new(config), is_public: false });
        let id = self.state.listen_groups(groups, Some(Arc::clone(supervision)))?;
        Ok(Listener::new(&self.state, id, None, None))
    }

    /// Has the I/O thread hear the supervisor of this process, from now on and whether there are listeners or not, and tell it by the
    /// scoreboard what the application is handed. To be called before anything listens.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn watch_supervisor(&self, supervision: Arc<Supervision>) -> Result<(), ListenError> {
        self.state.watch_supervisor(supervision)
    }

    /// Has a process without a supervisor know by a scoreboard of its own what the application is handed, and requests when they were
    /// ([`Exchange::times`]); `None` ends that. It counts from the next start of the I/O thread on, so before anything listens.
    pub fn set_scoreboard(&self, board: Option<Arc<SharedScoreboard>>) {
        self.state.set_scoreboard(board);
    }

    /// Does not hear the supervisor any more: the I/O thread may end.
    pub fn unwatch_supervisor(&self) {
        self.state.execute(|done| IoCommand::UnwatchSupervisor { done });
        self.state.join_if_finished(false);
    }

    /// Makes the I/O thread panic, so that an application can test what it does then.
    pub fn panic_io_thread(&self) {
        self.state.execute(|done| IoCommand::Panic { done });
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
        self.state.execute(|done| IoCommand::ShutDown { done });
        self.state.join_if_finished(true);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("link", &self.state.link).finish_non_exhaustive()
    }
}

/// What is wrong with sockets that were given.
fn inherited_error(source: io::Error) -> ListenError {
    ListenError::Bind { address: "the inherited sockets".to_owned(), source }
}

/// As a static path answers where nothing is.
fn not_found(exchange: &mut Exchange) {
    let status = StatusCode::NOT_FOUND;
    exchange.begin_response(status.as_u16());
    exchange.set_response_body(error_body(status).as_bytes());
}

/// There is no application to wake.
struct NoWaker;

impl AppWaker for NoWaker {
    fn wake(&self) {}
}
