//! From compressed to plain, in steps under a running limit.

use std::cell::RefCell;
use std::fmt;

use zlib_rs::{Inflate, InflateFlush, Status};

use crate::protocol::Violation;
use crate::protocol::deflate::{POOLED_STATES, TAIL, Takeover};

/// Reads one direction of a connection.
///
/// # Allocation
/// Without takeover the state of zlib-rs is lent by the thread while a message is in hand; with it, the connection keeps
/// its own from the first message on. The output grows with what was inflated, by at most 16 KiB at a time.
pub struct Inflater {
    state: Option<Inflate>,
    takeover: Takeover,
    stride: usize,
}

/// Bytes inflated before the limit is looked at again. A message of 1,000 to 1 is stopped at most this far past its
/// limit, and a small message does not pay for clearing more.
const STEP: usize = 16 << 10;

/// What a state takes: its window, its tables and what is around them.
const STATE: usize = 48 << 10;

impl Inflater {
    /// The reading side of an agreement.
    pub fn new(takeover: Takeover) -> Inflater {
        Inflater { state: None, takeover, stride: usize::MAX }
    }

    /// As it is, but a message that is put together whole grows by at most `bytes` and a few at each step of its decoder, which
    /// says then that it is [stalled](crate::protocol::Decoder::is_stalled): so that whoever reads can count what it holds, and
    /// do other work between. A step has at least one byte: 0 counts as 1.
    #[must_use]
    pub fn in_steps(self, bytes: usize) -> Inflater {
        Inflater { stride: bytes.max(1), ..self }
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Bytes of the state that is held for the message in hand; nothing where the connection has one of its own.
    pub(crate) fn held(&self) -> usize {
        if self.state.is_some() && self.takeover == Takeover::None { STATE } else { 0 }
    }

    /// Inflates a chunk of a message behind what is in `out`, which will have at most `limit` bytes.
    ///
    /// # Errors
    /// When the bytes are no deflate stream, when they inflate to more than `limit`, or when `out`
    /// has more bytes than that already.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>, limit: u64) -> Result<(), Violation> {
        self.push_until(chunk, out, limit, usize::MAX).map(|_| ())
    }

    /// As [`Inflater::push`], until `out` has `stop` bytes: how many of `chunk` were consumed. With `stop` bytes there may be
    /// more inside, which comes out when this is called again, with the rest or with nothing.
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

    /// Ends a message.
    ///
    /// # Errors
    /// As [`Inflater::push`].
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

/// Inflates behind the first `filled` bytes of `out`. What is past them was cleared and is not cleared again: else a peer
/// whose blocks hold nothing would have [`STEP`] bytes cleared for each two that it sends.
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
        // One byte past the limit is asked for: it tells "exactly the limit" from "more".
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
            // RFC 7692, 7.2.3.5: a message may hold blocks marked final; the next one starts anew.
            Status::StreamEnd => state.reset(false),
            Status::Ok | Status::BufError
                if consumed == 0 && produced == 0 && !chunk.is_empty() =>
            {
                return Err(Violation::Inflate);
            }
            Status::Ok | Status::BufError => {}
        }
        // A full output may have left more inside the state.
        if (chunk.is_empty() && produced < room) || *filled >= stop {
            return Ok(());
        }
    }
}

thread_local! {
    static POOL: RefCell<Vec<Inflate>> = const { RefCell::new(Vec::new()) };
}

fn take_state() -> Inflate {
    // Always the largest window: it reads what any smaller one wrote, and one kind is easier to lend.
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
