//! What a change of files requires: new style sheets in the open pages, new pages, or a new start
//! of the app.

use std::path::{Path, PathBuf};

/// The folder of files that Shiny sends to browsers unchanged.
const PUBLIC_FOLDER: &str = "www";

/// The extensions of files that an open page can replace without a reload.
const REPLACEABLE: [&str; 8] = ["css", "png", "jpg", "jpeg", "gif", "svg", "webp", "ico"];

/// The extensions of files that R reads, even if they are in the folder of public files.
const READ_BY_R: [&str; 11] =
    ["r", "rmd", "qmd", "md", "scss", "sass", "yml", "yaml", "sql", "cpp", "stan"];

/// The files that R reads before the app is started.
const START_FILES: [&str; 3] = [".Rprofile", ".Renviron", "renv.lock"];

/// The names of the app's file of settings, in any case.
const SETTINGS_FILES: [&str; 2] = ["_server.yml", "_server.yaml"];

/// The reaction to a change of files of an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The open pages replace these style sheets and images. The names are those in URLs, without
    /// the path of the folder in which the app publishes them.
    Styles(Vec<String>),
    /// The open pages are reloaded, but the app is not started again.
    Page,
    /// The app is started again. `is_environment_kept` is false if R itself starts differently, so
    /// that an R process that has already been started cannot be used.
    App {
        /// Whether neither `_server.yml` nor a file that R reads at its start has changed.
        is_environment_kept: bool,
    },
}

impl Change {
    /// Returns what has to be done after these files have changed. Their paths are relative to the
    /// app's folder. `is_site` is true for a static site, whose files are sent to browsers
    /// unchanged.
    pub fn of(changed: &[PathBuf], is_site: bool) -> Change {
        let published: Option<Vec<&Path>> = changed
            .iter()
            .map(|path| {
                if is_site {
                    Some(path.as_path())
                } else {
                    path.strip_prefix(PUBLIC_FOLDER)
                        .ok()
                        .filter(|path| !READ_BY_R.contains(&&*extension(path)))
                }
            })
            .collect();
        let Some(published) = published else {
            let is_start_file = |path: &PathBuf| {
                path.to_str().is_some_and(|path| {
                    START_FILES.contains(&path)
                        || SETTINGS_FILES.iter().any(|name| name.eq_ignore_ascii_case(path))
                })
            };
            return Change::App { is_environment_kept: !changed.iter().any(is_start_file) };
        };
        if published.iter().all(|path| is_replaceable(path)) {
            Change::Styles(
                published.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            )
        } else {
            Change::Page
        }
    }
}

/// Returns true if an app may write a file with this path from its folder as output, such as an
/// image. Other files are certainly sources: code, style sheets and settings, and what browsers get
/// from the folder of public files.
pub(crate) fn may_be_output(path: &Path) -> bool {
    const CODE: [&str; 10] = ["r", "rmd", "qmd", "css", "scss", "sass", "js", "sql", "cpp", "stan"];
    let name = path.file_name().unwrap_or_default();
    let is_named = |names: &[&str]| names.iter().any(|own| name.eq_ignore_ascii_case(own));
    !path.starts_with(PUBLIC_FOLDER)
        && !CODE.contains(&&*extension(path))
        && !is_named(&START_FILES)
        && !is_named(&SETTINGS_FILES)
}

fn is_replaceable(path: &Path) -> bool {
    REPLACEABLE.contains(&&*extension(path))
}

fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_documents_outside_of_the_public_folder_may_be_output() {
        for name in ["plot.png", "R/report.html", "a.md", "state.yml"] {
            assert!(may_be_output(Path::new(name)), "{name}");
        }
        for name in
            ["app.R", "R/made.R", "www/plot.png", "a.css", "_server.yml", "renv.lock", "a.Rmd"]
        {
            assert!(!may_be_output(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn the_most_far_reaching_file_decides() {
        let of = |files: &[&str], is_site| {
            Change::of(&files.iter().map(PathBuf::from).collect::<Vec<_>>(), is_site)
        };
        let app = Change::App { is_environment_kept: true };
        let styles =
            |names: &[&str]| Change::Styles(names.iter().map(ToString::to_string).collect());
        assert_eq!(of(&["www/a.css", "www/i/b.PNG"], false), styles(&["a.css", "i/b.PNG"]));
        assert_eq!(of(&["www/a.css", "www/b.js"], false), Change::Page);
        assert_eq!(of(&["www/index.html"], false), Change::Page);
        assert_eq!(of(&["www/a.css", "app.R"], false), app);
        // R may have included it in the page.
        assert_eq!(of(&["a.css"], false), app);
        assert_eq!(of(&["a.css"], true), styles(&["a.css"]));
        assert_eq!(of(&["index.html", "a.css"], true), Change::Page);
        for file in ["www/doc.Rmd", "www/theme.scss", "www/i/q.SQL"] {
            assert_eq!(of(&["www/a.css", file], false), app, "{file}");
            assert_eq!(of(&[file], true), Change::Page, "{file}");
        }
        let settings = ["_server.yml", "_server.yaml", "_Server.YML"];
        for file in START_FILES.into_iter().chain(settings) {
            let kept = Change::App { is_environment_kept: false };
            assert_eq!(of(&["app.R", file], false), kept, "{file}");
        }
        assert_eq!(of(&["R/.Rprofile"], false), app);
    }
}
