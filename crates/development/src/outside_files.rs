//! Finds the sources of an app that are outside of its folder, such as `source("../common/f.R")`.
//!
//! Such a file is named by a string in the app's R code. A path that the code composes, for example
//! by `file.path()`, is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::scan::{FileState, Scan, is_app_file, state_of};

/// The maximum number of files outside of the app's folder that are watched.
const MAX_OUTSIDE: usize = 200;

/// The maximum number of bytes of a file of R code that are searched for paths.
const MAX_CODE_SIZE: u64 = 1 << 20;

/// The extensions of the files that contain R code.
const CODE: [&str; 3] = ["r", "rmd", "qmd"];

/// The paths in the R code of an app that lead out of its folder.
#[derive(Debug, Default)]
pub(crate) struct OutsideFiles {
    /// For each file of R code, its state when it was read, and the paths in it.
    read: BTreeMap<PathBuf, (FileState, Vec<String>)>,
}

impl OutsideFiles {
    /// Adds to a scan of `folder` the files outside of it that its R code names, and those that
    /// their code names.
    pub(crate) fn add_to(&mut self, scan: &mut Scan, folder: &Path) {
        let Ok(app) = fs::canonicalize(folder) else { return };
        let mut unread: Vec<(PathBuf, FileState)> = scan
            .files
            .iter()
            .filter(|(path, _)| is_code(path))
            .map(|(path, state)| (path.clone(), *state))
            .collect();
        let mut seen = BTreeSet::new();
        while let Some((path, state)) = unread.pop() {
            for named in self.paths_in(&path, state) {
                let Ok(path) = fs::canonicalize(resolved(&named, folder)) else {
                    continue;
                };
                let is_new = !path.starts_with(&app)
                    && path.is_file()
                    && !scan.files.contains_key(&path)
                    && scan.outside.len() < MAX_OUTSIDE;
                if is_new {
                    let state = state_of(&path);
                    if is_code(&path) {
                        unread.push((path.clone(), state));
                    }
                    scan.folders.extend(path.parent().map(Path::to_owned));
                    scan.outside.insert(path.clone());
                    scan.files.insert(path, state);
                }
            }
            seen.insert(path);
        }
        self.read.retain(|path, _| seen.contains(path));
    }

    /// Returns the paths in a file of R code, which is read only if it has changed.
    fn paths_in(&mut self, path: &Path, state: FileState) -> Vec<String> {
        match self.read.get(path) {
            Some((known, paths)) if *known == state => paths.clone(),
            _ => {
                let mut code = Vec::new();
                // A file that cannot be read names no paths.
                let _ = File::open(path)
                    .and_then(|file| file.take(MAX_CODE_SIZE).read_to_end(&mut code));
                let paths = outside_paths(&String::from_utf8_lossy(&code));
                self.read.insert(path.to_owned(), (state, paths.clone()));
                paths
            }
        }
    }
}

/// Returns the path that a string stands for in R code, which runs in the app's folder.
fn resolved(named: &str, folder: &Path) -> PathBuf {
    match (named.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => folder.join(named),
    }
}

fn is_code(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    CODE.iter().any(|own| extension.eq_ignore_ascii_case(own))
}

/// Returns the strings in R code that are paths of sources and may lead out of the app's folder.
/// A string ends with its line, because the text of a document may contain apostrophes.
fn outside_paths(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for line in code.lines() {
        let mut rest = line;
        while let Some(start) = rest.find(['"', '\'', '#']) {
            let quote = rest.as_bytes()[start];
            rest = &rest[start + 1..];
            let end = rest.find(char::from(quote));
            let (true, Some(end)) = (quote != b'#', end) else { break };
            let text = &rest[..end];
            let leads_out = text.starts_with(['/', '~']) || text.split('/').any(|it| it == "..");
            let name = text.rsplit('/').next().unwrap_or_default();
            if leads_out && is_app_file(name) {
                paths.push(text.to_owned());
            }
            rest = &rest[end + 1..];
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignore_rules::IgnoreRules;

    #[test]
    fn strings_that_lead_out_of_the_folder_are_found() {
        for (code, expected) in [
            ("source('../common/f.R')", &["../common/f.R"][..]),
            ("a(\"x\"); includeMarkdown(\"R/../../about.md\")", &["R/../../about.md"]),
            ("source(\"~/f.R\"); sys.source('/srv/f.r', e)", &["~/f.R", "/srv/f.r"]),
            ("# source('../f.R')", &[]),
            ("x <- '#'; source('../f.R') # it's", &["../f.R"]),
            ("It's text.\nsource('../f.R')", &["../f.R"]),
            ("source('R/f.R'); read.csv('../data.csv'); get('/api'); x <- '..'", &[]),
        ] {
            assert_eq!(outside_paths(code), expected, "{code}");
        }
    }

    #[test]
    fn files_outside_of_the_folder_are_added_to_a_scan() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let app = root.join("app");
        for name in ["app", "common", "more"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        fs::write(app.join("app.R"), "source('../common/f.R'); source('../none.R')").unwrap();
        fs::write(root.join("common/f.R"), "source('../more/g.R'); source('../app/app.R')")
            .unwrap();
        fs::write(root.join("more/g.R"), "source('../common/f.R')").unwrap();
        let mut outside = OutsideFiles::default();
        let mut scan = || {
            let mut scan = Scan::of(&app, &IgnoreRules::default());
            outside.add_to(&mut scan, &app);
            scan
        };
        let before = scan();
        let (f, g) = (root.join("common/f.R"), root.join("more/g.R"));
        assert_eq!(before.outside, BTreeSet::from([f.clone(), g.clone()]));
        assert_eq!(before.folders, ["app", "common", "more"].map(|name| root.join(name)).into());
        assert_eq!(scan(), before);
        fs::write(&g, "changed <- TRUE").unwrap();
        assert_eq!(scan().changed_since(&before), std::slice::from_ref(&g));
        // A file that is no longer named is not watched any more.
        fs::write(&f, "1").unwrap();
        assert_eq!(scan().outside, BTreeSet::from([f]));
    }
}
