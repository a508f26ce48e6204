//! The spans of WebSocket messages. If the WebSocket is a session of Shiny, the span of a message
//! includes the flush that follows it, and has a child for each output that Shiny computes.

use rookery_trace::{Kind, Parent, Span};
use rookery_worker_protocol::{SESSION_ID_LEN, ShinyMessage};

use super::invocation_spans::{OutputSpan, Tracing};

/// The maximum number of outputs that have a span at the same time. Further ones have none.
const MAX_OUTPUTS: usize = 256;

/// The maximum number of stack samples in the span of a message: those of the first 16 s.
const MAX_SAMPLES: u32 = 32;

/// The maximum length in bytes of the name of an output in the name of its span.
const MAX_NAME: usize = 100;

impl Tracing {
    /// Begins the span of a message, if the handshake of its WebSocket is recorded. Returns the
    /// number by which C ends the span, or 0 if there is none.
    pub(crate) fn begin_message(&mut self, socket: u64) -> u64 {
        let Some((tracer, handshake)) = self.tracer.as_ref().zip(self.handshakes.get(&socket))
        else {
            return 0;
        };
        let context = tracer.begin_linked();
        let mut span = Span::begin("rookery.on_message", Kind::Internal, context, None);
        span.link(handshake);
        self.set_session(&mut span, socket);
        let number = self.keep(span);
        self.message = number;
        self.samples = 0;
        number
    }

    /// Adds the beginning of the token of Shiny's session to a span, if it is known. The whole
    /// token would give access to the session's downloads.
    fn set_session(&self, span: &mut Span, socket: u64) {
        if let Some(session) = self.sessions.get(&socket) {
            span.set_text("session.id", session);
        }
    }

    /// Begins or ends the span of an output if a text message to a page is Shiny's message about
    /// it.
    pub(crate) fn on_sent(&mut self, socket: u64, text: &[u8]) {
        if !self.handshakes.contains_key(&socket) {
            return;
        }
        match ShinyMessage::of(text) {
            Some(ShinyMessage::Opens(token)) => {
                let id = &token[..SESSION_ID_LEN.min(token.len())];
                self.sessions.insert(socket, String::from_utf8_lossy(id).into_owned());
            }
            Some(ShinyMessage::BeginsOutput(name)) => self.begin_output(socket, name),
            Some(ShinyMessage::EndsOutput(name)) => self.end_output(socket, name),
            Some(ShinyMessage::Busy | ShinyMessage::Idle) | None => {}
        }
    }

    /// Begins the span of an output, below that of the message that has caused the flush. Without a
    /// message, as after a timer, the span begins a trace that is linked to the handshake.
    fn begin_output(&mut self, socket: u64, name: &[u8]) {
        self.end_output(socket, name);
        let Some((tracer, handshake)) = self.tracer.as_ref().zip(self.handshakes.get(&socket))
        else {
            return;
        };
        if self.outputs.len() >= MAX_OUTPUTS {
            return;
        }
        let shown = String::from_utf8_lossy(&name[..MAX_NAME.min(name.len())]);
        let title = format!("output${shown}");
        let mut span = match self.events.get(&self.message).map(Span::context) {
            Some(message) => {
                let parent = Parent { span_id: message.span_id, is_remote: false };
                Span::begin(&title, Kind::Internal, tracer.child(&message), Some(parent))
            }
            None => {
                let mut span = Span::begin(&title, Kind::Internal, tracer.begin_linked(), None);
                span.link(handshake);
                span
            }
        };
        self.set_session(&mut span, socket);
        self.outputs.push(OutputSpan { socket, name: name.into(), span });
    }

    fn end_output(&mut self, socket: u64, name: &[u8]) {
        let is_it = |output: &OutputSpan| output.socket == socket && *output.name == *name;
        if let (Some(at), Some(tracer)) = (self.outputs.iter().position(is_it), &self.tracer) {
            tracer.end(self.outputs.swap_remove(at).span);
        }
    }

    /// Marks the spans in which an error has occurred as failed: that of the message, and that of
    /// the output that `label` names, such as `output$plot`. `class` is the class of the error.
    pub(crate) fn on_error(&mut self, label: &str, class: &str) {
        if let Some(name) = label.strip_prefix("output$") {
            let of_label = |output: &&mut OutputSpan| *output.name == *name.as_bytes();
            // R computes one output at a time, the one that has begun last.
            if let Some(output) = self.outputs.iter_mut().rev().find(of_label) {
                output.span.set_exception(class);
            }
        }
        if let Some(message) = self.events.get_mut(&self.message) {
            message.set_exception(class);
        }
    }

    /// Adds a sample of R's stack to the span of the current message, if R computes for one that is
    /// recorded. Shiny says when it computes an output but not when it runs an observer, which only
    /// samples name.
    pub(crate) fn on_sample(&mut self, stack: &[u8]) {
        let Some(message) = self.events.get_mut(&self.message) else { return };
        if self.samples < MAX_SAMPLES {
            self.samples += 1;
            message.add_event(
                "rookery.stack_sample",
                "code.stacktrace",
                &String::from_utf8_lossy(stack),
            );
        }
    }

    /// Forgets a WebSocket that is closed. The spans of its outputs end.
    pub(crate) fn on_closed(&mut self, socket: u64) {
        self.handshakes.remove(&socket);
        self.sessions.remove(&socket);
        let Some(tracer) = &self.tracer else { return };
        let (ended, others): (Vec<_>, Vec<_>) =
            self.outputs.drain(..).partition(|output| output.socket == socket);
        self.outputs = others;
        for output in ended {
            tracer.end(output.span);
        }
    }
}
