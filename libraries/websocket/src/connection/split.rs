//! The two halves of a split WebSocket connection. One half reads; the other sends and can be
//! cloned for several tasks.
//!
//! A transport stores only one waker for writing, although several tasks may wait. The halves
//! therefore register a [`WakeSet`] as this waker, which wakes all waiting tasks.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::connection::cancel::Canceller;
use crate::connection::core::{Core, SendStatus};
use crate::connection::error::Error;
use crate::connection::inbound::{Inbound, Wait};
use crate::connection::message::{Chunk, Message};
use crate::connection::outgoing::Outgoing;
use crate::endpoint::Statistics;
use crate::protocol::{CloseCode, Ending, ReadMode, Step};

/// The reading half of a split WebSocket connection. It also responds to control frames and sends
/// keep-alive pings.
pub struct Reader<S> {
    inbound: Inbound,
    shared: Arc<Shared<S>>,
}

/// The sending half of a split WebSocket connection. Its clones send on the same connection; their
/// messages are not interleaved.
pub struct Sender<S> {
    shared: Arc<Shared<S>>,
}

struct Shared<S> {
    core: Mutex<Core<S>>,
    wakes: Arc<WakeSet>,
}

/// The wakers of a connection's operations that wait for the transport, for a pong or for the end
/// of the connection.
#[derive(Default)]
struct WakeSet {
    /// The wakers of waiting operations in the order of their registration, each with the key of
    /// its operation.
    waiting: Mutex<VecDeque<(u64, Waker)>>,
    next_key: AtomicU64,
    /// The waker of the reading half, which also writes what the senders have queued.
    reader: atomic_waker::AtomicWaker,
    is_reader_waiting: AtomicBool,
    /// True once the reading half has reached the connection's end or was dropped.
    is_ended: AtomicBool,
    /// True once the reading half was dropped before the connection's end. From then on, only the
    /// senders write queued output.
    is_reader_dropped: AtomicBool,
}

pub(crate) fn split<S>(mut core: Core<S>, inbound: Inbound) -> (Reader<S>, Sender<S>) {
    let wakes = Arc::new(WakeSet::default());
    core.write_waker = Some(Waker::from(Arc::clone(&wakes)));
    let shared = Arc::new(Shared { core: Mutex::new(core), wakes });
    (Reader { inbound, shared: Arc::clone(&shared) }, Sender { shared })
}

impl<S: AsyncRead + AsyncWrite + Unpin> Reader<S> {
    /// Reads the next whole message, as [`Connection::read`](crate::Connection::read) does.
    ///
    /// # Errors
    /// The errors of [`Connection::read`](crate::Connection::read).
    pub async fn read(&mut self) -> Result<Option<Message<'_>>, Error> {
        let step = self.step(Wait::Forever, ReadMode::Message).await?;
        Ok(step.map(|step| self.inbound.message(&step)))
    }

    /// Reads the next whole message and waits until `deadline` at most, as
    /// [`Connection::read_before`](crate::Connection::read_before) does.
    ///
    /// # Errors
    /// The errors of [`Connection::read_before`](crate::Connection::read_before).
    pub async fn read_before(&mut self, deadline: Instant) -> Result<Option<Message<'_>>, Error> {
        let step = self.step(Wait::Until(deadline), ReadMode::Message).await?;
        Ok(step.map(|step| self.inbound.message(&step)))
    }

    /// Reads the next whole message and waits for at most `timeout`, as
    /// [`Connection::read_timeout`](crate::Connection::read_timeout) does.
    ///
    /// # Errors
    /// The errors of [`Connection::read_timeout`](crate::Connection::read_timeout).
    pub async fn read_timeout(&mut self, timeout: Duration) -> Result<Option<Message<'_>>, Error> {
        let step = self.step(Wait::For(timeout), ReadMode::Message).await?;
        Ok(step.map(|step| self.inbound.message(&step)))
    }

    /// Reads the next chunk of a message, as
    /// [`Connection::read_chunk`](crate::Connection::read_chunk) does.
    ///
    /// # Errors
    /// The errors of [`Connection::read_chunk`](crate::Connection::read_chunk).
    pub async fn read_chunk(&mut self) -> Result<Option<Chunk<'_>>, Error> {
        let step = self.step(Wait::Forever, ReadMode::Chunks).await?;
        Ok(step.map(|step| self.inbound.chunk(&step)))
    }

    /// Reads control frames until the connection has ended, for a connection on which this side
    /// only sends. A message from the peer is not expected: the connection is then closed with
    /// [`CloseCode::POLICY`].
    ///
    /// Run this method in a task of its own. It responds to pings, sends keep-alive pings and
    /// writes queued output, as a read does.
    ///
    /// # Errors
    /// The errors of [`Connection::read`](crate::Connection::read).
    pub async fn close_read(mut self) -> Result<Ending, Error> {
        let mut mode = ReadMode::Chunks;
        while self.step(Wait::Forever, mode).await?.is_some() {
            let mut core = self.shared.lock();
            core.start_close(Some(CloseCode::POLICY), "no message was expected");
            mode = ReadMode::Discard;
        }
        Ok(self.shared.lock().endpoint.ending())
    }

    /// Returns the next message or chunk, as a poll of [`Reader::read`] or [`Reader::read_chunk`]
    /// does.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        mode: ReadMode,
    ) -> Poll<Result<Option<Step>, Error>> {
        self.inbound.set_wait(Wait::Forever);
        self.poll_step(cx, mode)
    }

    async fn step(&mut self, wait: Wait, mode: ReadMode) -> Result<Option<Step>, Error> {
        self.inbound.set_wait(wait);
        poll_fn(|cx| self.poll_step(cx, mode)).await
    }

    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        mode: ReadMode,
    ) -> Poll<Result<Option<Step>, Error>> {
        let Reader { inbound, shared } = self;
        let wakes = &*shared.wakes;
        // Registered before the transport is polled. Otherwise a sender that queues a message in
        // between would wake nobody.
        wakes.reader.register(cx.waker());
        wakes.is_reader_waiting.store(true, Ordering::SeqCst);
        let mut core = shared.lock();
        let (controls, was_above) =
            (core.statistics().controls_received, core.is_above_high_water());
        let polled = inbound.poll_step(&mut core, cx, mode);
        let is_news = core.statistics().controls_received != controls
            || (was_above && !core.is_above_high_water());
        drop(core);
        if polled.is_ready() {
            wakes.is_reader_waiting.store(false, Ordering::SeqCst);
        }
        let is_ended = match &polled {
            Poll::Ready(Ok(None)) => true,
            Poll::Ready(Err(error)) => !error.is_retryable(),
            _ => false,
        };
        if is_ended {
            wakes.is_ended.store(true, Ordering::SeqCst);
        }
        if is_news || is_ended {
            wakes.wake_waiting();
        }
        polled
    }
}

impl<S> Reader<S> {
    /// Returns the message of a step. It is valid until the next read.
    #[cfg(feature = "stream")]
    pub(crate) fn message(&self, step: &Step) -> Message<'_> {
        self.inbound.message(step)
    }

    /// Returns the chunk of a step. It is valid until the next read.
    pub(crate) fn chunk(&self, step: &Step) -> Chunk<'_> {
        self.inbound.chunk(step)
    }

    /// Returns a handle with which another task can cancel a read of this half.
    pub fn canceller(&mut self) -> Canceller {
        self.inbound.canceller()
    }
}

impl<S> Drop for Reader<S> {
    fn drop(&mut self) {
        let wakes = &self.shared.wakes;
        // In this order, so that a sender which sees the end also sees its kind.
        if !wakes.is_ended.load(Ordering::SeqCst) {
            wakes.is_reader_dropped.store(true, Ordering::SeqCst);
        }
        wakes.is_ended.store(true, Ordering::SeqCst);
        wakes.wake_waiting();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Sender<S> {
    /// Sends a message as [`Connection::send`](crate::Connection::send) does.
    ///
    /// # Errors
    /// The errors of [`Connection::send`](crate::Connection::send).
    pub async fn send<'m>(&self, message: impl Into<Outgoing<'m>>) -> Result<SendStatus, Error> {
        let message = message.into().frame();
        self.wait(|core, cx| core.poll_send(cx, &message)).await
    }

    /// Queues a message as [`Connection::queue`](crate::Connection::queue) does. If the [`Reader`]
    /// is waiting, it writes the message.
    ///
    /// # Errors
    /// The errors of [`Connection::queue`](crate::Connection::queue).
    pub fn queue<'m>(&self, message: impl Into<Outgoing<'m>>) -> Result<SendStatus, Error> {
        let status = self.shared.lock().queue(&message.into().frame());
        self.shared.wakes.wake_reader();
        status
    }

    /// Writes all queued output as [`Connection::flush`](crate::Connection::flush) does.
    ///
    /// # Errors
    /// The errors of [`Connection::flush`](crate::Connection::flush).
    pub async fn flush(&self) -> Result<(), Error> {
        self.wait(Core::poll_flush_noting_failure).await
    }

    /// Waits until the send queue is below its high-water mark, as
    /// [`Connection::drained`](crate::Connection::drained) does.
    ///
    /// # Errors
    /// The errors of [`Connection::drained`](crate::Connection::drained).
    pub async fn drained(&self) -> Result<(), Error> {
        self.wait(Core::poll_ready).await
    }

    /// Sends a ping, waits for its pong, and returns the round-trip time. The [`Reader`] has to be
    /// reading meanwhile, because it receives the pong.
    ///
    /// # Errors
    /// [`Error::Closed`] when the connection ends before the pong, and [`Error::Io`] when the
    /// transport fails.
    pub async fn ping(&self) -> Result<Duration, Error> {
        let number = {
            let mut core = self.shared.lock();
            core.queue_ping(Instant::now())?
        };
        self.shared.wakes.wake_reader();
        self.wait(|core, cx| {
            if core.endpoint.is_answered(number) {
                return Poll::Ready(Ok(core.statistics().round_trip.unwrap_or_default()));
            }
            if let Poll::Ready(Err(error)) = core.poll_flush_noting_failure(cx) {
                return Poll::Ready(Err(error));
            }
            if self.shared.wakes.is_ended.load(Ordering::SeqCst) {
                return Poll::Ready(Err(Error::Closed));
            }
            Poll::Pending
        })
        .await
    }

    /// Sends a close frame, and waits until the [`Reader`] has reached the end of the connection,
    /// for at most [`Config::close_timeout`](crate::Config::close_timeout). The reader has to be
    /// reading meanwhile.
    ///
    /// If the reader was dropped, nothing can receive the peer's close frame. The method then only
    /// waits until its own close frame is written, and the transport is closed when the last
    /// `Sender` is dropped.
    ///
    /// # Errors
    /// [`Error::Io`] when the transport fails.
    pub async fn close(&self, code: CloseCode, reason: &str) -> Result<Ending, Error> {
        let deadline = {
            let mut core = self.shared.lock();
            core.start_close(Some(code), reason);
            core.ensure_close_deadline()
        };
        let wakes = &self.shared.wakes;
        wakes.wake_reader();
        let closed = self.wait(|core, cx| {
            let is_ended = wakes.is_ended.load(Ordering::SeqCst);
            let is_reader_dropped = wakes.is_reader_dropped.load(Ordering::SeqCst);
            if is_ended && !is_reader_dropped {
                return Poll::Ready(Ok(core.endpoint.ending()));
            }
            match core.poll_flush_noting_failure(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) if is_reader_dropped => Poll::Ready(Ok(core.endpoint.ending())),
                _ => Poll::Pending,
            }
        });
        match tokio::time::timeout_at(deadline, closed).await {
            Ok(closed) => closed,
            Err(_) => Ok(self.ending()),
        }
    }

    /// Waits until `operation` is ready, and returns its result. Meanwhile, the calling task is
    /// registered with the connection, which wakes all waiting tasks together so that they poll
    /// again. Dropping the future removes the task's waker.
    async fn wait<T>(
        &self,
        mut operation: impl FnMut(&mut Core<S>, &mut Context<'_>) -> Poll<Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut waiting = Waiting { wakes: &self.shared.wakes, key: None };
        poll_fn(|cx| self.poll(&mut waiting, cx, &mut operation)).await
    }

    fn poll<T>(
        &self,
        waiting: &mut Waiting<'_>,
        cx: &mut Context<'_>,
        operation: &mut impl FnMut(&mut Core<S>, &mut Context<'_>) -> Poll<Result<T, Error>>,
    ) -> Poll<Result<T, Error>> {
        let mut core = self.shared.lock();
        let was_above = core.is_above_high_water();
        let mut polled = operation(&mut core, cx);
        if polled.is_pending() {
            waiting.register(cx.waker());
            // The reader may have ended between the first poll and the registration.
            polled = operation(&mut core, cx);
        }
        let is_drained = was_above && !core.is_above_high_water();
        drop(core);
        if is_drained {
            self.shared.wakes.wake_waiting();
        }
        polled
    }
}

/// A [`Sender`] whose operations are polled by traits such as `AsyncWrite`, and not by futures of
/// this crate.
pub(crate) struct PollSender<S> {
    sender: Sender<S>,
    /// The key of the waker of the operation that is pending, if any.
    key: Option<u64>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> PollSender<S> {
    /// Polls an operation, and registers the task's waker while it is pending.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(&mut Core<S>, &mut Context<'_>) -> Poll<Result<T, Error>>,
    ) -> Poll<Result<T, Error>> {
        let mut waiting = Waiting { wakes: &self.sender.shared.wakes, key: self.key.take() };
        let polled = self.sender.poll(&mut waiting, cx, &mut operation);
        if polled.is_pending() {
            self.key = waiting.key.take();
        }
        polled
    }

    /// Waits until the send queue is below its high-water mark.
    #[cfg(feature = "stream")]
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll(cx, Core::poll_ready)
    }

    /// Writes all queued output.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll(cx, Core::poll_flush_noting_failure)
    }

    /// Sends a close frame, unless one was sent before. Ready when it is written.
    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll(cx, |core, cx| {
            core.start_close(Some(CloseCode::NORMAL), "");
            core.poll_flush_noting_failure(cx)
        })
    }

    /// Queues a message that [`Core::poll_ready`] has made space for.
    #[cfg(feature = "stream")]
    pub(crate) fn queue_ready(&mut self, message: &Outgoing<'_>) -> Result<(), Error> {
        let queued = self.sender.shared.lock().queue_ready(&message.frame());
        self.sender.shared.wakes.wake_reader();
        queued
    }
}

impl<S> From<Sender<S>> for PollSender<S> {
    fn from(sender: Sender<S>) -> PollSender<S> {
        PollSender { sender, key: None }
    }
}

impl<S> Drop for PollSender<S> {
    fn drop(&mut self) {
        drop(Waiting { wakes: &self.sender.shared.wakes, key: self.key.take() });
    }
}

impl<S> fmt::Debug for PollSender<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sender.fmt(f)
    }
}

impl<S> Sender<S> {
    /// Returns the number of encoded bytes in the send queue, which the transport has not accepted
    /// yet.
    pub fn pending(&self) -> usize {
        self.shared.lock().pending()
    }

    /// Returns the counters of this connection's messages, frames and bytes.
    pub fn statistics(&self) -> Statistics {
        *self.shared.lock().statistics()
    }

    /// Returns how the connection ended. While it is open, returns how it would end if it broke
    /// now.
    pub fn ending(&self) -> Ending {
        self.shared.lock().endpoint.ending()
    }

    /// Returns the reason in the peer's close frame. It is empty if there was no close frame.
    pub fn close_reason(&self) -> String {
        self.shared.lock().endpoint.close_reason().to_owned()
    }
}

impl<S> Shared<S> {
    /// Locks the connection's core (the state that both halves share). The lock is used even if a
    /// panic has poisoned it, because the send queue still holds only whole frames.
    fn lock(&self) -> MutexGuard<'_, Core<S>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WakeSet {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, Waker)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all tasks that are waiting on the connection now. The list of wakers is not locked
    /// while a waker is called, because a waker may run any code.
    fn wake_waiting(&self) {
        let count = self.lock().len();
        for _ in 0..count {
            let Some((_, waker)) = self.lock().pop_front() else { break };
            waker.wake();
        }
    }

    fn wake_reader(&self) {
        if self.is_reader_waiting.load(Ordering::SeqCst) {
            self.reader.wake();
        }
    }
}

/// The registration of one waiting operation's waker. Dropping it removes the waker.
struct Waiting<'a> {
    wakes: &'a WakeSet,
    key: Option<u64>,
}

impl Waiting<'_> {
    fn register(&mut self, waker: &Waker) {
        let key =
            *self.key.get_or_insert_with(|| self.wakes.next_key.fetch_add(1, Ordering::Relaxed));
        let mut waiting = self.wakes.lock();
        match waiting.iter_mut().find(|(other, _)| *other == key) {
            Some((_, known)) => known.clone_from(waker),
            None => waiting.push_back((key, waker.clone())),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.wakes.lock().retain(|(other, _)| *other != key);
        }
    }
}

impl Wake for WakeSet {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_reader();
        self.wake_waiting();
    }
}

impl<S> Clone for Sender<S> {
    fn clone(&self) -> Sender<S> {
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<S> fmt::Debug for Reader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("inbound", &self.inbound).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for Sender<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}
