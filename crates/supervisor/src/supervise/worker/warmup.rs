//! Warm-up requests to a new worker before it serves clients. The first requests of an app are
//! slow, because R compiles functions and loads packages during them.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rookery_exchange::wire::{
    Down, RequestForm, ResponseContent, Up, read_response, write_request,
};
use rookery_exchange::{Exchange, ResponseBody, StreamEnd, Version};
use rookery_worker_protocol::now;
use rookery_worker_protocol::rings::{Lane, RingEnd, RingWakers, SendError};

use crate::backend::Backend;

/// The interval at which the supervisor looks for the response to a warm-up request.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The headers of a warm-up request.
const HEADERS: [(&[u8], &[u8]); 3] =
    [(b"accept", b"*/*"), (b"host", b"localhost"), (b"user-agent", b"rookery-warmup")];

/// The result of the warm-up requests to a new worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WarmupResult {
    /// The app responded to all warm-up requests. The texts are warnings about paths that do not
    /// exist or that require authorization (status 4xx).
    Succeeded(Vec<String>),
    /// The app failed on a warm-up request. The text is the reason.
    Failed(String),
}

/// Sends warm-up requests for all `paths` to a worker, one after the other, until one fails. The
/// worker must not be in the registry yet. The caller must limit the time, because a worker that
/// has ended sends nothing.
pub(super) async fn warm_up(backend: Arc<Backend>, paths: Vec<String>) -> WarmupResult {
    let Some((end, wakers)) = backend.take_rings() else {
        return WarmupResult::Failed("the worker is in use".to_owned());
    };
    let mut rings = Rings { end, wakers };
    let mut warnings = Vec::new();
    for (id, path) in (1..).zip(paths) {
        // Counted before R can take the request.
        backend.load.passed.fetch_add(1, Ordering::Release);
        match rings.get(id, &path).await {
            Ok(status @ 500..) => {
                return WarmupResult::Failed(format!("`{path}` returned status {status}"));
            }
            Ok(status @ 400..) => warnings.push(format!("`{path}` returned status {status}")),
            Ok(_) => {}
            Err(error) => {
                return WarmupResult::Failed(format!("`{path}` got no response: {error}"));
            }
        }
    }
    backend.return_rings((rings.end, rings.wakers));
    WarmupResult::Succeeded(warnings)
}

/// The rings to a worker that serves no clients yet.
struct Rings {
    end: RingEnd,
    wakers: RingWakers,
}

impl Rings {
    /// Requests `path` from the worker. Returns the status code when the response is complete,
    /// because only then is the app's work for the request complete.
    async fn get(&mut self, id: u64, path: &str) -> io::Result<u16> {
        let invalid = |_| io::ErrorKind::InvalidData;
        let mut exchange = Exchange::new();
        exchange.begin(id, 0, 0);
        exchange.set_request_line(b"GET", path.as_bytes(), Version::Http11);
        exchange.end_head(None, None, false);
        let (query, times) = (exchange.query(), (0, now()));
        let mut record = Vec::new();
        write_request(&exchange, query, times, &mut record, &HEADERS, |_, _, _| ());
        self.send(RequestForm::Complete.kind(), &record).await?;
        let (mut written, mut is_pulled) = (0, false);
        // Whether the worker has to be told of the bytes that were read, and asked for more.
        let (mut has_read, mut is_asked) = (false, false);
        loop {
            let Some(arrived) =
                self.end.receiver.take(&mut record).map_err(|_| io::ErrorKind::InvalidData)?
            else {
                if std::mem::take(&mut is_asked) {
                    self.tell(Down::Pull { stream: id, written }).await?;
                } else if std::mem::take(&mut has_read) {
                    self.tell(Down::Written { stream: id, written }).await?;
                }
                has_read = false;
                tokio::time::sleep(POLL_INTERVAL).await;
                continue;
            };
            match Up::read(arrived.kind, &record).map_err(invalid)? {
                Up::Response { content, .. } => {
                    let file = arrived.descriptor.map(File::from);
                    let content = ResponseContent::Borrowed(content);
                    read_response(content, &mut exchange, file, usize::MAX).map_err(invalid)?;
                    match exchange.response().body() {
                        ResponseBody::Stream(stream) => is_pulled = stream.rules.is_pulled,
                        _ => return Ok(exchange.response().status()),
                    }
                    is_asked = is_pulled;
                }
                Up::Chunk { content, is_pushing, .. } => {
                    written += content.len() as u64;
                    has_read = true;
                    is_asked |= is_pulled && !is_pushing;
                }
                Up::ResumePulls { .. } => is_asked = true,
                Up::SendHead { .. } => {}
                Up::EndStream { .. } => {
                    self.tell(Down::StreamEnded { stream: id, reason: StreamEnd::Done }).await?;
                    return Ok(exchange.response().status());
                }
                Up::AbortStream { .. } => return Ok(500),
                Up::Unsendable { .. } | Up::Declined { .. } => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                // No such record concerns a request of this kind.
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
            // Otherwise, a worker that sends records without end would block this thread.
            tokio::task::yield_now().await;
        }
    }

    async fn tell(&mut self, down: Down<'_>) -> io::Result<()> {
        let mut record = Vec::new();
        let kind = down.write(&mut record);
        self.send(kind, &record).await
    }

    async fn send(&mut self, kind: u8, record: &[u8]) -> io::Result<()> {
        let (lane_and_kind, mut sent) = ((Lane::Requests, kind), 0);
        loop {
            let sender = &mut self.end.sender;
            match sender.send_parts(lane_and_kind, [record, b""], None, &mut sent) {
                Ok(()) => break,
                Err(SendError::Full) => tokio::time::sleep(POLL_INTERVAL).await,
                Err(SendError::Malformed) => return Err(io::ErrorKind::InvalidData.into()),
                Err(SendError::System) => return Err(io::ErrorKind::OutOfMemory.into()),
            }
        }
        self.end.peer_sleep.wake_sleeper(|| self.wakers.wake_worker());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use rookery_worker_protocol::SharedScoreboard;

    use super::*;
    use crate::worker_id::WorkerId;

    /// Warms up a worker that runs `work` in a thread, with its end of the rings and a flag that
    /// tells it to stop.
    fn warm_up_with(
        limit: Duration,
        work: impl FnOnce(RingEnd, &AtomicBool) + Send + 'static,
    ) -> Option<WarmupResult> {
        let scoreboard = SharedScoreboard::private();
        let (end, wakers, handles) = RingEnd::create().unwrap();
        let id = WorkerId::new().unwrap();
        let backend = Backend::new((0, 1), 1, id, "/nonexistent".into(), scoreboard, (end, wakers));
        let (worker, _wakers) = handles.attach().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let is_done = Arc::clone(&is_over);
        let working = std::thread::spawn(move || work(worker, &is_done));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let result = runtime.block_on(async {
            tokio::time::timeout(limit, warm_up(backend, vec!["/".to_owned()])).await
        });
        is_over.store(true, Ordering::Relaxed);
        working.join().unwrap();
        result.ok()
    }

    #[test]
    fn a_worker_that_sends_records_without_end_does_not_block_the_supervisor() {
        let result = warm_up_with(Duration::from_millis(200), |mut worker, is_over| {
            let mut record = Vec::new();
            let kind = Up::SendHead { stream: 1 }.write(&mut record);
            while !is_over.load(Ordering::Relaxed) {
                let _ = worker.sender.send(kind, &record, None);
            }
        });
        assert_eq!(result, None);
    }

    #[test]
    fn a_response_may_have_more_chunks_than_there_are_blocks_for_reports() {
        let result = warm_up_with(Duration::from_secs(60), |mut worker, _| {
            let mut send = |up: Up<'_>| {
                let mut record = Vec::new();
                let kind = up.write(&mut record);
                while worker.sender.send(kind, &record, None).is_err() {
                    std::thread::yield_now();
                }
            };
            for _ in 0..2_000 {
                let (is_pushing, is_waiting) = (true, false);
                send(Up::Chunk { stream: 1, is_pushing, is_waiting, content: b"x" });
            }
            send(Up::EndStream { stream: 1 });
        });
        assert_eq!(result, Some(WarmupResult::Succeeded(Vec::new())));
    }
}
