//! The protocol between a supervisor and its worker processes. A worker is an R process that serves
//! requests. A supervisor starts workers and sends them requests in shared memory.
//!
//! This crate defines the descriptors that a worker inherits, and the bytes that are sent over
//! them. It depends on neither R nor HTTP nor an async runtime.
//!
//! ```text
//! supervisor                                                      worker
//!   [`RingEnd::create`]            ── sealed memory ────────────▶   [`RingHandles::attach`]
//!   [`SharedScoreboard::create`]   ── sealed memory ────────────▶   [`SharedScoreboard::attach`]
//!   [`ControlChannel`]             ◀─ socket pair (seqpacket) ──▶   [`ControlChannel`]
//!   [`Tickets`]                    ── number of each request ───▶   [`Scoreboard::begin`]
//! ```
//!
//! [`RingEnd::create`]: rings::RingEnd::create
//! [`RingHandles::attach`]: rings::RingHandles::attach
//!
//! # How a supervisor uses this crate
//! 1. Create a [`SharedScoreboard`], a [`ControlChannel::pair`] and [rings](mod@rings) for each
//!    process.
//! 2. Pass them to the [`Command`](std::process::Command) with [`WorkerEnvironment::apply`], start
//!    the process, and then close the worker's ends.
//! 3. Wait for [`Message::Ready`], and send a [`Message::Ping`] from time to time. The control
//!    channel ends when the worker ends. If the supervisor closes its end, the worker shuts down
//!    within [`ORPHAN_EXIT_TIMEOUT`].
//! 4. Give each request a [`Ticket`] (a number), which its record contains.
//! 5. After a worker has ended and has been waited for, call [`Scoreboard::has_begun`] to learn
//!    whether R had begun a request.
//!
//! # Whether R had begun a request
//! Before R calls the application for a request, the worker writes the request's ticket to the
//! scoreboard. The scoreboard is memory that the worker shares with the supervisor, so it outlives
//! the worker. After the worker's death, [`Scoreboard::has_begun`] returns:
//! - `false` if the ticket was not written. R has then run no line of the application for the
//!   request. The request may be sent to another worker, whatever its method.
//! - `true` if the ticket was written. R has usually begun the application, but may have died in
//!   the few instructions between writing the ticket and calling the application.
//!
//! # What a hostile worker can do
//! - A worker cannot truncate the shared memory while the supervisor uses it, because the size of
//!   the memory is sealed.
//! - A worker can write any numbers to the shared memory. The supervisor reads only numbers, and
//!   accepts every value.
//! - A worker can send malformed messages on the control channel. They are reported as
//!   [`Received::Malformed`].
//!
//! # Systems
//! Supervisors and workers exist only on Linux. On other systems, a server without a supervisor
//! uses the [`Scoreboard`], and there are no inherited descriptors, no control channel and no
//! rings.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]
#![allow(unexpected_cfgs)] // `loom` is set only by the models of `rings/model.rs`

#[cfg(target_os = "linux")]
mod control_channel;
mod counters;
mod error_report;
#[cfg(target_os = "linux")]
mod inherited;
mod message;
#[cfg(target_os = "linux")]
pub mod rings;
mod routes;
mod scoreboard;
mod shared_scoreboard;
mod shiny_message;
mod shiny_sessions;
mod ticket;
mod variables;
mod visible_text;
#[cfg(target_os = "linux")]
mod worker_environment;

#[cfg(target_os = "linux")]
pub use control_channel::{ControlChannel, MAX_ANNOUNCEMENT_SIZE, Received};
pub use counters::{
    Counter, HISTOGRAM_BOUNDS, Histogram, MAX_REJECTIONS, RejectionCounters, RequestCounters,
    SPAN_RESULTS, STATUS_CLASSES, SpanCounters, StatusClassCounters,
};
pub use error_report::{ErrorReport, MAX_ERROR_REPORT_SIZE};
#[cfg(target_os = "linux")]
pub use inherited::{Inherited, InheritedError};
pub use message::{MESSAGE_BYTES, MalformedMessage, Message};
pub use routes::{
    MAX_ROUTE_LEN, MAX_ROUTES, OTHER_ROUTE, RequestReport, RouteCounters, RouteName, RouteSample,
    RouteTable, SeriesReading, first_segment,
};
pub use scoreboard::{
    BegunRequests, IDLE_RENEWAL_INTERVAL, MAX_STACK_LEN, MAX_TASK_LEN, ProfileProgress,
    ProfileRequest, RState, Scoreboard, Snapshot, StackSample, now,
};
pub use shared_scoreboard::SharedScoreboard;
pub use shiny_message::ShinyMessage;
pub use shiny_sessions::{
    SESSION_ID_LEN, SessionReading, SessionsReading, ShinySession, ShinySessions,
};
pub use ticket::{MAX_TICKETS, Ticket, TicketGuard, Tickets};
pub use variables::{
    CONTROL_FD, DESCRIPTORS, GATE_FD, GENERATION, NAMES, PRELOAD, RINGS_FDS, SCOREBOARD_FD, WORKER,
    WORKER_ID, WORKERS,
};
pub use visible_text::{visible_char, visible_text};
#[cfg(target_os = "linux")]
pub use worker_environment::{Gate, WorkerEnvironment};

/// The time within which a worker exits after [`Message::Stop`]. A process that still runs after
/// this time is killed.
pub const EXIT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(15);

/// The time within which a worker exits after the control channel has ended. The clients of the
/// supervisor were disconnected with it, so nothing waits for the work that R still does.
pub const ORPHAN_EXIT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
