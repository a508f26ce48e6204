//! The file watcher of `--reload`, which detects changes to an app's files during development. It
//! scans the files periodically, because the kernel (inotify) does not report changes that another
//! machine or the host of a container makes in a shared folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The interval at which the app's files are scanned for changes. A scan of ten thousand files
/// takes some tens of milliseconds.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);

/// The maximum number of files that are watched for changes. A folder with more files is probably
/// not an app, but, for example, a home folder.
const MAX_FILES: usize = 10_000;

/// The extensions of the files that are watched for changes: those of source files. Data files are
/// not watched, because the app may write them itself.
const EXTENSIONS: [&str; 19] = [
    "r", "rmd", "qmd", "md", "html", "htm", "css", "scss", "js", "yml", "yaml", "sql", "stan",
    "cpp", "png", "jpg", "jpeg", "gif", "svg",
];

/// Folders that are not watched for changes, because they contain files of other projects. Hidden
/// folders are not watched either.
const IGNORED_FOLDERS: [&str; 5] =
    ["renv", "packrat", "node_modules", "rsconnect", "shiny_bookmarks"];

/// The time of a file's last change, and the size of the file.
type FileState = (Option<SystemTime>, u64);

/// A watcher that detects changes to the files in an app's folder.
#[derive(Debug)]
pub(crate) struct FileWatcher {
    folder: PathBuf,
    files: BTreeMap<PathBuf, FileState>,
}

impl FileWatcher {
    /// Returns a watcher of a folder. It detects changes that happen after this call.
    pub(crate) fn new(folder: &Path) -> FileWatcher {
        FileWatcher { folder: folder.into(), files: scan(folder) }
    }

    /// Waits until a file in the folder has changed and no further change follows, because editors
    /// write a file in several steps. Returns the first changed file, relative to the folder.
    pub(crate) fn wait_for_change(&mut self) -> PathBuf {
        loop {
            std::thread::sleep(SCAN_INTERVAL);
            let mut now = scan(&self.folder);
            if let Some(changed) = changed_file(&self.files, &now) {
                loop {
                    std::thread::sleep(SCAN_INTERVAL);
                    let next = scan(&self.folder);
                    if next == now {
                        break;
                    }
                    now = next;
                }
                self.files = now;
                return changed
                    .strip_prefix(&self.folder)
                    .map_or_else(|_| changed.clone(), Path::to_path_buf);
            }
        }
    }
}

/// Compares two scans of the app's folder. Returns one file that is new, has changed or was
/// deleted, or `None` if nothing has changed.
fn changed_file(
    before: &BTreeMap<PathBuf, FileState>,
    now: &BTreeMap<PathBuf, FileState>,
) -> Option<PathBuf> {
    let changed = now.iter().find(|(path, state)| before.get(*path) != Some(*state));
    let deleted = || before.keys().find(|path| !now.contains_key(*path));
    changed.map(|(path, _)| path).or_else(deleted).cloned()
}

fn scan(folder: &Path) -> BTreeMap<PathBuf, FileState> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        // A folder that was deleted meanwhile counts as empty.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Symbolic links to folders are not followed, because they may form a loop.
            let Ok(kind) = entry.file_type() else { continue };
            if name.starts_with('.') && name != ".Rprofile" && name != ".Renviron" {
                continue;
            }
            if kind.is_dir() {
                if !IGNORED_FOLDERS.contains(&&*name) {
                    folders.push(entry.path());
                }
            } else if is_app_file(&name) && found.len() < MAX_FILES {
                let about = fs::metadata(entry.path());
                let state = about.map_or((None, 0), |about| (about.modified().ok(), about.len()));
                found.insert(entry.path(), state);
            }
        }
    }
    found
}

fn is_app_file(name: &str) -> bool {
    let extension =
        Path::new(name).extension().unwrap_or_default().to_string_lossy().to_lowercase();
    EXTENSIONS.contains(&&*extension) || name == ".Rprofile" || name == ".Renviron"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_app_files_from_data() {
        for name in ["app.R", "a.qmd", "style.CSS", "_server.yml", ".Rprofile"] {
            assert!(is_app_file(name), "{name}");
        }
        for name in ["data.csv", "model.rds", "app.R~", "access.log", "db.sqlite", "R", ""] {
            assert!(!is_app_file(name), "{name}");
        }
    }

    #[test]
    fn finds_changed_and_deleted_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["app.R", "R/f.R", "renv/library/x.R", ".git/y.R", "data.csv"] {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), "1").unwrap();
        }
        std::os::unix::fs::symlink(folder.path(), path("round")).unwrap();
        let before = scan(folder.path());
        assert_eq!(before.keys().cloned().collect::<Vec<_>>(), [path("R/f.R"), path("app.R")]);
        assert_eq!(changed_file(&before, &scan(folder.path())), None);
        for name in ["renv/library/x.R", ".git/y.R", "data.csv"] {
            fs::write(path(name), "longer").unwrap();
        }
        assert_eq!(changed_file(&before, &scan(folder.path())), None);
        fs::write(path("R/f.R"), "longer").unwrap();
        assert_eq!(changed_file(&before, &scan(folder.path())), Some(path("R/f.R")));
        let now = scan(folder.path());
        fs::remove_file(path("app.R")).unwrap();
        assert_eq!(changed_file(&now, &scan(folder.path())), Some(path("app.R")));
    }

    #[test]
    fn scans_at_most_the_maximum_number_of_files() {
        let folder = tempfile::tempdir().unwrap();
        for at in 0..MAX_FILES + 10 {
            fs::File::create(folder.path().join(format!("{at}.R"))).unwrap();
        }
        assert_eq!(scan(folder.path()).len(), MAX_FILES);
    }

    #[test]
    fn reports_consecutive_changes_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.R");
        fs::write(&path, "1").unwrap();
        let mut watcher = FileWatcher::new(folder.path());
        let (changes, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || while changes.send(watcher.wait_for_change()).is_ok() {});
        for at in 0..10 {
            fs::write(&path, "x".repeat(at + 2)).unwrap();
            std::thread::sleep(SCAN_INTERVAL / 5);
        }
        let timeout = Duration::from_secs(60);
        assert_eq!(receiver.recv_timeout(timeout).unwrap(), Path::new("app.R"));
        fs::write(folder.path().join("b.R"), "2").unwrap();
        assert_eq!(receiver.recv_timeout(timeout).unwrap(), Path::new("b.R"));
    }
}
