//! The decompression of WebSocket messages (permessage-deflate), in steps and with a limit.

use std::cell::RefCell;
use std::fmt;

use zlib_rs::{Inflate, InflateFlush, Status};

use crate::protocol::Violation;
use crate::protocol::deflate::{POOLED_STATES, TAIL, Takeover};

/// The decompressor of the messages that one side of a WebSocket connection receives.
///
/// # Allocation
/// Without context takeover, a decompressor of zlib-rs is borrowed from a thread-local pool for
/// each message and returned afterwards. With context takeover, the connection allocates its own
/// decompressor for its first message and keeps it. The output grows by at most 16 KiB at a time.
pub struct Inflater {
    state: Option<Inflate>,
    takeover: Takeover,
    stride: usize,
}

/// The number of bytes that are decompressed before the limit of the message is checked again. A
/// message that expands a thousandfold therefore exceeds its limit by at most this much. A larger
/// step would make small messages slower, because more memory would have to be cleared.
const STEP: usize = 16 << 10;

/// The size in bytes of a decompression state, with its window and tables.
const STATE: usize = 48 << 10;

impl Inflater {
    /// Returns a decompressor for the received messages of a new connection.
    pub fn new(takeover: Takeover) -> Inflater {
        Inflater { state: None, takeover, stride: usize::MAX }
    }

    /// Makes the decoder decompress a message in steps of at most about `bytes` bytes if the
    /// message is assembled whole. Between two steps, the decoder is
    /// [stalled](crate::protocol::Decoder::is_stalled), so that its caller can count the memory in
    /// use and do other work. A value of 0 counts as 1.
    #[must_use]
    pub fn in_steps(self, bytes: usize) -> Inflater {
        Inflater { stride: bytes.max(1), ..self }
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Returns the size in bytes of the decompressor that is borrowed from the thread-local pool
    /// for the current message. Returns 0 if none is borrowed, or if the connection has its own.
    pub(crate) fn held(&self) -> usize {
        if self.state.is_some() && self.takeover == Takeover::None { STATE } else { 0 }
    }

    /// Decompresses a part of a message and appends the result to `out`. `out` may have at most
    /// `limit` bytes.
    ///
    /// # Errors
    /// [`Violation::Inflate`] if the bytes are not a deflate stream, and [`Violation::TooBig`] if
    /// `out` has, or would get, more than `limit` bytes.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>, limit: u64) -> Result<(), Violation> {
        self.push_until(chunk, out, limit, usize::MAX).map(|_| ())
    }

    /// Decompresses a part of a message like [`Inflater::push`], but only until `out` has `stop`
    /// bytes. Returns the number of bytes of `chunk` that were consumed. If `out` has `stop` bytes,
    /// call this method again with the remaining bytes of `chunk` (possibly none) to get more
    /// output.
    pub(crate) fn push_until(
        &mut self,
        chunk: &[u8],
        out: &mut Vec<u8>,
        limit: u64,
        stop: usize,
    ) -> Result<usize, Violation> {
        let state = self.state.get_or_insert_with(take_state);
        inflate(state, chunk, out, limit, stop)
    }

    /// Ends the decompression of a message, and appends its last bytes to `out`.
    ///
    /// # Errors
    /// The errors of [`Inflater::push`].
    pub fn finish(&mut self, out: &mut Vec<u8>, limit: u64) -> Result<(), Violation> {
        self.push(&TAIL, out, limit)?;
        if self.takeover == Takeover::None {
            self.state.take().into_iter().for_each(give_state);
        }
        Ok(())
    }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater").field("takeover", &self.takeover).finish_non_exhaustive()
    }
}

fn inflate(
    state: &mut Inflate,
    chunk: &[u8],
    out: &mut Vec<u8>,
    limit: u64,
    stop: usize,
) -> Result<usize, Violation> {
    let (mut filled, mut rest) = (out.len(), chunk);
    let result = inflate_into(state, &mut rest, out, &mut filled, limit, stop);
    out.truncate(filled);
    result.map(|()| chunk.len() - rest.len())
}

/// Decompresses `chunk` into `out`, behind the first `filled` bytes of `out`. Updates `chunk` and
/// `filled`.
///
/// Bytes of `out` that are cleared but not filled are not cleared again for the next block.
/// Otherwise a peer that sends empty blocks could make the server clear [`STEP`] bytes for every
/// two bytes that it sends.
fn inflate_into(
    state: &mut Inflate,
    chunk: &mut &[u8],
    out: &mut Vec<u8>,
    filled: &mut usize,
    limit: u64,
    stop: usize,
) -> Result<(), Violation> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if *filled > limit {
        return Err(Violation::TooBig);
    }
    debug_assert!(*filled < stop, "a step that may not grow the message would never end");
    loop {
        // One byte more than the limit is allowed, to distinguish a message of exactly that size
        // from a longer one.
        let room = (limit - *filled)
            .saturating_add(1)
            .min((chunk.len() * 4).clamp(256, STEP))
            .min(stop - *filled);
        if out.len() < *filled + room {
            out.resize(*filled + room, 0);
        }
        let (consumed, produced) = (state.total_in(), state.total_out());
        let status =
            state.decompress(chunk, &mut out[*filled..*filled + room], InflateFlush::SyncFlush);
        let consumed = (state.total_in() - consumed) as usize;
        let produced = (state.total_out() - produced) as usize;
        *filled += produced;
        *chunk = &chunk[consumed..];
        let status = status.map_err(|_| Violation::Inflate)?;
        if *filled > limit {
            return Err(Violation::TooBig);
        }
        match status {
            // RFC 7692, 7.2.3.5: a message may contain blocks that are marked final. A new stream
            // follows such a block.
            Status::StreamEnd => state.reset(false),
            Status::Ok | Status::BufError
                if consumed == 0 && produced == 0 && !chunk.is_empty() =>
            {
                return Err(Violation::Inflate);
            }
            Status::Ok | Status::BufError => {}
        }
        // If the output is full, the state may hold more of it.
        if (chunk.is_empty() && produced < room) || *filled >= stop {
            return Ok(());
        }
    }
}

thread_local! {
    static POOL: RefCell<Vec<Inflate>> = const { RefCell::new(Vec::new()) };
}

fn take_state() -> Inflate {
    // The window is always the largest, which reads the output of any smaller one, so that all
    // states are alike.
    POOL.with_borrow_mut(Vec::pop).unwrap_or_else(|| Inflate::new(false, 15))
}

fn give_state(mut state: Inflate) {
    POOL.with_borrow_mut(|pool| {
        if pool.len() < POOLED_STATES {
            state.reset(false);
            pool.push(state);
        }
    });
}
