//! The tracer of this process, and the functions by which C begins and ends the spans of
//! invocations of R code.
//!
//! If the R package otel exports spans, R makes the spans of requests itself, and the functions
//! here only pass on the contexts. The span of a message is made here also then, because R's
//! packages cannot link a span to one of another process; R makes a span below it.

pub(crate) mod invocation_spans;
mod message_spans;

use std::sync::Arc;

use rookery_exchange::{Command, Event};
use rookery_trace::{FLUSH_TIMEOUT, Settings, Tracer, Value};

use crate::core::{self, Core};
use crate::{Bytes, entry};
use invocation_spans::Call;

impl Core {
    /// Starts the tracer of this process if the environment turns tracing on. Must be called before
    /// the I/O thread starts; later calls have no effect until `stop_tracing`.
    pub(crate) fn start_tracing(&mut self) {
        if std::mem::replace(&mut self.tracing.is_started, true) {
            return;
        }
        let get = |name: &str| std::env::var(name).ok();
        let attributes = [("process.pid", Value::Number(std::process::id().into()))];
        // Package otel uses the same name of the service if the environment does not name it.
        let found = Settings::from_environment(&get, "R", &attributes);
        found.remarks.iter().for_each(|remark| crate::write_log_line(remark));
        let Some(settings) = found.settings else { return };
        match Tracer::start(settings, crate::write_log_line) {
            Ok(tracer) => {
                self.server().set_tracer(Some(Arc::clone(&tracer)));
                self.tracing.tracer = Some(tracer);
            }
            Err(error) => crate::write_log_line(&format!(
                "traces are off, because their thread cannot be started: {error}"
            )),
        }
    }

    /// Gives the tracer to a server that replaces the previous one.
    pub(crate) fn continue_tracing(&self) {
        self.server().set_tracer(self.tracing.tracer.clone());
    }

    /// Exports the last spans before the process ends or the package is unloaded. The package may
    /// be loaded again, and then starts another tracer. Does not wait for the export any longer
    /// once `is_over` returns true.
    pub(crate) fn stop_tracing(&mut self, is_over: impl FnMut() -> bool) {
        self.tracing.is_started = false;
        let Some(tracer) = self.tracing.tracer.take() else { return };
        self.server().set_tracer(None);
        self.tracing.calls.clear();
        self.tracing.events.clear();
        self.tracing.handshakes.clear();
        self.tracing.sessions.clear();
        self.tracing.outputs.clear();
        tracer.shut_down_unless(FLUSH_TIMEOUT, is_over);
    }

    /// Publishes how many spans were exported and dropped.
    pub(crate) fn publish_span_counts(&self) {
        let Some(tracer) = &self.tracing.tracer else { return };
        let counts = tracer.counters().read();
        if let Some(admin) = &self.admin {
            admin.one.set_spans(counts);
        } else if let Some(scoreboard) = self.supervised_scoreboard() {
            scoreboard.spans().set(counts);
        }
    }

    /// Begins the span of the invocation for an event. Returns the number by which C ends the span
    /// after the event, or 0 if no span ends then.
    pub(crate) fn begin_span(&mut self, event: &mut Event) -> u64 {
        let tracing = &mut self.tracing;
        if tracing.tracer.is_none() {
            return 0;
        }
        match event {
            Event::Request(exchange) | Event::Head(exchange) => tracing.begin_call(exchange),
            Event::Message { socket, .. } => tracing.begin_message(*socket),
            Event::Closed { socket, .. } => {
                tracing.on_closed(*socket);
                0
            }
            _ => 0,
        }
    }

    /// Ends the span of a request that R gives back to the server.
    pub(crate) fn end_call(&mut self, command: &mut Command) {
        let (Command::Respond(exchange) | Command::ReadBody(exchange)) = command else { return };
        let tracing = &mut self.tracing;
        // Both maps are empty if nothing is traced.
        if exchange.is_upgrade() && exchange.response().status() != 101 {
            tracing.handshakes.remove(&exchange.id());
        }
        if tracing.calls.is_empty() {
            return;
        }
        let (Some(call), Some(tracer)) = (tracing.calls.remove(&exchange.id()), &tracing.tracer)
        else {
            return;
        };
        let Call { mut span, outer } = call;
        if let Command::ReadBody(exchange) = command {
            // The request returns with its body and gets another span.
            exchange.set_trace_context(&outer);
        } else if let Command::Respond(exchange) = command {
            let response = exchange.response();
            if response.is_failure() {
                span.set_error("500");
            } else if response.status() >= 500 {
                span.set_error(&response.status().to_string());
            }
        }
        tracer.end(span);
    }
}

/// Closes the connections to a collector in a forked child process.
pub(crate) fn forked() {
    rookery_trace::close_inherited();
}

/// Ends the span that began with an event. `span` is the number that the event had.
#[unsafe(no_mangle)]
pub extern "C" fn rk_span_end(span: u64) {
    entry((), || {
        core::with(|core| {
            let tracing = &mut core.tracing;
            if tracing.message == span {
                tracing.message = 0;
            }
            if let (Some(span), Some(tracer)) = (tracing.events.remove(&span), &tracing.tracer) {
                tracer.end(span);
            }
        });
    });
}

/// Marks the spans of the current message and output as failed by an error. `label` says where the
/// error has occurred, and `class` is its class.
///
/// # Safety
/// - The texts are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_span_error(label: Bytes, class: Bytes) {
    entry((), || {
        let [label, class] = [label, class].map(|text| {
            // SAFETY: guaranteed by the caller, see `# Safety`.
            String::from_utf8_lossy(unsafe { text.get() }).into_owned()
        });
        core::with(|core| core.tracing.on_error(&label, &class));
    });
}

/// Records whether R makes spans of invocations itself. Returns 1 if this process makes the
/// SERVER spans of requests, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn rk_spans_in_r(is_in_r: i32) -> i32 {
    entry(0, || {
        core::with(|core| {
            core.start_tracing();
            core.tracing.is_in_r = is_in_r != 0;
            i32::from(core.tracing.tracer.is_some())
        })
    })
}

/// Writes the `traceparent` of a span that began with an event to `header`, which has 56 bytes, as
/// a C string. Returns 0 if there is no such span.
///
/// # Safety
/// - `header` has space for 56 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_span_traceparent(span: u64, header: *mut u8) -> i32 {
    entry(0, || {
        core::with(|core| {
            let Some(span) = core.tracing.events.get(&span) else { return 0 };
            let text = span.context().to_header();
            // SAFETY: guaranteed by the caller, see `# Safety`.
            unsafe {
                header.copy_from_nonoverlapping(text.as_ptr(), text.len());
                header.add(text.len()).write(0);
            }
            1
        })
    })
}
