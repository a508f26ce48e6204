//! Spans of requests, and their export by OTLP/HTTP to a collector of OpenTelemetry.
//!
//! A [`Tracer`] is started from [`Settings`], which the environment variables of OpenTelemetry
//! have. It decides for each request whether a [`Span`] is recorded. Recorded spans wait in one
//! bounded queue, and one thread sends them in batches. Spans are dropped and counted when the
//! collector is slow; nothing waits for it.

mod exporter;
mod ids;
mod protobuf;
mod queue;
mod sampler;
mod settings;
mod span;
mod tracer;

pub use ids::instance_id;
pub use queue::SpanCounters;
pub use rookery_http_client::close_inherited;
pub use settings::{Settings, SettingsFromEnvironment, Value, pairs};
pub use span::{Kind, Parent, Span};
pub use tracer::{FLUSH_TIMEOUT, Tracer};
