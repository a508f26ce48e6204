//! AcceptMode connections.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use rookery_exchange::{ListenerId, Share};

use super::accept_switch::{AcceptMode, AcceptWatch};
use crate::http::connection::http_connection::connection_bytes;
use crate::http::connection::http1_driver;
use crate::http::listener_config::ListenerConfig;
use crate::net::accepted_socket::AcceptedSocket;
use crate::net::descriptor;
use crate::net::listen::WatchedSocket;
use crate::net::tls::certificate_store::Tls;
use crate::runtime::io_context::IoContext;

/// How long accepting rests when descriptors or memory have run out.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// What a connection past the limit is told.
const SERVER_FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: text/plain\r\nContent-Length: 46\r\n\r\n503 Service Unavailable: too many connections\n";

/// What a connection past the limit of its address is told.
const TOO_MANY_FROM_IP: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: text/plain\r\nContent-Length: 64\r\n\r\n503 Service Unavailable: too many connections from this address\n";

/// What either is told over TLS, before there is a session to say it in: the alert `internal_error` (RFC 8446, 6).
const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 80];

/// How often the files of certificates are looked at.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Looks at the files of certificates, and at their dates, until it is dropped.
pub(in crate::runtime) async fn watch_certificates(tls: Tls) {
    loop {
        tokio::time::sleep(CERTIFICATE_CHECK_INTERVAL).await;
        let tls = tls.clone();
        // A panic there leaves the certificates as they are.
        let _ = tokio::task::spawn_blocking(move || {
            tls.check_files(Instant::now());
            tls.warn_about_dates(SystemTime::now());
        })
        .await;
    }
}

/// Accepts, while the gate is open, until it is dropped.
pub(in crate::runtime) async fn accept(
    context: Rc<IoContext>,
    mut acceptor: WatchedSocket,
    listener: ListenerId,
    config: ListenerConfig,
    mut accept_watch: AcceptWatch,
) {
    loop {
        if accept_watch.mode() != AcceptMode::On {
            acceptor = pause(acceptor, &mut accept_watch).await;
        }
        let accepted = tokio::select! {
            // In this order: once the gate is closed, nobody is accepted.
            biased;
            () = accept_watch.changed() => continue,
            accepted = acceptor.accept() => accepted,
        };
        match accepted {
            Ok(accepted) => {
                if config.tls.is_some() {
                    context
                        .http
                        .handshake_limit
                        .wait_for_capacity(context.connections.limits.handshakes)
                        .await;
                }
                // Failing means that the client has gone already.
                let _ = admit(&context, accepted, listener, &config);
            }
            Err(error) if descriptor::is_exhausted(&error) => tokio::time::sleep(RETRY_PAUSE).await,
            // The client went before it was accepted.
            Err(_) => {}
        }
    }
}

/// Leaves a socket alone until the gate is open again.
async fn pause(acceptor: WatchedSocket, accept_watch: &mut AcceptWatch) -> WatchedSocket {
    let mut paused = acceptor.pause();
    loop {
        match accept_watch.mode() {
            AcceptMode::On => match paused.resume() {
                Ok(acceptor) => return acceptor,
                Err((again, _)) => {
                    paused = again;
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            },
            AcceptMode::Paused => accept_watch.changed().await,
            AcceptMode::Stopped => {
                drop(paused);
                return std::future::pending().await;
            }
        }
    }
}

fn admit(
    context: &Rc<IoContext>,
    accepted: AcceptedSocket,
    listener: ListenerId,
    config: &ListenerConfig,
) -> io::Result<()> {
    let (connections, limits) = (&context.connections, &context.connections.limits);
    if config.is_supervised() && !accepted.is_from_supervisor() {
        // It is told nothing.
        return Ok(());
    }
    let tls = config.tls.as_ref();
    let refusal = |response| if tls.is_some() { ALERT } else { response };
    let counted = match accepted.remote() {
        Some(remote) if limits.per_address < usize::MAX => {
            match context.connections_per_ip.admit(remote.ip(), limits.per_address) {
                None => return accepted.reject(refusal(TOO_MANY_FROM_IP)),
                admitted => admitted,
            }
        }
        _ => None,
    };
    let has_room = connections.admit(Share::Connections, 0, connection_bytes(tls.is_some()));
    // A supervisor has counted those whom it speaks for.
    let is_full = connections.len() >= limits.connections && !config.is_supervised();
    if (is_full || !has_room) && !connections.free_slot() {
        return accepted.reject(refusal(SERVER_FULL));
    }
    let (transport, addresses) = accepted.into_transport(counted, tls)?;
    http1_driver::spawn(&context.http, listener, config, transport, addresses);
    Ok(())
}
