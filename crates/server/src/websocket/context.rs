//! The state that all WebSockets of an I/O thread share.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rookery_error::{ErrorHook as _, Reports};
use rookery_exchange::WebSocketId;
use rookery_websocket::endpoint::Rules;

use super::endpoint_config::{Tick, rules};
use super::shiny_messages::ShinyRecords;
use crate::application::dispatch::Dispatch;
use crate::connections::table::ConnectionTable;
use crate::logging::access_log::pending_record::CurrentLog;
use crate::net::transport::Scratch;
use crate::rejection::Rejection;

/// The state that all WebSockets of an I/O thread share.
pub(crate) struct WebSocketContext {
    pub(crate) connections: Rc<ConnectionTable>,
    pub(crate) dispatch: Rc<Dispatch>,
    /// The buffer into which all WebSockets of the thread read, so that idle ones need no buffer.
    pub(crate) scratch: Rc<Scratch>,
    reports: Arc<Reports<Rejection>>,
    /// The access log, which has a line about the end of each WebSocket.
    pub(super) log: Arc<CurrentLog>,
    /// The records of Shiny's sessions and outputs, if there are metrics.
    pub(super) shiny: Option<ShinyRecords>,
    /// The number of WebSockets that keep their compression windows between messages (context
    /// takeover).
    pub(super) takeover_permits: Cell<usize>,
    /// The time limits for WebSocket clients, in clock ticks.
    pub(super) rules: Rules<u32>,
}

impl WebSocketContext {
    pub(crate) fn new(
        connections: Rc<ConnectionTable>,
        dispatch: Rc<Dispatch>,
        scratch: Rc<Scratch>,
        reports: Arc<Reports<Rejection>>,
        log: Arc<CurrentLog>,
        shiny: Option<ShinyRecords>,
    ) -> Rc<WebSocketContext> {
        let rules = rules(&connections.clock.ticks());
        Rc::new(WebSocketContext {
            connections,
            dispatch,
            scratch,
            reports,
            log,
            shiny,
            takeover_permits: Cell::new(0),
            rules,
        })
    }

    /// Reports to the error hook (the function that receives errors) why the server rejected or
    /// closed a WebSocket.
    pub(super) fn report(&self, id: WebSocketId, rejection: Rejection) {
        let hook = self.reports.hook();
        hook.begin(id);
        hook.throw(rejection.error());
    }

    pub(super) fn now(&self) -> Tick {
        Tick(self.connections.clock.now())
    }
}

impl fmt::Debug for WebSocketContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketContext").finish_non_exhaustive()
    }
}
