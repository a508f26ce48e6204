//! Compressing what is sent.
//!
//! A message of up to [`LONG`] is compressed where it is sent from, in some 0.3 ms at most. A longer one goes to another thread with
//! what compresses it, and what is sent meanwhile waits behind it.

use std::rc::Rc;

use rookery_exchange::{MessageKind, Payload, Share};
use rookery_websocket::protocol::deflate::{Deflater, Fin};
use rookery_websocket::protocol::{OpCode, encode_message};

use super::compression::{DEFLATE_STEP, Deferred};
use super::handle::{WebSocketHandle, opcode_of};
use crate::blocking::blocking_task::BlockingTask;

impl WebSocketHandle {
    /// Whether a message is being compressed elsewhere: what is sent next has to wait for it.
    pub(super) fn is_compressing(&self) -> bool {
        self.compression
            .as_ref()
            .is_some_and(|compression| compression.send_state.borrow().compressing.is_some())
    }

    /// Bytes of messages that wait behind the one that is being compressed, which has a charge of its own.
    pub(super) fn queued_behind(&self) -> usize {
        let busy = self
            .compression
            .as_ref()
            .and_then(|compression| compression.send_state.borrow().compressing);
        self.deferred_bytes.get() - busy.unwrap_or(0)
    }

    /// Puts a message behind the one that is being compressed.
    fn defer_message(&self, kind: MessageKind, payload: Payload) {
        self.deferred_bytes.set(self.deferred_bytes.get() + payload.as_bytes().len());
        self.defer(Deferred::Message(kind, payload));
    }

    /// Closes after the messages that were sent before.
    pub(super) fn defer_close(&self, code: u16, reason: &[u8]) {
        self.defer(Deferred::Close(code, reason.to_vec()));
    }

    fn defer(&self, later: Deferred) {
        if let Some(compression) = &self.compression {
            compression.send_state.borrow_mut().deferred.push_back(later);
        }
    }

    /// Drops what waits behind the message that is being compressed.
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

    /// Queues a message of a WebSocket that compresses, or has it compressed elsewhere first.
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

    /// Has a long message compressed on another thread, with a charge for it that goes along: the WebSocket may end meanwhile. Where
    /// there is no room for it, it is sent as it is.
    fn compress_on_thread(self: &Rc<Self>, opcode: OpCode, payload: Payload) -> Option<Payload> {
        let len = payload.as_bytes().len();
        let charge = self.shared.connections.try_charge(Share::Queues, len);
        let mut endpoint = self.endpoint.borrow_mut();
        let (Some(compression), Some(charge), Ok(())) =
            (&self.compression, charge, endpoint.check_message())
        else {
            return endpoint.send_owned(opcode, payload).ok().flatten();
        };
        let mut deflater = endpoint.take_deflater()?;
        drop(endpoint);
        compression.send_state.borrow_mut().compressing = Some(len);
        self.deferred_bytes.set(self.deferred_bytes.get() + len);
        let job = BlockingTask::start(move || {
            let mut frame = Vec::new();
            encode_message(
                &mut frame,
                opcode,
                Fin::Last,
                None,
                payload.as_bytes(),
                Some(&mut deflater),
            );
            Ok((deflater, frame, payload, charge))
        });
        let handle = Rc::clone(self);
        tokio::task::spawn_local(async move {
            match job.await {
                Ok((deflater, frame, payload, charge)) => {
                    drop(charge);
                    handle.on_compressed(deflater, frame, payload);
                }
                // The thread has panicked: what comes next could not be read.
                Err(_) => handle.abort(),
            }
        });
        None
    }

    /// A message has been compressed: it is queued, and what came after it.
    fn on_compressed(self: &Rc<Self>, deflater: Box<Deflater>, frame: Vec<u8>, payload: Payload) {
        let len = payload.as_bytes().len();
        self.deferred_bytes.set(self.deferred_bytes.get() - len);
        self.shared.dispatch.recycle_payload(payload);
        let mut endpoint = self.endpoint.borrow_mut();
        endpoint.return_deflater(deflater);
        // One that has been closed meanwhile sends nothing any more.
        let is_open = endpoint.send_frame(Payload::Pooled(frame), len).is_ok();
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
