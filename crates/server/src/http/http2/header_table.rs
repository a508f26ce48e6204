//! The memory that h2 may hold for the dynamic table of HPACK, in which a client stores fields of
//! its requests (RFC 7541, 2.3.2).
//!
//! An entry for `:path`, `:authority` or `:scheme` keeps the whole read buffer alive from which h2
//! has parsed it. The server
//! therefore announces a table without entries. But the client may fill its table until it has
//! received this setting, and h2 does not check that the client empties the table afterwards. Many
//! browsers send dozens of short requests until then, which h2 reads into few buffers.

use super::frame_header::{
    ACK, CONTINUATION, HEADER, HEADERS, PADDED, PRIORITY, PUSH_PROMISE, SETTINGS,
};

/// The maximum size in bytes of h2's read buffer, which an entry of the table keeps alive. h2
/// doubles a buffer that is too small for a frame of 16 KiB.
const BUFFER_BYTES: usize = 32 << 10;

/// The minimum size in bytes of h2's read buffer, without a frame header, for which there may be no
/// place.
const MIN_BUFFER_BYTES: usize = (8 << 10) - HEADER;

/// The maximum number of entries that keep a buffer alive before the table is emptied: 4,096 bytes,
/// the initial size of a table, divided by the size of an entry for `:path` (RFC 7541, 4.1). h2
/// copies the values of ordinary fields.
const MAX_ENTRIES: usize = 4096 / 37;

/// A dynamic table size update to zero (RFC 7541, 6.3).
const EMPTY: u8 = 0x20;

/// The maximum number of bytes that precede the header block in a HEADERS frame: the length of the
/// padding, and the priority (RFC 9113, 6.2).
const MAX_PREFIX: usize = 6;

/// A follower of the frames that a client sends, which finds out how much memory h2's dynamic table
/// of HPACK may keep alive.
#[derive(Debug, Default)]
pub(super) struct HeaderTable {
    /// The number of frames so far of which each may have added an entry.
    frames: usize,
    /// The number of CONTINUATION frames that h2 has got so far.
    continuations: usize,
    /// The number of bytes of all frames so far.
    bytes: usize,
    /// True once the client has acknowledged that the table must be empty.
    is_acknowledged: bool,
    /// True once the client has emptied the table. It then stays empty.
    is_empty: bool,
    /// The beginning of the payload of the current HEADERS frame, up to the first byte of its
    /// header block.
    beginning: [u8; MAX_PREFIX + 1],
    /// The number of bytes of `beginning` that have arrived.
    filled: usize,
    /// The number of bytes of `beginning` that the current frame has, or 0 if they do not matter.
    wanted: usize,
    /// The length of the current HEADERS frame.
    len: usize,
    flags: u8,
    stream: u32,
}

impl HeaderTable {
    /// Records that a frame with this header has begun.
    pub(super) fn begin_frame(&mut self, kind: u8, flags: u8, stream: u32, len: usize) {
        if self.is_empty {
            return;
        }
        self.wanted = 0;
        self.bytes = self.bytes.saturating_add(HEADER + len);
        match kind {
            // h2 closes the connection after an acknowledgement of settings that it has not sent.
            SETTINGS => self.is_acknowledged |= flags & ACK != 0,
            HEADERS | CONTINUATION | PUSH_PROMISE => self.frames += 1,
            _ => {}
        }
        if kind == HEADERS && self.is_acknowledged {
            let prefix = usize::from(flags & PADDED != 0) + 5 * usize::from(flags & PRIORITY != 0);
            (self.filled, self.wanted) = (0, prefix + 1);
            (self.len, self.flags, self.stream) = (len, flags, stream);
        }
    }

    /// Returns true if the next bytes of the current frame's payload must be passed to
    /// [`read`](Self::read).
    pub(super) fn wants_payload(&self) -> bool {
        self.wanted > 0
    }

    /// Reads the next bytes of the payload of a HEADERS frame.
    pub(super) fn read(&mut self, payload: &[u8]) {
        let len = payload.len().min(self.wanted - self.filled);
        self.beginning[self.filled..self.filled + len].copy_from_slice(&payload[..len]);
        self.filled += len;
        if self.filled == self.wanted {
            self.is_empty = self.empties();
            self.wanted = 0;
        }
    }

    /// Returns true if h2 empties the table when it decodes the current HEADERS frame.
    fn empties(&self) -> bool {
        let block = self.wanted - 1;
        let (padding, prefix) = match self.flags & PADDED {
            0 => (0, &self.beginning[..block]),
            _ => (usize::from(self.beginning[0]), &self.beginning[1..block]),
        };
        let dependency = prefix.first_chunk().map(|bytes| u32::from_be_bytes(*bytes) << 1 >> 1);
        // h2 does not decode the block of a stream that depends on itself.
        self.beginning[block] == EMPTY
            && self.len > block + padding
            && dependency != Some(self.stream)
    }

    /// Records that h2 gets a CONTINUATION frame, and copies the header block to a buffer of its
    /// own.
    pub(super) fn on_continuation(&mut self) {
        self.continuations += 1;
    }

    /// Returns the number of bytes of read buffers that the entries of the table may keep alive.
    /// One buffer is included in the charge of each connection.
    pub(super) fn held(&self) -> usize {
        if self.is_empty {
            return 0;
        }
        // h2 takes another buffer if the rest of the last one is too small for the next frame, so
        // what it reads into two buffers is at least as long as the smaller one.
        let buffers = 1 + 2 * (self.bytes / MIN_BUFFER_BYTES) + self.continuations;
        (self.frames.clamp(1, MAX_ENTRIES).min(buffers) - 1) * BUFFER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(table: &mut HeaderTable, kind: u8, flags: u8, payload: &[u8]) {
        table.begin_frame(kind, flags, 5, payload.len());
        for byte in payload {
            if table.wants_payload() {
                table.read(&[*byte]);
            }
        }
    }

    #[test]
    fn each_frame_of_a_header_block_may_keep_a_buffer_until_the_table_is_empty() {
        let mut table = HeaderTable::default();
        assert_eq!(table.held(), 0);
        frame(&mut table, HEADERS, 0, &[EMPTY, 0x82]);
        assert_eq!(table.held(), 0);
        table.on_continuation();
        frame(&mut table, CONTINUATION, 0, &[0x82]);
        assert_eq!(table.held(), BUFFER_BYTES);
        let long = [&[EMPTY][..], &[0; MIN_BUFFER_BYTES]].concat();
        frame(&mut table, HEADERS, 0, &long);
        assert_eq!(table.held(), 2 * BUFFER_BYTES);
        (0..200).for_each(|_| frame(&mut table, HEADERS, 0, &long));
        assert_eq!(table.held(), (MAX_ENTRIES - 1) * BUFFER_BYTES);
        frame(&mut table, SETTINGS, ACK, &[]);
        frame(&mut table, HEADERS, 0, &[0x82]);
        assert_eq!(table.held(), (MAX_ENTRIES - 1) * BUFFER_BYTES);
        frame(&mut table, HEADERS, 0, &[EMPTY, 0x82]);
        assert_eq!(table.held(), 0);
        (0..200).for_each(|_| frame(&mut table, HEADERS, 0, &[0x82]));
        assert_eq!(table.held(), 0);
    }

    #[test]
    fn short_requests_share_buffers() {
        let mut table = HeaderTable::default();
        (0..MAX_ENTRIES).for_each(|_| frame(&mut table, HEADERS, 0, &[0x82; 100]));
        assert_eq!(table.held(), 2 * BUFFER_BYTES);
    }

    #[test]
    fn only_a_size_update_that_h2_decodes_empties_the_table() {
        let padded = |padding: u8, rest: &[u8]| [&[padding], rest].concat();
        for (flags, payload, expected) in [
            (0, vec![EMPTY], true),
            (0, vec![], false),
            (0, vec![0x3F, 0], false),
            (0, vec![0x82, EMPTY], false),
            (PADDED, padded(0, &[EMPTY]), true),
            (PADDED, padded(1, &[EMPTY, 0]), true),
            // The update is a part of the padding.
            (PADDED, padded(1, &[EMPTY]), false),
            (PADDED, padded(9, &[EMPTY, 0x82]), false),
            (PRIORITY, vec![0, 0, 0, 3, 16, EMPTY], true),
            (PRIORITY, vec![0x80, 0, 0, 3, 16, EMPTY], true),
            (PRIORITY, vec![EMPTY; 5], false),
            // The stream depends on itself.
            (PRIORITY, vec![0, 0, 0, 5, 16, EMPTY], false),
            (PRIORITY, vec![0x80, 0, 0, 5, 16, EMPTY], false),
            (PADDED | PRIORITY, padded(2, &[0, 0, 0, 3, 16, EMPTY, 0, 0]), true),
            (PADDED | PRIORITY, padded(2, &[0, 0, 0, 3, 16, EMPTY, 0]), false),
        ] {
            let mut table = HeaderTable::default();
            frame(&mut table, SETTINGS, ACK, &[]);
            frame(&mut table, HEADERS, flags, &payload);
            assert_eq!(table.is_empty, expected, "{flags} {payload:?}");
        }
    }
}
