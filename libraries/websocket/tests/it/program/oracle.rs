//! The messages that were sent, and the check of the messages that are read.

use std::collections::VecDeque;

use rookery_websocket::{Chunk, Error, Kind, Message};

/// The messages that one side has sent and the other side has not read.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) sent: VecDeque<Sent>,
    /// The part of the first message that was read in chunks.
    shown: Vec<u8>,
    /// The reader began to close, so whole messages may be missing, and the rest of one message.
    pub(crate) is_thrown_away: bool,
    pub(crate) has_no_reader: bool,
    /// A message was given up, so the connection ends after the messages before it.
    is_given_up: bool,
}

#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_finished: bool,
}

impl Sent {
    pub(crate) fn whole(kind: Kind, bytes: Vec<u8>) -> Sent {
        Sent { kind, bytes, is_finished: true }
    }
}

impl Oracle {
    /// Returns the bytes of the message that is being written.
    pub(crate) fn unfinished(&mut self) -> &mut Vec<u8> {
        let last = self.sent.back_mut().filter(|sent| !sent.is_finished);
        &mut last.expect("nothing can be read of it that was not written").bytes
    }

    pub(crate) fn finish(&mut self) {
        self.sent.back_mut().expect("it was begun").is_finished = true;
    }

    pub(crate) fn give_up(&mut self) {
        if self.unfinished().is_empty() {
            self.sent.pop_back();
        } else {
            self.is_given_up = true;
        }
    }

    /// Checks the result of reading a message, and returns an error for the caller to check.
    pub(crate) fn read(
        &mut self,
        read: Option<Result<Option<Message<'_>>, Error>>,
    ) -> Option<Error> {
        match read? {
            Ok(message) => self.message(message),
            Err(error) => Some(error),
        }
    }

    pub(crate) fn message(&mut self, message: Option<Message<'_>>) -> Option<Error> {
        let Some(message) = message else {
            self.end();
            return None;
        };
        if let Some(text) = message.as_text() {
            assert!(
                std::str::from_utf8(text.as_bytes()).is_ok(),
                "text is not UTF-8: {:x?}",
                text.as_bytes()
            );
        }
        let shown = std::mem::take(&mut self.shown);
        let is_next = |sent: &Sent, shown: &[u8]| {
            // The rest of a text may begin within a character, and is not text then.
            let is_rest = !shown.is_empty() && std::str::from_utf8(&message).is_err();
            let kind = if is_rest { Kind::Binary } else { sent.kind };
            sent.is_finished
                && message.kind() == kind
                && sent.bytes.strip_prefix(shown).is_some_and(|rest| *rest == message[..])
        };
        if self.sent.front().is_some_and(|first| is_next(first, &shown)) {
            self.sent.pop_front();
            return None;
        }
        let position = |shown: &[u8]| self.sent.iter().position(|sent| is_next(sent, shown));
        let later = Some(()).filter(|()| self.is_thrown_away);
        let later =
            later.and_then(|()| position(&shown).or_else(|| position(&[]))).unwrap_or_else(|| {
                let (tail, sent) = (String::from_utf8_lossy(&message), &self.sent);
                panic!(
                    "{tail:?}, {:?}, was never sent as a message; after {shown:?} of {sent:?}",
                    message.kind()
                )
            });
        self.sent.drain(..=later);
        None
    }

    pub(crate) fn chunk(&mut self, chunk: Option<Chunk<'_>>) -> Option<Error> {
        let Some(chunk) = chunk else {
            self.end();
            return None;
        };
        assert!(chunk.is_last || !chunk.bytes.is_empty(), "a chunk of nothing");
        assert!(chunk.bytes.len() <= 70_000, "a chunk of {} bytes", chunk.bytes.len());
        let is_next = |sent: &Sent, shown: &[u8]| {
            let is_of = sent.kind == chunk.kind
                && sent.bytes.strip_prefix(shown).is_some_and(|rest| rest.starts_with(chunk.bytes));
            is_of
                && (!chunk.is_last
                    || (sent.is_finished && sent.bytes.len() == shown.len() + chunk.bytes.len()))
        };
        if self.is_thrown_away {
            // The message that was begun, or a message that begins.
            let begun = self.sent.iter().position(|sent| is_next(sent, &self.shown));
            let at = begun.unwrap_or_else(|| {
                self.shown.clear();
                let fresh = self.sent.iter().position(|sent| is_next(sent, &[]));
                fresh.unwrap_or_else(|| panic!("{chunk:?} was never sent; {:?}", self.sent))
            });
            // It is not known yet which of two messages with the same beginning this is, so neither
            // is removed before its last chunk.
            if chunk.is_last {
                self.sent.drain(..at);
            }
        } else {
            let first = self.sent.front().expect("nothing was sent");
            assert!(is_next(first, &self.shown), "{chunk:?} after {:?} of {first:?}", self.shown);
        }
        self.shown.extend_from_slice(chunk.bytes);
        if chunk.is_last {
            self.sent.pop_front();
            self.shown.clear();
        }
        None
    }

    /// Records the peer's close frame, which follows all that the peer sent.
    fn end(&mut self) {
        let is_all = self.sent.iter().all(|sent| !sent.is_finished) || self.is_thrown_away;
        assert!(is_all, "closed before {:?}", self.sent);
    }
}
