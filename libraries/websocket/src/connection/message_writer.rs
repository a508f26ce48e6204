//! Writes a WebSocket message in chunks, so that its length need not be known in advance.

use std::future::poll_fn;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::connection::core::Core;
use crate::connection::error::Error;
use crate::connection::message::Kind;
use crate::protocol::deflate::Fin;
use crate::protocol::{NotUtf8, Utf8Stream, Violation};

/// A writer of one WebSocket message, which sends each chunk as a frame. Until the message is
/// finished, the connection can send control frames but no other message.
///
/// Dropping a `MessageWriter` before [`MessageWriter::finish`] closes the connection, because the
/// peer must not take half a message for a whole one.
#[derive(Debug)]
pub struct MessageWriter<'a, S> {
    core: &'a mut Core<S>,
    kind: Kind,
    /// True until the first chunk of the message has been written.
    is_first: bool,
    utf8: Utf8Stream,
}

impl<'a, S> MessageWriter<'a, S> {
    pub(crate) fn begin(core: &'a mut Core<S>, kind: Kind) -> Result<MessageWriter<'a, S>, Error> {
        let begun = core.endpoint.begin_fragmented();
        core.check(begun)?;
        Ok(MessageWriter { core, kind, is_first: true, utf8: Utf8Stream::default() })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> MessageWriter<'_, S> {
    /// Waits until the send queue is below its high-water mark, and queues a chunk of the message.
    /// A chunk of text may end within a character.
    ///
    /// # Cancel safety
    /// If the future is dropped while it waits, the chunk was not queued.
    ///
    /// # Errors
    /// [`Error::Violation`] with [`Violation::Utf8`] for text that is not UTF-8; nothing of the
    /// chunk is queued. Otherwise the errors of [`Connection::send`](crate::Connection::send).
    pub async fn write(&mut self, chunk: &[u8]) -> Result<(), Error> {
        poll_fn(|cx| self.core.poll_ready(cx)).await?;
        self.push(chunk, Fin::More).await
    }

    /// Ends the message with an empty frame. The frame is queued without waiting for space in the
    /// send queue, so one poll is enough.
    ///
    /// # Errors
    /// The errors of [`MessageWriter::write`].
    pub async fn finish(mut self) -> Result<(), Error> {
        self.push(&[], Fin::Last).await?;
        self.core.endpoint.end_fragmented();
        Ok(())
    }

    /// Queues a chunk of the message as a frame, and writes what the transport accepts at once.
    /// Never waits.
    async fn push(&mut self, chunk: &[u8], fin: Fin) -> Result<(), Error> {
        if self.kind == Kind::Text {
            let mut utf8 = self.utf8;
            let mut checked = utf8.push(chunk);
            if fin == Fin::Last {
                checked = checked.and_then(|()| utf8.end());
            }
            checked.map_err(|NotUtf8| Error::Violation(Violation::Utf8))?;
            self.utf8 = utf8;
        }
        self.core.queue_fragment(self.is_first.then_some(self.kind), fin, chunk)?;
        self.is_first = false;
        poll_fn(|cx| {
            if let Poll::Ready(Err(error)) = self.core.poll_flush_noting_failure(cx) {
                return Poll::Ready(Err(error));
            }
            Poll::Ready(Ok(()))
        })
        .await
    }
}

impl<S> Drop for MessageWriter<'_, S> {
    fn drop(&mut self) {
        let Core { endpoint, rules, .. } = &mut *self.core;
        if endpoint.is_within_message() && self.is_first {
            endpoint.end_fragmented();
        } else {
            endpoint.abandon_fragmented(rules, Instant::now);
        }
    }
}
