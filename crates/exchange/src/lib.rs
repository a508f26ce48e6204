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
//! WebSockets and streams, which is bounded for each of them: by the server, and by a stream's [`Flow`].

mod backlog;
mod block;
mod body;
mod budget;
mod event;
mod exchange;
mod fate;
mod headers;
mod link;
mod payload;
mod reply;
mod request_id;
mod shown;
mod span;
mod stream;
mod upstream;

pub use backlog::Backlog;
pub use block::{Block, Blocks};
pub use body::{BodySource, RequestBody};
pub use budget::{Budget, Charge, Share};
pub use event::{Command, Event, MessageKind, SocketId, StreamId};
pub use exchange::{ClientCertificate, Exchange, ExchangeId, ListenerId, Version};
pub use fate::Fate;
pub use headers::{HeaderLine, KNOWN_HEADERS, KnownHeader, known_header};
pub use link::{AppState, AppWaker, IoWaker, Link, PushError, Pushed, QueueLimits};
pub use payload::{Lease, Payload, Releases, Tag};
pub use reply::{Compression, HeaderError, Reply, ReplyBody};
pub use request_id::{RequestId, renew_request_ids, request_process};
pub use shown::{shown, write_shown};
pub use stream::{
    ASK_MARK, Departure, EVENTS_LATER, Flow, Given, HIGH_MARK, LOW_MARK, Stream, StreamRules,
    accepts_events,
};
pub use upstream::{Ended, Upstream, UpstreamWorker};
