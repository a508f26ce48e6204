//! How a connection ends (RFC 6455, 7), after the closing handshake or without it.
//!
//! ```text
//!            closed, failed            all written
//!   Serve ─────────────────▶ Flush ──┬──────────────▶ ShutDown ──┬──▶ Over
//!     │                              │ a client, closed;         │ failed, Lingering
//!     │ the peer's stream ends       │ failed, Prompt            ▼
//!     └──▶ ShutDown (Prompt)         └──────▶ Drain ──▶ ... ◀── Drain
//!     └──▶ Flush (Lingering)
//! ```
//! RFC 6455, 7.1.1: of a connection that was closed the server ends the TCP connection, and the client waits for it.

use crate::endpoint::shell::Parting;
use crate::protocol::Role;

/// What the shell is to do with its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Read what comes, and write what is queued.
    Serve,
    /// Write what is queued, and then call [`Endpoint::flushed`](crate::endpoint::Endpoint::flushed).
    Flush,
    /// Read, and throw it away: so that the end of our stream does not overtake our last frame as a reset. Then
    /// [`Endpoint::drained`](crate::endpoint::Endpoint::drained).
    Drain {
        /// Until the peer ends its stream; else only what is there.
        waits: bool,
    },
    /// End our side of the stream, and then call [`Endpoint::shut`](crate::endpoint::Endpoint::shut).
    ShutDown,
    /// Drop the transport.
    Over,
    /// Drop the transport in such a way that nothing of it stays, whatever the peer has not read.
    Reset,
}

/// Why it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Both sides have said goodbye.
    Closed,
    /// One side can not go on.
    Failed,
    /// The peer's stream ended by itself.
    CutOff,
}

/// How far the end of a connection is. All the decisions, and no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Course {
    duty: Duty,
    cause: Cause,
    has_shut: bool,
    is_cut_off: bool,
}

impl Course {
    pub(super) const START: Course =
        Course { duty: Duty::Serve, cause: Cause::Closed, has_shut: false, is_cut_off: false };

    pub(super) fn duty(self) -> Duty {
        self.duty
    }

    pub(super) fn is_over(self) -> bool {
        matches!(self.duty, Duty::Over | Duty::Reset)
    }

    pub(super) fn is_cut_off(self) -> bool {
        self.is_cut_off
    }

    pub(super) fn has_failed(self) -> bool {
        self.cause == Cause::Failed
    }

    /// The closing handshake is done.
    pub(super) fn close(&mut self) {
        if self.duty == Duty::Serve {
            *self = Course { duty: Duty::Flush, cause: Cause::Closed, ..*self };
        }
    }

    /// The peer broke the protocol, or this side gives it up.
    pub(super) fn fail(&mut self) {
        if self.duty == Duty::Serve {
            self.duty = Duty::Flush;
        }
        self.cause = Cause::Failed;
    }

    /// The peer's stream has ended.
    pub(super) fn cut_off(&mut self, parting: Parting) {
        self.is_cut_off = true;
        match self.duty {
            Duty::Serve => {
                self.cause = Cause::CutOff;
                self.duty = if parting == Parting::Prompt { Duty::ShutDown } else { Duty::Flush };
            }
            Duty::Drain { .. } => self.drained(),
            _ => {}
        }
    }

    pub(super) fn flushed(&mut self, role: Role, parting: Parting) {
        if self.duty != Duty::Flush {
            return;
        }
        self.duty = match (self.cause, parting) {
            (Cause::Failed, Parting::Prompt) => Duty::Drain { waits: false },
            (Cause::Closed, _) if role == Role::Client && !self.is_cut_off => {
                Duty::Drain { waits: true }
            }
            _ => Duty::ShutDown,
        };
    }

    pub(super) fn drained(&mut self) {
        if let Duty::Drain { .. } = self.duty {
            self.duty = if self.has_shut { Duty::Over } else { Duty::ShutDown };
        }
    }

    pub(super) fn shut(&mut self, parting: Parting) {
        if self.duty != Duty::ShutDown {
            return;
        }
        self.has_shut = true;
        let lingers =
            self.cause == Cause::Failed && parting == Parting::Lingering && !self.is_cut_off;
        self.duty = if lingers { Duty::Drain { waits: true } } else { Duty::Over };
    }

    /// The time of a step is over: on to the end of our stream, or to the end of all.
    pub(super) fn expire(&mut self, parting: Parting) {
        if self.is_over() {
            return;
        }
        let goes_on = parting == Parting::Prompt && !self.has_shut && self.duty != Duty::ShutDown;
        if self.duty == Duty::Serve {
            self.cause = Cause::CutOff;
        }
        self.duty = match parting {
            _ if goes_on => Duty::ShutDown,
            Parting::Prompt => Duty::Over,
            Parting::Lingering => Duty::Reset,
        };
    }

    pub(super) fn abort(&mut self) {
        self.duty = Duty::Reset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The duties from `begin` on, each done as soon as it is there.
    fn course(role: Role, parting: Parting, begin: impl FnOnce(&mut Course)) -> Vec<Duty> {
        let mut course = Course::START;
        begin(&mut course);
        let mut duties = Vec::new();
        loop {
            duties.push(course.duty());
            match course.duty() {
                Duty::Serve | Duty::Over | Duty::Reset => return duties,
                Duty::Flush => course.flushed(role, parting),
                Duty::Drain { .. } => course.drained(),
                Duty::ShutDown => course.shut(parting),
            }
        }
    }

    #[test]
    fn the_server_ends_the_stream_and_the_client_waits_for_it() {
        for parting in [Parting::Prompt, Parting::Lingering] {
            let server = course(Role::Server, parting, Course::close);
            assert_eq!(server, [Duty::Flush, Duty::ShutDown, Duty::Over]);
            let client = course(Role::Client, parting, Course::close);
            assert_eq!(
                client,
                [Duty::Flush, Duty::Drain { waits: true }, Duty::ShutDown, Duty::Over]
            );
        }
    }

    #[test]
    fn the_one_that_lingers_ends_its_stream_before_it_drains() {
        let prompt = course(Role::Server, Parting::Prompt, Course::fail);
        assert_eq!(prompt, [Duty::Flush, Duty::Drain { waits: false }, Duty::ShutDown, Duty::Over]);
        let lingering = course(Role::Server, Parting::Lingering, Course::fail);
        assert_eq!(
            lingering,
            [Duty::Flush, Duty::ShutDown, Duty::Drain { waits: true }, Duty::Over]
        );
    }

    #[test]
    fn a_stream_that_was_cut_off_is_not_waited_for() {
        let prompt =
            course(Role::Client, Parting::Prompt, |course| course.cut_off(Parting::Prompt));
        assert_eq!(prompt, [Duty::ShutDown, Duty::Over]);
        let lingering =
            course(Role::Server, Parting::Lingering, |course| course.cut_off(Parting::Lingering));
        assert_eq!(lingering, [Duty::Flush, Duty::ShutDown, Duty::Over]);
        let failed = course(Role::Server, Parting::Lingering, |course| {
            course.fail();
            course.cut_off(Parting::Lingering);
        });
        assert_eq!(failed, [Duty::Flush, Duty::ShutDown, Duty::Over]);
    }

    #[test]
    fn what_takes_too_long_is_given_up() {
        let steps: &[fn(&mut Course)] = &[|_| (), Course::close, Course::fail];
        for step in steps {
            let mut course = Course::START;
            step(&mut course);
            course.expire(Parting::Prompt);
            assert_eq!(course.duty(), Duty::ShutDown);
            course.expire(Parting::Prompt);
            assert_eq!(course.duty(), Duty::Over);
            let mut course = Course::START;
            step(&mut course);
            course.expire(Parting::Lingering);
            assert_eq!(course.duty(), Duty::Reset);
        }
    }
}
