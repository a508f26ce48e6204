//! The TLS records that a client sends, as far as the server must know them to count the memory of
//! the library rustls.

/// The length in bytes of the header of a record (RFC 8446, 5.1).
const HEADER: usize = 5;

/// The maximum number of bytes that the encryption of a record with data adds to it, without
/// padding.
const OVERHEAD: usize = 24;

/// The maximum number of bytes in records without data that a client may send before its next data.
/// It suffices for all key updates that rustls accepts. rustls would join the parts of a handshake
/// message of up to 64 KiB, which no client sends after the handshake.
const MAX_SILENT_BYTES: usize = 4 << 10;

/// A follower of the records that a client sends.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// The last two bytes of the current record's header, which are the length of the record.
    length: [u8; 2],
    /// The number of bytes that have arrived of the current record's header.
    filled: usize,
    /// The number of bytes of the current record that have not arrived.
    left: usize,
    /// The number of records that have arrived completely since the last decryption, and the number
    /// of their bytes.
    complete: usize,
    complete_bytes: usize,
    /// The number of bytes in records without data since the last data.
    silent_bytes: usize,
    /// True if rustls may hold a part of a handshake message.
    may_join: bool,
}

impl Records {
    /// Follows bytes from the client, which rustls has not decrypted yet.
    pub(super) fn follow(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            if self.filled < HEADER {
                if self.filled >= HEADER - 2 {
                    self.length[self.filled + 2 - HEADER] = bytes[at];
                }
                self.filled += 1;
                at += 1;
                if self.filled < HEADER {
                    continue;
                }
                self.left = usize::from(u16::from_be_bytes(self.length));
                self.complete_bytes += self.left;
            } else {
                let len = self.left.min(bytes.len() - at);
                self.left -= len;
                at += len;
            }
            if self.left == 0 {
                self.filled = 0;
                self.complete += 1;
            }
        }
    }

    /// Records that rustls has decrypted `plaintext` bytes of data from the complete records since
    /// the last decryption, after the handshake. Returns false if the client sends too many records
    /// without data.
    pub(super) fn on_decrypted(&mut self, plaintext: usize) -> bool {
        let current = if self.is_unfinished() && self.filled == HEADER {
            // The length of the current record counts when it is complete.
            usize::from(u16::from_be_bytes(self.length))
        } else {
            0
        };
        let complete = std::mem::take(&mut self.complete);
        let bytes = std::mem::replace(&mut self.complete_bytes, current) - current;
        if complete > 0 {
            self.may_join = bytes > plaintext + complete * OVERHEAD || plaintext == 0;
            self.silent_bytes = if plaintext > 0 { 0 } else { self.silent_bytes + bytes };
        }
        self.silent_bytes <= MAX_SILENT_BYTES
    }

    /// Records that rustls has processed the complete records as a part of the handshake.
    pub(super) fn on_handshake(&mut self) {
        self.on_decrypted(0);
        (self.silent_bytes, self.may_join) = (0, false);
    }

    fn is_unfinished(&self) -> bool {
        self.filled > 0
    }

    /// Returns true if rustls may hold more than its input buffer of 4 KiB, because a record or a
    /// message of the TLS protocol is incomplete.
    pub(super) fn are_incomplete(&self) -> bool {
        self.is_unfinished() || self.may_join
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(len: usize) -> Vec<u8> {
        let length = u16::try_from(len).unwrap().to_be_bytes();
        [&[0x17, 3, 3][..], &length, &vec![7; len]].concat()
    }

    #[test]
    fn records_are_incomplete_between_their_first_and_last_bytes() {
        for size in [1, 2, 3, 7, 100, 1000] {
            let bytes = [record(300), record(0), record(40), record(16_000)].concat();
            let ends = [305, 310, 355, bytes.len()];
            let (mut records, mut at) = (Records::default(), 0);
            for chunk in bytes.chunks(size) {
                records.follow(chunk);
                at += chunk.len();
                assert_eq!(records.is_unfinished(), !ends.contains(&at), "{size} {at}");
            }
            assert_eq!((records.complete, records.complete_bytes), (4, 16_340));
        }
    }

    #[test]
    fn parts_of_handshake_messages_are_detected_behind_data() {
        let mut records = Records::default();
        records.follow(&record(117));
        assert!(records.on_decrypted(100));
        assert!(!records.are_incomplete());
        records.follow(&[record(117), record(1000)].concat());
        assert!(records.on_decrypted(100));
        assert!(records.are_incomplete());
        records.follow(&[record(124), record(5000)[..2000].to_vec()].concat());
        assert!(records.on_decrypted(100));
        assert!(records.are_incomplete() && !records.may_join);
        records.follow(&record(5000)[2000..]);
        assert!(records.on_decrypted(4980));
        assert!(!records.are_incomplete());
    }

    #[test]
    fn a_client_may_send_key_updates_but_no_long_handshake_messages() {
        let mut records = Records::default();
        for _ in 0..32 {
            records.follow(&record(22));
            assert!(records.on_decrypted(0));
        }
        records.follow(&record(117));
        assert!(records.on_decrypted(100));
        let mut sent = 0;
        loop {
            records.follow(&record(1000));
            sent += 1000;
            if !records.on_decrypted(0) {
                break;
            }
        }
        assert_eq!(sent, 5000);
    }
}
