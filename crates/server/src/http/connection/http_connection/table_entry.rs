//! What the sweep and the table of peers ask of a connection.

use rookery_exchange::{ListenerId, Share, StreamEnd};

use super::{End, HttpConnection};
use crate::connections::table::TableEntry;
use crate::http::connection::activity::Phase;
use crate::http::http2::session::{FlushListener, Http2Session};

/// Ticks after which an idle connection gives its buffers up: they are made anew with the next request, which costs two
/// allocations, so not at once.
const PARK_TICKS: u32 = 2;

impl TableEntry for HttpConnection {
    fn listener(&self) -> ListenerId {
        self.listener
    }

    fn serial(&self) -> u64 {
        self.serial
    }

    fn sweep(&self, now: u32) {
        if let Some(session) = self.own_session() {
            if self.retires.get() && !self.is_ending() {
                // Its handshake was under way at that time.
                self.drain();
            }
            return self.sweep_session(session, now);
        }
        if self.retires.get()
            && self.activity.is_idle_for(self.shared.connections.clock.ticks.close, now)
        {
            return self.end(End::Now);
        }
        if self.activity.phase() == Phase::Stream {
            if self.has_shut() {
                self.is_half_closed.set(true);
                self.wake();
            }
            if let Some(stream) = self.open_stream() {
                stream.sweep(now);
            }
        }
        if self.is_awaiting_response()
            && self.is_half_closed.get()
            && !self.has_gone.get()
            && self.transport.borrow().is_hung_up()
        {
            self.has_gone.set(true);
            self.wake();
        }
        let may_have_shut = self.is_half_closed.get() || !self.is_watched.get();
        if may_have_shut
            && self.is_awaiting_response()
            && !self.is_stream
            && self.shared.dispatch.application.drops_half_closed()
        {
            // Its request may wait again, for its worker has ended; or the FIN lies behind the next request, where nothing tells of it.
            self.wake();
        }
        if self.activity.is_overdue(&self.shared.connections.clock.ticks, now)
            && !self.is_overdue.replace(true)
        {
            self.wake();
        }
        if self.session.get().is_some_and(|session| session.is_blocked()) {
            // Its own peer may take what another stream keeps from it.
            self.activity.excuse(now);
        }
        let unsent = || self.transport.borrow().unsent();
        if self.may_be_late()
            && self.activity.is_late(&self.shared.connections.clock.ticks, now, unsent)
        {
            self.give_up();
        } else if self.activity.is_idle_for(PARK_TICKS, now) && !self.is_parked.replace(true) {
            self.wake();
        }
    }

    fn slowness(&self, now: u32) -> Option<u32> {
        if self.is_ending() || !self.may_be_late() {
            return None;
        }
        match self.own_session().filter(|session| session.has_streams()) {
            Some(session) => session.slowness(now),
            None => self.activity.slowness(&self.shared.connections.clock.ticks, now),
        }
    }

    fn held(&self, share: Share) -> usize {
        match &*self.stream.borrow() {
            _ if self.is_ending() => 0,
            // What its streams hold is had from them.
            _ if self.own_session().is_some_and(Http2Session::has_streams) => 0,
            Some(stream) if share == Share::Queues => stream.held(),
            _ => self.activity.held(share, self.charge.bytes()),
        }
    }

    fn evict_for_memory(&self, share: Share, held: usize) {
        let away = if share == Share::Requests { self.activity.away.get() } else { 0 };
        let leaving = held.saturating_sub(away);
        self.shared.connections.add_pending_release(share, leaving);
        self.leaving.set(Some((share, leaving)));
        self.overload();
    }

    fn evict_for_slot(&self) {
        self.lingers.set(false);
        self.give_up();
    }

    fn stop(&self) {
        self.retires.set(false);
        let phase = self.activity.phase();
        // Over HTTP/2 whatever has begun is served, and the peer is told that nothing else is.
        let owes = self.session.get().is_some()
            || matches!(phase, Phase::Application | Phase::Reply | Phase::Stream | Phase::Flush);
        if phase == Phase::Idle && owes {
            // From now on it has the time of a close.
            self.enter(Phase::Idle);
        }
        self.end(if owes { End::AfterReply } else { End::Now });
        if let Some(stream) = self.open_stream() {
            stream.stop();
        }
    }

    fn drain(&self) {
        if self.own_session().is_some() {
            // Its peer is told that no further stream is served.
            self.stop();
        }
        let retired_before = self.retires.replace(!self.is_stream);
        if retired_before && self.own_session().is_none() && self.activity.phase() == Phase::Idle {
            // It has had no request since then.
            self.end(End::Now);
        }
    }

    fn is_supervised(&self) -> bool {
        self.config.is_supervised()
    }

    fn abort(&self) {
        self.decide(StreamEnd::Stop);
        self.lingers.set(false);
        self.end(End::Now);
    }

    fn is_awaiting_response(&self) -> bool {
        match self.own_session() {
            None => self.activity.phase() == Phase::Application,
            Some(session) => session.is_awaiting_response(),
        }
    }

    fn is_substream(&self) -> bool {
        self.is_stream
    }

    fn is_cut_by_stop(&self) -> bool {
        match self.own_session() {
            // That its peer hears of the end is not waited for when nothing is under way.
            Some(session) => !session.has_streams(),
            None if self.is_stream && self.activity.phase() == Phase::Body => true,
            None => self.open_stream().is_some_and(|stream| stream.is_open()),
        }
    }

    fn is_ending(&self) -> bool {
        self.end.get() != End::No
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl HttpConnection {
    /// Whether it is given up for what its peer is late with. A supervisor has its own deadlines for the clients that it speaks for, and what it
    /// keeps for the next request is not to be closed in its face; but what ends is not waited for without end.
    fn may_be_late(&self) -> bool {
        !self.config.is_supervised() || self.is_ending()
    }

    /// Looks at the deadlines of an HTTP/2 connection; its streams have their own.
    fn sweep_session(&self, session: &Http2Session, now: u32) {
        let ticks = &self.shared.connections.clock.ticks;
        let is_late_head =
            session.unfinished_since().is_some_and(|since| now.wrapping_sub(since) > ticks.head);
        let is_late_end =
            self.end.get() == End::AfterReply && self.activity.is_idle_for(ticks.close, now);
        if session.has_only_sockets() && (!self.is_ending() || self.retires.get()) {
            self.activity.excuse(now);
        }
        let unsent = || self.transport.borrow().unsent();
        if is_late_head || is_late_end || self.activity.is_late(ticks, now, unsent) {
            self.give_up();
        }
    }
}

impl FlushListener for HttpConnection {
    fn has_flushed(&self) {
        if !self.holds_back.get() {
            HttpConnection::has_flushed(self);
            self.wake();
        }
    }

    fn is_lost(&self) {
        self.end(End::Now);
    }
}
