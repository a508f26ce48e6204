//! The task that drives a WebSocket from the accepted handshake to its end.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rookery_exchange::{Event, MessageKind, Payload, Share, WebSocketId};
use rookery_websocket::endpoint::{Endpoint, IoAction, Received, Rules};
use rookery_websocket::protocol::{CloseCode, DecodedPayload, Decoder, DecoderLimits, Role};

use super::endpoint_config::ServerAdapter;
use super::handle::{WebSocketHandle, WebSocketState};
use super::registry::WebSocketRegistry;
use crate::connections::admission::{UNCHARGED_BYTES, WEBSOCKET_BYTES, WEBSOCKET_TLS_BYTES};
use crate::connections::client_task;
use crate::connections::table::Slot;
use crate::net::transport::Transport;

/// The maximum number of buffers that are passed to one vectored write of a WebSocket.
const MAX_SLICES: usize = 16;

/// The maximum number of bytes that are read from a WebSocket in one poll of its task. Then other
/// connections are served.
// They are at most 11,000 pongs, which take about 0.3 ms.
const MAX_READ_PER_POLL: usize = 64 << 10;

/// The maximum number of bytes that are read in one poll from a WebSocket with compression.
// Blocks that decompress to nothing take up to 0.1 us for each byte, for the tables of the block.
const MAX_COMPRESSED_READ: usize = 8 << 10;

/// The maximum number of reads from a WebSocket in one poll of its task. Over TLS, a read returns
/// at most one record.
const READS_PER_POLL: usize = 4;

/// The parts of an HTTP connection that are passed on when it becomes a WebSocket.
pub(crate) struct Upgraded {
    pub(crate) transport: Transport,
    /// The connection's place in the connection table.
    pub(crate) slot: Slot,
    /// The bytes that the client sent after its handshake and that the HTTP connection has already
    /// read.
    pub(crate) read: Bytes,
    /// True if the connection was already about to be closed when it became a WebSocket.
    pub(crate) is_ending: bool,
}

/// The number by which the maximum size of a message in bytes is divided to get the maximum number
/// of its frames. The limit stops messages with any number of empty frames. In the Autobahn test
/// suite, frames have at least this size.
const FRAGMENT_BYTES: u64 = 64;

/// Returns the maximum number of frames in a message, given the maximum size of a message in bytes.
fn max_fragments(message_bytes: u64) -> u32 {
    let max = u32::try_from(message_bytes / FRAGMENT_BYTES).unwrap_or(u32::MAX);
    max.max(DecoderLimits::default().fragments)
}

/// Starts the task of an open WebSocket. The much larger task of the HTTP connection can then end,
/// which frees its memory.
pub(crate) fn spawn(registry: &Rc<WebSocketRegistry>, id: WebSocketId, upgraded: Upgraded) {
    let handle = registry
        .get(id)
        .expect("a WebSocket is registered when it is accepted, and removed only by its task");
    let Upgraded { transport, slot, read, is_ending } = upgraded;
    let bytes = if transport.is_encrypted() { WEBSOCKET_TLS_BYTES } else { WEBSOCKET_BYTES };
    handle.connection_charge.set(bytes);
    handle.transport.replace(Some(transport));
    slot.replace(Rc::clone(&handle) as _);
    if is_ending {
        // The listener is stopping, and has already closed the WebSockets that were registered
        // before.
        handle.close(CloseCode::GOING_AWAY.get(), b"");
    }
    let message = registry.shared.connections.limits().ws_max_message_size;
    let limits = DecoderLimits::new().message(message).fragments(max_fragments(message));
    let decoder = match &handle.compression {
        Some(compression) => compression.decoder(limits),
        None => Decoder::new(Role::Server, limits),
    };
    let mut driver = Driver {
        decoder,
        registry: Rc::clone(registry),
        handle,
        read: read.to_vec(),
        consumed: 0,
        is_close_reported: false,
        _slot: slot,
    };
    let network = driver.handle.peer.network();
    client_task::spawn(Some(network), async move {
        poll_fn(|cx| driver.poll(cx)).await;
        driver.report_closed();
        if driver.io_action() != IoAction::Over {
            driver.with_transport(Transport::shut_down);
        }
    });
}

/// The task of one WebSocket, which reads and writes its messages. It holds no buffer while the
/// WebSocket is idle.
struct Driver {
    registry: Rc<WebSocketRegistry>,
    handle: Rc<WebSocketHandle>,
    decoder: Decoder,
    /// Bytes from the client that were read and not decoded yet. They arrived together with the
    /// handshake, or behind a message that is being decompressed.
    read: Vec<u8>,
    /// The number of bytes at the start of `read` that have already been decoded.
    consumed: usize,
    /// True if the application has already been notified that the WebSocket is closed.
    is_close_reported: bool,
    _slot: Slot,
}

impl Drop for Driver {
    /// Ends the WebSocket, even if its task panics or is dropped with the thread.
    fn drop(&mut self) {
        self.report_closed();
        self.handle.end();
        self.registry.remove(self.handle.id);
    }
}

impl Driver {
    fn with_transport<R>(&self, use_it: impl FnOnce(&mut Transport) -> R) -> R {
        use_it(
            self.handle
                .transport
                .borrow_mut()
                .as_mut()
                .expect("the transport belongs to the task until the task ends"),
        )
    }

    fn io_action(&self) -> IoAction {
        self.handle.endpoint.borrow().io_action()
    }

    /// Reads and writes messages until the WebSocket is closed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut waker = self.handle.waker.borrow_mut();
            if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        if self.handle.is_evicted.take() {
            self.drop_message();
        }
        if self.io_action() != IoAction::Reset {
            let read = self.poll_read(cx);
            self.registry.wake_next_after(&self.handle);
            if read.is_err() {
                return Poll::Ready(());
            }
            let written = self.poll_write(cx);
            if self.handle.ends_after_write.get() {
                if !matches!(written, Poll::Ready(Ok(()))) {
                    self.with_transport(Transport::reset_on_close);
                }
                return Poll::Ready(());
            }
            if ready!(written).is_err() {
                return Poll::Ready(());
            }
        }
        loop {
            match self.io_action() {
                IoAction::Serve | IoAction::Drain { .. } => return Poll::Pending,
                IoAction::Flush => self.handle.endpoint.borrow_mut().on_flushed(),
                IoAction::ShutDown => {
                    self.with_transport(Transport::shut_down);
                    self.handle.endpoint.borrow_mut().on_shut_down();
                }
                IoAction::Over => return Poll::Ready(()),
                IoAction::Reset => {
                    self.with_transport(Transport::reset_on_close);
                    return Poll::Ready(());
                }
            }
        }
    }

    /// Reads and decodes messages from the client, as long as the application has capacity for
    /// them.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let registry = Rc::clone(&self.registry);
        let is_compressed = self.handle.compression.is_some();
        let mut left = if is_compressed { MAX_COMPRESSED_READ } else { MAX_READ_PER_POLL };
        for _ in 0..READS_PER_POLL {
            if !self.handle.endpoint.borrow().wants_input() {
                // The endpoint ignores further input.
                if self.has_undecoded() {
                    self.decoder = Decoder::new(Role::Server, DecoderLimits::default());
                    self.read = Vec::new();
                }
                return Ok(());
            }
            let has_capacity = self.handle.has_capacity();
            let is_throttled = self.handle.update_throttled();
            if !has_capacity || (is_throttled && self.decoder.is_idle()) {
                // The rest of the message is not read, so the client cannot be too slow to send it.
                self.handle.is_mid_message.set(false);
                self.handle.is_read_paused.set(true);
                if !has_capacity {
                    registry.wake_on_capacity(&self.handle);
                }
                self.charge_unread(cx);
                self.handle.charge_tls_input();
                self.handle.on_read_paused(registry.shared.connections.clock.now());
                return Ok(());
            }
            self.handle.is_read_paused.set(false);
            self.handle.half_closed_at.set(None);
            if self.has_undecoded() {
                self.decode_rest();
                if self.decoder.is_stalled() {
                    // Lets other connections run before the next step of decompression.
                    break;
                }
                continue;
            }
            let mut scratch = registry.shared.scratch.0.borrow_mut();
            // A message that has begun is read to its end, but not beyond. Otherwise a client that
            // reads only after it has written a whole message would wait forever.
            let max = if is_throttled { self.decoder.missing() } else { u64::MAX };
            let max = usize::try_from(max).map_or(left, |max| max.min(left)).min(scratch.len());
            match self.with_transport(|transport| transport.poll_read(cx, &mut scratch[..max])) {
                Poll::Pending => {
                    self.handle.charge_tls_input();
                    return Ok(());
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(0)) => self.handle.endpoint.borrow_mut().on_read_closed(),
                Poll::Ready(Ok(n)) => {
                    let undecoded = self.decode(&mut scratch[..n]);
                    if undecoded > 0 || self.decoder.is_stalled() {
                        self.read = scratch[n - undecoded..n].to_vec();
                        self.consumed = 0;
                    }
                    self.on_decoded(n);
                    if self.decoder.is_stalled() {
                        break;
                    }
                    left -= n;
                    if left == 0 {
                        break;
                    }
                }
            }
        }
        client_task::yield_now(cx);
        Ok(())
    }

    /// Charges the memory budget for bytes from the client that have arrived but have not been
    /// read. Only WebSockets over HTTP/2 buffer such bytes in this process.
    fn charge_unread(&mut self, cx: &mut Context<'_>) {
        if self.handle.state() == WebSocketState::Open {
            let unread = self.with_transport(|transport| transport.buffer_unread(cx));
            if unread > 0 && !self.handle.charge_message(self.buffered() + unread) {
                self.handle.is_evicted.set(false);
                self.drop_message();
            }
        }
    }

    /// Returns true if bytes from the client were read but not decoded.
    fn has_undecoded(&self) -> bool {
        !self.read.is_empty() || self.decoder.is_stalled()
    }

    /// Returns the number of bytes in the buffers of this task.
    fn buffered(&self) -> usize {
        self.decoder.capacity() + self.read.capacity()
    }

    /// Decodes bytes from the client that were read earlier but not decoded.
    fn decode_rest(&mut self) {
        let mut read = std::mem::take(&mut self.read);
        let left = self.decode(&mut read[self.consumed..]);
        self.consumed = read.len() - left;
        if left > 0 || self.decoder.is_stalled() {
            self.read = read;
        }
        self.on_decoded(0);
    }

    /// Updates the deadlines and the memory charge of the WebSocket after `n` bytes were read and
    /// decoded.
    fn on_decoded(&mut self, n: usize) {
        // During decompression the server is not waiting for the client.
        self.handle.on_read(n, !self.decoder.is_idle() && !self.decoder.is_stalled());
        if !self.handle.charge_message(self.buffered()) {
            self.handle.is_evicted.set(false);
            self.drop_message();
        }
    }

    /// Drops the incoming message that is not complete yet, because the memory budget is exhausted.
    /// The rest of the message is discarded when it arrives.
    fn drop_message(&mut self) {
        self.decoder = Decoder::new(Role::Server, DecoderLimits::default());
        self.read = Vec::new();
        self.with_transport(Transport::discard_unread);
        let shared = &self.handle.shared;
        let mut endpoint = self.handle.endpoint.borrow_mut();
        // The close frame was queued by `WebSocketHandle::close_for_overload`.
        endpoint.fail(CloseCode::TRY_AGAIN_LATER, "", &shared.rules, || shared.now());
        drop(endpoint);
        self.handle.on_message_dropped();
        self.report_closed();
    }

    /// Writes queued frames to the client.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (handle, shared) = (&self.handle, &self.registry.shared);
        let mut written = 0;
        let mut endpoint = handle.endpoint.borrow_mut();
        let flushed = self.with_transport(|transport| {
            poll_flush(&mut endpoint, &shared.rules, transport, cx, &mut written)
        });
        drop(endpoint);
        if handle.on_written(written) {
            handle.half_closed_at.set(None);
        }
        // Over TLS, all bytes that leave now may have been accepted by an earlier write.
        if written > 0 || flushed.is_ready() || !handle.is_write_blocked.get() {
            if !handle.is_write_blocked.replace(flushed.is_pending()) {
                handle.read_rate.start();
            }
            handle.read_rate.count(written);
            if written > 0 || handle.state() == WebSocketState::Open {
                handle.on_write_progress(shared.now());
            }
        }
        if handle.update_released() {
            cx.waker().wake_by_ref();
        }
        if flushed.is_pending() {
            handle.charge_blocked();
        }
        if flushed.is_pending() || handle.deferred_bytes.get() > 0 {
            handle
                .backlog
                .on_written(handle.endpoint.borrow().pending() + handle.deferred_bytes.get());
        }
        ready!(flushed)?;
        if handle.deferred_bytes.get() > 0 {
            return Poll::Ready(Ok(()));
        }
        handle.queue_charge.set(0);
        if handle.backlog.take_drained() && !self.is_close_reported {
            let drained = Event::Drained { socket: handle.id, listener: handle.listener };
            shared.dispatch.notify(handle.peer, drained);
        }
        Poll::Ready(Ok(()))
    }

    /// Notifies the application, once, that the WebSocket is closed. This happens as soon as no
    /// more messages can be exchanged, which may be before the closing handshake is complete.
    fn report_closed(&mut self) {
        if !std::mem::replace(&mut self.is_close_reported, true) {
            let (socket, listener) = (self.handle.id, self.handle.listener);
            let endpoint = self.handle.endpoint.borrow();
            let (code, is_clean) = (endpoint.ending().number(), endpoint.ending().is_clean);
            let reason = if is_clean { endpoint.close_reason().into() } else { Box::default() };
            drop(endpoint);
            self.handle.backlog.end();
            if let Some(record) = &self.handle.record {
                record.end(code);
            }
            let closed = Event::Closed { socket, listener, code, reason, is_clean };
            self.registry.shared.dispatch.notify(self.handle.peer, closed);
        }
    }

    /// Decodes bytes from the client, and passes complete messages to the application. Returns the
    /// number of bytes that are left because the decoder has to pause, or because the application
    /// has no capacity for another message.
    fn decode(&mut self, mut input: &mut [u8]) -> usize {
        let shared = Rc::clone(&self.handle.shared);
        if self.handle.compression.is_some() && self.decoder.is_idle() {
            self.decoder.lend(shared.dispatch.application.take_buffer());
        }
        let left = loop {
            let mut endpoint = self.handle.endpoint.borrow_mut();
            endpoint.on_input(input.len());
            let was_open = endpoint.may_send();
            let (n, received) =
                endpoint.receive(&mut self.decoder, input, &shared.rules, || shared.now());
            drop(endpoint);
            let is_message = matches!(received, Received::Text(_) | Received::Binary(_));
            match received {
                Received::Text(payload) => {
                    deliver_message(&self.handle, MessageKind::Text, payload);
                }
                Received::Binary(payload) => {
                    deliver_message(&self.handle, MessageKind::Binary, payload);
                }
                Received::Closed | Received::Failed(_) => {
                    if was_open {
                        self.handle.read_rate.start();
                    }
                    self.report_closed();
                }
                Received::Nothing => {}
            }
            input = &mut input[n..];
            if self.decoder.is_stalled() {
                return input.len();
            }
            // The caller has checked the capacity for the first message.
            if input.is_empty() || (is_message && !self.handle.has_capacity()) {
                break input.len();
            }
        };
        if self.handle.compression.is_some() {
            if let Some(buffer) = self.decoder.release() {
                shared.dispatch.application.recycle_buffer(buffer);
            }
        }
        left
    }
}

/// Writes all queued frames to the client, and adds the number of written bytes to `written`.
fn poll_flush(
    endpoint: &mut Endpoint<ServerAdapter>,
    rules: &Rules<u32>,
    transport: &mut Transport,
    cx: &mut Context<'_>,
    written: &mut usize,
) -> Poll<io::Result<()>> {
    while endpoint.has_output() {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let count = endpoint.output(rules).slices(&mut slices);
        let n = ready!(transport.poll_write_vectored(cx, &slices[..count]))?;
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        *written += n;
        if endpoint.on_written(n) {
            break;
        }
    }
    ready!(transport.poll_flush(cx))?;
    endpoint.release();
    Poll::Ready(Ok(()))
}

fn deliver_message(handle: &WebSocketHandle, kind: MessageKind, payload: DecodedPayload<'_>) {
    let payload = match payload {
        DecodedPayload::Fed(bytes) => {
            let mut buffer = handle.shared.dispatch.application.take_buffer();
            buffer.extend_from_slice(bytes);
            buffer
        }
        DecodedPayload::Assembled(buffer) => std::mem::take(buffer),
    };
    if let Some(record) = &handle.record {
        record.on_received(payload.len());
    }
    // What is larger was charged while it was received.
    let payload = if payload.len() <= UNCHARGED_BYTES {
        Payload::Pooled(payload)
    } else {
        let charge = handle.shared.connections.charge(Share::Incoming, payload.capacity());
        Payload::Charged(payload, charge)
    };
    let message = Event::Message { socket: handle.id, listener: handle.listener, kind, payload };
    handle.shared.dispatch.notify(handle.peer, message);
}
