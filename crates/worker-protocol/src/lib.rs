//! The protocol between a supervisor and its worker processes. A worker is an R process that serves
//! requests; a supervisor starts workers and passes requests on to them over a Unix socket. This
//! crate depends on neither R nor HTTP nor an async runtime. It defines the descriptors that a
//! worker inherits and the bytes that are sent over them.
//!
//! ```text
//! supervisor                                                      worker
//!   binds, listens                 ── listener (Unix, stream) ──▶   accepts
//!   [`SharedScoreboard::create`]   ── sealed memory ────────────▶   [`SharedScoreboard::attach`]
//!   [`ControlChannel`]             ◀─ socket pair (seqpacket) ──▶   [`ControlChannel`]
//!   binds the public address       ── [`PublicSockets`] ────────▶   accepts while commanded to
//!   [`Tickets`], [`WorkerHeader`]  ── header of each request ───▶   [`WorkerHeader::parse`],
//!                                                                   [`Scoreboard::begin`]
//! ```
//!
//! # How a supervisor uses this crate
//! 1. Create a [`SharedScoreboard`] and a [`ControlChannel::pair`] for each process. The listener
//!    may be kept for the next process of the slot.
//! 2. Pass them to the [`Command`](std::process::Command) with [`WorkerEnvironment::apply`], start
//!    the process, and then close the worker's ends.
//! 3. Wait for [`Message::Ready`], and send a [`Message::Ping`] from time to time. The control
//!    channel ends when the worker does; if the supervisor closes its end, the worker shuts down
//!    within [`EXIT_TIMEOUT`].
//! 4. Give each request a [`Ticket`], and send it with a [`WORKER_HEADER`] that replaces any header
//!    of this name from the client.
//! 5. After the worker has died and has been waited for, [`Scoreboard::has_begun`] returns whether
//!    R had begun a request.
//!
//! # Whether R had begun a request
//! A worker writes the ticket of a request to the scoreboard, with one atomic store, before R calls
//! the application for it. The supervisor shares the memory, which outlives the worker. A SIGKILL
//! arrives either before or after the store. If it arrives before, R has not run any line of the
//! application for the request, and [`Scoreboard::has_begun`] returns `false`. The request may then
//! be sent to another worker, whatever its method. If `has_begun` returns `true`, R may have died
//! in the few instructions between the store and the call of the application.
//!
//! # What a hostile worker can do
//! The size of the shared memory is sealed, so a worker cannot truncate the memory while the
//! supervisor uses it. The supervisor reads only numbers from the memory, and accepts every value.
//! A malformed message on the control channel is reported as [`Received::Malformed`].
//!
//! Only Linux has memory that can be sealed. On other systems, [`SharedScoreboard::create`] returns
//! an error, and the rest of this crate cannot be used.

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
pub use scoreboard::{BegunRequests, IDLE_RENEWAL_INTERVAL, RState, Scoreboard, Snapshot, now};
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

/// The number in [`Message::Retire`] by which a supervisor commands a worker to keep WebSockets
/// open.
pub const KEEP_WEBSOCKETS: u64 = u64::MAX;

/// The time within which a worker exits after the control channel has ended or after
/// [`Message::Stop`]. It is longer than the ten seconds for which a worker may drain. A process
/// that still runs after this time is killed.
pub const EXIT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(15);
