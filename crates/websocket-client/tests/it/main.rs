//! Clients over real sockets: against the server of this project, and against peers made by hand.

mod addresses;
mod endings;
mod groups;
mod handshakes;
mod limits;
mod messages;
mod support;
mod tls;
