//! Profiles of R that a person requests from a running server, by route.
//!
//! A profile is requested over the scoreboard of each R process. R's own profiler takes the samples
//! and writes them to a file in the server's run folder. A separate thread watches the R processes
//! until the profile ends, and then joins their files. The profile ends in time even if an R
//! process does not react.

mod rprof;
mod session;
mod summary;
mod unended;

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt as _;
#[cfg(windows)]
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rookery_system::signals::with_signals_blocked;
use rookery_worker_protocol::{ProfileRequest, Scoreboard};
use serde_json::{Value, json};

use session::{Outcome, Seen, Session, Step, TargetState};
use summary::Summary;
use unended::{Unended, limit_size};

pub use rprof::{Added, JoinedProfile};

/// The maximum duration of a profile in seconds.
pub const MAX_PROFILE_SECONDS: u64 = 300;

/// The duration of a profile in seconds if none is chosen.
pub const DEFAULT_PROFILE_SECONDS: u64 = 10;

/// The maximum size of the joined file in bytes.
const MAX_SIZE: usize = 16 << 20;

/// The minimum share of [`MAX_SIZE`] that the file of one R process may have.
const MIN_SHARE: usize = 1 << 20;

/// The interval at which the state of the R processes is checked.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// The interval at which files are shortened that R processes write to after the end of a profile.
const SHORTENED_EVERY: Duration = Duration::from_millis(500);

/// The interval of samples for profiles of at most one minute, in milliseconds.
const INTERVAL_MS: u64 = 10;

/// Returns the name of the file to which an R process writes the profile with this number.
pub fn profile_file(number: u32) -> String {
    format!("profile-{number}.out")
}

/// An R process that can be profiled.
#[derive(Clone)]
pub struct ProfiledProcess {
    /// The serial number of the process among those of the server.
    pub key: u64,
    /// The number of the process's slot.
    pub slot: u32,
    /// The process id.
    pub pid: u32,
    /// The scoreboard of the process, by which the profile is requested.
    pub scoreboard: Arc<dyn AsRef<Scoreboard> + Send + Sync>,
    /// The folder in which R writes the file.
    pub folder: PathBuf,
}

impl fmt::Debug for ProfiledProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProfiledProcess({}, {})", self.slot, self.pid)
    }
}

/// A function that returns the R processes of a server that can be profiled now.
pub(crate) type ListProcesses = Box<dyn Fn() -> Vec<ProfiledProcess> + Send>;

/// The options of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProfileOptions {
    pub(crate) seconds: u64,
    /// The slot of the only worker that is profiled; `None` for all.
    pub(crate) worker: Option<u32>,
}

impl ProfileOptions {
    /// Reads the options from the query of a request, such as `?seconds=10&worker=1`.
    ///
    /// # Errors
    /// Returns a message for people if an option is wrong.
    pub(crate) fn of_query(query: &[u8]) -> Result<ProfileOptions, String> {
        let mut options = ProfileOptions { seconds: DEFAULT_PROFILE_SECONDS, worker: None };
        let query = String::from_utf8_lossy(query.get(1..).unwrap_or_default()).into_owned();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "seconds" => {
                    let seconds = value.parse().ok();
                    let seconds = seconds.filter(|it| (1..=MAX_PROFILE_SECONDS).contains(it));
                    options.seconds = seconds.ok_or_else(|| {
                        format!("`seconds` must be from 1 to {MAX_PROFILE_SECONDS}")
                    })?;
                }
                "worker" => {
                    let worker = value.parse();
                    let worker = worker.map_err(|_| "`worker` must be the number of a worker")?;
                    options.worker = Some(worker);
                }
                _ => return Err("a profile has only the options `seconds` and `worker`".to_owned()),
            }
        }
        Ok(options)
    }

    /// Returns the interval of the samples in milliseconds. A long profile has a longer interval,
    /// so that its file does not become larger.
    fn interval_ms(self) -> u16 {
        (self.seconds * INTERVAL_MS).div_ceil(60).max(INTERVAL_MS) as u16
    }
}

/// The error for a profile that could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartError {
    /// The error if another profile is running.
    Busy,
    /// No R process that was chosen is ready.
    NoProcess,
    /// A thread could not be started.
    Thread(String),
}

/// The profiler of a server, which takes one profile at a time and keeps the last one.
pub(crate) struct Profiler {
    shared: Arc<Shared>,
    /// The thread of the last profile, which watches the files that R processes have not ended
    /// until the next profile begins, and returns them.
    thread: Mutex<Option<JoinHandle<Vec<Unended>>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Whether the profile should end early.
    is_stopped: AtomicBool,
    /// Whether another profile begins, so that the thread of the last one should end.
    is_succeeded: AtomicBool,
    /// Whether the admin listener ends, so that the profile ends without its results.
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    number: u32,
    is_running: bool,
    options: Option<ProfileOptions>,
    began: Option<Instant>,
    workers: Vec<Value>,
    /// The last profile that has finished, which is kept until the next one has finished.
    finished: Option<Finished>,
}

/// A profile that has finished.
struct Finished {
    number: u32,
    options: ProfileOptions,
    workers: Vec<Value>,
    file: Arc<[u8]>,
    summary: Summary,
    seconds: f64,
}

impl Profiler {
    pub(crate) fn new() -> Profiler {
        Profiler { shared: Arc::default(), thread: Mutex::default() }
    }

    /// Starts a profile of the R processes that `list` returns, which may change meanwhile. Returns
    /// the number of the profile.
    ///
    /// # Errors
    /// Returns an error if another profile is running, or if there is no R process to profile.
    pub(crate) fn start(
        &self,
        list: ListProcesses,
        options: ProfileOptions,
    ) -> Result<u32, StartError> {
        let processes = list();
        let is_chosen =
            |it: &ProfiledProcess| options.worker.is_none_or(|worker| worker == it.slot);
        let count = processes.iter().filter(|it| is_chosen(it)).count();
        let mut state = self.shared.lock();
        if state.is_running {
            return Err(StartError::Busy);
        }
        if count == 0 {
            return Err(StartError::NoProcess);
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let unended = thread.take().map_or_else(Vec::new, |before| {
            // The thread waits for nothing but this, because no profile is running.
            self.shared.is_succeeded.store(true, Ordering::Release);
            before.thread().unpark();
            before.join().unwrap_or_default()
        });
        let number = state.number.wrapping_add(1).max(1);
        let shared = Arc::clone(&self.shared);
        shared.is_stopped.store(false, Ordering::Release);
        shared.is_succeeded.store(false, Ordering::Release);
        let share = (MAX_SIZE / count).max(MIN_SHARE);
        // The thread runs no signal handlers, like the server's threads.
        let started = with_signals_blocked(|| {
            let run = move || Run::new(number, options, share, unended).run(&shared, &*list);
            std::thread::Builder::new().name("rookery-profile".to_owned()).spawn(run)
        });
        *thread = Some(started.map_err(|error| StartError::Thread(error.to_string()))?);
        *state = State {
            number,
            is_running: true,
            options: Some(options),
            began: Some(Instant::now()),
            workers: Vec::new(),
            finished: state.finished.take(),
        };
        Ok(number)
    }

    /// Ends the running profile early. Returns false if the profile with the number `only` is not
    /// the one that is running.
    pub(crate) fn stop(&self, only: Option<u32>) -> bool {
        let state = self.shared.lock();
        let is_meant = only.is_none_or(|number| state.is_running && state.number == number);
        if is_meant {
            self.shared.is_stopped.store(true, Ordering::Release);
        }
        is_meant
    }

    /// Returns the state of the running or last profile as JSON, or that of the profile with the
    /// number `only`. Returns `None` if there is no such profile any more.
    pub(crate) fn json(&self, only: Option<u32>) -> Option<Value> {
        let state = self.shared.lock();
        let number = only.unwrap_or(state.number);
        if let Some(last) = state.finished.as_ref().filter(|last| last.number == number) {
            return Some(json!({
                "state": "finished",
                "number": number,
                "seconds": last.options.seconds,
                "elapsed": null,
                "took": last.seconds,
                "interval_ms": last.options.interval_ms(),
                "size": last.file.len(),
                "workers": last.workers,
                "summary": last.summary.json(),
            }));
        }
        (number == state.number).then(|| {
            json!({
                "state": if state.is_running { "running" } else { "none" },
                "number": number,
                "seconds": state.options.map(|options| options.seconds),
                "elapsed": state.began.map(|began| began.elapsed().as_secs_f64()),
                "took": null,
                "interval_ms": state.options.map(ProfileOptions::interval_ms),
                "size": null,
                "workers": state.workers,
                "summary": null,
            })
        })
    }

    /// Returns the number and the file of the last profile that has finished. Returns `None` if
    /// no profile has finished, or if its number is not `only`.
    pub(crate) fn file(&self, only: Option<u32>) -> Option<(u32, Arc<[u8]>)> {
        let state = self.shared.lock();
        let last = state.finished.as_ref();
        let last = last.filter(|last| only.is_none_or(|number| number == last.number));
        last.map(|last| (last.number, Arc::clone(&last.file)))
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            thread.thread().unpark();
            // A panic of the thread has been written to standard error already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A profile on its thread.
struct Run {
    request: ProfileRequest,
    options: ProfileOptions,
    /// The maximum size of the file of one R process.
    share: usize,
    session: Session,
    /// The R processes of the profile, by their serial numbers.
    processes: HashMap<u64, ProfiledProcess>,
    files: HashMap<u64, File>,
    /// The profiles before this one that R processes have not ended.
    unended: Vec<Unended>,
}

impl Run {
    fn new(number: u32, options: ProfileOptions, share: usize, unended: Vec<Unended>) -> Run {
        Run {
            request: ProfileRequest { number, interval_ms: options.interval_ms() },
            options,
            share,
            session: Session::new(Duration::from_secs(options.seconds), options.worker),
            processes: HashMap::new(),
            files: HashMap::new(),
            unended,
        }
    }

    fn run(mut self, shared: &Shared, list: &dyn Fn() -> Vec<ProfiledProcess>) -> Vec<Unended> {
        let began = Instant::now();
        while !self.session.is_over() {
            if shared.is_over.load(Ordering::Acquire) {
                self.processes.values().for_each(withdraw);
                return Vec::new();
            }
            if shared.is_stopped.load(Ordering::Acquire) {
                self.session.stop();
            }
            self.look(began.elapsed(), list());
            shared.lock().workers = self.workers(None);
            if !self.session.is_over() {
                std::thread::park_timeout(LOOKS_EVERY);
            }
        }
        self.finish(began.elapsed(), shared);
        let stops =
            || [&shared.is_over, &shared.is_succeeded].iter().any(|it| it.load(Ordering::Acquire));
        while !stops() {
            self.limit_files(&list());
            if self.unended.is_empty() {
                break;
            }
            std::thread::park_timeout(SHORTENED_EVERY);
        }
        self.unended
    }

    /// Joins the files, and makes the profile the last one that has finished.
    fn finish(&mut self, took: Duration, shared: &Shared) {
        let seconds = took.min(Duration::from_secs(self.options.seconds)).as_secs_f64();
        let (file, summary, added) = self.join();
        let finished = Finished {
            number: self.request.number,
            options: self.options,
            workers: self.workers(Some(&added)),
            file: file.into(),
            summary,
            seconds,
        };
        for target in &self.session.targets {
            if target.state != TargetState::Ended(Outcome::NotEnded) {
                continue;
            }
            let file = self.files.remove(&target.key);
            if let Some((process, file)) = self.processes.remove(&target.key).zip(file) {
                self.unended.push(Unended { number: self.request.number, process, file });
            }
        }
        self.files.clear();
        let mut state = shared.lock();
        state.finished = Some(finished);
        state.is_running = false;
    }

    /// Limits the size of the files of this profile and of earlier ones that R processes have not
    /// ended.
    fn limit_files(&mut self, running: &[ProfiledProcess]) {
        self.unended.retain(|unended| unended.is_written(running));
        self.unended.iter().for_each(|unended| limit_size(&unended.file, 0));
        self.files.values().for_each(|file| limit_size(file, self.max_read()));
    }

    /// Returns the maximum number of bytes that are read from the file of one R process. A file may
    /// exceed its share, because R ends it only at the next check for interrupts.
    fn max_read(&self) -> u64 {
        (self.share + MIN_SHARE) as u64
    }

    fn look(&mut self, now: Duration, processes: Vec<ProfiledProcess>) {
        self.limit_files(&processes);
        let seen: Vec<Seen> = processes
            .iter()
            .map(|process| Seen {
                key: process.key,
                slot: process.slot,
                pid: process.pid,
                progress: (*process.scoreboard).as_ref().profile_progress(self.request.number),
                is_full: self
                    .files
                    .get(&process.key)
                    .and_then(|file| file.metadata().ok())
                    .is_some_and(|file| file.len() > self.share as u64),
            })
            .collect();
        let mut running: HashMap<u64, ProfiledProcess> =
            processes.into_iter().map(|process| (process.key, process)).collect();
        for (key, step) in self.session.turn(now, &seen) {
            if let Some(process) = running.remove(&key) {
                self.processes.insert(key, process);
            }
            let Some(process) = self.processes.get(&key) else { continue };
            match step {
                Step::Request => {
                    (*process.scoreboard).as_ref().request_profile(Some(self.request));
                }
                Step::Withdraw => withdraw(process),
                Step::Open => {
                    let path = process.folder.join(profile_file(self.request.number));
                    if let Some(file) = take_file(&path) {
                        self.files.insert(key, file);
                    }
                }
            }
        }
    }

    /// Joins the files of the R processes. Returns what was read from each of them.
    fn join(&mut self) -> (Vec<u8>, Summary, HashMap<u64, Added>) {
        let interval = self.request.interval_us();
        let mut joined = JoinedProfile::new(interval, MAX_SIZE);
        let mut added = HashMap::new();
        for target in &self.session.targets {
            let mut bytes = Vec::new();
            let most = self.max_read();
            if let Some(file) = self.files.get_mut(&target.key) {
                // After an error, the bytes that could be read are used.
                let _ = file.take(most).read_to_end(&mut bytes);
            }
            added.insert(target.key, joined.add(&bytes));
        }
        let (file, summary) = joined.finish();
        (file, summary, added)
    }

    /// Returns the state of each R process as JSON.
    fn workers(&self, added: Option<&HashMap<u64, Added>>) -> Vec<Value> {
        let one = |target: &session::Target| {
            let (state, problem) = match target.state {
                TargetState::Requested => ("waiting", None),
                TargetState::Running => ("running", None),
                TargetState::Ending(_) => ("ending", None),
                TargetState::Ended(outcome) => ("ended", outcome.problem()),
            };
            let added = added.and_then(|added| added.get(&target.key));
            let cut = added.is_some_and(|added| added.is_cut).then_some(
                "has more samples than the file of a profile may contain: the last are left out",
            );
            json!({
                "slot": target.slot,
                "pid": target.pid,
                "state": state,
                "problem": problem.or(cut),
                "samples": added.map(|added| added.samples),
            })
        };
        self.session.targets.iter().map(one).collect()
    }
}

fn withdraw(process: &ProfiledProcess) {
    (*process.scoreboard).as_ref().request_profile(None);
}

/// Opens the file of a profile, also for writing so that it can be shortened, and removes its name,
/// so that nothing is left behind however the processes end. Returns `None` if there is no such
/// file. The folder belongs to the server's user, but is written by R code, so links are not
/// followed.
fn take_file(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    #[cfg(windows)]
    options.custom_flags(windows_sys::Win32::Storage::FileSystem::FILE_FLAG_OPEN_REPARSE_POINT);
    let file = options.read(true).write(true).open(path).ok()?;
    let _ = fs::remove_file(path);
    file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
