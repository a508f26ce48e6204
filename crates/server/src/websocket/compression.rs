//! permessage-deflate (RFC 7692): what is agreed on with a client, and what that holds.
//!
//! Inflating stays on the I/O thread, in steps of [`LONG`]: between two of them the budget is asked, and others have their turn. On
//! another thread a bomb would have to be stopped from here, and a message would take a journey for each step, or hold
//! more than it is charged for. What is sent is the business of [`compressing`](super::compressed_send).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use rookery_exchange::{Charge, Exchange, MessageKind, Payload, Share};
use rookery_websocket::protocol::deflate::{
    Agreed, DeflateConfig, Deflater, Inflater, Level, Takeover,
};
use rookery_websocket::protocol::{Decoder, DecoderLimits, Role};

use super::context::WebSocketContext;

/// Bytes of a message that are compressed, and inflated, in one go.
pub(super) const DEFLATE_STEP: usize = 64 << 10;

/// What the two directions of a WebSocket hold whose messages refer back, whatever their window:
/// 371 KiB to compress and less than 48 to inflate (`docs/websocket.md`).
const WINDOW_BYTES: usize = 512 << 10;

/// What a WebSocket has whose client takes part.
#[derive(Debug)]
pub(super) struct Compression {
    pub(super) agreed: Agreed,
    config: DeflateConfig,
    /// For what refers back.
    _takeover_permit: Option<TakeoverPermit>,
    pub(super) send_state: RefCell<SendState>,
}

#[derive(Debug, Default)]
pub(super) struct SendState {
    /// The length of the message that is being compressed elsewhere.
    pub(super) compressing: Option<usize>,
    /// What was sent meanwhile, in order.
    pub(super) deferred: VecDeque<Deferred>,
}

/// What waits until a message before it has been compressed.
#[derive(Debug)]
pub(super) enum Deferred {
    Message(MessageKind, Payload),
    Close(u16, Vec<u8>),
}

/// One of the few whose messages refer back.
#[derive(Debug)]
struct TakeoverPermit {
    shared: Rc<WebSocketContext>,
    _charge: Charge,
}

impl TakeoverPermit {
    /// Nothing when there are too many already, or no room.
    fn take(shared: &Rc<WebSocketContext>) -> Option<TakeoverPermit> {
        let count = shared.takeover_permits.get();
        if count >= shared.connections.limits.kept_windows {
            return None;
        }
        let charge = shared.connections.try_charge(Share::Compressors, WINDOW_BYTES)?;
        shared.takeover_permits.set(count + 1);
        Some(TakeoverPermit { shared: Rc::clone(shared), _charge: charge })
    }
}

impl Drop for TakeoverPermit {
    fn drop(&mut self) {
        self.shared.takeover_permits.set(self.shared.takeover_permits.get() - 1);
    }
}

/// Agrees with the client of an accepted handshake on what the application wants, if the client offers it.
pub(super) fn negotiate(
    shared: &Rc<WebSocketContext>,
    exchange: &Exchange,
) -> Option<Box<Compression>> {
    let wanted = exchange.response().compression()?;
    let offered = exchange.header(b"sec-websocket-extensions")?;
    let level = Level::new(wanted.level.clamp(1, 9))?;
    let base = DeflateConfig::default().level(level).threshold(wanted.threshold);
    let permit = if wanted.keeps_window { TakeoverPermit::take(shared) } else { None };
    let takeover = if permit.is_some() { Takeover::Kept } else { Takeover::None };
    let config = base.takeover(takeover);
    let agreed = config.choose(offered)?;
    let is_kept = [agreed.server_takeover, agreed.client_takeover].contains(&Takeover::Kept);
    let send_state = RefCell::default();
    Some(Box::new(Compression {
        agreed,
        config,
        _takeover_permit: permit.filter(|_| is_kept),
        send_state,
    }))
}

impl Compression {
    /// What compresses; nothing for a client that reads windows of 8 bits only.
    pub(super) fn deflater(&self) -> Option<Deflater> {
        Deflater::new(&self.agreed, Role::Server, &self.config)
    }

    /// What reads.
    pub(super) fn decoder(&self, limits: DecoderLimits) -> Decoder {
        let inflater =
            Inflater::new(self.agreed.receiver_takeover(Role::Server)).in_steps(DEFLATE_STEP);
        Decoder::with_inflater(Role::Server, limits, inflater)
    }
}
