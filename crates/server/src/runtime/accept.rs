//! Accepting connections.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use rookery_exchange::{ListenerId, Share};

use super::shared::Shared;
use crate::http::driver;
use crate::http::site::Site;
use crate::net::descriptor;
use crate::net::listen::{Acceptor, Arrival};
use crate::peers::room::CONNECTION_BYTES;

/// How long accepting rests when descriptors or memory have run out.
const REST: Duration = Duration::from_millis(100);

/// What a connection past the limit is told.
const NO_SEAT: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: text/plain\r\nContent-Length: 41\r\n\r\n503 Service Unavailable: all seats taken\n";

/// What a connection past the limit of its address is told.
const TOO_MANY_OF_ADDRESS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: text/plain\r\nContent-Length: 64\r\n\r\n503 Service Unavailable: too many connections from this address\n";

/// Accepts until it is dropped.
pub(super) async fn accept(shared: Rc<Shared>, acceptor: Acceptor, listener: ListenerId, site: Site) {
    loop {
        match acceptor.accept().await {
            Ok(arrival) => {
                // Failing means that the client has gone already.
                let _ = welcome(&shared, arrival, listener, &site);
            }
            Err(error) if descriptor::is_exhausted(&error) => tokio::time::sleep(REST).await,
            // The client went before it was accepted.
            Err(_) => {}
        }
    }
}

fn welcome(shared: &Rc<Shared>, arrival: Arrival, listener: ListenerId, site: &Site) -> io::Result<()> {
    let (peers, limits) = (&shared.peers, &shared.peers.limits);
    let of_address = match arrival.remote() {
        Some(remote) if limits.per_address < usize::MAX => {
            match shared.addresses.count(remote.ip(), limits.per_address) {
                None => return arrival.turn_away(TOO_MANY_OF_ADDRESS),
                counted => counted,
            }
        }
        _ => None,
    };
    let has_room = peers.make_room(Share::Connections, 0, CONNECTION_BYTES);
    if (peers.len() >= limits.connections || !has_room) && !peers.free_seat() {
        return arrival.turn_away(NO_SEAT);
    }
    let (transport, ends) = arrival.welcome(of_address)?;
    driver::spawn(&shared.http, listener, site, transport, ends);
    Ok(())
}
