//! The task of a WebSocket, from the accepted handshake to its end.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use rookery_exchange::{Charge, Event, MessageKind, Payload, SocketId};
use rookery_websocket::protocol::{
    CloseCode, Decoder, Event as Frame, Limits, OpCode, Payload as FramePayload, Role, encode_control,
};

use super::mailbox::{Mailbox, NO_STATUS, State};
use super::sockets::WebSockets;
use crate::net::transport::Transport;
use crate::peers::room::FREE;
use crate::peers::table::Place;

/// Bytes waiting past which pongs wait as well, the newest replacing the one before (RFC 6455, 5.5.3): a peer that
/// pings and does not read must not fill memory, and a queue this short is charged with the connection.
const PONG_WATER: usize = FREE;

/// Reads in a row before the other connections have their turn.
const READS: usize = 4;

/// The close code that stands for a connection that broke (RFC 6455, 7.4.1).
const ABNORMAL: u16 = 1006;

/// What a connection that has become a WebSocket leaves to it.
pub(crate) struct Upgraded {
    pub(crate) transport: Transport,
    /// Its place among the peers.
    pub(crate) place: Place,
    /// What every connection is charged.
    pub(crate) charge: Charge,
    /// What came behind the handshake.
    pub(crate) read: Bytes,
    /// Whether the connection has been told to end.
    pub(crate) is_ending: bool,
}

/// Starts an open WebSocket on what its connection has left. In a task of its own: the one that held hyper is large, and a
/// WebSocket lives long. Whatever could wake that one would keep its memory; with the connection its wakers go.
pub(crate) fn spawn(sockets: &Rc<WebSockets>, id: SocketId, upgraded: Upgraded) {
    let mailbox = sockets.get(id).expect("opened when it was accepted, closed only by its task");
    let Upgraded { transport, place, charge, read, is_ending } = upgraded;
    mailbox.transport.replace(Some(transport));
    place.give(Rc::clone(&mailbox) as _);
    if is_ending {
        // Its listener is stopping: the WebSockets it had have been told already.
        mailbox.close(CloseCode::GOING_AWAY.get(), b"");
    }
    let limits = Limits { message: sockets.shared.peers.limits.message_bytes, ..Limits::default() };
    let mut driver = Driver {
        decoder: Decoder::new(Role::Server, limits),
        sockets: Rc::clone(sockets),
        mailbox,
        read: read.to_vec(),
        pong: None,
        code: None,
        discards: false,
        is_told: false,
        is_read_closed: false,
        _place: place,
        _charge: charge,
    };
    tokio::task::spawn_local(async move {
        let code = poll_fn(|cx| driver.poll(cx)).await;
        driver.tell_closed(code);
        driver.with_transport(|transport| transport.shut_down());
    });
}

/// The task of one WebSocket. Idle, it holds no buffer.
struct Driver {
    sockets: Rc<WebSockets>,
    mailbox: Rc<Mailbox>,
    decoder: Decoder,
    /// What came in the same segments as the handshake.
    read: Vec<u8>,
    /// The pong that waits for the peer to read.
    pong: Option<Vec<u8>>,
    /// The close code of the peer.
    code: Option<u16>,
    /// Whether what the peer sends no longer counts.
    discards: bool,
    /// Whether the application has been told that it has ended.
    is_told: bool,
    is_read_closed: bool,
    _place: Place,
    _charge: Charge,
}

impl Drop for Driver {
    /// Also when its task panics, or ends with the thread.
    fn drop(&mut self) {
        self.tell_closed(ABNORMAL);
        self.mailbox.end();
        self.sockets.forget(self.mailbox.id);
    }
}

impl Driver {
    fn with_transport<R>(&self, use_it: impl FnOnce(&mut Transport) -> R) -> R {
        use_it(self.mailbox.transport.borrow_mut().as_mut().expect("the task's until it ends"))
    }

    /// Drives reading and writing; ready with the code of the close.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<u16> {
        {
            let mut waker = self.mailbox.waker.borrow_mut();
            if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        if self.mailbox.is_evicted.take() {
            self.drop_message();
        }
        loop {
            if self.mailbox.state.get() == State::Over {
                self.with_transport(|transport| transport.reset_on_close());
                return Poll::Ready(self.code.unwrap_or(ABNORMAL));
            }
            if self.poll_read(cx).is_err() {
                return Poll::Ready(self.code.unwrap_or(ABNORMAL));
            }
            match self.poll_write(cx) {
                Poll::Ready(Ok(again)) if again => {}
                Poll::Ready(Ok(_)) => break,
                Poll::Ready(Err(_)) => return Poll::Ready(self.code.unwrap_or(ABNORMAL)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let is_closed = self.mailbox.state.get() == State::Closing && self.code.is_some() && !self.discards;
        if is_closed || self.is_read_closed {
            return Poll::Ready(self.code.unwrap_or(ABNORMAL));
        }
        if self.discards {
            // All that was to be said has been written.
            self.with_transport(|transport| transport.shut_down());
        }
        Poll::Pending
    }

    /// Reads what there is, as far as the application has room for it.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> std::io::Result<()> {
        let sockets = Rc::clone(&self.sockets);
        if !self.read.is_empty() {
            let mut read = std::mem::take(&mut self.read);
            self.take(&mut read);
            self.mailbox.has_read(read.len(), !self.decoder.is_idle());
        }
        for _ in 0..READS {
            if self.is_read_closed || (self.code.is_some() && !self.discards) {
                return Ok(());
            }
            if !sockets.shared.dispatch.application.has_room() {
                // The rest is not read, so it cannot be late.
                self.mailbox.is_inside.set(false);
                sockets.await_room(&self.mailbox);
                return Ok(());
            }
            let mut scratch = sockets.shared.scratch.0.borrow_mut();
            match self.with_transport(|transport| transport.poll_read(cx, &mut scratch)) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(0)) => self.is_read_closed = true,
                Poll::Ready(Ok(n)) => {
                    self.take(&mut scratch[..n]);
                    self.mailbox.has_read(n, !self.decoder.is_idle());
                    if !self.mailbox.hold_message(self.decoder.capacity()) {
                        self.mailbox.is_evicted.set(false);
                        self.drop_message();
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// There was no room for the message: what comes of it does not count any more.
    fn drop_message(&mut self) {
        self.decoder = Decoder::new(Role::Server, Limits::default());
        self.discards = true;
        self.mailbox.has_dropped();
        self.tell_closed(ABNORMAL);
    }

    /// Writes what waits. Ready with whether writing brought up more to write.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<bool>> {
        let (mailbox, shared) = (&self.mailbox, &self.sockets.shared);
        let mut out = mailbox.out.borrow_mut();
        let before = out.len();
        let flushed = self.with_transport(|transport| out.poll_flush(&shared.buffers, transport, cx));
        if out.len() != before || !mailbox.is_blocked.get() {
            if !mailbox.is_blocked.replace(flushed.is_pending()) {
                mailbox.reading.start();
            }
            mailbox.reading.count(before.saturating_sub(out.len()));
            if out.len() != before || mailbox.state.get() == State::Open {
                mailbox.since.set(shared.now());
            }
        }
        std::task::ready!(flushed)?;
        mailbox.queue.set(0);
        if mailbox.was_high.replace(false) && !self.is_told {
            shared.dispatch.tell(Event::Drained { socket: mailbox.id, listener: mailbox.listener });
        }
        Poll::Ready(Ok(match self.pong.take() {
            Some(payload) if mailbox.state.get() == State::Open => {
                out.push_with(&shared.buffers, |out| encode_control(out, OpCode::Pong, None, &payload));
                true
            }
            _ => false,
        }))
    }

    /// Tells the application, once, that the WebSocket has ended.
    fn tell_closed(&mut self, code: u16) {
        if !std::mem::replace(&mut self.is_told, true) {
            let (socket, listener) = (self.mailbox.id, self.mailbox.listener);
            self.sockets.shared.dispatch.tell(Event::Closed { socket, listener, code });
        }
    }

    /// Decodes what was read.
    fn take(&mut self, mut input: &mut [u8]) {
        while !input.is_empty() && !self.discards && self.code.is_none() {
            let (n, frame) = match self.decoder.decode(input) {
                Ok(decoded) => decoded,
                Err(violation) => {
                    self.mailbox.say_goodbye(Some(violation.close_code()), &violation.to_string());
                    self.discards = true;
                    self.tell_closed(ABNORMAL);
                    return;
                }
            };
            match frame {
                Some(Frame::Text(payload)) => {
                    tell(&self.mailbox, MessageKind::Text, payload);
                }
                Some(Frame::Binary(payload)) => {
                    tell(&self.mailbox, MessageKind::Binary, payload);
                }
                Some(Frame::Ping(payload)) if self.mailbox.state.get() == State::Open => {
                    let mut out = self.mailbox.out.borrow_mut();
                    if out.len() > PONG_WATER {
                        self.pong = Some(payload.to_vec());
                    } else {
                        let pong = |out: &mut Vec<u8>| encode_control(out, OpCode::Pong, None, payload);
                        out.push_with(&self.sockets.shared.buffers, pong);
                    }
                }
                Some(Frame::Close(close)) => {
                    let code = close.code.map_or(NO_STATUS, CloseCode::get);
                    self.code = Some(code);
                    self.mailbox.say_goodbye(close.code, "");
                    // Now, and not when the answer has been written: the application's end is not the transport's.
                    self.tell_closed(code);
                }
                Some(Frame::Ping(_) | Frame::Pong(_)) | None => {}
            }
            input = &mut input[n..];
        }
    }
}

fn tell(mailbox: &Mailbox, kind: MessageKind, payload: FramePayload<'_>) {
    let payload = match payload {
        FramePayload::Fed(bytes) => {
            let mut buffer = mailbox.shared.dispatch.application.buffer();
            buffer.extend_from_slice(bytes);
            buffer
        }
        FramePayload::Assembled(buffer) => std::mem::take(buffer),
    };
    mailbox.shared.dispatch.tell(Event::Message {
        socket: mailbox.id,
        listener: mailbox.listener,
        kind,
        payload: Payload::Pooled(payload),
    });
}
