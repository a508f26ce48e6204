//! The part of a listener that belongs to the I/O thread: its tasks.

use std::io;
use std::rc::Rc;

use rookery_exchange::ListenerId;
use tokio::task::JoinHandle;

use super::acceptor;
use crate::connections::client_task;
use crate::http::listener_config::ListenerConfig;
use crate::net::listen::ListeningSocket;
use crate::net::watched_socket::WatchedSocket;
use crate::runtime::io_context::IoContext;

/// The part of a listener that belongs to the I/O thread: its tasks. A drained listener has no
/// tasks, but exists until the listener is stopped, because the application may have commands.
pub(in crate::runtime) struct ActiveListener {
    /// The tasks that accept the listener's connections, one for each socket.
    pub(in crate::runtime) accept_tasks: Vec<JoinHandle<()>>,
    /// The task that checks the listener's certificate files for changes.
    certificate_task: Option<JoinHandle<()>>,
}

impl ActiveListener {
    /// Starts a listener on the I/O thread. Must be called inside the async runtime.
    ///
    /// # Errors
    /// Fails if a socket cannot be registered with the async runtime.
    pub(in crate::runtime) fn start(
        context: &Rc<IoContext>,
        listener: ListenerId,
        sockets: Vec<ListeningSocket>,
        config: &ListenerConfig,
    ) -> io::Result<ActiveListener> {
        let sockets: Vec<_> =
            sockets.into_iter().map(WatchedSocket::new).collect::<io::Result<_>>()?;
        let accept = |socket| {
            let task = acceptor::accept(Rc::clone(context), socket, listener, config.clone());
            client_task::spawn(None, task)
        };
        let watch = |tls| tokio::task::spawn_local(acceptor::watch_certificates(tls));
        Ok(ActiveListener {
            accept_tasks: sockets.into_iter().map(accept).collect(),
            certificate_task: config.tls.clone().map(watch),
        })
    }

    /// Stops accepting connections and ends the listener's tasks. The port is free when this
    /// function returns.
    pub(in crate::runtime) async fn end(&mut self) {
        for task in self.certificate_task.take().into_iter().chain(self.accept_tasks.drain(..)) {
            task.abort();
            // The task was aborted above.
            let _ = task.await;
        }
    }
}
