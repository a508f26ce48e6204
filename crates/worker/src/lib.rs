//! What a supervisor and its worker processes share. A worker is an R process that answers requests; a supervisor starts workers and
//! passes requests on to them over a Unix socket. This crate knows neither R nor HTTP nor an async runtime: what is here are the
//! descriptors that a worker is given, and the bytes that pass over them.
//!
//! ```text
//! supervisor                                                      worker
//!   binds, listens            ── listener (Unix, stream) ──▶        accepts
//!   [`Scoreboard::create`]    ── memory, sealed ───────────▶        [`Scoreboard::attach`], writes [`Board`]
//!   [`Control`]               ◀─ socket pair (seqpacket) ──▶        [`Control`]
//!   binds the public address  ── [`PublicSockets`] ────────▶        accepts on them while it is told to
//!   [`Tickets`], [`Call`]     ── a header of each request ─▶        [`Call::parse`], [`Board::begin`]
//! ```
//!
//! # For the supervisor
//! 1. [`Scoreboard::create`] and [`Control::pair`], anew for each process, and a listener, which a slot may keep for the next.
//! 2. [`HandOver::apply`] to the [`Command`](std::process::Command); after it has been started, drop the worker's ends.
//! 3. Wait for [`Message::Ready`]; [`Message::Ping`] now and then. The end of the control channel is the end of the worker, and
//!    the supervisor's end ends the worker: [`END_WITHIN`].
//! 4. Each request is given a [`Ticket`] and goes out with [`CALL_HEADER`], which replaces whatever the client sent by that name.
//! 5. When the worker has died (it has been waited for), [`Board::has_begun`] says whether R had begun a request.
//!
//! # Did R begin this request?
//! A worker writes the ticket into the scoreboard, by one atomic store, before R calls the application for it. The memory is the
//! supervisor's as well and outlives the worker, so a SIGKILL is either before the store, and R has not run a line of the
//! application for the request, or after it. `false` therefore is exact: the request may be given to another worker whatever
//! its method. `true` may be early by the instructions between the store and the application's first.
//!
//! # What a hostile worker can do
//! The memory's size is sealed, so that it cannot be taken away from under the supervisor; what is read from it are numbers, of
//! which every value means something. A message that is none is [`Received::Malformed`].
//!
//! Memory that can be sealed is Linux's: elsewhere [`Scoreboard::create`], and with it all of this, is an error.

mod board;
mod call;
mod control;
mod counts;
mod hand_over;
mod inherited;
mod message;
mod public;
mod scoreboard;
mod system;
mod ticket;
mod variables;

pub use board::{Board, IDLE_IS_RENEWED, R, Snapshot, TICKETS, now};
pub use call::{
    ASK_AGAIN, Announced, Body, CALL_HEADER, Call, CallError, CallText, Client, GO_ON,
    MOST_CALL_BYTES,
};
pub use control::{Control, MOST_ANNOUNCED, Received, is_own};
pub use counts::{BOUNDS, CLASSES, Classes, Count, Histogram, Tally};
pub use hand_over::HandOver;
pub use inherited::{Inherited, InheritedError};
pub use message::{MESSAGE_BYTES, MalformedMessage, Message};
pub use public::{PublicDescriptors, PublicSockets};
pub use scoreboard::Scoreboard;
pub use ticket::{Held, Ticket, Tickets};
pub use variables::{
    CONTROL_FD, COOKIE, DESCRIPTORS, GENERATION, LISTEN_FD, LOG_FD, NAMES, PUBLIC_FDS,
    SCOREBOARD_FD, WORKER, WORKER_ID, WORKERS,
};

/// Of [`Message::Retire`]: WebSockets stay open.
pub const KEEP_WEBSOCKETS: u64 = u64::MAX;

/// How long a worker has to end by itself after the control channel has, or after [`Message::Stop`]: it drains for ten seconds at the
/// most, and then its process is ended.
pub const END_WITHIN: std::time::Duration = std::time::Duration::from_secs(15);
