//! The end of a WebSocket connection (RFC 6455, 7), with or without the closing handshake, as a
//! state machine. Each state is the I/O action that the adapter has to perform.
//!
//! ```text
//!            closed, failed            all written
//!   Serve ─────────────────▶ Flush ──┬──────────────▶ ShutDown ──┬──▶ Over
//!     │                              │ a client, closed;         │ failed, Lingering
//!     │ the peer's stream ends       │ failed, Prompt            ▼
//!     └──▶ ShutDown (Prompt)         └──────▶ Drain ──▶ ... ◀── Drain
//!     └──▶ Flush (Lingering)
//! ```
//! *closed* means that the closing handshake is complete, and *failed* that the connection was
//! failed. *Prompt* and *Lingering* are the two values of [`CloseMode`]. After a closing handshake,
//! a client waits in `Drain` until the server has ended the TCP connection (RFC 6455, 7.1.1).

use crate::endpoint::adapter::CloseMode;
use crate::protocol::Role;

/// An action that a WebSocket endpoint tells its adapter to perform on the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoAction {
    /// Read input and write queued output, because the connection is open.
    Serve,
    /// Write queued output, then call
    /// [`Endpoint::on_flushed`](crate::endpoint::Endpoint::on_flushed).
    Flush,
    /// Read and discard input, then call
    /// [`Endpoint::on_drained`](crate::endpoint::Endpoint::on_drained). This is necessary because
    /// unread input could make the system reset the connection before the peer has read the last
    /// frame.
    Drain {
        /// True if the adapter discards input until the peer ends its stream. False if it only
        /// discards the input that has already arrived.
        waits: bool,
    },
    /// Shut down the sending side of the transport, then call
    /// [`Endpoint::on_shut_down`](crate::endpoint::Endpoint::on_shut_down).
    ShutDown,
    /// Drop the transport, because the connection is over.
    Over,
    /// Reset the transport, so that the system discards all unsent bytes.
    Reset,
}

/// The reason why a WebSocket connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The closing handshake is complete.
    Closed,
    /// The connection was failed (RFC 6455, 7.1.7), for instance after a protocol violation.
    Failed,
    /// The peer's byte stream ended without a close frame.
    ReadClosed,
}

/// The state machine for the end of a WebSocket connection. It decides the next I/O action, and
/// stores no bytes.
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

    /// Begins to end the connection, because the closing handshake is complete.
    pub(super) fn close(&mut self) {
        if self.action == IoAction::Serve {
            *self = ShutdownState { action: IoAction::Flush, cause: Cause::Closed, ..*self };
        }
    }

    /// Begins to end the connection after a protocol violation or another failure.
    pub(super) fn fail(&mut self) {
        if self.action == IoAction::Serve {
            self.action = IoAction::Flush;
        }
        self.cause = Cause::Failed;
    }

    /// Records that the peer's byte stream has ended, and chooses the next I/O action.
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

    /// Gives up the current step of closing the connection, for instance after a timeout. The next
    /// I/O action shuts down the transport's sending side, or drops or resets the transport.
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

    /// Ends a connection by calling `begin`, performs each requested I/O action at once, and
    /// returns the actions in order.
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
    fn lingering_mode_shuts_down_before_it_drains() {
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
    fn an_ended_stream_is_not_waited_for() {
        let prompt = shutdown(Role::Client, CloseMode::Prompt, |shutdown| {
            shutdown.on_read_closed(CloseMode::Prompt);
        });
        assert_eq!(prompt, [IoAction::ShutDown, IoAction::Over]);
        let lingering = shutdown(Role::Server, CloseMode::Lingering, |shutdown| {
            shutdown.on_read_closed(CloseMode::Lingering);
        });
        assert_eq!(lingering, [IoAction::Flush, IoAction::ShutDown, IoAction::Over]);
        let failed = shutdown(Role::Server, CloseMode::Lingering, |shutdown| {
            shutdown.fail();
            shutdown.on_read_closed(CloseMode::Lingering);
        });
        assert_eq!(failed, [IoAction::Flush, IoAction::ShutDown, IoAction::Over]);
    }

    #[test]
    fn steps_that_take_too_long_are_given_up() {
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
