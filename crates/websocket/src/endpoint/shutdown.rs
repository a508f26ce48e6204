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

use crate::endpoint::adapter::CloseMode;
use crate::protocol::Role;

/// What the adapter is to do with its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoAction {
    /// Read what comes, and write what is queued.
    Serve,
    /// Write what is queued, and then call [`Endpoint::on_flushed`](crate::endpoint::Endpoint::on_flushed).
    Flush,
    /// Read, and throw it away: so that the end of our stream does not overtake our last frame as a reset. Then
    /// [`Endpoint::on_drained`](crate::endpoint::Endpoint::on_drained).
    Drain {
        /// Until the peer ends its stream; else only what is there.
        waits: bool,
    },
    /// End our side of the stream, and then call [`Endpoint::on_shut_down`](crate::endpoint::Endpoint::on_shut_down).
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
    ReadClosed,
}

/// How far the end of a connection is. All the decisions, and no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShutdownState {
    action: IoAction,
    cause: Cause,
    has_shut: bool,
    is_read_closed: bool,
}

impl ShutdownState {
    pub(super) const START: ShutdownState = ShutdownState {
        action: IoAction::Serve,
        cause: Cause::Closed,
        has_shut: false,
        is_read_closed: false,
    };

    pub(super) fn io_action(self) -> IoAction {
        self.action
    }

    pub(super) fn is_over(self) -> bool {
        matches!(self.action, IoAction::Over | IoAction::Reset)
    }

    pub(super) fn is_read_closed(self) -> bool {
        self.is_read_closed
    }

    pub(super) fn has_failed(self) -> bool {
        self.cause == Cause::Failed
    }

    /// The closing handshake is done.
    pub(super) fn close(&mut self) {
        if self.action == IoAction::Serve {
            *self = ShutdownState { action: IoAction::Flush, cause: Cause::Closed, ..*self };
        }
    }

    /// The peer broke the protocol, or this side gives it up.
    pub(super) fn fail(&mut self) {
        if self.action == IoAction::Serve {
            self.action = IoAction::Flush;
        }
        self.cause = Cause::Failed;
    }

    /// The peer's stream has ended.
    pub(super) fn on_read_closed(&mut self, mode: CloseMode) {
        self.is_read_closed = true;
        match self.action {
            IoAction::Serve => {
                self.cause = Cause::ReadClosed;
                self.action =
                    if mode == CloseMode::Prompt { IoAction::ShutDown } else { IoAction::Flush };
            }
            IoAction::Drain { .. } => self.on_drained(),
            _ => {}
        }
    }

    pub(super) fn on_flushed(&mut self, role: Role, mode: CloseMode) {
        if self.action != IoAction::Flush {
            return;
        }
        self.action = match (self.cause, mode) {
            (Cause::Failed, CloseMode::Prompt) => IoAction::Drain { waits: false },
            (Cause::Closed, _) if role == Role::Client && !self.is_read_closed => {
                IoAction::Drain { waits: true }
            }
            _ => IoAction::ShutDown,
        };
    }

    pub(super) fn on_drained(&mut self) {
        if let IoAction::Drain { .. } = self.action {
            self.action = if self.has_shut { IoAction::Over } else { IoAction::ShutDown };
        }
    }

    pub(super) fn on_shut_down(&mut self, mode: CloseMode) {
        if self.action != IoAction::ShutDown {
            return;
        }
        self.has_shut = true;
        let lingers =
            self.cause == Cause::Failed && mode == CloseMode::Lingering && !self.is_read_closed;
        self.action = if lingers { IoAction::Drain { waits: true } } else { IoAction::Over };
    }

    /// The time of a step is over: on to the end of our stream, or to the end of all.
    pub(super) fn give_up_step(&mut self, mode: CloseMode) {
        if self.is_over() {
            return;
        }
        let goes_on =
            mode == CloseMode::Prompt && !self.has_shut && self.action != IoAction::ShutDown;
        if self.action == IoAction::Serve {
            self.cause = Cause::ReadClosed;
        }
        self.action = match mode {
            _ if goes_on => IoAction::ShutDown,
            CloseMode::Prompt => IoAction::Over,
            CloseMode::Lingering => IoAction::Reset,
        };
    }

    pub(super) fn abort(&mut self) {
        self.action = IoAction::Reset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The actions from `begin` on, each done as soon as it is there.
    fn shutdown(
        role: Role,
        mode: CloseMode,
        begin: impl FnOnce(&mut ShutdownState),
    ) -> Vec<IoAction> {
        let mut shutdown = ShutdownState::START;
        begin(&mut shutdown);
        let mut actions = Vec::new();
        loop {
            actions.push(shutdown.io_action());
            match shutdown.io_action() {
                IoAction::Serve | IoAction::Over | IoAction::Reset => return actions,
                IoAction::Flush => shutdown.on_flushed(role, mode),
                IoAction::Drain { .. } => shutdown.on_drained(),
                IoAction::ShutDown => shutdown.on_shut_down(mode),
            }
        }
    }

    #[test]
    fn the_server_ends_the_stream_and_the_client_waits_for_it() {
        for mode in [CloseMode::Prompt, CloseMode::Lingering] {
            let server = shutdown(Role::Server, mode, ShutdownState::close);
            assert_eq!(server, [IoAction::Flush, IoAction::ShutDown, IoAction::Over]);
            let client = shutdown(Role::Client, mode, ShutdownState::close);
            assert_eq!(
                client,
                [
                    IoAction::Flush,
                    IoAction::Drain { waits: true },
                    IoAction::ShutDown,
                    IoAction::Over
                ]
            );
        }
    }

    #[test]
    fn the_one_that_lingers_ends_its_stream_before_it_drains() {
        let prompt = shutdown(Role::Server, CloseMode::Prompt, ShutdownState::fail);
        assert_eq!(
            prompt,
            [IoAction::Flush, IoAction::Drain { waits: false }, IoAction::ShutDown, IoAction::Over]
        );
        let lingering = shutdown(Role::Server, CloseMode::Lingering, ShutdownState::fail);
        assert_eq!(
            lingering,
            [IoAction::Flush, IoAction::ShutDown, IoAction::Drain { waits: true }, IoAction::Over]
        );
    }

    #[test]
    fn a_stream_that_was_cut_off_is_not_waited_for() {
        let prompt = shutdown(Role::Client, CloseMode::Prompt, |shutdown| {
            shutdown.on_read_closed(CloseMode::Prompt)
        });
        assert_eq!(prompt, [IoAction::ShutDown, IoAction::Over]);
        let lingering = shutdown(Role::Server, CloseMode::Lingering, |shutdown| {
            shutdown.on_read_closed(CloseMode::Lingering)
        });
        assert_eq!(lingering, [IoAction::Flush, IoAction::ShutDown, IoAction::Over]);
        let failed = shutdown(Role::Server, CloseMode::Lingering, |shutdown| {
            shutdown.fail();
            shutdown.on_read_closed(CloseMode::Lingering);
        });
        assert_eq!(failed, [IoAction::Flush, IoAction::ShutDown, IoAction::Over]);
    }

    #[test]
    fn what_takes_too_long_is_given_up() {
        let steps: &[fn(&mut ShutdownState)] = &[|_| (), ShutdownState::close, ShutdownState::fail];
        for step in steps {
            let mut shutdown = ShutdownState::START;
            step(&mut shutdown);
            shutdown.give_up_step(CloseMode::Prompt);
            assert_eq!(shutdown.io_action(), IoAction::ShutDown);
            shutdown.give_up_step(CloseMode::Prompt);
            assert_eq!(shutdown.io_action(), IoAction::Over);
            let mut shutdown = ShutdownState::START;
            step(&mut shutdown);
            shutdown.give_up_step(CloseMode::Lingering);
            assert_eq!(shutdown.io_action(), IoAction::Reset);
        }
    }
}
