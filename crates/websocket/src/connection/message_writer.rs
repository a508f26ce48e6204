//! A message written in chunks, of a length that is not known before.

use std::future::poll_fn;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::connection::core::Core;
use crate::connection::error::Error;
use crate::connection::message::Kind;
use crate::protocol::deflate::Fin;
use crate::protocol::{NotUtf8, Utf8Stream, Violation};

/// Writes one message, each chunk as a frame. No other message can be sent before it is finished; control frames can.
///
/// Dropped before [`MessageWriter::finish`], it fails the connection: a peer must not take half a message for a whole one.
#[derive(Debug)]
pub struct MessageWriter<'a, S> {
    core: &'a mut Core<S>,
    kind: Kind,
    /// Nothing was written yet.
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
    /// Waits for room and takes a chunk. A chunk of text may end within a character.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the chunk was not taken.
    ///
    /// # Errors
    /// [`Error::Violation`] with [`Violation::Utf8`] if it is text and not UTF-8: then nothing was taken. As
    /// [`Connection::send`](crate::Connection::send) otherwise.
    pub async fn write(&mut self, chunk: &[u8]) -> Result<(), Error> {
        poll_fn(|cx| self.core.poll_ready(cx)).await?;
        self.push(chunk, Fin::More).await
    }

    /// Ends the message. The last frame, which is empty, is taken without waiting for room: the first poll ends it.
    ///
    /// # Errors
    /// As [`MessageWriter::write`].
    pub async fn finish(mut self) -> Result<(), Error> {
        self.push(&[], Fin::Last).await?;
        self.core.endpoint.end_fragmented();
        Ok(())
    }

    /// Takes a chunk and writes what the transport takes at once. Never waits.
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
