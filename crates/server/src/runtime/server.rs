//! The handle by which an application controls the server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use http::StatusCode;
use rookery_error::Reports;
use rookery_exchange::{AppWaker, Budget, Exchange, Link};
use rookery_trace::Tracer;
use rookery_worker_protocol::SharedScoreboard;

use super::commands::IoCommand;
use super::listen_error::ListenError;
use super::listener::Listener;
use super::server_state::ServerState;
use super::supervised::supervision::Supervision;
use crate::application::application::{Application, MakeApplication};
use crate::application::closure::{ClosureApplication, ClosureConfig};
use crate::config::Config;
use crate::http::listener_config::ListenerConfig;
use crate::logging::access_log::AccessLog;
use crate::net::inherited_sockets::InheritedSockets;
use crate::net::listen::{self, ListeningSocket};
use crate::net::{descriptor, local};
use crate::rejection::Rejection;
use crate::static_files::error_body;

/// A server with any number of listeners, one link to the application, and one I/O thread. The I/O
/// thread runs while there is a listener or a connection.
///
/// When this value is dropped, the server stops its listeners, closes all connections, including
/// those that wait for a response, and joins the I/O thread.
pub struct Server {
    state: Arc<ServerState>,
}

impl Server {
    /// Makes a server without listeners. Its I/O thread does not run yet. The server calls
    /// `app_waker` when there are events for an application that is not waiting in
    /// [`Link::wait`](rookery_exchange::Link::wait).
    pub fn new(config: Config, app_waker: Box<dyn AppWaker>) -> Server {
        Server { state: Arc::new(ServerState::new(config, app_waker, None)) }
    }

    /// Makes a server for tests and benchmarks, which needs no application on another thread. The
    /// server calls `respond` on its I/O thread for each request, accepts every WebSocket, and
    /// echoes each message. `respond` must not block. The [`link`](Self::link) of the server
    /// carries no events.
    pub fn with_closure_and_echo(
        config: Config,
        respond: impl Fn(&mut Exchange) + Send + Sync + 'static,
    ) -> Server {
        Server::with_closure_config(
            config,
            ClosureConfig { respond: Arc::new(respond), is_echo: true },
        )
    }

    /// Makes a server that has no application and serves only static files
    /// ([`ListenerConfig::files`]). Requests that the static files do not answer, such as WebSocket
    /// handshakes, get status 404. The [`link`](Self::link) of the server carries no events.
    pub fn for_static_files(config: Config) -> Server {
        Server::with_application(config, Server::static_files_application())
    }

    /// Returns the function that makes the application of
    /// [`for_static_files`](Self::for_static_files), which responds with 404.
    pub fn static_files_application() -> MakeApplication {
        closure_application(ClosureConfig { respond: Arc::new(not_found), is_echo: false })
    }

    /// Makes a server that needs no application on another thread. Instead, it calls `respond` on
    /// its I/O thread for each request, including WebSocket handshakes. `respond` must not block.
    /// The [`link`](Self::link) of the server carries no events.
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
        Server::with_application(config, closure_application(closure_config))
    }

    /// Makes a server whose application runs on the I/O thread. `application` is a function that
    /// creates the application. The [`link`](Self::link) of the server carries no events, because
    /// only an application on another thread needs it.
    pub fn with_application(config: Config, application: MakeApplication) -> Server {
        Server { state: Arc::new(ServerState::new(config, Box::new(NoWaker), Some(application))) }
    }

    /// Returns the counters of rejected requests and connections. Each rejection can also be queued
    /// for the application ([`Reports::set_delivery`]), with the id of its request.
    pub fn reports(&self) -> &Arc<Reports<Rejection>> {
        &self.state.reports
    }

    /// Returns the memory budget: the number of bytes that clients make the server hold, and the
    /// limit on this number ([`Limits::max_client_memory`](crate::Limits::max_client_memory)).
    pub fn budget(&self) -> &Arc<Budget> {
        &self.state.budget
    }

    /// Returns the link, from which the application takes events and to which it sends commands.
    /// All listeners of the server share the link.
    pub fn link(&self) -> &Arc<Link> {
        &self.state.link
    }

    /// Sets the access log of all listeners; `None` turns logging off. The previous log is dropped
    /// once the requests in progress have been logged to it.
    pub fn set_access_log(&self, log: Option<Arc<AccessLog>>) {
        self.state.log.set(log);
    }

    /// Sets the tracer of the server, which records the requests of clients. The I/O thread takes
    /// the tracer when it starts with the first listener, so a later call has no effect before all
    /// listeners have ended.
    pub fn set_tracer(&self, tracer: Option<Arc<Tracer>>) {
        *self.state.tracer.lock().unwrap_or_else(PoisonError::into_inner) = tracer;
    }

    /// Listens on a TCP address. Port 0 selects a free port. Clients can connect when this function
    /// returns.
    ///
    /// # Errors
    /// Fails if the address cannot be bound, or if the I/O thread cannot be started.
    pub fn listen_tcp(
        &self,
        address: SocketAddr,
        config: ListenerConfig,
    ) -> Result<Listener, ListenError> {
        self.state.raise_descriptor_limit(&self.state.config.limits);
        let (socket, local) = listen::bind_tcp(address)
            .map_err(|source| ListenError::Bind { address: address.to_string(), source })?;
        let id = self.state.listen(vec![ListeningSocket::Tcp(socket)], config)?;
        Ok(Listener::new(&self.state, id, Some(local), None))
    }

    /// Listens on a Unix socket. An existing socket file on which no process listens is replaced.
    /// The socket file is removed when the listener stops, unless another file has taken its place.
    /// `umask` limits the permissions of the socket file as soon as it exists. If it is `None`, the
    /// umask of the process is used.
    ///
    /// On Windows, listens on a named pipe instead. Its name begins with `\\\\.\\pipe\\`, and only
    /// processes of this machine can connect. `umask` has no effect.
    ///
    /// # Errors
    /// Fails if the path cannot be bound, if the name is not that of a named pipe (on Windows), or
    /// if the I/O thread cannot be started.
    pub fn listen_unix(
        &self,
        path: &Path,
        umask: Option<u32>,
        config: ListenerConfig,
    ) -> Result<Listener, ListenError> {
        self.state.raise_descriptor_limit(&self.state.config.limits);
        let bind_error = |source| ListenError::Bind { address: path.display().to_string(), source };
        if cfg!(windows) && (config.tls.is_some() || config.proxy_protocol.is_some()) {
            return Err(bind_error(io::Error::new(
                io::ErrorKind::Unsupported,
                "a named pipe has neither TLS nor the PROXY protocol; use a host and a port",
            )));
        }
        let (socket, file) = local::bind(path, umask).map_err(bind_error)?;
        let id = self
            .state
            .listen(vec![ListeningSocket::Local(socket)], config)
            .inspect_err(|_| file.remove())?;
        Ok(Listener::new(&self.state, id, None, Some(file)))
    }

    /// Serves listening sockets that another process, such as a service manager, has opened.
    /// Clients that connected before this call are served as well. The sockets stay open when the
    /// listener stops, so that new connections wait for the next listener.
    ///
    /// # Errors
    /// Fails if a socket cannot be copied, made non-blocking, or registered with the I/O thread, or
    /// if the I/O thread cannot be started.
    pub fn listen_inherited(
        &self,
        sockets: &InheritedSockets,
        config: ListenerConfig,
    ) -> Result<Listener, ListenError> {
        self.state.raise_descriptor_limit(&self.state.config.limits);
        let (sockets, local) = sockets.copies().map_err(inherited_error)?;
        let id = self.state.listen(sockets, config)?;
        Ok(Listener::new(&self.state, id, local, None))
    }

    /// Starts a listener without sockets, which stands for the requests of the supervisor's
    /// clients. The application takes these requests from [`WorkerRings`](crate::WorkerRings).
    ///
    /// # Errors
    /// Fails if the I/O thread cannot be started.
    pub fn listen_supervised(&self) -> Result<Listener, ListenError> {
        self.state.raise_descriptor_limit(&self.state.config.limits);
        let id = self.state.listen(Vec::new(), ListenerConfig::default())?;
        Ok(Listener::new(&self.state, id, None, None))
    }

    /// Starts to receive the supervisor's messages on the I/O thread, even while there is no
    /// listener. Also records the application's work in the scoreboard (shared memory) that the
    /// supervisor reads. Call this function before any listener starts.
    ///
    /// # Errors
    /// Fails if the I/O thread cannot be started.
    pub fn watch_supervisor(&self, supervision: Arc<Supervision>) -> Result<(), ListenError> {
        self.state.watch_supervisor(supervision)
    }

    /// Sets the scoreboard (shared memory) in which a server without a supervisor records the
    /// application's work. Each exchange then also stores the times at which its request was queued
    /// and started ([`Exchange::queue_and_start_times`]). `None` turns both off. The setting takes
    /// effect when the I/O thread starts next, so call this function before any listener starts.
    pub fn set_scoreboard(&self, scoreboard: Option<Arc<SharedScoreboard>>) {
        self.state.set_scoreboard(scoreboard);
    }

    /// Stops receiving the supervisor's messages, so that the I/O thread may end when no listener
    /// is left.
    pub fn unwatch_supervisor(&self) {
        self.state.execute(|done| IoCommand::UnwatchSupervisor { done });
        self.state.join_if_finished(false);
    }

    /// Advances the clock that the time limits of clients are measured by, so that tests do not
    /// wait for deadlines. The limits of the runtime's own timers are not affected.
    #[doc(hidden)]
    pub fn advance_clock(&self, time: Duration) {
        self.state.execute(|done| IoCommand::AdvanceClock { time, done });
    }

    /// Makes the I/O thread panic, so that an application can test how it reacts to a failed
    /// server.
    pub fn panic_io_thread(&self) {
        self.state.execute(|done| IoCommand::Panic { done });
    }

    /// Closes, in a forked child process, the listeners and connections of all servers of the
    /// parent process. The child must then forget (`std::mem::forget`) its copies of [`Server`] and
    /// [`Listener`], but may make new ones. Takes no lock and allocates no memory.
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

/// Converts an I/O error to a [`ListenError`] which says that the inherited sockets cannot be used.
fn inherited_error(source: io::Error) -> ListenError {
    ListenError::Bind { address: "the inherited sockets".to_owned(), source }
}

fn closure_application(config: ClosureConfig) -> MakeApplication {
    Arc::new(move |_| Box::new(ClosureApplication::new(config.clone())) as Box<dyn Application>)
}

/// Sets the response of an exchange (a request with its response) to the 404 that a missing static
/// file also gets.
fn not_found(exchange: &mut Exchange) {
    let status = StatusCode::NOT_FOUND;
    exchange.begin_response(status.as_u16());
    exchange.set_response_body(error_body(status).as_bytes());
    exchange.response_mut().set_server_error();
}

/// An application waker that does nothing, for a server whose application does not use the link.
struct NoWaker;

impl AppWaker for NoWaker {
    fn wake(&self) {}
}
