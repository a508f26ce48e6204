//! The negotiation of WebSocket compression (permessage-deflate, RFC 7692), and the compression
//! state and memory of each WebSocket.
//!
//! Incoming messages are decompressed on the I/O thread, in steps of [`DEFLATE_STEP`] bytes. After
//! each step, the server checks the memory budget and serves other connections. A short message
//! that expands to a huge one (a decompression bomb) is therefore stopped early.
//!
//! Outgoing messages are compressed in [`compressed_send`](super::compressed_send).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use rookery_exchange::{Charge, Exchange, MessageKind, Payload, Share};
use rookery_websocket::protocol::deflate::{
    Agreed, DeflateConfig, Deflater, Inflater, Level, Takeover,
};
use rookery_websocket::protocol::{Decoder, DecoderLimits, Role};

use super::context::WebSocketContext;

/// The number of bytes of a WebSocket message that are compressed or decompressed at once.
pub(super) const DEFLATE_STEP: usize = 64 << 10;

/// The number of bytes that are charged to the memory budget for a WebSocket with context takeover,
/// which keeps its compression and decompression windows between messages. The windows take 371 KiB
/// for compression and less than 48 KiB for decompression (`libraries/websocket/DESIGN.md`).
pub(super) const WINDOW_BYTES: usize = 512 << 10;

/// The compression state of a WebSocket that has negotiated compression (permessage-deflate).
#[derive(Debug)]
pub(super) struct Compression {
    pub(super) agreed: Agreed,
    config: DeflateConfig,
    /// The permit to keep compression windows between messages (context takeover), if that was
    /// negotiated.
    _takeover_permit: Option<TakeoverPermit>,
    pub(super) send_state: RefCell<SendState>,
}

#[derive(Debug, Default)]
pub(super) struct SendState {
    /// The length in bytes of the outgoing message that is being compressed on another thread.
    pub(super) compressing: Option<usize>,
    /// The messages and the closing handshake that wait until the current message has been
    /// compressed, in order.
    pub(super) deferred: VecDeque<Deferred>,
}

/// An outgoing message or closing handshake that waits until an earlier message has been
/// compressed.
#[derive(Debug)]
pub(super) enum Deferred {
    Message(MessageKind, Payload),
    Close(u16, Vec<u8>),
}

/// A permit for context takeover, with which a WebSocket keeps its compression windows between
/// messages.
// The number of permits is limited, because the windows take memory.
#[derive(Debug)]
struct TakeoverPermit {
    shared: Rc<WebSocketContext>,
    _charge: Charge,
}

impl TakeoverPermit {
    /// Takes a permit for context takeover. Returns `None` if all permits are taken or the memory
    /// budget is exhausted.
    fn take(shared: &Rc<WebSocketContext>) -> Option<TakeoverPermit> {
        let count = shared.takeover_permits.get();
        if count >= shared.connections.limits().kept_windows {
            return None;
        }
        let charge = shared.connections.try_charge_optional(Share::Outgoing, WINDOW_BYTES)?;
        shared.takeover_permits.set(count + 1);
        Some(TakeoverPermit { shared: Rc::clone(shared), _charge: charge })
    }
}

impl Drop for TakeoverPermit {
    fn drop(&mut self) {
        self.shared.takeover_permits.set(self.shared.takeover_permits.get() - 1);
    }
}

/// Negotiates the compression of a WebSocket whose handshake the application has accepted. Messages
/// are compressed if the client offers it and the application wants it.
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
    /// Returns a compressor for outgoing messages, or `None` if the client accepts only windows of
    /// 8 bits.
    pub(super) fn deflater(&self) -> Option<Deflater> {
        Deflater::new(&self.agreed, Role::Server, &self.config)
    }

    /// Returns a decoder for incoming frames that also decompresses messages.
    pub(super) fn decoder(&self, limits: DecoderLimits) -> Decoder {
        let inflater =
            Inflater::new(self.agreed.receiver_takeover(Role::Server)).in_steps(DEFLATE_STEP);
        Decoder::with_inflater(Role::Server, limits, inflater)
    }
}
