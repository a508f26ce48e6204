//! Scans of an app's folder, which find the files whose changes matter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The maximum number of files that are watched. A folder with more files is probably not an app,
/// but, for example, a home folder.
const MAX_FILES: usize = 10_000;

/// The maximum number of folders that are watched.
const MAX_FOLDERS: usize = 2000;

/// The extensions of the files that are watched. They are those of an app's source files. Data
/// files are not watched, because the app may write them itself.
const EXTENSIONS: [&str; 22] = [
    "r", "rmd", "qmd", "md", "html", "htm", "css", "scss", "sass", "js", "yml", "yaml", "sql",
    "stan", "cpp", "png", "jpg", "jpeg", "gif", "svg", "webp", "ico",
];

/// Files without one of the [`EXTENSIONS`] that are watched nevertheless, because R reads them when
/// it starts.
const START_FILES: [&str; 3] = [".Rprofile", ".Renviron", "renv.lock"];

/// Folders that are not watched, because they contain files of other projects or files that
/// programs write. Hidden folders are not watched either.
const IGNORED_FOLDERS: [&str; 5] =
    ["renv", "packrat", "node_modules", "rsconnect", "shiny_bookmarks"];

/// The ends of the names of folders that knitr and Quarto write.
const IGNORED_ENDS: [&str; 2] = ["_cache", "_files"];

/// The time of a file's last change, and the size of the file.
type FileState = (Option<SystemTime>, u64);

/// The watched files of an app's folder at one moment, and the folders that contain them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    files: BTreeMap<PathBuf, FileState>,
    pub(crate) folders: BTreeSet<PathBuf>,
}

impl Scan {
    /// Scans a folder with its subfolders. A folder that was deleted meanwhile counts as empty.
    pub(crate) fn of(folder: &Path) -> Scan {
        let mut scan = Scan::default();
        let mut folders = vec![folder.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                // Symbolic links to folders are not followed, because they may form a loop.
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() {
                    // Together with the folder that is being read.
                    let known = scan.folders.len() + folders.len() + 1;
                    if !is_ignored_folder(&name) && known < MAX_FOLDERS {
                        folders.push(entry.path());
                    }
                } else if is_app_file(&name) && scan.files.len() < MAX_FILES {
                    let about = fs::metadata(entry.path());
                    let state =
                        about.map_or((None, 0), |about| (about.modified().ok(), about.len()));
                    scan.files.insert(entry.path(), state);
                }
            }
            scan.folders.insert(folder);
        }
        scan
    }

    /// Returns the files that are new, have changed or were deleted since an earlier scan.
    pub(crate) fn changed_since(&self, before: &Scan) -> Vec<PathBuf> {
        let changed =
            self.files.iter().filter(|(path, state)| before.files.get(*path) != Some(*state));
        let deleted = before.files.keys().filter(|path| !self.files.contains_key(*path));
        changed.map(|(path, _)| path).chain(deleted).cloned().collect()
    }
}

/// Returns true if a file with this name is watched.
pub(crate) fn is_app_file(name: &str) -> bool {
    if START_FILES.contains(&name) {
        return true;
    }
    let extension =
        Path::new(name).extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    !name.starts_with('.') && EXTENSIONS.contains(&&*extension)
}

/// Returns true if a folder with this name is not watched.
pub(crate) fn is_ignored_folder(name: &str) -> bool {
    name.starts_with('.')
        || IGNORED_FOLDERS.contains(&name)
        || IGNORED_ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_app_files_from_data() {
        for name in ["app.R", "a.qmd", "style.CSS", "_server.yml", ".Rprofile", "renv.lock"] {
            assert!(is_app_file(name), "{name}");
        }
        for name in [
            "data.csv",
            "model.rds",
            "app.R~",
            ".app.R.swp",
            ".#app.R",
            "4913",
            "access.log",
            "db.sqlite",
            "R",
            "",
        ] {
            assert!(!is_app_file(name), "{name}");
        }
    }

    #[test]
    fn finds_changed_and_deleted_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let ignored = ["renv/library/x.R", ".git/y.R", "data.csv", "doc_files/a.js", "a_cache/b.R"];
        for name in ["app.R", "R/f.R"].iter().chain(&ignored) {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), "1").unwrap();
        }
        std::os::unix::fs::symlink(folder.path(), path("round")).unwrap();
        let before = Scan::of(folder.path());
        assert_eq!(
            before.files.keys().cloned().collect::<Vec<_>>(),
            [path("R/f.R"), path("app.R")]
        );
        assert_eq!(before.folders.len(), 2);
        for name in ignored {
            fs::write(path(name), "longer").unwrap();
        }
        assert!(Scan::of(folder.path()).changed_since(&before).is_empty());
        fs::write(path("R/f.R"), "longer").unwrap();
        let now = Scan::of(folder.path());
        assert_eq!(now.changed_since(&before), [path("R/f.R")]);
        fs::remove_file(path("app.R")).unwrap();
        assert_eq!(Scan::of(folder.path()).changed_since(&now), [path("app.R")]);
    }

    #[test]
    fn scans_at_most_the_maximum_numbers_of_files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        for at in 0..MAX_FILES + 10 {
            fs::File::create(folder.path().join(format!("{at}.R"))).unwrap();
        }
        for at in 0..MAX_FOLDERS + 10 {
            fs::create_dir(folder.path().join(at.to_string())).unwrap();
        }
        let scan = Scan::of(folder.path());
        assert_eq!((scan.files.len(), scan.folders.len()), (MAX_FILES, MAX_FOLDERS));
    }
}
