//! An HTTP connection as an entry of the connection table. The sweep (the periodic check of all
//! connections) uses this interface to enforce timeouts.

use rookery_exchange::{ListenerId, Peer, Share, StreamEnd};

use super::{CloseState, HttpConnection, WaitAborted};
use crate::connections::eviction::cost::EvictionCost;
use crate::connections::table::TableEntry;
use crate::http::connection::activity::Phase;
use crate::http::http2::connection_state::{FlushListener, Http2State};

/// The number of clock ticks after which an idle connection frees its buffers. If it freed them
/// immediately, a busy connection would have to allocate them again for each request.
const PARK_TICKS: u32 = 2;

/// The number of bytes above which the buffers of an HTTP/2 connection make it evictable although
/// it has streams. Only a client that does not empty its header table or sends long trailers on
/// several streams gets so far, and it could fill the share with few connections.
const MAX_BUFFERS_WITH_STREAMS: usize = 1 << 20;

impl TableEntry for HttpConnection {
    fn listener(&self) -> ListenerId {
        self.listener
    }

    fn serial(&self) -> u64 {
        self.serial
    }

    fn peer(&self) -> Peer {
        self.peer_of_request()
    }

    fn sweep(&self, now: u32) {
        if let Some(state) = self.own_http2_state() {
            return self.sweep_http2(state, now);
        }
        if self.activity.phase() == Phase::Stream {
            if self.has_unread_fin() {
                self.is_half_closed.set(true);
                self.wake();
            }
            if let Some(stream) = self.response_stream() {
                stream.send_heartbeat_if_due(now);
            }
        }
        if self.is_awaiting_response()
            && self.is_half_closed.get()
            && !self.is_disconnected.get()
            && self.transport.borrow().is_hung_up()
        {
            self.is_disconnected.set(true);
            self.wake();
        }
        let may_have_shut = self.is_half_closed.get() || !self.is_watched.get();
        if may_have_shut
            && self.is_awaiting_response()
            && !self.is_http2_stream
            && self.shared.dispatch.application.drops_half_closed()
        {
            // The request may be queued again because its worker ended, or an unread FIN may follow
            // the next request. No event reports either.
            self.wake();
        }
        if self.activity.has_request_timed_out(&self.shared.connections.clock.ticks(), now)
            && self.wait_end.replace(Some(WaitAborted::TimedOut)).is_none()
        {
            self.wake();
        }
        if self.http2_state.get().is_some_and(|state| state.is_blocked()) {
            // The write is blocked by another stream of the connection, not by this stream's
            // client.
            self.activity.restart_write_deadline(now);
        }
        let unsent = || self.transport.borrow().unsent();
        if self.activity.check_deadlines(&self.shared.connections.clock.ticks(), now, unsent) {
            self.time_out();
        } else if self.activity.is_idle_for(PARK_TICKS, now) && !self.is_parked.replace(true) {
            self.wake();
        }
    }

    fn slowness(&self, now: u32) -> Option<u32> {
        if self.is_ending() {
            return None;
        }
        match self.own_http2_state().filter(|state| state.has_streams()) {
            // Only the streams of a proxy's clients are evicted, and not the proxy's connection.
            Some(_) if self.is_shared_by_clients() => None,
            Some(state) => state.slowness(now),
            None => self.activity.slowness(&self.shared.connections.clock.ticks(), now),
        }
    }

    fn eviction_cost(&self) -> Option<EvictionCost> {
        if self.close_state.get().is_immediate() {
            return None;
        }
        match self.own_http2_state().filter(|state| state.has_streams()) {
            Some(_) if self.is_shared_by_clients() => None,
            Some(state) => Some(state.eviction_cost()),
            None => Some(self.activity.eviction_cost(self.is_request_waiting())),
        }
    }

    fn charged(&self, share: Share) -> usize {
        let streamed = self.response_stream.borrow().as_ref().map_or(0, |stream| stream.held());
        let bodies = self.own_http2_state().map_or(0, Http2State::charged_for_bodies);
        match share {
            _ if self.is_releasing() => 0,
            Share::Connections => self.charge.bytes(),
            Share::Incoming => self.activity.charged(share) + bodies + self.body_window.get(),
            Share::Outgoing => self.activity.charged(share) + streamed,
            Share::Descriptors => self.activity.charged(share),
        }
    }

    fn held(&self, share: Share) -> usize {
        match &*self.response_stream.borrow() {
            _ if self.is_releasing() => 0,
            _ if share == Share::Connections && self.is_stream_of_client() => self.charge.bytes(),
            _ if share == Share::Connections && self.has_excessive_buffers() => self.charge.bytes(),
            // Memory of streams is freed by evicting the streams.
            _ if self.own_http2_state().is_some_and(Http2State::has_streams) => 0,
            _ if share == Share::Descriptors && self.is_request_waiting() => {
                self.activity.request_files.get()
            }
            Some(stream) if share == Share::Outgoing => stream.held(),
            _ if share != Share::Outgoing && self.is_request_waiting() => self.charged(share),
            _ if share == Share::Incoming && self.activity.phase() == Phase::Body => {
                self.activity.held(share, self.charge.bytes()) + self.body_window.get()
            }
            _ => self.activity.held(share, self.charge.bytes()),
        }
    }

    fn evict_for_memory(&self, share: Share, held: usize) {
        let away = if share == Share::Incoming { self.activity.background_bytes.get() } else { 0 };
        let pending_release = held.saturating_sub(away);
        self.shared.connections.add_pending_release(share, pending_release);
        self.pending_release.set(Some((share, pending_release)));
        if share == Share::Descriptors {
            self.set_open_files(&self.activity.request_files, 0);
        }
        if matches!(share, Share::Incoming | Share::Descriptors)
            && self.activity.phase() == Phase::Application
        {
            // Only the request holds these bytes or the descriptor. The connection, which may be
            // that of a proxy, stays open after the error response.
            self.wait_end.set(Some(WaitAborted::Evicted));
            self.wake();
        } else {
            self.set_open_files(&self.activity.response_files, 0);
            self.close_for_overload();
        }
    }

    fn admit_response(&self, bytes: usize) -> bool {
        let held = &self.activity.response_bytes;
        let is_admitted =
            self.shared.connections.admit(self.peer(), Share::Outgoing, held.get(), bytes);
        if is_admitted {
            held.set(held.get() + bytes);
        }
        is_admitted
    }

    fn charge_trailers(&self, bytes: usize) {
        self.charge_stream_trailers(bytes);
    }

    fn evict_for_slot(&self) {
        self.may_linger.set(false);
        if let Some(state) = self.own_http2_state() {
            state.evict_streams();
        }
        if self.activity.phase() == Phase::Head {
            self.time_out();
        } else {
            self.close_with(CloseState::Evicted);
        }
    }

    fn stop(&self) {
        let phase = self.activity.phase();
        // A request whose body is still arriving is served, because its client may be unable to
        // send it again. Over HTTP/2, all streams that have begun are served, and the client is
        // notified that no others will be.
        let has_begun = !matches!(phase, Phase::Handshake | Phase::Idle | Phase::Head);
        let owes = self.http2_state.get().is_some() || has_begun;
        if phase == Phase::Idle && owes {
            // The close timeout counts from now.
            self.enter(Phase::Idle);
        }
        self.begin_close(if owes { CloseState::AfterResponse } else { CloseState::Now });
        if let Some(stream) = self.response_stream() {
            stream.stop();
        }
    }

    fn abort(&self) {
        self.set_end_reason(StreamEnd::Stop);
        self.may_linger.set(false);
        self.begin_close(CloseState::Now);
    }

    fn is_awaiting_response(&self) -> bool {
        match self.own_http2_state() {
            None => self.activity.phase() == Phase::Application,
            Some(state) => state.is_awaiting_response(),
        }
    }

    fn on_thread_end(&self) {
        self.set_end_reason(StreamEnd::Stop);
    }

    fn is_substream(&self) -> bool {
        self.is_http2_stream
    }

    fn cut_for_stop(&self) {
        let is_unneeded = match self.own_http2_state() {
            // If no stream is open, the stop does not wait until the client has been notified.
            Some(state) => !state.has_streams(),
            None => self.activity.phase() == Phase::Body,
        };
        if is_unneeded {
            self.abort();
        } else if let Some(stream) = self.response_stream() {
            stream.end_for_stop();
        }
    }

    fn is_ending(&self) -> bool {
        self.close_state.get() != CloseState::Open
    }

    fn has_only_websockets(&self) -> bool {
        self.own_http2_state().is_some_and(Http2State::has_only_websockets)
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl HttpConnection {
    /// Returns true if the connection is being closed, or its request has been evicted, so that its
    /// memory is released soon.
    pub(super) fn is_releasing(&self) -> bool {
        self.is_ending() || self.pending_release.get().is_some()
    }

    /// Returns true for an HTTP/2 connection, other than a trusted proxy's, whose own buffers take
    /// more memory than those of a client that behaves as browsers do.
    fn has_excessive_buffers(&self) -> bool {
        let is_large = self.buffer.get() > MAX_BUFFERS_WITH_STREAMS;
        is_large && self.own_http2_state().is_some() && !self.is_shared_by_clients()
    }

    /// Returns true for an HTTP/2 stream that stays open for as long as its client wishes: its
    /// response is streamed, or waits until the client reads.
    fn is_stream_of_client(&self) -> bool {
        let is_blocked = || {
            self.activity.is_write_blocked()
                || self.http2_state.get().is_some_and(|state| state.is_blocked())
        };
        self.is_http2_stream
            && match self.activity.phase() {
                Phase::Stream => true,
                Phase::Response | Phase::Flush => is_blocked(),
                _ => false,
            }
    }

    /// Checks the time limits of an HTTP/2 connection. Its streams have time limits of their own.
    fn sweep_http2(&self, state: &Http2State, now: u32) {
        let ticks = &self.shared.connections.clock.ticks();
        let is_late_head =
            state.unfinished_since().is_some_and(|since| now.wrapping_sub(since) > ticks.head);
        let is_late_end = self.close_state.get() == CloseState::AfterResponse
            && self.activity.is_idle_for(ticks.close, now);
        if state.has_only_websockets() && !self.is_ending() {
            self.activity.restart_write_deadline(now);
        }
        let unsent = || self.transport.borrow().unsent();
        if is_late_head || is_late_end || self.activity.check_deadlines(ticks, now, unsent) {
            self.time_out();
        }
    }
}

impl FlushListener for HttpConnection {
    fn on_flushed(&self) {
        if !self.has_partial_chunk.get() {
            HttpConnection::on_all_written(self);
            self.wake();
        }
    }

    fn on_lost(&self) {
        self.begin_close(CloseState::Now);
    }
}
