//! What whoever looks after all connections is told of one: what it is doing, since when, how fast, and what it holds.
//!
//! A connection that moves costs a cell or two; the rest is the sweep's.
//!
//! # One timestamp per purpose
//! Each deadline is counted from a tick of its own, which the events named beside it set and nothing else does:
//!
//! | tick | counts | set by |
//! |---|---|---|
//! | `entered_at` | handshakes, heads, idleness, the time of the application, and eviction between requests | [`Activity::enter`] |
//! | `read_at` | bodies | [`Activity::on_read`] |
//! | `taken_at` | replies | [`Activity::on_written`], and the sweep when the peer has acknowledged something |
//!
//! Bytes move none of the first, so a connection without a request is idle whatever else its peer sends: blank lines over
//! HTTP/1, and over HTTP/2 PING, SETTINGS, PRIORITY and `WINDOW_UPDATE`, which the server may have to answer.

use std::cell::Cell;
use std::io;
use std::task::Poll;

use rookery_exchange::Share;

use crate::connections::clock::TimeLimits;
use crate::connections::rate::RateMeter;

/// What a connection is doing, which decides what it is given time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// TLS is being agreed on, or a proxy names the client.
    Handshake,
    /// Between requests.
    Idle,
    /// A head has begun to arrive.
    Head,
    /// A body is arriving.
    Body,
    /// The application works.
    Application,
    /// The reply is being made and written.
    Response,
    /// The reply comes in pieces: the application makes more of it, or it is written.
    Stream,
    /// The reply has been made; its last bytes are being written.
    Flush,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Activity {
    phase: Cell<Phase>,
    /// The tick at which the phase began.
    entered_at: Cell<u32>,
    /// The tick at which a part of a body last came.
    read_at: Cell<u32>,
    /// The tick at which the peer last took a part of a reply.
    taken_at: Cell<u32>,
    /// Whether the last read or write had to wait for the peer.
    is_read_blocked: Cell<bool>,
    is_write_blocked: Cell<bool>,
    /// How fast the peer is at what it has to do.
    pace: RateMeter,
    /// Bytes of the head so far.
    head_bytes: Cell<u32>,
    /// Bytes that the request under way holds.
    pub(crate) request_bytes: Cell<usize>,
    /// Those of it that a thread has which works on them: they do not go with the connection.
    pub(crate) background_bytes: Cell<usize>,
    /// Bytes that replies hold which have not been written.
    pub(crate) response_bytes: Cell<usize>,
}

impl Activity {
    /// That of a new connection: its first head has to come as soon as any other.
    pub(crate) fn new(now: u32, has_handshake: bool) -> Activity {
        Activity {
            phase: Cell::new(if has_handshake { Phase::Handshake } else { Phase::Head }),
            entered_at: Cell::new(now),
            read_at: Cell::new(now),
            taken_at: Cell::new(now),
            is_read_blocked: Cell::new(false),
            is_write_blocked: Cell::new(false),
            pace: RateMeter::default(),
            head_bytes: Cell::new(0),
            request_bytes: Cell::new(0),
            background_bytes: Cell::new(0),
            response_bytes: Cell::new(0),
        }
    }

    /// That of a stream, whose head has come.
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
        self.pace.start();
    }

    /// The peer is to read what is left, or to go.
    pub(crate) fn begin_lingering(&self, now: u32) {
        self.enter(Phase::Flush, now);
        self.is_write_blocked.set(true);
    }

    /// Something was read, or nothing was there. The end of what the peer sends is no progress.
    pub(crate) fn on_read(&self, read: &Poll<io::Result<usize>>, now: u32) {
        self.is_read_blocked.set(read.is_pending());
        let Poll::Ready(Ok(n @ 1..)) = *read else { return };
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Head, now);
        }
        match self.phase.get() {
            // A head has all of its time from its first byte on, however it trickles.
            Phase::Head => self.head_bytes.set(self.head_bytes.get().saturating_add(n as u32)),
            Phase::Body => self.read_at.set(now),
            // The next request comes before this reply has been read: that is not reading it.
            _ => return,
        }
        self.pace.count(n);
    }

    /// `n` bytes of blank lines were read between two requests (RFC 9112, 2.2): no request has begun.
    pub(crate) fn on_blank_lines(&self, n: usize) {
        self.is_read_blocked.set(false);
        self.head_bytes.set(self.head_bytes.get().saturating_add(n as u32));
    }

    /// The buffers of an idle connection have been given up, and with them blank lines that were read.
    pub(crate) fn on_parked(&self) {
        if self.phase.get() == Phase::Idle {
            self.head_bytes.set(0);
        }
    }

    /// Notes that the first `n` bytes of a head were there when the connection became idle.
    pub(crate) fn on_head_left_over(&self, n: usize) {
        if self.phase.get() == Phase::Idle {
            self.phase.set(Phase::Head);
            self.head_bytes.set(n as u32);
        }
    }

    /// What is written next has to be read first: the peer waits for the server.
    pub(crate) fn on_disk_wait(&self) {
        self.is_write_blocked.set(false);
    }

    /// What it waits for is not its own to take: that begins anew.
    pub(crate) fn restart_write_deadline(&self, now: u32) {
        if self.is_write_blocked.get() {
            self.taken_at.set(now);
            self.pace.start();
        }
    }

    /// What was taken, and had to wait here, has left: the peer waits for the server.
    pub(crate) fn on_write_drained(&self) {
        self.is_write_blocked.set(false);
    }

    /// The peer's bytes are not read: the application is waited for.
    pub(crate) fn on_application_wait(&self) {
        self.is_read_blocked.set(false);
    }

    /// Something was written, or had to wait. Only a reply's bytes are progress: what else is written answers frames of the
    /// connection's own, or asks for a body.
    pub(crate) fn on_written(&self, written: &Poll<io::Result<usize>>, now: u32) {
        self.is_write_blocked.set(written.is_pending());
        if let (Poll::Ready(Ok(n @ 1..)), Phase::Response | Phase::Stream | Phase::Flush) =
            (written, self.phase.get())
        {
            self.taken_at.set(now);
            self.pace.count(*n);
        }
    }

    /// All has been written.
    pub(crate) fn on_flushed(&self, now: u32) {
        self.enter(Phase::Idle, now);
        self.head_bytes.set(0);
    }

    /// Bytes of the head so far, and of blank lines before it; 0 when it is whole.
    pub(crate) fn head_bytes(&self) -> usize {
        let is_before = matches!(self.phase.get(), Phase::Idle | Phase::Head);
        if is_before { self.head_bytes.get() as usize } else { 0 }
    }

    /// For how many ticks the phase has lasted.
    fn phase_age(&self, now: u32) -> u32 {
        now.wrapping_sub(self.entered_at.get())
    }

    /// A tick has passed; says whether the peer is too late with what it has to do. What it has not taken of what was written is asked of the
    /// transport: a system call, while a write waits.
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
            // A browser opens connections in advance: before the first byte only the deadline counts.
            Phase::Head => {
                let has_begun = self.head_bytes.get() > 0;
                self.phase_age(now) > ticks.head
                    || (has_begun && self.pace.tick(ticks.head_rate, self.pace.take()))
            }
            Phase::Body if self.is_read_blocked.get() => {
                now.wrapping_sub(self.read_at.get()) > ticks.idle
                    || self.pace.tick(ticks.body_rate, self.pace.take())
            }
            Phase::Response | Phase::Stream | Phase::Flush if self.is_write_blocked.get() => {
                let taken = self.pace.taken(unsent());
                if taken > 0 {
                    self.taken_at.set(now);
                }
                let stands = taken == 0 && now.wrapping_sub(self.taken_at.get()) > ticks.idle;
                stands || self.pace.tick(ticks.reply_rate, taken)
            }
            // It is the server that is waited for, or its disk.
            Phase::Body | Phase::Response | Phase::Stream | Phase::Flush => {
                self.read_at.set(now);
                self.taken_at.set(now);
                self.pace.start();
                false
            }
        }
    }

    /// Whether the application takes longer than it may.
    pub(crate) fn has_request_timed_out(&self, ticks: &TimeLimits, now: u32) -> bool {
        self.phase.get() == Phase::Application && self.phase_age(now) > ticks.request
    }

    /// Whether it has been between requests for `ticks`.
    pub(crate) fn is_idle_for(&self, ticks: u32, now: u32) -> bool {
        self.phase.get() == Phase::Idle && self.phase_age(now) >= ticks
    }

    /// How long the connection has made no use of its seat, in ticks; `None` when it is being served.
    pub(crate) fn slowness(&self, ticks: &TimeLimits, now: u32) -> Option<u32> {
        let lag = |rate| Some(self.pace.lag(rate)).filter(|lag| *lag > 0);
        match self.phase.get() {
            // One that has just come, or has just been answered, is not slow, and a tick may end at once.
            Phase::Handshake | Phase::Idle | Phase::Head => {
                Some(self.phase_age(now)).filter(|passed| *passed > 1)
            }
            Phase::Body if self.is_read_blocked.get() => lag(ticks.body_rate),
            Phase::Response | Phase::Stream | Phase::Flush if self.is_write_blocked.get() => {
                lag(ticks.reply_rate)
            }
            Phase::Application | Phase::Body | Phase::Response | Phase::Stream | Phase::Flush => {
                None
            }
        }
    }

    /// Whether a refusal can still be said: no answer has begun, and the peer has sent something.
    pub(crate) fn can_send_rejection(&self) -> bool {
        match self.phase.get() {
            Phase::Head => self.head_bytes.get() > 0,
            // With the answer to the request before on its way, another would land within it.
            Phase::Body => !self.is_write_blocked.get(),
            _ => false,
        }
    }

    /// What it holds of a share, if that can be had from it; `own` is what the connection itself is charged.
    pub(crate) fn held(&self, share: Share, own: usize) -> usize {
        match (share, self.phase.get()) {
            (Share::Connections, Phase::Handshake | Phase::Idle | Phase::Head | Phase::Body) => own,
            (Share::Requests, Phase::Body) => self.request_bytes.get(),
            // A body may come while the reply before it is not read.
            (Share::Replies, Phase::Response | Phase::Flush | Phase::Body)
                if self.is_write_blocked.get() =>
            {
                self.response_bytes.get()
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
