//! The tracer of this process, which the environment variables of OpenTelemetry configure.

use std::sync::Arc;

use rookery_trace::{FLUSH_TIMEOUT, Settings, Tracer, Value};

use crate::app_detection::Target;
use crate::stderr::log_line;
use crate::user_paths::parent_folder;

/// Starts the tracer if the environment turns tracing on. The end of the returned value exports
/// the last spans.
pub(crate) fn start(target: &Target) -> Option<RunningTracer> {
    let get = |name: &str| std::env::var(name).ok();
    let attributes = [("process.pid", Value::Number(std::process::id().into()))];
    let found = Settings::from_environment(&get, &service_name(target), &attributes);
    found.remarks.iter().for_each(|remark| log_line(remark));
    match Tracer::start(found.settings?, log_line) {
        Ok(tracer) => Some(RunningTracer(tracer)),
        Err(error) => {
            log_line(&format!("traces are off, because their thread cannot be started: {error}"));
            None
        }
    }
}

/// Returns the name of the app in the access log, which is that of the service in traces.
pub(crate) fn app_name(target: &Target) -> String {
    match std::env::var("OTEL_SERVICE_NAME") {
        Ok(name) if !name.is_empty() => name,
        _ => service_name(target),
    }
}

/// Returns the name of the service in traces, unless `OTEL_SERVICE_NAME` is set: the name of the
/// app's folder, as the user gave it, because all generations of workers have the same name.
pub(crate) fn service_name(target: &Target) -> String {
    let given = &target.given;
    let folder = if target.path == target.folder { given } else { parent_folder(given) };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    if name.is_empty() { "rookery".to_owned() } else { name.into_owned() }
}

/// The tracer of this process.
#[derive(Debug)]
pub(crate) struct RunningTracer(Arc<Tracer>);

impl RunningTracer {
    /// Returns another reference to the tracer.
    pub(crate) fn share(&self) -> Arc<Tracer> {
        Arc::clone(&self.0)
    }

    /// Exports the last spans, as the end of this value does, but does not wait for that any longer
    /// once `is_over` returns true.
    pub(crate) fn end(self, is_over: impl FnMut() -> bool) {
        self.0.shut_down_unless(FLUSH_TIMEOUT, is_over);
    }
}

impl Drop for RunningTracer {
    fn drop(&mut self) {
        self.0.shut_down(FLUSH_TIMEOUT);
    }
}
