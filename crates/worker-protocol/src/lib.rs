//! What a supervisor and its worker processes share. A worker is an R process that answers requests; a supervisor starts workers and
//! passes requests on to them over a Unix socket. This crate knows neither R nor HTTP nor an async runtime: what is here are the
//! descriptors that a worker is given, and the bytes that pass over them.
//!
//! ```text
//! supervisor                                                      worker
//!   binds, listens            ── listener (Unix, stream) ──▶        accepts
//!   [`SharedScoreboard::create`]    ── memory, sealed ───────────▶        [`SharedScoreboard::attach`], writes [`Scoreboard`]
//!   [`ControlChannel`]               ◀─ socket pair (seqpacket) ──▶        [`ControlChannel`]
//!   binds the public address  ── [`PublicSockets`] ────────▶        accepts on them while it is told to
//!   [`Tickets`], [`WorkerHeader`]     ── a header of each request ─▶        [`WorkerHeader::parse`], [`Scoreboard::begin`]
//! ```
//!
//! # For the supervisor
//! 1. [`SharedScoreboard::create`] and [`ControlChannel::pair`], anew for each process, and a listener, which a slot may keep for the next.
//! 2. [`WorkerEnvironment::apply`] to the [`Command`](std::process::Command); after it has been started, drop the worker's ends.
//! 3. Wait for [`Message::Ready`]; [`Message::Ping`] now and then. The end of the control channel is the end of the worker, and
//!    the supervisor's end ends the worker: [`EXIT_TIMEOUT`].
//! 4. Each request is given a [`Ticket`] and goes out with [`WORKER_HEADER`], which replaces whatever the client sent by that name.
//! 5. When the worker has died (it has been waited for), [`Scoreboard::has_begun`] says whether R had begun a request.
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
//! Memory that can be sealed is Linux's: elsewhere [`SharedScoreboard::create`], and with it all of this, is an error.

mod control_channel;
mod counters;
mod inherited;
mod message;
mod public_listeners;
mod scoreboard;
mod shared_scoreboard;
mod ticket;
mod variables;
mod worker_environment;
mod worker_header;

pub use control_channel::{ControlChannel, MAX_ANNOUNCEMENT_SIZE, Received, is_trusted_peer};
pub use counters::{
    Counter, HISTOGRAM_BOUNDS, Histogram, RequestCounters, STATUS_CLASSES, StatusClassCounters,
};
pub use inherited::{Inherited, InheritedError};
pub use message::{MESSAGE_BYTES, MalformedMessage, Message};
pub use public_listeners::{PublicDescriptors, PublicSockets};
pub use scoreboard::{IDLE_RENEWAL_INTERVAL, RState, Scoreboard, Snapshot, now};
pub use shared_scoreboard::SharedScoreboard;
pub use ticket::{MAX_TICKETS, Ticket, TicketGuard, Tickets};
pub use variables::{
    CONTROL_FD, COOKIE, DESCRIPTORS, GENERATION, LISTEN_FD, LOG_FD, NAMES, PUBLIC_FDS,
    SCOREBOARD_FD, WORKER, WORKER_ID, WORKERS,
};
pub use worker_environment::WorkerEnvironment;
pub use worker_header::{
    BodyLength, BodyState, BorrowedWorkerHeader, ClientCertificate, HEAD_ACCEPTED, HEAD_UNDECIDED,
    MAX_WORKER_HEADER_SIZE, WORKER_HEADER, WorkerHeader, WorkerHeaderError,
};

/// Of [`Message::Retire`]: WebSockets stay open.
pub const KEEP_WEBSOCKETS: u64 = u64::MAX;

/// How long a worker has to end by itself after the control channel has, or after [`Message::Stop`]: it drains for ten seconds at the
/// most, and then its process is ended.
pub const EXIT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(15);
