//! The spans of invocations of R code: of the app's functions for a request, and of `onWSOpen`.

use std::collections::HashMap;
use std::sync::Arc;

use rookery_exchange::{Exchange, TraceContext};
use rookery_trace::{Kind, Parent, Span, Tracer};

/// The spans of invocations that are running.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// True once the environment has been read.
    pub(crate) is_started: bool,
    /// True if R makes spans of invocations itself.
    pub(crate) is_in_r: bool,
    /// The spans of requests that R has not answered yet. The key is the id of the exchange (the
    /// request with its response).
    pub(crate) calls: HashMap<u64, Call>,
    /// The spans that end with the handling of their event. The key is the number that C got with
    /// the event.
    pub(crate) events: HashMap<u64, Span>,
    last_event: u64,
    /// The contexts of the handshakes of open WebSockets. The key is the id of the WebSocket.
    pub(crate) handshakes: HashMap<u64, TraceContext>,
    /// The number of the span of the current message in `events`, or 0 between two messages.
    pub(crate) message: u64,
    /// The number of stack samples in that span.
    pub(super) samples: u32,
    /// The beginnings of the tokens of Shiny's sessions, by the ids of their WebSockets.
    pub(super) sessions: HashMap<u64, String>,
    /// The spans of the outputs that are being computed.
    pub(super) outputs: Vec<OutputSpan>,
}

/// The span of an output of Shiny that is being computed.
#[derive(Debug)]
pub(crate) struct OutputSpan {
    pub(super) socket: u64,
    pub(super) name: Box<[u8]>,
    pub(super) span: Span,
}

/// The span of a request that R is processing.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) span: Span,
    /// The context with which the request has arrived in R.
    pub(crate) outer: TraceContext,
}

impl Tracing {
    pub(crate) fn begin_call(&mut self, exchange: &mut Exchange) -> u64 {
        let Some(outer) = exchange.trace_context() else { return 0 };
        let Some(tracer) = self.tracer.as_ref().filter(|_| outer.is_sampled()) else { return 0 };
        if exchange.is_upgrade() {
            self.handshakes.insert(exchange.id(), outer);
        }
        if self.is_in_r {
            return 0;
        }
        let context = tracer.child(&outer);
        let parent = Parent { span_id: outer.span_id, is_remote: exchange.ticket() != 0 };
        let is_upgrade = exchange.is_upgrade();
        let name = if is_upgrade { "rookery.on_ws_open" } else { "rookery.call" };
        let span = Span::begin(name, Kind::Internal, context, Some(parent));
        exchange.set_trace_context(&context);
        if is_upgrade {
            // The response is sent before `onWSOpen` runs.
            return self.keep(span);
        }
        self.calls.insert(exchange.id(), Call { span, outer });
        0
    }

    pub(super) fn keep(&mut self, span: Span) -> u64 {
        self.last_event += 1;
        self.events.insert(self.last_event, span);
        self.last_event
    }
}
