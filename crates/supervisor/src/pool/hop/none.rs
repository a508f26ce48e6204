//! A substitute for the hop on systems without rings, where every request is relayed.

use std::rc::Rc;

use rookery_exchange::{MessageKind, Payload, StreamEnd, StreamId, WebSocketId};

use super::attempt::Dispatch;
use super::balancing::balancer::Assignment;
use super::context::PoolContext;

pub(super) mod state {
    //! The state of the hop.

    /// The state of the hop to all workers.
    #[derive(Default)]
    pub(in crate::pool) struct Hops;
}

pub(super) fn try_send(_: &PoolContext, assignment: Assignment) -> Result<(), Assignment> {
    Err(assignment)
}

pub(super) fn run(_: &Rc<PoolContext>, _: Dispatch) {}

pub(super) fn prepare_sleep(_: &PoolContext) -> bool {
    true
}

pub(super) fn on_wake(_: &PoolContext) {}

pub(super) fn follow_workers(_: &Rc<PoolContext>) {}

pub(super) fn wake_stalled(_: &PoolContext) {}

pub(super) fn withdraw_late(_: &Rc<PoolContext>) {}

pub(super) fn withdraw_overdue(_: &Rc<PoolContext>) {}

pub(super) fn has_capacity(_: &PoolContext, _: WebSocketId) -> bool {
    true
}

pub(super) fn on_message(_: &PoolContext, _: WebSocketId, _: MessageKind, _: Payload) {}

pub(super) fn on_drained(_: &PoolContext, _: WebSocketId) {}

pub(super) fn on_closed(_: &PoolContext, _: WebSocketId, _: (u16, bool), _: &str) -> bool {
    false
}

pub(super) fn on_pull(_: &PoolContext, _: StreamId) {}

pub(super) fn on_writable(_: &PoolContext, _: StreamId) -> bool {
    false
}

pub(super) fn on_stream_ended(_: &PoolContext, _: StreamId, _: StreamEnd) -> bool {
    false
}
