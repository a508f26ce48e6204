//! The settings of workers (R processes), such as their number and their memory limit.

use std::time::Duration;

use rookery_settings::{Settings, Value};

use crate::failure::Failure;
use crate::settings::combined;

/// The settings of workers (R processes), such as their number and their memory limit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "choices that have nothing to do with each other")]
pub(crate) struct Workers {
    pub(crate) count: u32,
    /// Whether the only worker shares the terminal with this program, so that R can show its prompt
    /// there.
    pub(crate) is_interactive: bool,
    /// Whether a worker that has ended is restarted.
    pub(crate) restarts: bool,
    /// The number of spare workers, which are started and held in reserve.
    pub(crate) spares: u32,
    /// The number of extra workers that may run while workers are replaced. With 0, an old worker
    /// stops before the new one starts.
    pub(crate) surge: u32,
    /// The URL paths that are requested from a new worker before it gets traffic.
    pub(crate) warmup: Vec<String>,
    pub(crate) max_sessions: Option<u64>,
    /// The maximum number of requests that may be in progress in a worker at the same time.
    pub(crate) max_in_flight: usize,
    pub(crate) max_requests: Option<u64>,
    pub(crate) max_age: Option<Duration>,
    pub(crate) max_memory: MaxMemory,
    /// The maximum time for which a request may wait for a worker.
    pub(crate) queue_timeout: Duration,
    pub(crate) worker_timeout: Option<Duration>,
    pub(crate) slow_log: Option<Duration>,
    pub(crate) start_timeout: Duration,
    /// The number of times that a failed start of a worker is retried while no worker has ever been
    /// ready.
    pub(crate) start_retries: u32,
    pub(crate) drain: Duration,
    /// The maximum time for which the WebSockets of a replaced worker may stay open. `None` means
    /// the same time as `drain`.
    pub(crate) drain_sessions: Option<Duration>,
    pub(crate) sticky: Sticky,
    /// Whether workers are replaced when a file of the app changes.
    pub(crate) reload: bool,
    /// Whether the program exits when all workers keep crashing.
    pub(crate) fail_fast: bool,
}

/// The memory limit of a worker. A worker that uses more is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaxMemory {
    /// Each of several workers gets a part of the memory limit of the control group. If there is no
    /// such limit, or only one worker, workers have no memory limit.
    Share,
    Bytes(u64),
    /// Workers have no memory limit.
    Any,
}

/// The choice whether all requests of a client are sent to the same worker (session affinity).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sticky {
    Auto,
    None,
    Cookie,
}

impl Workers {
    /// Returns the settings of workers from the combined settings. In development, R shows a prompt
    /// in the terminal of this program if there is a single worker.
    ///
    /// # Errors
    /// Fails if several workers would share a terminal.
    pub(crate) fn of(all: &Settings) -> Result<Workers, Failure> {
        let is_dev = all.is_dev();
        let is_auto = all.value("workers").is_some_and(|count| count.is_word("auto"));
        let count = if is_auto { processors() } else { small(all, "workers") };
        let is_prompting = is_dev && count == 1 && is_at_terminal();
        let is_interactive =
            if all.is_given("interactive") { all.flag("interactive") } else { is_prompting };
        if is_interactive && count > 1 {
            return Err(Failure::CommandLine(
                "`--interactive` needs a single worker, because a terminal has one prompt: leave \
                 out `--workers`."
                    .to_owned(),
            ));
        }
        let time = |name| combined::time(all, name);
        Ok(Workers {
            count,
            is_interactive,
            restarts: all.text("restart").is_none_or(|when| when != "never"),
            spares: small(all, "spares"),
            surge: u32::from(all.text("surge").is_some_and(|surge| surge == "1")),
            warmup: all.list("warmup"),
            max_sessions: whole(all, "max_sessions"),
            max_in_flight: whole(all, "max_in_flight")
                .and_then(|most| usize::try_from(most).ok())
                .unwrap_or(usize::MAX),
            max_requests: whole(all, "max_requests"),
            max_age: time("max_age"),
            max_memory: match all.value("max_memory") {
                None => MaxMemory::Share,
                #[expect(clippy::cast_sign_loss, reason = "it is at least 32 MiB")]
                Some(Value::Number(bytes)) if bytes.is_finite() => MaxMemory::Bytes(bytes as u64),
                Some(_) => MaxMemory::Any,
            },
            queue_timeout: time("queue_timeout").unwrap_or_default(),
            worker_timeout: time("worker_timeout"),
            slow_log: time("slow_log"),
            start_timeout: time("start_timeout").unwrap_or_default(),
            start_retries: small(all, "start_retries"),
            drain: match time("drain") {
                _ if is_interactive && !all.is_given("drain") => Duration::from_millis(300),
                drain => drain.unwrap_or_default(),
            },
            drain_sessions: all.given("drain_sessions").and_then(|_| time("drain_sessions")),
            reload: all.flag("reload"),
            fail_fast: all.flag("fail_fast"),
            sticky: match all.text("sticky").as_deref() {
                Some("none") => Sticky::None,
                Some("cookie") => Sticky::Cookie,
                _ => Sticky::Auto,
            },
        })
    }
}

/// Returns true if standard input and standard error are both a terminal.
fn is_at_terminal() -> bool {
    use std::io::IsTerminal as _;
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Returns the value of a setting that is a whole number. Returns `None` if the setting has neither
/// a value nor a default.
#[expect(clippy::cast_sign_loss, reason = "no setting is negative")]
fn whole(all: &Settings, name: &str) -> Option<u64> {
    all.number(name).map(|number| number as u64)
}

/// Returns the value of a setting that is a whole number of at most 1000. The setting must have a
/// default.
fn small(all: &Settings, name: &str) -> u32 {
    whole(all, name).and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

/// Returns the number of workers for `auto`: the number in `WEB_CONCURRENCY`, or else the number of
/// processors that the control group and the CPU affinity of this process allow.
fn processors() -> u32 {
    const MOST: u32 = 1000;
    let count = std::env::var("WEB_CONCURRENCY").ok().and_then(|text| text.parse().ok());
    match count {
        Some(count @ 1..=MOST) => count,
        _ => std::thread::available_parallelism()
            .map_or(1, |count| count.get().min(MOST as usize) as u32),
    }
}

#[cfg(test)]
mod tests {
    use crate::command_line::tests::options_of;
    use crate::failure::message_of;

    use super::*;

    fn of(words: &[&str]) -> Result<Workers, Failure> {
        Workers::of(&Settings::combine(options_of(&[&["serve", "a"], words].concat()).given))
    }

    #[test]
    fn one_worker_has_the_same_settings_as_several() {
        let one = of(&[]).unwrap();
        assert_eq!((one.count, one.restarts, one.is_interactive), (1, true, false));
        // No other worker could take the requests.
        assert_eq!((one.max_in_flight, one.queue_timeout), (usize::MAX, Duration::from_secs(60)));
        assert_eq!(of(&["--workers=1"]).unwrap(), one);
        assert_eq!(of(&["--drain=5s"]).unwrap().drain, Duration::from_secs(5));
        assert!(!of(&["--restart=never"]).unwrap().restarts);
        let interactive = of(&["--interactive"]).unwrap();
        assert!(interactive.is_interactive && interactive.drain < Duration::from_secs(1));
        assert!(
            message_of(of(&["--interactive", "--workers=2"]))
                .starts_with("`--interactive` needs a single worker")
        );
        // The value depends on the machine.
        let auto = of(&["--workers=auto"]).unwrap();
        assert_eq!(auto.count, processors());
    }

    #[test]
    fn defaults_are_those_of_the_table() {
        let workers = of(&["--workers=4"]).unwrap();
        assert_eq!(
            (workers.count, workers.spares, workers.surge, workers.max_in_flight),
            (4, 0, 1, 64)
        );
        assert_eq!(
            (workers.max_memory, workers.max_requests, workers.max_age),
            (MaxMemory::Share, None, None)
        );
        assert_eq!((workers.drain, workers.drain_sessions), (Duration::from_secs(60), None));
        assert_eq!(
            (workers.queue_timeout, workers.start_timeout),
            (Duration::from_secs(10), Duration::from_secs(60))
        );
        assert!(workers.start_retries == 3 && !workers.fail_fast);
        let reloaded = of(&["--reload"]).unwrap();
        assert_eq!(
            (reloaded.count, reloaded.start_retries, reloaded.drain),
            (1, 0, Duration::from_secs(1))
        );
    }

    #[test]
    fn converts_settings_of_workers() {
        let workers = of(&[
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
        ])
        .unwrap();
        assert_eq!(
            (workers.max_requests, workers.max_memory),
            (Some(1000), MaxMemory::Bytes(1_500_000_000))
        );
        assert_eq!(workers.max_age, Some(Duration::from_secs(12 * 3600)));
        assert_eq!(
            (workers.drain, workers.queue_timeout),
            (Duration::from_millis(500), Duration::from_millis(500))
        );
        assert_eq!(workers.drain_sessions, Some(Duration::from_secs(4 * 3600)));
        assert_eq!((workers.spares, workers.max_sessions, workers.surge), (1, Some(20), 0));
        assert_eq!(
            (workers.worker_timeout, workers.max_in_flight),
            (Some(Duration::from_secs(60)), 1)
        );
        assert_eq!(workers.warmup, ["/", "/predict?x=1"]);
        assert_eq!((workers.start_retries, workers.sticky), (20, Sticky::Cookie));
        assert!(workers.fail_fast);
        assert_eq!(of(&["--workers=4", "--max-memory=0"]).unwrap().max_memory, MaxMemory::Any);
        assert_eq!(of(&["--workers=4", "--max-memory=none"]).unwrap().max_memory, MaxMemory::Any);
    }
}
