//! Scans of an app's folder, which find the files whose changes matter.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::ignore_rules::IgnoreRules;

/// The maximum number of files that are watched. A folder with more files is probably not an app,
/// but, for example, a home folder.
pub(crate) const MAX_FILES: usize = 20_000;

/// The maximum number of folders that are watched.
pub(crate) const MAX_FOLDERS: usize = 4000;

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
pub(crate) type FileState = (Option<SystemTime>, u64);

/// The watched files of an app's folder at one moment, and the folders that contain them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    pub(crate) files: BTreeMap<PathBuf, FileState>,
    /// The watched files that are outside of the app's folder.
    pub(crate) outside: BTreeSet<PathBuf>,
    pub(crate) folders: BTreeSet<PathBuf>,
    /// The first folder that contains files or folders beyond the maximum numbers, which are not
    /// watched.
    pub(crate) too_large: Option<PathBuf>,
}

impl Scan {
    /// Scans a folder with its subfolders, also where these are symbolic links. Folders near the
    /// first one come first. A folder that was deleted meanwhile counts as empty.
    pub(crate) fn of(folder: &Path, ignored: &IgnoreRules) -> Scan {
        let mut scan = Scan::default();
        let mut folders = VecDeque::from([folder.to_path_buf()]);
        // The destinations of links, so that a loop of links ends. Most folders have no links.
        let mut linked: BTreeSet<PathBuf> = fs::canonicalize(folder).into_iter().collect();
        while let Some(within) = folders.pop_front() {
            for entry in fs::read_dir(&within).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let path = entry.path();
                let Ok(kind) = entry.file_type() else { continue };
                let is_file = is_app_file(&name);
                let is_link = kind.is_symlink();
                let is_folder = kind.is_dir() || is_link && !is_file && path.is_dir();
                let relative = path.strip_prefix(folder).unwrap_or(&path);
                if !is_folder && !is_file
                    || is_folder && is_ignored_folder(&name)
                    || ignored.contain(relative)
                {
                    continue;
                }
                if is_folder {
                    // Together with the folder that is being read.
                    let known = scan.folders.len() + folders.len() + 1;
                    if known >= MAX_FOLDERS {
                        scan.too_large.get_or_insert_with(|| within.clone());
                    } else if !is_link || is_new_destination(&path, folder, &mut linked) {
                        folders.push_back(path);
                    }
                } else if scan.files.len() < MAX_FILES {
                    let state = state_of(&path);
                    scan.files.insert(path, state);
                } else {
                    scan.too_large.get_or_insert_with(|| within.clone());
                }
            }
            scan.folders.insert(within);
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

/// Returns the state of a file. A file that cannot be found has no time.
pub(crate) fn state_of(path: &Path) -> FileState {
    fs::metadata(path).map_or((None, 0), |about| (about.modified().ok(), about.len()))
}

/// Returns true if a link leads to a folder that is not scanned yet: one outside of the app's
/// folder that no other link leads to.
fn is_new_destination(link: &Path, app: &Path, linked: &mut BTreeSet<PathBuf>) -> bool {
    let Ok(destination) = fs::canonicalize(link) else { return false };
    let is_inside = fs::canonicalize(app).is_ok_and(|app| destination.starts_with(app));
    let contains_link = linked.iter().any(|known| known.starts_with(&destination));
    !is_inside && !contains_link && linked.insert(destination)
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

    fn scan(folder: &tempfile::TempDir) -> Scan {
        Scan::of(folder.path(), &IgnoreRules::default())
    }

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
        let before = scan(&folder);
        assert_eq!(
            before.files.keys().cloned().collect::<Vec<_>>(),
            [path("R/f.R"), path("app.R")]
        );
        assert_eq!(before.folders.len(), 2);
        for name in ignored {
            fs::write(path(name), "longer").unwrap();
        }
        assert!(scan(&folder).changed_since(&before).is_empty());
        fs::write(path("R/f.R"), "longer").unwrap();
        let now = scan(&folder);
        assert_eq!(now.changed_since(&before), [path("R/f.R")]);
        fs::remove_file(path("app.R")).unwrap();
        assert_eq!(scan(&folder).changed_since(&now), [path("app.R")]);
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
        let scan = scan(&folder);
        assert_eq!((scan.files.len(), scan.folders.len()), (MAX_FILES, MAX_FOLDERS));
        assert_eq!(scan.too_large.as_deref(), Some(folder.path()));
    }

    #[test]
    fn linked_folders_are_scanned_once_and_ignored_ones_never() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let app = folder.path().join("app");
        for path in [app.join("output/a.R"), app.join("b.R"), other.path().join("shared.R")] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "1").unwrap();
        }
        for (to, link) in [
            (other.path(), "R"),
            (other.path(), "again"),
            (&*app, "loop"),
            (folder.path(), "above"),
            (&app.join("output"), "inside"),
        ] {
            std::os::unix::fs::symlink(to, app.join(link)).unwrap();
        }
        let scan = Scan::of(&app, &IgnoreRules::new(["output"]));
        // Either of the links to the same folder.
        let names: Vec<_> = scan.files.keys().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names.len(), 2, "{scan:?}");
        assert!(names.contains(&"shared.R".as_ref()) && names.contains(&"b.R".as_ref()));
        assert_eq!((scan.folders.len(), scan.too_large), (2, None));
    }
}
