//! The activity record of a connection: its phase, when the phase began, the client's transfer
//! rate, and the memory that the connection holds.
//!
//! The sweep, a periodic check of all connections, compares the record with the time limits.
//! Recording an event costs only one or two writes to a `Cell`.
//!
//! # The timestamps
//! The record contains three clock ticks, from which different timeouts are counted:
//!
//! | tick | timeouts | set by |
//! |---|---|---|
//! | `entered_at` | handshake, head, idle and request timeouts; eviction | [`Activity::enter`] |
//! | `read_at` | idle timeout while a body is read | [`Activity::on_read`] |
//! | `taken_at` | idle timeout while a response is written | [`Activity::on_written`], the sweep |
//!
//! - The sweep sets `taken_at` when it finds that the client has acknowledged bytes.
//! - While the client waits for the server, the sweep sets `read_at` and `taken_at` to the current
//!   tick.
//! - Received bytes never change `entered_at`. Otherwise a client without a request could keep its
//!   connection open forever, by sending blank lines (HTTP/1.1) or frames such as PING (HTTP/2).

use std::cell::Cell;
use std::io;
use std::task::Poll;

use rookery_exchange::Share;

use crate::connections::clock::TimeLimits;
use crate::connections::eviction::cost::EvictionCost;
use crate::connections::rate::RateMeter;

/// The phase of a connection, for example waiting for a request head or writing a response. The
/// phase decides which timeouts apply.
///
/// ```text
/// accepted ──TLS or PROXY protocol──▶ Handshake
/// accepted ──plaintext HTTP─────────▶ Head
///
/// Handshake ───HTTP/1.1───▶ Head ──head complete──▶ Body ──body complete──▶ Application
/// Handshake ───HTTP/2─────▶ Idle
/// Idle ────────first byte─▶ Head
///
/// Application ──app wants the body──▶ Body
/// Application ──whole response──────▶ Response ──all bytes passed to hyper──▶ Flush
/// Application ──streamed response───▶ Stream ────all bytes passed to hyper──▶ Flush
/// Body ─────────rejected────────────▶ Response
/// Flush ────────all bytes written───▶ Idle
///
/// any phase ──timeout, error, shutdown──▶ Flush while the close lingers ──▶ closed
/// ```
///
/// An HTTP/2 connection is in phase `Response` while it has streams, and in phase `Idle` otherwise.
/// Each of its streams is an `HttpConnection` too, and begins in phase `Body`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The client is sending the PROXY protocol header or performing the TLS handshake.
    Handshake,
    /// The connection is open, but no request is under way.
    Idle,
    /// The server has received a part of a request head, or is waiting for the first head on a new
    /// connection.
    Head,
    /// The server is receiving the request body.
    Body,
    /// The application is processing the request, and the server waits for its response.
    Application,
    /// The server is producing and writing a response that is not streamed.
    Response,
    /// The application is producing a streamed response, which the server writes chunk by chunk.
    Stream,
    /// The response is complete, and the server is writing its last bytes to the client.
    Flush,
}

/// The activity record of a connection: its phase, when the phase began, the client's transfer
/// rate, and the memory that the connection holds. The sweep (the periodic check of all
/// connections) reads the record to enforce timeouts.
#[derive(Debug)]
pub(crate) struct Activity {
    phase: Cell<Phase>,
    /// The clock tick at which the connection's current phase began.
    entered_at: Cell<u32>,
    /// The clock tick at which the server last received a part of the request body.
    read_at: Cell<u32>,
    /// The clock tick at which the client last accepted a part of the response.
    taken_at: Cell<u32>,
    /// True if the last read from the client returned `Pending`, because no bytes had arrived.
    is_read_blocked: Cell<bool>,
    /// True if the last write to the client returned `Pending`, because the socket accepted no more
    /// bytes.
    is_write_blocked: Cell<bool>,
    /// True once the lingering close has begun.
    is_lingering: Cell<bool>,
    /// The rate at which the client sends or receives data in the current phase.
    rate: RateMeter,
    /// The number of bytes of the current request head that have been received.
    head_bytes: Cell<u32>,
    /// The number of bytes that the connection's current request holds in memory.
    pub(crate) request_bytes: Cell<usize>,
    /// The part of `request_bytes` that a background thread is using. If the connection is closed,
    /// this part stays in use until that thread is done with it.
    pub(crate) background_bytes: Cell<usize>,
    /// The number of response bytes that are held in memory because they have not been written to
    /// the client yet.
    pub(crate) response_bytes: Cell<usize>,
    /// The number of temporary files with the body of the current request.
    pub(crate) request_files: Cell<usize>,
    /// The number of files that the responses consist of that have not been written yet.
    pub(crate) response_files: Cell<usize>,
}

impl Activity {
    /// Creates the activity record of a new connection. Its first phase is `Handshake` if
    /// `has_handshake` is true, and otherwise `Head`.
    pub(crate) fn new(now: u32, has_handshake: bool) -> Activity {
        Activity {
            phase: Cell::new(if has_handshake { Phase::Handshake } else { Phase::Head }),
            entered_at: Cell::new(now),
            read_at: Cell::new(now),
            taken_at: Cell::new(now),
            is_read_blocked: Cell::new(false),
            is_write_blocked: Cell::new(false),
            is_lingering: Cell::new(false),
            rate: RateMeter::default(),
            head_bytes: Cell::new(0),
            request_bytes: Cell::new(0),
            background_bytes: Cell::new(0),
            response_bytes: Cell::new(0),
            request_files: Cell::new(0),
            response_files: Cell::new(0),
        }
    }

    /// Creates the activity record of an HTTP/2 stream, whose request head is already complete.
    pub(crate) fn for_http2_stream(now: u32) -> Activity {
        let activity = Activity::new(now, false);
        activity.enter(Phase::Body, now);
        activity
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(crate) fn enter(&self, phase: Phase, now: u32) {
        self.phase.set(phase);
        self.entered_at.set(now);
        self.read_at.set(now);
        self.taken_at.set(now);
        self.rate.start();
    }

    /// Begins the lingering close, in which the server waits until the client has read the rest of
    /// the response or closed the connection.
    pub(crate) fn begin_lingering(&self, now: u32) {
        self.enter(Phase::Flush, now);
        self.is_write_blocked.set(true);
        self.is_lingering.set(true);
    }

    /// Records the result of a read from the client. The end of the client's data (FIN) does not
    /// count as progress of the client.
    pub(crate) fn on_read(&self, read: &Poll<io::Result<usize>>, now: u32) {
        self.is_read_blocked.set(read.is_pending());
        let Poll::Ready(Ok(n @ 1..)) = *read else { return };
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Head, now);
        }
        match self.phase.get() {
            // The deadline for a head counts from the first byte; later bytes do not extend it.
            Phase::Head => self.head_bytes.set(self.head_bytes.get().saturating_add(n as u32)),
            Phase::Body => self.read_at.set(now),
            // These bytes belong to the next request. Sending them does not mean that the client
            // reads the response.
            _ => return,
        }
        self.rate.count(n);
    }

    /// Records that the client sent `n` bytes of blank lines between two requests. Blank lines do
    /// not begin a request (RFC 9112, 2.2).
    pub(crate) fn on_blank_lines(&self, n: usize) {
        self.is_read_blocked.set(false);
        self.head_bytes.set(self.head_bytes.get().saturating_add(n as u32));
    }

    /// Records that the buffers of the idle connection were freed, together with any blank lines in
    /// them.
    pub(crate) fn on_parked(&self) {
        if self.phase.get() == Phase::Idle {
            self.head_bytes.set(0);
        }
    }

    /// Records that the first `n` bytes of the next request head had already been read when the
    /// connection became idle.
    pub(crate) fn on_head_left_over(&self, n: usize) {
        if self.phase.get() == Phase::Idle {
            self.phase.set(Phase::Head);
            self.head_bytes.set(n as u32);
        }
    }

    /// Records that the next bytes of the response must first be read from disk. The client is
    /// waiting for the server, so its write deadline does not apply.
    pub(crate) fn on_disk_wait(&self) {
        self.is_write_blocked.set(false);
    }

    /// Restarts the client's deadline for accepting response bytes, because the response is delayed
    /// by another stream of the HTTP/2 connection and not by the client.
    pub(crate) fn restart_write_deadline(&self, now: u32) {
        if self.is_write_blocked.get() {
            self.taken_at.set(now);
            self.rate.start();
        }
    }

    /// Records that the operating system has accepted all pending response bytes. The client is now
    /// waiting for the server, so its write deadline does not apply.
    pub(crate) fn on_write_drained(&self) {
        self.is_write_blocked.set(false);
    }

    /// Records that the server reads nothing from the client until the application has processed
    /// earlier chunks of the body.
    pub(crate) fn on_application_wait(&self) {
        self.is_read_blocked.set(false);
    }

    /// Records the result of a write to the client. Only response bytes count as progress of the
    /// client. Other bytes, such as those that answer HTTP/2 control frames, do not.
    pub(crate) fn on_written(&self, written: &Poll<io::Result<usize>>, now: u32) {
        self.is_write_blocked.set(written.is_pending());
        if let (Poll::Ready(Ok(n @ 1..)), Phase::Response | Phase::Stream | Phase::Flush) =
            (written, self.phase.get())
        {
            self.taken_at.set(now);
            self.rate.count(*n);
        }
    }

    /// Records that all bytes of the response have been written. The connection is then idle.
    pub(crate) fn on_flushed(&self, now: u32) {
        self.enter(Phase::Idle, now);
        self.head_bytes.set(0);
    }

    /// Returns the number of bytes received of an incomplete request head, including blank lines
    /// before it. Returns 0 once the head is complete.
    pub(crate) fn head_bytes(&self) -> usize {
        let is_before = matches!(self.phase.get(), Phase::Idle | Phase::Head);
        if is_before { self.head_bytes.get() as usize } else { 0 }
    }

    /// Returns the number of clock ticks since the connection's current phase began.
    fn phase_age(&self, now: u32) -> u32 {
        now.wrapping_sub(self.entered_at.get())
    }

    /// Updates the client's transfer rate after a clock tick, and returns true if the client has
    /// exceeded a time limit or fallen below the minimum rate. `unsent` is a function that returns
    /// how many written bytes the client has not acknowledged. It is called only while a write is
    /// blocked, because it makes a system call.
    pub(crate) fn check_deadlines(
        &self,
        ticks: &TimeLimits,
        now: u32,
        unsent: impl FnOnce() -> Option<u32>,
    ) -> bool {
        match self.phase.get() {
            Phase::Application => false,
            Phase::Handshake => self.phase_age(now) > ticks.handshake,
            Phase::Idle => self.phase_age(now) > ticks.idle,
            // Browsers open connections in advance, so no minimum rate applies before the first
            // byte.
            Phase::Head => {
                let has_begun = self.head_bytes.get() > 0;
                self.phase_age(now) > ticks.head
                    || (has_begun && self.rate.tick(ticks.head_rate, self.rate.take()))
            }
            Phase::Body if self.is_read_blocked.get() => {
                now.wrapping_sub(self.read_at.get()) > ticks.idle
                    || self.rate.tick(ticks.body_rate, self.rate.take())
            }
            Phase::Response | Phase::Stream | Phase::Flush if self.is_write_blocked.get() => {
                let taken = self.rate.taken(unsent());
                if taken > 0 {
                    self.taken_at.set(now);
                }
                let is_stalled = taken == 0 && now.wrapping_sub(self.taken_at.get()) > ticks.idle;
                is_stalled || self.rate.tick(ticks.reply_rate, taken)
            }
            // The client is waiting for the server or its disk.
            Phase::Body | Phase::Response | Phase::Stream | Phase::Flush => {
                self.read_at.set(now);
                self.taken_at.set(now);
                self.rate.start();
                false
            }
        }
    }

    /// Returns true if the application has taken longer for its response than the request timeout.
    pub(crate) fn has_request_timed_out(&self, ticks: &TimeLimits, now: u32) -> bool {
        self.phase.get() == Phase::Application && self.phase_age(now) > ticks.request
    }

    /// Returns true if the connection has been idle, without a request, for at least `ticks` clock
    /// ticks.
    pub(crate) fn is_idle_for(&self, ticks: u32, now: u32) -> bool {
        self.phase.get() == Phase::Idle && self.phase_age(now) >= ticks
    }

    /// Returns the number of clock ticks for which the connection has been idle or its client has
    /// been too slow, or `None` if neither is the case. To admit a new connection, the server
    /// closes the connection with the highest number.
    ///
    /// With [`Limits::evicts_at_once`](crate::Limits::evicts_at_once), a client is too slow as soon
    /// as the server waits for it, except for the client of a streamed response.
    pub(crate) fn slowness(&self, ticks: &TimeLimits, now: u32) -> Option<u32> {
        let at_once = ticks.evicts_at_once;
        let lag = |min_rate| self.rate.lag(min_rate);
        match self.phase.get() {
            // Also if the phase has just begun: otherwise, many new connections without requests
            // would keep all other clients out until they count as slow.
            Phase::Handshake | Phase::Head => Some(self.phase_age(now)),
            // The response has been sent.
            Phase::Flush if self.is_lingering.get() => Some(u32::MAX),
            // A phase that just began is not slow, because the current tick may end immediately.
            Phase::Idle => Some(self.phase_age(now)).filter(|passed| at_once || *passed > 1),
            Phase::Body if self.is_read_blocked.get() => {
                Some(lag(ticks.body_rate)).filter(|lag| at_once || *lag > 0)
            }
            Phase::Response | Phase::Flush if self.is_write_blocked.get() => {
                Some(lag(ticks.reply_rate)).filter(|lag| at_once || *lag > 0)
            }
            Phase::Stream if self.is_write_blocked.get() => {
                Some(lag(ticks.reply_rate)).filter(|lag| *lag > 0)
            }
            Phase::Application | Phase::Body | Phase::Response | Phase::Stream | Phase::Flush => {
                None
            }
        }
    }

    /// Returns what the client loses if the connection is evicted. `is_waiting` says whether the
    /// request, if the application has it, still waits for a worker.
    pub(crate) fn eviction_cost(&self, is_waiting: bool) -> EvictionCost {
        match self.phase.get() {
            Phase::Idle => EvictionCost::Idle,
            Phase::Flush if self.is_lingering.get() => EvictionCost::Idle,
            Phase::Handshake | Phase::Head => EvictionCost::Head,
            Phase::Body => EvictionCost::Body,
            Phase::Response | Phase::Flush if self.is_write_blocked.get() => {
                EvictionCost::UnreadResponse
            }
            Phase::Application if is_waiting => EvictionCost::WaitingRequest,
            Phase::Stream => EvictionCost::Session,
            Phase::Application | Phase::Response | Phase::Flush => EvictionCost::Served,
        }
    }

    /// Returns true if the server can still send an error response, that is, if no response has
    /// begun and the client has sent at least one byte of its request.
    pub(crate) fn can_send_rejection(&self) -> bool {
        match self.phase.get() {
            Phase::Head => self.head_bytes.get() > 0,
            // The response to the previous request may still be blocked; an error response would be
            // inserted into it.
            Phase::Body | Phase::Application => !self.is_write_blocked.get(),
            _ => false,
        }
    }

    /// Returns true if the client accepts no more bytes of what the server sends.
    pub(crate) fn is_write_blocked(&self) -> bool {
        self.is_write_blocked.get()
    }

    /// Returns how many bytes or descriptors the current request or its response, which is not
    /// streamed, holds of the share `share` of the memory budget.
    pub(crate) fn charged(&self, share: Share) -> usize {
        match (share, self.phase.get()) {
            (Share::Incoming, Phase::Body | Phase::Application) => self.request_bytes.get(),
            (Share::Outgoing, _) => self.response_bytes.get(),
            (Share::Descriptors, _) => self.request_files.get() + self.response_files.get(),
            _ => 0,
        }
    }

    /// Returns how much of the share `share` of the memory budget would be freed if this
    /// connection were closed. `own` is the number of bytes that the memory budget counts for the
    /// connection itself.
    pub(crate) fn held(&self, share: Share, own: usize) -> usize {
        match (share, self.phase.get()) {
            (Share::Connections, Phase::Handshake | Phase::Idle | Phase::Head | Phase::Body) => own,
            (Share::Connections, Phase::Flush) if self.is_lingering.get() => own,
            (Share::Incoming, Phase::Body) => self.request_bytes.get(),
            // A body can arrive while the previous response is unread.
            (Share::Outgoing, Phase::Response | Phase::Flush | Phase::Body)
                if self.is_write_blocked.get() =>
            {
                self.response_bytes.get()
            }
            // Whether the client reads the response or not. The application may have the request.
            (Share::Descriptors, phase) if phase != Phase::Application => self.charged(share),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
