//! The configuration of the supervisor and of its workers, made from the settings.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rookery_server::Config;
use rookery_server::access_log::Format;
use rookery_settings::Settings;
use rookery_supervisor::{
    MemoryLimit, PoolLimits, RecyclePolicy, SessionAffinity, SupervisorConfig, Timeouts,
    memory_limit, server_name,
};

use crate::app_detection::Target;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::serve::r_command;
use crate::settings::serve_settings::ServeSettings;
use crate::stderr::{log_line, log_warning};

/// The default of `drain` for a worker that shares the terminal with this program.
const INTERACTIVE_DRAIN: Duration = Duration::from_millis(300);

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
        let all = &serve.all;
        let (of_worker, target) = (serve.clone(), Mutex::new(target));
        let (address, for_app) = (self.address.clone(), self.for_app.clone());
        let drain = match all.time("drain").unwrap_or_default() {
            _ if serve.is_interactive && !all.is_given("drain") => INTERACTIVE_DRAIN,
            drain => drain,
        };
        SupervisorConfig {
            workers: serve.workers,
            spares: all.whole("spares").unwrap_or_default(),
            surges: surges(all),
            warmup: all.list("warmup"),
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
                start: all.time("start_timeout").unwrap_or_default(),
                drain,
                sessions: all.given("drain_sessions").and_then(|_| all.time("drain_sessions")),
                busy: all.time("worker_timeout"),
                slow: all.time("slow_log"),
                interrupts: all.flag("interrupt_requests"),
                delay: all.time("shutdown_delay").unwrap_or_default(),
                stop: if serve.is_interactive { drain } else { Timeouts::default().stop },
            },
            restarts: all.text("restart").is_none_or(|when| when != "never"),
            is_dev: all.is_dev(),
            is_on_terminal: serve.is_interactive,
            start_retries: all.whole("start_retries").unwrap_or_default(),
            fails_fast: all.flag("fail_fast"),
            recycle: RecyclePolicy {
                requests: all.whole("max_requests"),
                age: all.time("max_age"),
                memory: worker_memory_limit(serve, memory_limit()),
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
    let all = &serve.all;
    let of_address = match address {
        Address::Tcp { socket, .. } => socket.to_string(),
        Address::Unix(path) => path.display().to_string(),
    };
    PoolLimits {
        // A script is inserted only into a page that is not compressed.
        accepts_compressed: !all.is_dev(),
        max_queued_requests: config.queue.max_queued_requests,
        queue_timeout: all.time("queue_timeout").unwrap_or_default(),
        max_in_flight: all.whole("max_in_flight").unwrap_or(usize::MAX),
        max_stream_queue_size: config.queue.max_stream_queue_size,
        max_sessions: all.whole("max_sessions").unwrap_or(usize::MAX),
        cookie_suffix: server_name(&target.given, &of_address),
        session_affinity: match all.text("sticky").as_deref() {
            Some("none") => SessionAffinity::None,
            Some("cookie") => SessionAffinity::Cookie,
            _ => SessionAffinity::Auto,
        },
        is_embedded: all.flag("embed"),
        ..PoolLimits::default()
    }
}

/// Returns the format of the access log. If there are several workers, each line in the common
/// format also names the worker that responded.
pub(crate) fn log_format(serve: &ServeSettings) -> Format {
    match serve.format {
        // With a single worker, its number would always be the same.
        Format::Common if serve.workers > 1 => Format::CommonOfWorkers,
        format => format,
    }
}

/// Returns true if an extra worker may run while a worker is replaced. If not, the old worker stops
/// before the new one starts.
fn surges(all: &Settings) -> bool {
    all.text("surge").is_some_and(|surge| surge == "1")
}

/// Returns the memory limit of each worker. A limit that is derived from `limit`, the memory limit
/// of the control group, is logged.
fn worker_memory_limit(serve: &ServeSettings, limit: Option<u64>) -> Option<MemoryLimit> {
    let all = &serve.all;
    let group = match (all.value("max_memory"), limit) {
        (Some(_), _) => {
            let bytes = all.whole("max_memory").filter(|bytes| *bytes < u64::MAX);
            return bytes.map(MemoryLimit::Each);
        }
        // A single worker has no derived limit, because nobody has requested one.
        (None, Some(limit)) if serve.workers > 1 => limit,
        (None, _) => return None,
    };
    let (megabytes, limit) = (group / 1_000_000, MemoryLimit::of_group(group));
    let spares: u32 = all.whole("spares").unwrap_or_default();
    let several = serve.workers + spares + u32::from(surges(all));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::tests::served;

    fn target() -> Target {
        Target { given: "/a".into(), path: "/a".into(), folder: "/".into(), is_site: false }
    }

    /// Returns the settings of a command line as the supervisor and the pool get them.
    fn of(words: &[&str]) -> (SupervisorConfig, PoolLimits) {
        let serve = served(&[&["serve", "a"], words].concat());
        let address = Address::parse(&serve.host, serve.port).unwrap();
        let limits = pool_limits(&serve, &Config::default(), &target(), &address);
        let builder = ConfigBuilder { address, files: None, for_app: None };
        (builder.build(&serve, target()), limits)
    }

    #[test]
    fn one_worker_has_the_same_settings_as_several() {
        let (config, limits) = of(&[]);
        assert_eq!((config.workers, config.restarts, config.is_on_terminal), (1, true, false));
        // No other worker could take the requests.
        assert_eq!(
            (limits.max_in_flight, limits.queue_timeout),
            (usize::MAX, Duration::from_secs(60))
        );
        assert_eq!(of(&["--drain=5s"]).0.times.drain, Duration::from_secs(5));
        assert!(!of(&["--restart=never"]).0.restarts);
        let interactive = of(&["--interactive"]).0;
        assert!(interactive.is_on_terminal && interactive.times.drain < Duration::from_secs(1));
    }

    #[test]
    fn defaults_are_those_of_the_table() {
        let (config, limits) = of(&["--workers=4"]);
        assert_eq!((config.workers, config.spares, config.surges), (4, 0, true));
        assert_eq!(
            (limits.max_in_flight, limits.max_sessions, limits.queue_timeout),
            (64, usize::MAX, Duration::from_secs(10))
        );
        assert_eq!((config.recycle.requests, config.recycle.age), (None, None));
        assert_eq!((config.times.drain, config.times.sessions), (Duration::from_secs(60), None));
        assert_eq!(config.times.start, Duration::from_secs(60));
        assert!(config.start_retries == 3 && !config.fails_fast);
        let reloaded = of(&["--reload"]).0;
        assert_eq!((reloaded.start_retries, reloaded.times.drain), (0, Duration::from_secs(1)));
    }

    #[test]
    fn converts_settings_of_workers() {
        let (config, limits) = of(&[
            "--workers=2",
            "--max-requests=1000",
            "--max-age=12h",
            "--max-memory=1.5GB",
            "--drain=500ms",
            "--drain-sessions=4h",
            "--spares=1",
            "--worker-timeout=1min",
            "--max-sessions=20",
            "--warmup=/, /predict?x=1",
            "--surge=0",
            "--max-in-flight=1",
            "--queue-timeout=500ms",
            "--start-retries=20",
            "--sticky=cookie",
            "--fail-fast",
        ]);
        let recycle = config.recycle;
        assert_eq!(
            (recycle.requests, recycle.age),
            (Some(1000), Some(Duration::from_secs(12 * 3600)))
        );
        assert!(matches!(recycle.memory, Some(MemoryLimit::Each(1_500_000_000))));
        assert_eq!(
            (config.times.drain, config.times.sessions),
            (Duration::from_millis(500), Some(Duration::from_secs(4 * 3600)))
        );
        assert_eq!((config.spares, config.surges, config.start_retries), (1, false, 20));
        assert_eq!(config.times.busy, Some(Duration::from_secs(60)));
        assert_eq!(config.warmup, ["/", "/predict?x=1"]);
        assert!(config.fails_fast && matches!(limits.session_affinity, SessionAffinity::Cookie));
        assert_eq!(
            (limits.max_sessions, limits.max_in_flight, limits.queue_timeout),
            (20, 1, Duration::from_millis(500))
        );
    }

    #[test]
    fn several_workers_share_the_memory_of_the_control_group() {
        let limit = |words: &[&str]| {
            worker_memory_limit(&served(&[&["serve", "a"], words].concat()), Some(8_000_000_000))
        };
        assert!(limit(&[]).is_none());
        assert!(matches!(limit(&["--workers=4"]), Some(limit) if limit.each(5).is_some()));
        for unlimited in ["--max-memory=0", "--max-memory=none", "--max-age=none"] {
            assert_eq!(limit(&["--workers=4", unlimited]).is_none(), unlimited != "--max-age=none");
        }
    }
}
