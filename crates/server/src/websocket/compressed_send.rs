//! The compression of outgoing WebSocket messages.
//!
//! A message of up to [`DEFLATE_STEP`] bytes is compressed on the I/O thread, which takes at most
//! about 0.3 ms. A longer message is compressed on another thread, in steps of [`THREAD_STEP`]
//! bytes, between which the thread works for other clients. Each step makes a frame. Messages that
//! are sent during this compression wait until it is complete, so that all messages leave in order.

use std::rc::Rc;

use rookery_exchange::{Charge, MessageKind, Payload, Share};
use rookery_system::blocking;
use rookery_websocket::protocol::deflate::{Deflater, Fin, Takeover};
use rookery_websocket::protocol::{OpCode, encode_message};

use super::compression::{DEFLATE_STEP, Deferred, WINDOW_BYTES};
use super::handle::{WebSocketHandle, opcode_of};

/// The number of bytes of a message that are compressed at once on another thread, which takes
/// about 5 ms.
const THREAD_STEP: usize = 256 << 10;

/// A long outgoing message that is being compressed.
struct Compressing {
    deflater: Box<Deflater>,
    opcode: OpCode,
    payload: Payload,
    /// The number of bytes of the payload that have been compressed.
    done: usize,
    /// The frames with these bytes.
    frames: Vec<u8>,
    /// The charge for the frames, and for the state of the compression.
    charge: Charge,
}

impl Compressing {
    fn is_complete(&self) -> bool {
        self.done == self.payload.as_bytes().len()
    }

    /// Compresses the next [`THREAD_STEP`] bytes of the message.
    fn step(&mut self) {
        let rest = &self.payload.as_bytes()[self.done..];
        let part = &rest[..rest.len().min(THREAD_STEP)];
        let opcode = if self.done == 0 { self.opcode } else { OpCode::Continuation };
        let fin = if part.len() == rest.len() { Fin::Last } else { Fin::More };
        encode_message(&mut self.frames, opcode, fin, None, part, Some(&mut self.deflater));
        self.done += part.len();
    }
}

impl WebSocketHandle {
    /// Returns true while a message of this WebSocket is being compressed on another thread.
    /// Messages that are sent meanwhile are deferred.
    pub(super) fn is_compressing(&self) -> bool {
        self.compression
            .as_ref()
            .is_some_and(|compression| compression.send_state.borrow().compressing.is_some())
    }

    /// Returns how many bytes of outgoing messages wait until an earlier message has been
    /// compressed.
    pub(super) fn queued_behind(&self) -> usize {
        // The earlier message is charged to the memory budget separately.
        let busy = self
            .compression
            .as_ref()
            .and_then(|compression| compression.send_state.borrow().compressing);
        self.deferred_bytes.get() - busy.unwrap_or(0)
    }

    /// Defers an outgoing message until the messages before it have been compressed.
    fn defer_message(&self, kind: MessageKind, payload: Payload) {
        self.deferred_bytes.set(self.deferred_bytes.get() + payload.as_bytes().len());
        self.defer(Deferred::Message(kind, payload));
    }

    /// Defers the closing handshake until all earlier outgoing messages have been compressed.
    pub(super) fn defer_close(&self, code: u16, reason: &[u8]) {
        self.defer(Deferred::Close(code, reason.to_vec()));
    }

    fn defer(&self, later: Deferred) {
        if let Some(compression) = &self.compression {
            compression.send_state.borrow_mut().deferred.push_back(later);
        }
    }

    /// Drops the outgoing messages that wait until an earlier message has been compressed.
    pub(super) fn drop_deferred(&self) {
        if let Some(compression) = &self.compression {
            let dropped = std::mem::take(&mut compression.send_state.borrow_mut().deferred);
            for later in dropped {
                if let Deferred::Message(_, payload) = later {
                    self.deferred_bytes.set(self.deferred_bytes.get() - payload.as_bytes().len());
                    self.shared.dispatch.recycle_payload(payload);
                }
            }
        }
    }

    /// Queues an outgoing message, compressed if that is worthwhile. A long message is compressed
    /// on another thread and queued later.
    pub(super) fn queue_compressed(self: &Rc<Self>, kind: MessageKind, payload: Payload) {
        if self.is_compressing() {
            return self.defer_message(kind, payload);
        }
        let (opcode, len) = (opcode_of(kind), payload.as_bytes().len());
        let mut endpoint = self.endpoint.borrow_mut();
        let is_worth =
            endpoint.deflater().is_some_and(|deflater| deflater.is_worth_compressing(len));
        let copied = if endpoint.check_message().is_err() {
            Some(payload)
        } else if !is_worth {
            endpoint.send_owned(opcode, payload).ok().flatten()
        } else if len <= DEFLATE_STEP {
            endpoint.send(opcode, payload.as_bytes());
            Some(payload)
        } else {
            drop(endpoint);
            self.compress_on_thread(opcode, payload)
        };
        if let Some(payload) = copied {
            self.shared.dispatch.recycle_payload(payload);
        }
    }

    /// Compresses a long outgoing message on another thread and then sends it. If the memory budget
    /// is exhausted, sends the message uncompressed. Returns the payload if it is no longer needed
    /// and may be recycled, and otherwise `None`.
    fn compress_on_thread(self: &Rc<Self>, opcode: OpCode, payload: Payload) -> Option<Payload> {
        let len = payload.as_bytes().len();
        // A window that is kept is charged anyway.
        let is_kept = |it: &Deflater| it.takeover() == Takeover::Kept;
        let has_window = self.endpoint.borrow_mut().deflater().is_some_and(is_kept);
        let window = if has_window { 0 } else { WINDOW_BYTES };
        let charge = self.shared.connections.try_charge(self.peer, Share::Outgoing, len + window);
        let mut endpoint = self.endpoint.borrow_mut();
        let (Some(compression), Some(charge), Ok(())) =
            (&self.compression, charge, endpoint.check_message())
        else {
            return endpoint.send_owned(opcode, payload).ok().flatten();
        };
        let deflater = endpoint.take_deflater()?;
        drop(endpoint);
        compression.send_state.borrow_mut().compressing = Some(len);
        self.deferred_bytes.set(self.deferred_bytes.get() + len);
        let frames = Vec::new();
        let mut message = Compressing { deflater, opcode, payload, done: 0, frames, charge };
        let handle = Rc::clone(self);
        tokio::task::spawn_local(async move {
            while !message.is_complete() && handle.endpoint.borrow().check_message().is_ok() {
                let step = move || {
                    message.step();
                    Ok(message)
                };
                match blocking::start_for(handle.peer, step).await {
                    Ok(compressed) => message = compressed,
                    // The thread has panicked. Without its compression state the client could not
                    // decompress later messages.
                    Err(_) => return handle.abort(),
                }
            }
            handle.on_compressed(message);
        });
        None
    }

    /// Queues a message that was compressed on another thread, and then the messages that were
    /// deferred meanwhile.
    fn on_compressed(self: &Rc<Self>, message: Compressing) {
        let Compressing { deflater, frames, payload, charge, .. } = message;
        // Before a message behind this one needs one.
        drop(charge);
        let len = payload.as_bytes().len();
        self.deferred_bytes.set(self.deferred_bytes.get() - len);
        self.shared.dispatch.recycle_payload(payload);
        let mut endpoint = self.endpoint.borrow_mut();
        endpoint.return_deflater(deflater);
        // A WebSocket that was closed meanwhile sends no messages any more.
        let is_open = endpoint.send_frame(Payload::Pooled(frames), len).is_ok();
        drop(endpoint);
        let Some(compression) = &self.compression else { return };
        compression.send_state.borrow_mut().compressing = None;
        if !is_open {
            self.drop_deferred();
        }
        loop {
            if self.is_compressing() {
                break;
            }
            let next = compression.send_state.borrow_mut().deferred.pop_front();
            match next {
                Some(Deferred::Message(kind, payload)) => {
                    self.deferred_bytes.set(self.deferred_bytes.get() - payload.as_bytes().len());
                    self.queue_compressed(kind, payload);
                }
                Some(Deferred::Close(code, reason)) => self.close(code, &reason),
                None => break,
            }
        }
        self.check_send_queue();
        self.wake();
    }
}
