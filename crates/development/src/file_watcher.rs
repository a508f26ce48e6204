//! The file watcher, which detects changes to an app's files during development.
//!
//! The kernel reports changes at once (by the crate notify). It does not report changes
//! that another machine or the host of a container makes in a shared folder. Therefore the files
//! are also scanned periodically, and only the scans decide what has changed.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::access::AccessLog;
use crate::change::may_be_output;
use crate::ignore_rules::IgnoreRules;
use crate::outside_files::OutsideFiles;
use crate::restart_loop::RestartLoop;
use crate::scan::{MAX_FILES, MAX_FOLDERS, Scan, is_app_file, is_ignored_folder};

/// The shortest interval at which the files are scanned if the kernel reports no changes.
const MIN_SCAN_INTERVAL: Duration = Duration::from_secs(2);

/// The ratio of the interval between two scans to the duration of a scan. With 50, scans use at
/// most 2 % of a processor.
const SCAN_RATIO: u32 = 50;

/// The time without a change after which a change is complete. Editors write a file in several
/// steps, and may write several files.
const QUIET: Duration = Duration::from_millis(100);

/// The time without a change after which a change is complete if the last event was that a written
/// file was closed or a file was renamed. Only other files of a "save all" command may follow then.
const QUIET_AFTER_CLOSE: Duration = Duration::from_millis(30);

/// The maximum time for which changes are collected.
const MAX_COLLECTION: Duration = Duration::from_secs(1);

/// The rules by which a [`FileWatcher`] distinguishes sources of an app from other files.
#[derive(Debug, Default)]
pub struct WatchedFiles {
    /// The files and folders that are not watched.
    pub ignored: IgnoreRules,
    /// Whether the folder is a static site, all of whose files are sources.
    pub is_site: bool,
}

/// A watcher that detects changes to the files in an app's folder.
pub struct FileWatcher {
    /// The folder that is watched.
    folder: PathBuf,
    files: WatchedFiles,
    /// Returns the folder that should be watched now. The app's path may contain a symbolic link,
    /// which a deployment changes.
    find_folder: Box<dyn Fn() -> Option<PathBuf> + Send>,
    last: Scan,
    outside: OutsideFiles,
    scan_interval: Duration,
    /// The source of events; `None` if the kernel reports none. Each folder is watched on its own,
    /// because a recursive watch would include folders such as `node_modules`.
    source: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    events: Receiver<()>,
    /// Whether the last event was the end of a change: a written file was closed, or a file was
    /// renamed.
    is_closed: Arc<AtomicBool>,
    /// The accesses to files that the kernel has reported since the last start of the app.
    accesses: Arc<Mutex<AccessLog>>,
    restarts: RestartLoop,
    /// Receives messages for the user.
    notice: fn(&str),
    /// Whether the user knows that the folder has too many files.
    is_size_reported: bool,
}

impl fmt::Debug for FileWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWatcher").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl FileWatcher {
    /// Returns a watcher of a folder, which detects changes that happen after this call.
    ///
    /// Before each further scan, `find_folder` is called. If it returns another folder, all files
    /// of that folder count as changed, and that folder is watched from then on. `notice` is called
    /// with messages for the user, for example if the kernel cannot report changes.
    pub fn new(
        folder: PathBuf,
        find_folder: impl Fn() -> Option<PathBuf> + Send + 'static,
        files: WatchedFiles,
        notice: fn(&str),
    ) -> FileWatcher {
        // One waiting event suffices, because an event only causes a scan.
        let (sender, events) = sync_channel(1);
        let is_closed = Arc::<AtomicBool>::default();
        let accesses = Arc::<Mutex<AccessLog>>::default();
        let (is_last_closed, log) = (Arc::clone(&is_closed), Arc::clone(&accesses));
        let source = notify::recommended_watcher(move |event| {
            on_event(event, &is_last_closed, &log, &sender);
        });
        let mut watcher = FileWatcher {
            folder,
            files,
            find_folder: Box::new(find_folder),
            last: Scan::default(),
            outside: OutsideFiles::default(),
            scan_interval: MIN_SCAN_INTERVAL,
            source: None,
            watched: BTreeSet::new(),
            events,
            is_closed,
            accesses,
            restarts: RestartLoop::default(),
            notice,
            is_size_reported: false,
        };
        let failure = match source {
            Ok(source) => {
                watcher.source = Some(source);
                let scan = watcher.scan();
                let missing = scan.folders.len() - watcher.watched.len();
                match (watcher.watched.len(), missing) {
                    (0, _) => Some("no folder can be watched".to_owned()),
                    (_, 0) => None,
                    (_, missing) => {
                        notice(&format!(
                            "the system does not report changes in {missing} of {} folders \
                             (inotify has a limit): these are checked every {} s",
                            scan.folders.len(),
                            watcher.scan_interval.as_secs()
                        ));
                        None
                    }
                }
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(failure) = failure {
            watcher.source = None;
            notice(&format!(
                "the system does not report changes of files ({failure}): they are checked every \
                 {} s",
                watcher.scan_interval.as_secs()
            ));
        }
        // Again, because a file may have changed before its folder was watched.
        watcher.last = watcher.scan();
        watcher.on_restart();
        watcher
    }

    /// Records that the app is being started again. What it reads from now on before it writes it
    /// are its sources. The first start is expected to follow the creation of the watcher.
    pub fn on_restart(&mut self) {
        self.log().on_restart();
        self.restarts.on_start(Instant::now());
    }

    /// Waits until files in the folder, or files that its code names, have changed and no further
    /// change follows. Returns the changed files, relative to the folder where they are in it.
    pub fn wait_for_changes(&mut self) -> Vec<PathBuf> {
        loop {
            let is_event = match self.events.recv_timeout(self.scan_interval) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                // No event can arrive any more.
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(self.scan_interval);
                    false
                }
            };
            let until = Instant::now() + MAX_COLLECTION;
            if is_event {
                while Instant::now() < until && self.events.recv_timeout(self.quiet()).is_ok() {}
            }
            if let Some(folder) = (self.find_folder)() {
                self.folder = folder;
            }
            let mut now = self.scan();
            if now.changed_since(&self.last).is_empty() {
                self.last = now;
                continue;
            }
            while !is_event && Instant::now() < until {
                std::thread::sleep(QUIET);
                let before = std::mem::replace(&mut now, self.scan());
                if now == before {
                    break;
                }
            }
            let changed = now.changed_since(&self.last);
            self.last = now;
            let changed = self.without_output(changed);
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    /// Returns the paths relative to the folder of those changed files that the app does not write
    /// itself. The paths of files outside of the folder are absolute.
    fn without_output(&mut self, changed: Vec<PathBuf>) -> Vec<PathBuf> {
        let mut sources = Vec::with_capacity(changed.len());
        {
            let log = self.log();
            for path in changed {
                let relative = match path.strip_prefix(&self.folder) {
                    Ok(relative) => relative,
                    Err(_) if self.last.outside.contains(&path) => &path,
                    // A file of the folder that was watched before.
                    Err(_) => continue,
                };
                let is_output =
                    !self.files.is_site && may_be_output(relative) && log.is_output(&path);
                if !is_output {
                    sources.push(relative.to_owned());
                }
            }
        }
        for own in self.restarts.remove_own_changes(&mut sources, Instant::now()) {
            (self.notice)(&format!(
                "`{}` changes whenever the app has been started, so the app seems to write it: \
                 these changes do not start it again (add the file to `ignore` in `_server.yml`)",
                own.display()
            ));
        }
        sources
    }

    fn log(&self) -> MutexGuard<'_, AccessLog> {
        self.accesses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time without a further event after which a change is complete.
    fn quiet(&self) -> Duration {
        if self.is_closed.load(Ordering::Relaxed) { QUIET_AFTER_CLOSE } else { QUIET }
    }

    /// Scans the folder, and watches the subfolders that are new.
    fn scan(&mut self) -> Scan {
        let started = Instant::now();
        let mut scan = Scan::of(&self.folder, &self.files.ignored);
        if !self.files.is_site {
            self.outside.add_to(&mut scan, &self.folder);
        }
        if let Some(folder) = scan.too_large.as_ref().filter(|_| !self.is_size_reported) {
            self.is_size_reported = true;
            (self.notice)(&format!(
                "the app's folder has more than {MAX_FILES} files or {MAX_FOLDERS} folders: a part \
                 of `{}` is not watched, and folders in it (name folders in `ignore` in \
                 `_server.yml`)",
                folder.display()
            ));
        }
        self.scan_interval = MIN_SCAN_INTERVAL.max(started.elapsed() * SCAN_RATIO);
        if let Some(source) = &mut self.source {
            self.watched.retain(|folder| {
                let is_kept = scan.folders.contains(folder);
                if !is_kept {
                    // Fails if the folder was deleted, which the kernel forgets by itself.
                    let _ = source.unwatch(folder);
                }
                is_kept
            });
            for folder in &scan.folders {
                if !self.watched.contains(folder)
                    && source.watch(folder, RecursiveMode::NonRecursive).is_ok()
                {
                    self.watched.insert(folder.clone());
                }
            }
        }
        scan
    }
}

/// Records an event about an app's file, and requests a scan if it may have changed a file or
/// folder.
fn on_event(
    event: notify::Result<Event>,
    is_closed: &AtomicBool,
    accesses: &Mutex<AccessLog>,
    scan: &SyncSender<()>,
) {
    let (is_relevant, is_end) = match event {
        Ok(event) => {
            if event.paths.iter().any(|path| is_app_file(&file_name(path))) {
                accesses.lock().unwrap_or_else(PoisonError::into_inner).add(&event);
            }
            let is_end = matches!(
                event.kind,
                EventKind::Access(AccessKind::Close(AccessMode::Write))
                    | EventKind::Modify(ModifyKind::Name(_))
                    | EventKind::Remove(_)
            );
            let is_change = is_end || !matches!(event.kind, EventKind::Access(_));
            (is_change && event.paths.iter().any(|path| is_relevant(path)), is_end)
        }
        // Events have been lost.
        Err(_) => (true, false),
    };
    if is_relevant {
        is_closed.store(is_end, Ordering::Relaxed);
        // If an event is already waiting, it causes the scan.
        let _ = scan.try_send(());
    }
}

fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or(OsStr::new("")).to_string_lossy()
}

fn is_relevant(path: &Path) -> bool {
    let name = file_name(path);
    // A name without an extension may be a new folder.
    is_app_file(&name) || (path.extension().is_none() && !is_ignored_folder(&name))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::sync::mpsc;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn watcher(folder: &Path, files: WatchedFiles) -> FileWatcher {
        FileWatcher::new(folder.into(), || None, files, |notice| panic!("{notice}"))
    }

    /// Watches a folder on another thread, and returns the changes.
    fn watch(folder: &Path, has_events: bool) -> mpsc::Receiver<Vec<PathBuf>> {
        let mut watcher = watcher(folder, WatchedFiles::default());
        if !has_events {
            watcher.source = None;
        }
        let (changes, receiver) = mpsc::channel();
        std::thread::spawn(move || while changes.send(watcher.wait_for_changes()).is_ok() {});
        receiver
    }

    #[test]
    fn consecutive_changes_are_reported_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.R");
        fs::write(&path, "1").unwrap();
        for has_events in [true, false] {
            let changes = watch(folder.path(), has_events);
            for at in 0..10 {
                fs::write(&path, "x".repeat(at + 2)).unwrap();
                std::thread::sleep(QUIET / 10);
            }
            assert_eq!(changes.recv_timeout(TIMEOUT).unwrap(), [Path::new("app.R")]);
            // On a busy machine, pauses between the changes may be longer than those of an editor.
            let further = std::iter::from_fn(|| changes.recv_timeout(MAX_COLLECTION * 3).ok());
            assert!(further.count() < 5);
            fs::write(folder.path().join("b.R"), "2").unwrap();
            assert_eq!(changes.recv_timeout(TIMEOUT).unwrap(), [Path::new("b.R")]);
            fs::remove_file(folder.path().join("b.R")).unwrap();
            assert_eq!(changes.recv_timeout(TIMEOUT).unwrap(), [Path::new("b.R")]);
        }
    }

    #[test]
    fn a_change_is_reported_soon_and_a_stream_of_changes_within_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let changes = watch(folder.path(), true);
        let started = Instant::now();
        fs::write(folder.path().join("a.R"), "1").unwrap();
        changes.recv_timeout(TIMEOUT).unwrap();
        assert!(started.elapsed() < MIN_SCAN_INTERVAL, "{:?}", started.elapsed());
        // The file stays open, because a busy machine may pause for longer than a closed one waits.
        let started = Instant::now();
        let mut open = fs::File::create(folder.path().join("b.R")).unwrap();
        while changes.try_recv().is_err() {
            open.write_all(b"1").unwrap();
            std::thread::sleep(QUIET / 10);
            assert!(started.elapsed() < TIMEOUT);
        }
        assert!(started.elapsed() >= MAX_COLLECTION);
    }

    #[test]
    fn a_closed_file_is_reported_sooner_than_one_that_stays_open() {
        let folder = tempfile::tempdir().unwrap();
        let changes = watch(folder.path(), true);
        let report = |change: &mut dyn FnMut()| {
            let started = Instant::now();
            change();
            changes.recv_timeout(TIMEOUT).unwrap();
            started.elapsed()
        };
        // A busy machine delays some of the reports.
        let is_soon = (0..100).any(|at| {
            let path = folder.path().join("app.R");
            report(&mut || fs::write(&path, format!("{at}")).unwrap()) < QUIET
        });
        assert!(is_soon);
        let mut open = fs::File::create(folder.path().join("b.R")).unwrap();
        changes.recv_timeout(TIMEOUT).unwrap();
        assert!(report(&mut || open.write_all(b"half").unwrap()) >= QUIET);
    }

    /// Waits until all these files have been reported, and returns all that were reported.
    fn await_files(watcher: &mut FileWatcher, wanted: &[&str]) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        while !wanted.iter().all(|name| found.contains(Path::new(name))) {
            found.extend(watcher.wait_for_changes());
        }
        found
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_that_the_app_writes_are_not_reported_and_those_that_it_reads_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |names: &[&str], text: &str| {
            for name in names {
                fs::write(path(name), text).unwrap();
            }
        };
        fs::create_dir(path("www")).unwrap();
        write(&["read.md", "both.html", "old.png"], "1");
        let mut own = watcher(folder.path(), WatchedFiles::default());
        for name in ["read.md", "both.html"] {
            fs::read(path(name)).unwrap();
        }
        write(&["new.png", "old.png", "both.html", "www/new.png", "made.R"], "22");
        let wanted = ["both.html", "made.R", "www/new.png"];
        let found = await_files(&mut own, &wanted);
        assert_eq!(found, wanted.iter().map(PathBuf::from).collect());
        // After a restart, sources stay, and what the app reads first becomes one.
        own.on_restart();
        fs::read(path("new.png")).unwrap();
        write(&["old.png", "read.md", "new.png"], "333");
        let wanted = ["new.png", "read.md"];
        let found = await_files(&mut own, &wanted);
        assert_eq!(found, wanted.iter().map(PathBuf::from).collect());
        let site = WatchedFiles { is_site: true, ..WatchedFiles::default() };
        let mut own = watcher(folder.path(), site);
        write(&["site.png"], "1");
        await_files(&mut own, &["site.png"]);
    }

    #[test]
    fn files_in_new_folders_and_replaced_files_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("app.R"), "1").unwrap();
        let changes = watch(folder.path(), true);
        fs::create_dir(folder.path().join("R")).unwrap();
        fs::write(folder.path().join("R/f.R"), "1").unwrap();
        assert_eq!(changes.recv_timeout(TIMEOUT).unwrap(), [Path::new("R/f.R")]);
        fs::write(folder.path().join("R/f.R"), "22").unwrap();
        assert_eq!(changes.recv_timeout(TIMEOUT).unwrap(), [Path::new("R/f.R")]);
        // As many editors save.
        fs::write(folder.path().join("app.R~"), "333").unwrap();
        fs::rename(folder.path().join("app.R~"), folder.path().join("app.R")).unwrap();
        assert_eq!(changes.recv_timeout(TIMEOUT).unwrap(), [Path::new("app.R")]);
    }

    #[test]
    fn a_folder_that_a_link_leads_to_later_is_watched_in_place_of_the_first_one() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        for release in ["1", "2"] {
            fs::create_dir(root.join(release)).unwrap();
            fs::write(root.join(release).join("app.R"), "1").unwrap();
        }
        let (switched, link) = (Arc::<AtomicBool>::default(), root.clone());
        let is_switched = Arc::clone(&switched);
        let find =
            move || Some(link.join(if is_switched.load(Ordering::Relaxed) { "2" } else { "1" }));
        let files = WatchedFiles::default();
        let mut watcher =
            FileWatcher::new(root.join("1"), find, files, |notice| panic!("{notice}"));
        switched.store(true, Ordering::Relaxed);
        // This event causes the scan, before the time of the next one.
        fs::write(root.join("1/app.R"), "22").unwrap();
        assert_eq!(watcher.wait_for_changes(), [Path::new("app.R")]);
        assert_eq!(watcher.watched, BTreeSet::from([root.join("2")]));
        fs::write(root.join("2/b.R"), "2").unwrap();
        assert_eq!(watcher.wait_for_changes(), [Path::new("b.R")]);
    }

    #[test]
    fn files_outside_of_the_folder_are_watched_if_the_code_names_them() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let app = root.join("app");
        fs::create_dir(&app).unwrap();
        fs::write(app.join("app.R"), "source('../common.R')").unwrap();
        fs::write(root.join("common.R"), "1").unwrap();
        fs::write(root.join("other.R"), "1").unwrap();
        for has_events in [true, false] {
            let changes = watch(&app, has_events);
            fs::write(root.join("other.R"), "22").unwrap();
            fs::write(root.join("common.R"), format!("{has_events}")).unwrap();
            assert_eq!(changes.recv_timeout(TIMEOUT).unwrap(), [root.join("common.R")]);
        }
    }

    #[test]
    fn other_files_cause_no_scan() {
        for (name, expected) in [
            ("app.R", true),
            ("R", true),
            ("access.log", false),
            ("db.sqlite-journal", false),
            (".git", false),
            ("node_modules", false),
        ] {
            assert_eq!(is_relevant(Path::new(name)), expected, "{name}");
        }
    }
}
