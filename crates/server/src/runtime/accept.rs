//! Accepting connections.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use rookery_exchange::{ListenerId, Share};

use super::gate::{Accepting, Gate};
use super::shared::Shared;
use crate::http::connection::http_connection::connection_bytes;
use crate::http::connection::http1_driver;
use crate::http::listener_config::ListenerConfig;
use crate::net::descriptor;
use crate::net::listen::{Acceptor, Arrival};
use crate::net::tls::store::Tls;

/// How long accepting rests when descriptors or memory have run out.
const REST: Duration = Duration::from_millis(100);

/// What a connection past the limit is told.
const NO_SEAT: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: text/plain\r\nContent-Length: 41\r\n\r\n503 Service Unavailable: all seats taken\n";

/// What a connection past the limit of its address is told.
const TOO_MANY_OF_ADDRESS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: text/plain\r\nContent-Length: 64\r\n\r\n503 Service Unavailable: too many connections from this address\n";

/// What either is told over TLS, before there is a session to say it in: the alert `internal_error` (RFC 8446, 6).
const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 80];

/// How often the files of certificates are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Looks at the files of certificates, and at their dates, until it is dropped.
pub(super) async fn look_after_certificates(tls: Tls) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let tls = tls.clone();
        // A panic there leaves the certificates as they are.
        let _ = tokio::task::spawn_blocking(move || {
            tls.look_again(Instant::now());
            tls.look_at_dates(SystemTime::now());
        })
        .await;
    }
}

/// Accepts, while the gate is open, until it is dropped.
pub(super) async fn accept(
    shared: Rc<Shared>,
    mut acceptor: Acceptor,
    listener: ListenerId,
    site: ListenerConfig,
    mut gate: Gate,
) {
    loop {
        if gate.now() != Accepting::Yes {
            acceptor = rest(acceptor, &mut gate).await;
        }
        let arrival = tokio::select! {
            // In this order: once the gate is closed, nobody is accepted.
            biased;
            () = gate.changed() => continue,
            arrival = acceptor.accept() => arrival,
        };
        match arrival {
            Ok(arrival) => {
                if site.tls.is_some() {
                    shared
                        .http
                        .handshake_limit
                        .wait_for_capacity(shared.peers.limits.handshakes)
                        .await;
                }
                // Failing means that the client has gone already.
                let _ = welcome(&shared, arrival, listener, &site);
            }
            Err(error) if descriptor::is_exhausted(&error) => tokio::time::sleep(REST).await,
            // The client went before it was accepted.
            Err(_) => {}
        }
    }
}

/// Leaves a socket alone until the gate is open again.
async fn rest(acceptor: Acceptor, gate: &mut Gate) -> Acceptor {
    let mut resting = acceptor.rest();
    loop {
        match gate.now() {
            Accepting::Yes => match resting.resume() {
                Ok(acceptor) => return acceptor,
                Err((again, _)) => {
                    resting = again;
                    tokio::time::sleep(REST).await;
                }
            },
            Accepting::Paused => gate.changed().await,
            Accepting::Never => {
                drop(resting);
                return std::future::pending().await;
            }
        }
    }
}

fn welcome(
    shared: &Rc<Shared>,
    arrival: Arrival,
    listener: ListenerId,
    site: &ListenerConfig,
) -> io::Result<()> {
    let (peers, limits) = (&shared.peers, &shared.peers.limits);
    if site.is_supervised() && !arrival.is_of_supervisor() {
        // It is told nothing.
        return Ok(());
    }
    let tls = site.tls.as_ref();
    let refusal = |answer| if tls.is_some() { ALERT } else { answer };
    let of_address = match arrival.remote() {
        Some(remote) if limits.per_address < usize::MAX => {
            match shared.addresses.count(remote.ip(), limits.per_address) {
                None => return arrival.turn_away(refusal(TOO_MANY_OF_ADDRESS)),
                counted => counted,
            }
        }
        _ => None,
    };
    let has_room = peers.make_room(Share::Connections, 0, connection_bytes(tls.is_some()));
    // A supervisor has counted those whom it speaks for.
    let is_full = peers.len() >= limits.connections && !site.is_supervised();
    if (is_full || !has_room) && !peers.free_seat() {
        return arrival.turn_away(refusal(NO_SEAT));
    }
    let (transport, ends) = arrival.welcome(of_address, tls)?;
    http1_driver::spawn(&shared.http, listener, site, transport, ends);
    Ok(())
}
