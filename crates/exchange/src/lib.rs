//! The data that the Rookery server and an application exchange: requests, responses, events and
//! commands, each identified by a `u64`.
//!
//! The server (an I/O thread) and the application (R's main thread, or a test) communicate through
//! a [`Link`]. The server sends [`Event`]s to the application, and the application sends
//! [`Command`]s to the server. An [`Exchange`] contains one request and its response, and has one
//! owner at a time.
//!
//! This crate depends on neither sockets nor an async runtime nor R, so that the application may
//! one day run in another process.
//!
//! ```text
//! server                               Link                              application
//!   Exchange from its pool  -- Event::Request --> bounded, fair -->  Link::next
//!   the request waits       <-- Command::Respond -- unbounded* <--   Link::send
//! ```
//! \* The queue of commands has no limit of its own, but its contents are limited. It contains at
//! most one `Respond` for each exchange that was passed to the application. The server limits the
//! data sent to each WebSocket, and [`StreamFlow`] limits the data of each streamed response.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

mod budget;
mod command;
mod event;
mod exchange;
mod ids;
mod link;
mod masking;
mod payload;
mod request_id;
mod secret_names;
mod stream_flow_control;
mod trace_context;
mod wakers;
mod websocket_backlog;
pub mod wire;

pub use budget::{Budget, Charge, Share};
pub use command::Command;
pub use event::{Event, MessageKind};
pub use exchange::app_times::AppTimes;
pub use exchange::body_buffer::{BodyBuffer, BodyBufferPool};
pub use exchange::header_names::{HeaderLine, KNOWN_HEADERS, KnownHeader, known_header};
pub use exchange::request_body::{BodySource, FileGuard, RequestBody};
pub use exchange::response::{
    HeaderError, MAX_RESPONSE_HEADERS, OwnedBody, Response, ResponseBody, WebSocketCompression,
};
pub use exchange::status::ExchangeStatus;
pub use exchange::upstream_log::{TerminationState, UpstreamLog, UpstreamWorker};
pub use exchange::{ClientCertificate, Exchange, Version};
pub use ids::{ExchangeId, ListenerId, StreamId, WebSocketId};
pub use link::{
    AdaptiveYield, AppState, BufferPool, Link, PushError, QueueLimits, WakeSchedule, WakeUp,
};
pub use masking::{masked, write_masked, write_masked_query};
pub use payload::{AppToken, Lease, Payload, ReleaseQueue};
pub use request_id::{RequestId, renew_request_ids, request_id_prefix};
pub use rookery_fairness::{ById, FairQueue, Load, Peer, Queued};
pub use secret_names::is_secret_name;
pub use stream_flow_control::{
    ChunkAdmission, EVENTS_RETRY, FlowObserver, HIGH_MARK, LOW_MARK, PULL_HIGH_MARK, StreamEnd,
    StreamFlow, StreamOptions, StreamedBody, accepts_events,
};
pub use trace_context::{TraceContext, is_trace_state};
pub use wakers::{AppWaker, IoWaker, SideQueue};
pub use websocket_backlog::SendBacklog;
