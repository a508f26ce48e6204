//! The tasks of a listener: accepting its connections, and checking its certificate files for
//! changes.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use rookery_exchange::{ListenerId, Peer, Share};
use rookery_system::blocking;

use crate::config::Limits;
use crate::connections::admission::idle_bytes;
use crate::connections::table::ConnectionTable;
use crate::http::connection::http1_driver;
use crate::http::listener_config::ListenerConfig;
use crate::net::accepted_socket::AcceptedSocket;
use crate::net::descriptor;
use crate::net::tls::certificate_store::Tls;
use crate::net::watched_socket::WatchedSocket;
use crate::rejection::Rejection;
use crate::runtime::io_context::IoContext;

/// The maximum time for which a listener pauses accepting after file descriptors or memory have run
/// out, and what it has evicted has not been removed yet.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The maximum time for which a listener with [`Limits::evicts_at_once`](crate::Limits) keeps a new
/// connection waiting until another one can be evicted. After that time, it rejects the new one.
const MAX_ROOM_WAIT: Duration = Duration::from_secs(1);

/// The interval at which a listener that waits for a free place in the connection table looks again
/// for a connection to evict.
const ROOM_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The maximum number of new connections for which others are evicted before tasks run. With a
/// smaller number, a client that connects without pause could fill the kernel's queue of new
/// connections, in which all others wait.
const MAX_EVICTED: usize = 40;

/// The divisor of `max_connections` that also limits this number. New connections would otherwise
/// be evicted before they are served.
const EVICTED_PART: usize = 8;

/// The HTTP response to a connection that exceeds
/// [`Limits::max_connections`](crate::Limits::max_connections).
const SERVER_FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    Connection: close\r\nRetry-After: 1\r\nContent-Type: text/plain\r\nContent-Length: 46\r\n\r\n\
    503 Service Unavailable: too many connections\n";

/// The HTTP response to a connection that exceeds
/// [`Limits::max_connections_per_ip`](crate::Limits::max_connections_per_ip).
const TOO_MANY_FROM_IP: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    Connection: close\r\nRetry-After: 1\r\nContent-Type: text/plain\r\nContent-Length: 64\r\n\r\n\
    503 Service Unavailable: too many connections from this address\n";

/// The TLS alert `internal_error` (RFC 8446, 6), by which a listener rejects a connection before
/// its TLS handshake.
const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 80];

/// The interval at which a listener checks whether its certificate files have changed.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Checks periodically whether the certificate files have changed and whether certificates expire
/// soon. Runs until it is dropped.
pub(in crate::runtime) async fn watch_certificates(tls: Tls) {
    loop {
        tokio::time::sleep(CERTIFICATE_CHECK_INTERVAL).await;
        let tls = tls.clone();
        // After a panic in the closure the certificates stay as they are.
        let _ = blocking::start(move || {
            tls.check_files(Instant::now());
            tls.warn_about_dates(SystemTime::now());
            Ok(())
        })
        .await;
    }
}

/// Accepts connections on a socket. Runs until it is dropped.
pub(in crate::runtime) async fn accept(
    context: Rc<IoContext>,
    acceptor: WatchedSocket,
    listener: ListenerId,
    config: ListenerConfig,
) {
    let config = Rc::new(config);
    let mut evicted = 0;
    loop {
        match acceptor.accept().await {
            Ok(accepted) => {
                let (connections, limits) = (&context.connections, context.connections.limits());
                let remote = accepted.remote().map(|remote| remote.ip());
                let network = connections.peers.network(remote);
                if limits.evicts_at_once {
                    make_room(connections, network).await;
                }
                // An error means that the client has already disconnected.
                let admitted = admit(&context, &limits, (accepted, network), listener, &config);
                if admitted.unwrap_or(false) && connections.len() >= max_connections(&limits) {
                    evicted += 1;
                    let max_evicted = max_connections(&limits) / EVICTED_PART;
                    if evicted >= max_evicted.min(MAX_EVICTED) {
                        // Serves the connections before the next ones could replace them.
                        evicted = 0;
                        tokio::task::yield_now().await;
                    }
                }
            }
            Err(error) if descriptor::is_exhausted(&error) => {
                let removed = context.connections.removed.notified();
                context.connections.free_descriptor();
                let _ = tokio::time::timeout(RETRY_PAUSE, removed).await;
            }
            // The client disconnected before the connection was accepted.
            Err(_) => {}
        }
    }
}

/// Waits until the connection table has room for another connection, for at most
/// [`MAX_ROOM_WAIT`], and evicts connections for this purpose. If all connections have just sent
/// their requests, none can be evicted until one of the requests has been answered.
async fn make_room(connections: &ConnectionTable, network: u64) {
    let end = Instant::now() + MAX_ROOM_WAIT;
    while connections.len() >= max_connections(&connections.limits()) && Instant::now() < end {
        let removed = connections.removed.notified();
        connections.free_slot(network);
        // A connection that has been answered may be evicted, but remains in the table.
        let _ = tokio::time::timeout(ROOM_CHECK_INTERVAL, removed).await;
    }
}

/// Returns the maximum number of connections: the limit, or the number for which the process has
/// file descriptors. Beyond it, a connection is evicted for a new one. If the descriptors ran out
/// first, nothing would be evicted, and responses from files would fail.
fn max_connections(limits: &Limits) -> usize {
    limits.max_connections.min(descriptor::max_connections())
}

/// Admits a connection of a network, or rejects it if there is no room for it. Returns true if the
/// connection was admitted.
fn admit(
    context: &IoContext,
    limits: &Limits,
    (accepted, network): (AcceptedSocket, u64),
    listener: ListenerId,
    config: &Rc<ListenerConfig>,
) -> io::Result<bool> {
    let (connections, tls) = (&context.connections, config.tls.as_ref());
    let refusal = |response| if tls.is_some() { ALERT } else { response };
    let counted = match accepted.remote() {
        Some(remote)
            if limits.max_connections_per_ip < usize::MAX
                && !config.is_shared_address(Some(remote.ip())) =>
        {
            match connections.peers.count_connection(network, limits.max_connections_per_ip) {
                None => {
                    context.http.report(Rejection::TooManyFromIp);
                    return accepted.reject(refusal(TOO_MANY_FROM_IP)).map(|()| false);
                }
                admitted => admitted,
            }
        }
        _ => None,
    };
    let (newcomer, needs) = (Peer::new(0, network), idle_bytes(tls.is_some()));
    let has_memory = connections.admit(newcomer, Share::Connections, 0, needs);
    let is_full = connections.len() >= max_connections(limits);
    if (is_full || !has_memory) && !connections.free_slot(network) {
        context.http.report(Rejection::TooManyConnections);
        return accepted.reject(refusal(SERVER_FULL)).map(|()| false);
    }
    let (transport, addresses) = accepted.into_transport(counted, tls)?;
    http1_driver::spawn(&context.http, listener, config, transport, (addresses, network));
    Ok(true)
}
