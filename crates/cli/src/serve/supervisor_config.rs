//! The configuration of the supervisor and of its workers, made from the settings.

use std::sync::{Arc, Mutex, PoisonError};

use rookery_server::access_log::Format;
use rookery_server::{Config, MAX_PAGE_SIZE};
use rookery_supervisor::{
    MemoryLimit, PoolLimits, RecyclePolicy, SessionAffinity, SupervisorConfig, Timeouts,
    memory_limit, server_name,
};

use crate::app_detection::Target;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::serve::r_command;
use crate::settings::serve_settings::ServeSettings;
use crate::settings::workers::{self, MaxMemory, Workers};
use crate::stderr::{log_line, log_warning};

/// The values that, together with the settings, determine the configuration of the supervisor.
/// Unlike the settings, they do not change at a reload.
pub(crate) struct ConfigBuilder {
    pub(crate) address: Address,
    pub(crate) files: Option<libc::rlimit>,
    /// The arguments of R's `serve()` for the function that runs the app.
    pub(crate) for_app: Option<Arc<str>>,
}

impl ConfigBuilder {
    /// Returns the configuration of the supervisor for the settings `serve` and a generation of
    /// workers that serve `target`.
    pub(crate) fn build(&self, serve: &ServeSettings, target: Target) -> SupervisorConfig {
        let workers = &serve.workers;
        let (of_worker, target) = (serve.clone(), Mutex::new(target));
        let (address, for_app) = (self.address.clone(), self.for_app.clone());
        SupervisorConfig {
            workers: workers.count,
            spares: workers.spares,
            surges: workers.surge > 0,
            warmup: workers.warmup.clone(),
            command: Box::new(move || {
                let mut target = target.lock().unwrap_or_else(PoisonError::into_inner);
                follow_if_deleted(&mut target)
                    .and_then(|()| {
                        let for_app = for_app.as_deref();
                        r_command::worker_command(&of_worker, &target, &address, for_app)
                    })
                    .map_err(|failure| failure.message())
            }),
            folder: std::env::temp_dir(),
            files: self.files,
            times: Timeouts {
                start: workers.start_timeout,
                drain: workers.drain,
                sessions: workers.drain_sessions,
                busy: workers.worker_timeout,
                slow: workers.slow_log,
                interrupts: serve.settings.0.flag("interrupt_requests"),
                delay: serve.shutdown_delay,
                stop: if workers.is_interactive { workers.drain } else { Timeouts::default().stop },
            },
            restarts: workers.restarts,
            is_dev: serve.is_dev,
            is_on_terminal: workers.is_interactive,
            start_retries: workers.start_retries,
            fails_fast: workers.fail_fast,
            recycle: RecyclePolicy {
                requests: workers.max_requests,
                age: workers.max_age,
                memory: worker_memory_limit(workers, memory_limit()),
            },
            log: log_line,
            warn: log_warning,
        }
    }
}

/// Resolves the path of the app again if the folder that the workers of this generation serve was
/// deleted, so that a worker can still be started after a crash. The settings stay those of the
/// generation until a reload.
///
/// # Errors
/// Fails if the path does not lead to an app any more.
fn follow_if_deleted(target: &mut Target) -> Result<(), Failure> {
    if target.path.exists() {
        return Ok(());
    }
    let now = target.resolve_again()?;
    log_line(&format!(
        "{} does not exist any more, so workers are started in {}: a reload also applies its \
         settings",
        target.path.display(),
        now.show(&now.path)
    ));
    *target = now;
    Ok(())
}

pub(crate) fn pool_limits(
    serve: &ServeSettings,
    config: &Config,
    target: &Target,
    address: &Address,
) -> PoolLimits {
    let workers = &serve.workers;
    let of_address = match address {
        Address::Tcp { socket, .. } => socket.to_string(),
        Address::Unix(path) => path.display().to_string(),
    };
    let usual = PoolLimits::default();
    PoolLimits {
        // A script is inserted only into a page that is neither compressed nor streamed.
        accepts_compressed: !serve.is_dev,
        max_whole_body: if serve.is_dev { MAX_PAGE_SIZE } else { usual.max_whole_body },
        max_queued_requests: config.queue.max_queued_requests,
        queue_timeout: workers.queue_timeout,
        max_in_flight: workers.max_in_flight,
        max_stream_queue_size: config.queue.max_stream_queue_size,
        max_sessions: workers
            .max_sessions
            .and_then(|most| usize::try_from(most).ok())
            .unwrap_or(usize::MAX),
        cookie_suffix: server_name(&target.given, &of_address),
        session_affinity: match workers.sticky {
            workers::Sticky::Auto => SessionAffinity::Auto,
            workers::Sticky::None => SessionAffinity::None,
            workers::Sticky::Cookie => SessionAffinity::Cookie,
        },
        is_embedded: serve.is_embedded,
        ..usual
    }
}

/// Returns the format of the access log. If there are several workers, each line in the common
/// format also names the worker that responded.
pub(crate) fn log_format(format: Format, workers: &Workers) -> Format {
    match format {
        // With a single worker, its number would always be the same.
        Format::Common if workers.count > 1 => Format::CommonOfWorkers,
        format => format,
    }
}

/// Returns the memory limit of each worker. A limit that is derived from `limit`, the memory limit
/// of the control group, is logged.
fn worker_memory_limit(workers: &Workers, limit: Option<u64>) -> Option<MemoryLimit> {
    let group = match (workers.max_memory, limit) {
        (MaxMemory::Bytes(bytes), _) => return Some(MemoryLimit::Each(bytes)),
        (MaxMemory::Any, _) | (MaxMemory::Share, None) => return None,
        // A single worker has no derived limit, because nobody has requested one.
        (MaxMemory::Share, Some(_)) if workers.count == 1 => return None,
        (MaxMemory::Share, Some(limit)) => limit,
    };
    let (megabytes, limit) = (group / 1_000_000, MemoryLimit::of_group(group));
    let several = workers.count + workers.spares + workers.surge;
    match limit.each(several) {
        Some(each) => log_line(&format!(
            "a worker that uses more than {} MB of memory is replaced: {several} workers share 80 \
             % of the {megabytes} MB of this control group (`--max-memory` sets another limit, 0 \
             none)",
            each / 1_000_000
        )),
        None => log_line(&format!(
            "the {megabytes} MB of this control group are too little for {several} workers, so no \
             worker is replaced for its memory: set `--max-memory`"
        )),
    }
    Some(limit)
}
