//! The compression of WebSocket messages (permessage-deflate).

use std::cell::RefCell;
use std::fmt;

use zlib_rs::{Deflate, DeflateFlush};

use crate::protocol::Role;
use crate::protocol::deflate::{Agreed, DeflateConfig, POOLED_STATES, TAIL, Takeover};

/// Whether a fragment of a message is its last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fin {
    /// More fragments of the message follow.
    More,
    /// This is the last fragment of the message.
    Last,
}

/// The compressor of the messages that one side of a WebSocket connection sends.
///
/// # Allocation
/// Without context takeover, a compressor of zlib-rs is borrowed from a thread-local pool for each
/// message and returned afterwards. With context takeover, the connection allocates its own
/// compressor for its first message and keeps it.
pub struct Deflater {
    state: Option<Deflate>,
    takeover: Takeover,
    kind: Kind,
    threshold: usize,
}

/// The parameters of a compression state. A state in the thread-local pool is reused only for
/// messages with the same parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    level: u8,
    bits: u8,
}

impl Deflater {
    /// Returns the compressor for the negotiated parameters. Returns `None` for a window of 8 bits,
    /// because zlib cannot compress with it. Such a connection sends its messages uncompressed,
    /// which RFC 7692, 6 always allows.
    pub fn new(agreed: &Agreed, role: Role, config: &DeflateConfig) -> Option<Deflater> {
        let (bits, takeover) = agreed.sender(role);
        let kind = Kind { level: config.level.get(), bits: bits.get() };
        (kind.bits > 8).then_some(Deflater {
            state: None,
            takeover,
            kind,
            threshold: config.threshold,
        })
    }

    /// Returns whether the compression window is kept for the next message (context takeover).
    pub fn takeover(&self) -> Takeover {
        self.takeover
    }

    /// Returns true if a whole message of `len` bytes is long enough to be compressed.
    pub fn is_worth_compressing(&self, len: usize) -> bool {
        len >= self.threshold
    }

    /// Compresses a fragment of a message and appends the result to `out`.
    pub fn push(&mut self, mut chunk: &[u8], fin: Fin, out: &mut Vec<u8>) {
        let kind = self.kind;
        let state = self.state.get_or_insert_with(|| take_state(kind));
        let start = out.len();
        loop {
            let at = out.len();
            // Text shrinks at least to half. What does not fit takes another iteration.
            let room = chunk.len() / 2 + 64;
            out.resize(at + room, 0);
            let (consumed, produced) = (state.total_in(), state.total_out());
            let status = state.compress(chunk, &mut out[at..], DeflateFlush::SyncFlush);
            let consumed = (state.total_in() - consumed) as usize;
            let produced = (state.total_out() - produced) as usize;
            debug_assert!(status.is_ok(), "the state was made by this module");
            out.truncate(at + produced);
            chunk = &chunk[consumed..];
            if chunk.is_empty() && produced < room {
                break;
            }
        }
        if fin == Fin::Last {
            if out[start..].ends_with(&TAIL) {
                out.truncate(out.len() - TAIL.len());
            }
            // A flush without new input writes nothing, and an empty message has to be one zero
            // byte (7.2.3.6).
            if out.len() == start {
                out.push(0);
            }
            if self.takeover == Takeover::None {
                self.state.take().into_iter().for_each(|state| give_state(kind, state));
            }
        }
    }
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater")
            .field("takeover", &self.takeover)
            .field("kind", &self.kind)
            .field("threshold", &self.threshold)
            .finish_non_exhaustive()
    }
}

thread_local! {
    static POOL: RefCell<Vec<(Kind, Deflate)>> = const { RefCell::new(Vec::new()) };
}

fn take_state(kind: Kind) -> Deflate {
    let pooled = POOL.with_borrow_mut(|pool| {
        let found = pool.iter().position(|(its, _)| *its == kind)?;
        Some(pool.swap_remove(found).1)
    });
    pooled.unwrap_or_else(|| Deflate::new(i32::from(kind.level), false, kind.bits))
}

fn give_state(kind: Kind, mut state: Deflate) {
    POOL.with_borrow_mut(|pool| {
        if pool.len() == POOLED_STATES {
            pool.remove(0); // the least recently used state
        }
        state.reset();
        pool.push((kind, state));
    });
}
