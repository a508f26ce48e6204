//! What passes between the Rookery server and an application: plain data with a `u64` id.
//!
//! The server (an I/O thread) and the application (R's main thread, or a test) meet in a [`Link`]. Up go
//! [`Event`]s, down go [`Command`]s; an [`Exchange`] holds one request and its reply in one arena and has one
//! owner at a time. This crate knows no socket, no async runtime and no R, so that the application may one day
//! sit in another process.
//!
//! ```text
//! server                              Link                              application
//!   Exchange from its pool -- Event::Request --> bounded queue --> Link::next
//!   Slot waits             <-- Command::Respond -- unbounded*   <-- Link::respond
//! ```
//! \* the down queue holds at most one `Respond` per exchange handed out, and what is sent over
//! WebSockets and streams, which is bounded for each of them: by the server, and by a stream's [`StreamFlow`].

mod budget;
mod command;
mod event;
mod exchange;
mod ids;
mod link;
mod masking;
mod payload;
mod request_id;
mod send_backlog;
mod streamed_body;
mod wakers;

pub use budget::{Budget, Charge, Share};
pub use command::Command;
pub use event::{Event, MessageKind};
pub use exchange::body_buffer::{BodyBuffer, BodyBufferPool};
pub use exchange::header_names::{HeaderLine, KNOWN_HEADERS, KnownHeader, known_header};
pub use exchange::request_body::{BodySource, RequestBody};
pub use exchange::response::{HeaderError, Response, ResponseBody, WebSocketCompression};
pub use exchange::status::ExchangeStatus;
pub use exchange::upstream_log::{TerminationState, UpstreamLog, UpstreamWorker};
pub use exchange::{ClientCertificate, Exchange, Version};
pub use ids::{ExchangeId, ListenerId, StreamId, WebSocketId};
pub use link::{AppState, Link, PushError, QueueLimits, WakeUp};
pub use masking::{masked, write_masked};
pub use payload::{AppToken, Lease, Payload, ReleaseQueue};
pub use request_id::{RequestId, renew_request_ids, request_id_prefix};
pub use send_backlog::SendBacklog;
pub use streamed_body::{
    ChunkAdmission, EVENTS_RETRY, HIGH_MARK, LOW_MARK, PULL_HIGH_MARK, StreamEnd, StreamFlow,
    StreamOptions, StreamedBody, accepts_events,
};
pub use wakers::{AppWaker, IoWaker};
