//! The negotiation of permessage-deflate (RFC 7692), and its state and memory per WebSocket.
//!
//! Incoming messages are decompressed on the I/O thread, in steps of [`DEFLATE_STEP`] bytes.
//! Between two steps the memory budget is checked, and other connections are served. On another
//! thread, a decompression bomb would have to be stopped from here, and each step would cost a
//! switch between threads or exceed its charge. Outgoing messages are compressed in
//! [`compressed_send`](super::compressed_send).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use rookery_exchange::{Charge, Exchange, MessageKind, Payload, Share};
use rookery_websocket::protocol::deflate::{
    Agreed, DeflateConfig, Deflater, Inflater, Level, Takeover,
};
use rookery_websocket::protocol::{Decoder, DecoderLimits, Role};

use super::context::WebSocketContext;

/// The number of bytes of a message that are compressed or decompressed at once.
pub(super) const DEFLATE_STEP: usize = 64 << 10;

/// The memory charge for both compression windows of a WebSocket with context takeover, whatever
/// the window size: 371 KiB for compression and less than 48 KiB for decompression
/// (`docs/websocket.md`).
const WINDOW_BYTES: usize = 512 << 10;

/// The compression state of a WebSocket that has negotiated permessage-deflate.
#[derive(Debug)]
pub(super) struct Compression {
    pub(super) agreed: Agreed,
    config: DeflateConfig,
    /// The permit for context takeover, if that was negotiated.
    _takeover_permit: Option<TakeoverPermit>,
    pub(super) send_state: RefCell<SendState>,
}

#[derive(Debug, Default)]
pub(super) struct SendState {
    /// The length of the message that is being compressed on another thread.
    pub(super) compressing: Option<usize>,
    /// The messages and the close that were sent meanwhile, in order.
    pub(super) deferred: VecDeque<Deferred>,
}

/// A message or closing handshake that waits until an earlier message has been compressed.
#[derive(Debug)]
pub(super) enum Deferred {
    Message(MessageKind, Payload),
    Close(u16, Vec<u8>),
}

/// A permit for context takeover, which keeps compression windows between messages. The number of
/// permits is limited.
#[derive(Debug)]
struct TakeoverPermit {
    shared: Rc<WebSocketContext>,
    _charge: Charge,
}

impl TakeoverPermit {
    /// Takes a permit. Returns `None` if all are taken or the memory budget is exhausted.
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

/// Negotiates compression according to the application's wish, if the client of an accepted
/// handshake offers it.
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
    /// Returns the compressor, or `None` if the client only accepts windows of 8 bits.
    pub(super) fn deflater(&self) -> Option<Deflater> {
        Deflater::new(&self.agreed, Role::Server, &self.config)
    }

    /// Returns a decoder that decompresses messages.
    pub(super) fn decoder(&self, limits: DecoderLimits) -> Decoder {
        let inflater =
            Inflater::new(self.agreed.receiver_takeover(Role::Server)).in_steps(DEFLATE_STEP);
        Decoder::with_inflater(Role::Server, limits, inflater)
    }
}
