//! How long a connection has for what it is doing, and which one gives its seat up first.

use rookery_exchange::Share;

use super::{Connection, End, Phase};
use crate::overload::CONNECTION_BYTES;

impl Connection {
    /// Looks at the deadlines; called each tick.
    pub(crate) fn sweep(&self, now: u32) {
        let ticks = &self.hub.ticks;
        let passed = now.wrapping_sub(self.since.get());
        let phase = self.phase.get();
        let is_late = match phase {
            Phase::Application => {
                if self.is_half_closed.get() && !self.has_gone.get() && self.socket.borrow().is_hung_up() {
                    self.has_gone.set(true);
                    self.wake();
                }
                false
            }
            Phase::Idle => passed > ticks.idle,
            // A browser opens connections in advance: before the first byte only the deadline counts.
            Phase::Head => {
                let has_begun = self.head_read.get() > 0;
                passed > ticks.head || (has_begun && self.pace.tick(ticks.head_rate, self.pace.take()))
            }
            Phase::Body if self.is_read_blocked.get() => {
                passed > ticks.idle || self.pace.tick(ticks.body_rate, self.pace.take())
            }
            Phase::Reply | Phase::Flush if self.is_write_blocked.get() => {
                let taken = self.pace.taken(self.socket.borrow().unsent());
                if taken > 0 {
                    self.touch();
                }
                (taken == 0 && passed > ticks.idle) || self.pace.tick(ticks.reply_rate, taken)
            }
            // It is the server that is waited for, or its disk.
            Phase::Body | Phase::Reply | Phase::Flush => {
                self.touch();
                self.pace.start();
                false
            }
        };
        if is_late {
            self.give_up(phase);
        }
    }

    /// How long the connection has made no use of its seat, in ticks; `None` when it is being served.
    pub(crate) fn slowness(&self, now: u32) -> Option<u32> {
        let ticks = &self.hub.ticks;
        let lag = |rate| Some(self.pace.lag(rate)).filter(|lag| *lag > 0);
        match self.phase.get() {
            _ if self.end.get() != End::No => None,
            // One that has just come, or has just been answered, is not slow, and a tick may end at once.
            Phase::Idle | Phase::Head => {
                Some(now.wrapping_sub(self.since.get())).filter(|passed| *passed > 1)
            }
            Phase::Body if self.is_read_blocked.get() => lag(ticks.body_rate),
            Phase::Reply | Phase::Flush if self.is_write_blocked.get() => lag(ticks.reply_rate),
            Phase::Application | Phase::Body | Phase::Reply | Phase::Flush => None,
        }
    }

    /// Ends the connection for the sake of another one that wants its seat.
    pub(crate) fn give_seat(&self) {
        self.lingers.set(false);
        self.give_up(self.phase.get());
    }

    /// Ends what is too slow: with 408 where no answer has begun and the peer has sent something.
    fn give_up(&self, phase: Phase) {
        self.end.set(match phase {
            Phase::Head if self.head_read.get() > 0 => End::TimedOut,
            // With the answer to the request before on its way, another would land within it.
            Phase::Body if !self.is_write_blocked.get() => End::TooSlow,
            _ => End::Now,
        });
        self.wake();
    }

    /// What it holds of a share, if that can be had from it.
    pub(crate) fn held(&self, share: Share) -> usize {
        match (share, self.phase.get()) {
            _ if self.end.get() != End::No => 0,
            (Share::Connections, Phase::Idle | Phase::Head | Phase::Body) => self.charge.bytes(),
            (Share::Requests, Phase::Body) => self.request_held.get(),
            // A body may come while the reply before it is not read.
            (Share::Replies, Phase::Reply | Phase::Flush | Phase::Body) if self.is_write_blocked.get() => {
                self.reply.bytes()
            }
            _ => 0,
        }
    }

    /// Ends the connection for the sake of others, which need the `held` bytes of it.
    pub(crate) fn evict(&self, share: Share, held: usize) {
        let away = if share == Share::Requests { self.away.get() } else { 0 };
        let leaving = held.saturating_sub(away);
        self.hub.leaving.add(share, leaving);
        self.leaving.set(Some((share, leaving)));
        self.overload();
    }

    /// Ends the connection for want of room: with 503 where no answer has begun and the peer has sent something.
    pub(crate) fn overload(&self) {
        let is_answered = match self.phase.get() {
            Phase::Head => self.head_read.get() > 0,
            Phase::Body => !self.is_write_blocked.get(),
            _ => false,
        };
        self.end.set(if is_answered { End::Overload } else { End::Now });
        self.wake();
    }

    /// All that the connection was charged for beside itself is gone.
    pub(super) fn settle(&self) {
        self.has_left();
        self.charge.set(CONNECTION_BYTES.min(self.charge.bytes()));
        self.reply.set(0);
    }

    /// What it was told to let go of is not waited for any more.
    pub(super) fn has_left(&self) {
        if let Some((share, held)) = self.leaving.take() {
            self.hub.leaving.remove(share, held);
        }
    }
}
