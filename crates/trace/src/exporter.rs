//! The exporter, which sends batches of spans to a collector by OTLP/HTTP on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use rookery_http_client::{Client, Response, ResponseLimits};
use rookery_websocket_client::tls_config;
use rustls::ClientConfig;

use crate::protobuf;
use crate::queue::{Queue, SpanCounters};
use crate::settings::{Settings, Value};

/// The pause before the first retry. Each further pause is twice as long, up to `MAX_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(8);

/// The maximum size of a collector's response, which says at most how many spans it has refused.
/// The rest of a longer one, such as a proxy's page, is not read.
const MAX_RESPONSE_SIZE: usize = 64 << 10;

/// The name of the code that makes the spans.
const SCOPE: &str = "rookery";

// The numbers of fields in OTLP's `trace_service.proto`, `trace.proto` and `common.proto`.
const RESOURCE_SPANS: u32 = 1;
const RESOURCE: u32 = 1;
const SCOPE_SPANS: u32 = 2;
const RESOURCE_ATTRIBUTES: u32 = 1;
const SCOPE_FIELD: u32 = 1;
const SCOPE_NAME: u32 = 1;
const SCOPE_VERSION: u32 = 2;
const SPANS: u32 = 2;
const PARTIAL_SUCCESS: u32 = 1;
const REJECTED_SPANS: u32 = 1;

/// The maximum time for which a collector's `Retry-After` is respected. A proxy's mistake could
/// otherwise end the export for days.
const MAX_SILENCE: Duration = Duration::from_secs(3600);

/// The outcome of one attempt to send a batch.
enum Outcome {
    /// The collector has taken the batch, except `rejected` spans.
    Accepted { rejected: u64 },
    /// The batch may be sent again, at the earliest after this time, for this reason.
    Retry(Option<Duration>, String),
    /// The collector refuses the batch.
    Refused(String),
}

/// The failure of all attempts to send a batch.
struct Failure {
    error: String,
    /// The time before which the collector wants no further request.
    not_before: Option<Instant>,
}

impl Failure {
    fn new(error: String) -> Failure {
        Failure { error, not_before: None }
    }
}

/// The exporter of a tracer.
pub(crate) struct Exporter {
    pub(crate) settings: Settings,
    pub(crate) queue: Arc<Queue>,
    pub(crate) counters: Arc<SpanCounters>,
    /// The function that shows a line to the operator.
    pub(crate) notice: fn(&str),
}

impl Exporter {
    /// Exports the spans in the queue until the queue is closed.
    pub(crate) async fn run(self) {
        let mut client = Client::new(self.settings.endpoint.clone(), self.tls());
        let mut headers = self.settings.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers
            .entry(USER_AGENT)
            .or_insert(HeaderValue::from_static(concat!("rookery/", env!("CARGO_PKG_VERSION"))));
        let mut is_failing = false;
        let mut not_before = None;
        loop {
            if !self.may_send_at(not_before.take()).await {
                break;
            }
            let Some(batch) = self.queue.next_batch(self.settings.delay).await else { break };
            let count = batch.len() as u64;
            let body = self.encode(&batch);
            drop(batch);
            let result = self.send_with_retries(&mut client, &headers, &body).await;
            match &result {
                Ok(rejected) => {
                    add(&self.counters.exported, count.saturating_sub(*rejected));
                    add(&self.counters.failed, (*rejected).min(count));
                }
                Err(_) => add(&self.counters.failed, count),
            }
            // Only changes are reported, so that a collector that is away does not fill the log.
            if result.is_err() != is_failing {
                is_failing = result.is_err();
                match &result {
                    Ok(_) => (self.notice)("traces are exported again"),
                    Err(Failure { error, .. }) => {
                        (self.notice)(&format!("traces cannot be exported: {error}"));
                    }
                }
            }
            not_before = result.err().and_then(|failure| failure.not_before);
            if self.queue.closed_until().is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
        add(&self.counters.dropped, self.queue.clear());
    }

    /// Waits until the collector wants requests again. Returns false if the queue is closed before.
    async fn may_send_at(&self, not_before: Option<Instant>) -> bool {
        let Some(time) = not_before else { return true };
        tokio::select! {
            () = tokio::time::sleep_until(time.into()) => true,
            _ = self.queue.closed() => false,
        }
    }

    fn tls(&self) -> Option<Arc<ClientConfig>> {
        if !self.settings.endpoint.is_secure() {
            return None;
        }
        match tls_config(&self.settings.roots) {
            Ok(config) => Some(config),
            Err(error) => {
                (self.notice)(&format!("traces cannot be exported: {error}"));
                None
            }
        }
    }

    /// Returns the request's body, an `ExportTraceServiceRequest`.
    fn encode(&self, spans: &[Vec<u8>]) -> Vec<u8> {
        let mut resource = Vec::new();
        for (name, value) in &self.settings.resource {
            match value {
                Value::Text(text) => {
                    protobuf::text_attribute(&mut resource, RESOURCE_ATTRIBUTES, name, text);
                }
                Value::Number(number) => {
                    protobuf::integer_attribute(&mut resource, RESOURCE_ATTRIBUTES, name, *number);
                }
            }
        }
        let mut scope = Vec::new();
        protobuf::bytes(&mut scope, SCOPE_NAME, SCOPE.as_bytes());
        protobuf::bytes(&mut scope, SCOPE_VERSION, env!("CARGO_PKG_VERSION").as_bytes());
        let spans_len: usize = spans.iter().map(|span| protobuf::delimited_len(span.len())).sum();
        let scope_spans = protobuf::delimited_len(scope.len()) + spans_len;
        let all = protobuf::delimited_len(resource.len()) + protobuf::delimited_len(scope_spans);
        let mut out = Vec::with_capacity(protobuf::delimited_len(all));
        protobuf::delimited(&mut out, RESOURCE_SPANS, all);
        protobuf::bytes(&mut out, RESOURCE, &resource);
        protobuf::delimited(&mut out, SCOPE_SPANS, scope_spans);
        protobuf::bytes(&mut out, SCOPE_FIELD, &scope);
        for span in spans {
            protobuf::bytes(&mut out, SPANS, span);
        }
        out
    }

    /// Sends a batch, again if the collector is not available. Returns how many spans the collector
    /// has refused, or why it has accepted none.
    async fn send_with_retries(
        &self,
        client: &mut Client,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<u64, Failure> {
        let mut deadline = Instant::now() + self.settings.export_timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(end) = self.queue.closed_until() {
                deadline = deadline.min(end);
            }
            let attempt = self.send_once(client, headers, body, deadline);
            let outcome = tokio::select! {
                biased;
                outcome = attempt => outcome,
                // The attempt may go on for a shorter time once the program ends.
                end = async {
                    let end = self.queue.closed().await;
                    tokio::time::sleep_until(end.into()).await;
                } => {
                    let () = end;
                    return Err(Failure::new("the program has ended".to_owned()));
                }
            };
            let (wait, error) = match outcome {
                Outcome::Accepted { rejected } => return Ok(rejected),
                Outcome::Refused(error) => return Err(Failure::new(error)),
                Outcome::Retry(wait, error) => (wait, error),
            };
            // A third more or less, so that servers that failed together do not return together.
            let jittered = pause.mul_f64(0.67 + 0.66 * fraction());
            pause = (pause * 2).min(MAX_PAUSE);
            let not_before = wait.map(|wait| Instant::now() + wait.min(MAX_SILENCE));
            let next = not_before.unwrap_or_else(|| Instant::now() + jittered);
            if next >= deadline || self.queue.closed_until().is_some() {
                return Err(Failure { error, not_before });
            }
            tokio::select! {
                () = tokio::time::sleep_until(next.into()) => {}
                // One more attempt follows at once, unless the collector has asked for a pause.
                _ = self.queue.closed() => {
                    if not_before.is_some() {
                        return Err(Failure { error, not_before });
                    }
                }
            }
        }
    }

    async fn send_once(
        &self,
        client: &mut Client,
        headers: &HeaderMap,
        body: &[u8],
        deadline: Instant,
    ) -> Outcome {
        let rest = deadline.saturating_duration_since(Instant::now());
        let limits =
            ResponseLimits { time: self.settings.timeout.min(rest), bytes: MAX_RESPONSE_SIZE };
        match client.send(&Method::POST, headers, body, limits).await {
            Ok(response) => outcome(&response),
            Err(error) => Outcome::Retry(None, error.to_string()),
        }
    }
}

/// Returns what a collector's response means (OTLP, OTLP/HTTP Response).
fn outcome(response: &Response) -> Outcome {
    let status = response.status;
    if status.is_success() {
        let partial = protobuf::find_bytes(&response.body, PARTIAL_SUCCESS);
        let rejected = partial.and_then(|partial| protobuf::find_number(partial, REJECTED_SPANS));
        return Outcome::Accepted { rejected: rejected.unwrap_or(0) };
    }
    let error = format!("the collector has answered with status {}", status.as_u16());
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Outcome::Retry(response.retry_after(), error),
        _ => Outcome::Refused(error),
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Returns a random number from 0 to 1.
fn fraction() -> f64 {
    let random = rookery_system::random::unpredictable();
    f64::from((random >> 32) as u32) / f64::from(u32::MAX)
}
