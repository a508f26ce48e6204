//! Determines whether a path is an app, a static site or neither, by the names of files and the
//! front matter of documents. This program itself serves static sites. Everything else is served by
//! an R process, which determines the kind of app (`serve-detect.R`) and announces it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use rookery_settings::similar_names;

use crate::failure::Failure;
use crate::user_paths::{absolute, expand_tilde, parent_folder};

/// The maximum number of lines at the start of a document that are searched for its front matter.
/// The R package uses the same number.
const MAX_FRONT_MATTER_LINES: usize = 200;
/// The maximum number of bytes of a document's front matter that are read. It applies to documents
/// with very long lines.
const MAX_FRONT_MATTER_SIZE: u64 = 64 << 10;

/// The names of the files by which a folder is recognized as an app, in the order in which the R
/// package looks for them.
const APP_FILES: [&str; 5] = ["_server.yml", "app.R", "server.R", "entrypoint.R", "plumber.R"];

/// The app, document or folder that the user wants to serve.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The absolute path that the user gave. Its symbolic links are not resolved, because a
    /// deployment may change where they lead (`/srv/app/current`). Each reload resolves it again.
    pub(crate) given: PathBuf,
    /// The absolute path of the app, document or folder to serve, with symbolic links resolved.
    pub(crate) path: PathBuf,
    /// The folder to serve, or the folder of the app or document to serve. The R process starts in
    /// this folder, and therefore reads the `.Rprofile` in it.
    pub(crate) folder: PathBuf,
    /// Whether the server serves a static site: a folder that has an `index.html`, but none
    /// of these: an R file, a `_server.yml`, a Shiny document. A folder with files for R is not a
    /// static site, because the source code of an app must not be published.
    pub(crate) is_site: bool,
}

impl Target {
    /// Finds the app, document or folder at the path that the user gave.
    ///
    /// # Errors
    /// Fails if the path does not exist. The error message suggests similar names, or says where a
    /// symbolic link leads.
    pub(crate) fn find(path_given: &Path) -> Result<Target, Failure> {
        let path =
            fs::canonicalize(expand_tilde(path_given)).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                    not_found(path_given)
                }
                _ => Failure::Unavailable(format!(
                    "`{}` cannot be served: {error}.",
                    path_given.display()
                )),
            })?;
        let is_site = path.is_dir() && is_site(&path);
        // Without a slash at the end, which would resolve a symbolic link.
        let given = absolute(path_given).components().collect();
        Ok(Target { given, folder: folder_of(&path), path, is_site })
    }

    /// Resolves the path that the user gave again, because its symbolic links may lead elsewhere
    /// since then.
    ///
    /// # Errors
    /// Fails if the path does not exist any more, or if it was a static site and leads to an app
    /// now, or the other way round, since another process would have to serve it.
    pub(crate) fn resolve_again(&self) -> Result<Target, Failure> {
        let now = Target::find(&self.given)?;
        if now.is_site == self.is_site {
            return Ok(now);
        }
        let (before, after) =
            if self.is_site { ("a static site", "an app") } else { ("an app", "a static site") };
        Err(Failure::Unavailable(format!(
            "{} is {after} and not {before} any more: restart the server.",
            now.show(&now.path)
        )))
    }

    /// Returns true if the path that the user gave leads to another folder or file now.
    pub(crate) fn has_moved(&self) -> bool {
        fs::canonicalize(&self.given).is_ok_and(|path| path != self.path)
    }

    /// Returns the folder of the app to which the path leads now. Returns `None` if the path does
    /// not exist.
    pub(crate) fn folder_now(&self) -> Option<PathBuf> {
        fs::canonicalize(&self.given).ok().map(|path| folder_of(&path))
    }

    /// Returns the text that shows the user `path`, the resolved path or folder, together with the
    /// path that the user gave if that path contains a symbolic link.
    pub(crate) fn show(&self, path: &Path) -> String {
        if self.is_linked() {
            format!("{} (`{}`)", path.display(), self.given.display())
        } else {
            path.display().to_string()
        }
    }

    /// Returns true if the path that the user gave contains a symbolic link.
    pub(crate) fn is_linked(&self) -> bool {
        let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink());
        self.given.ancestors().any(is_link)
    }

    /// Returns the name of the file by which the app is recognized, such as `app.R`, or `site` for
    /// a static site. Names of files are compared without regard to case.
    ///
    /// # Errors
    /// Fails if the folder or file cannot be served.
    pub(crate) fn app_file(&self) -> Result<String, Failure> {
        if self.is_site {
            return Ok("site".to_owned());
        }
        let name_of =
            |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let nothing = |why: &str| {
            Err(Failure::Unavailable(format!("`{}` cannot be served: {why}.", self.path.display())))
        };
        if !self.path.is_dir() {
            let name = name_of(&self.path);
            let lower = name.to_ascii_lowercase();
            return match lower.rsplit_once('.').map(|(_, extension)| extension) {
                Some("yml" | "yaml") if lower.starts_with("_server.") => Ok(name),
                Some("r") => Ok(name),
                Some("rmd" | "qmd") if mentions_shiny(&self.path) => Ok(name),
                Some("rmd" | "qmd") => nothing("its front matter does not ask for Shiny"),
                _ => nothing("it is not an R file, a document or a `_server.yml`"),
            };
        }
        let entries: Vec<PathBuf> = fs::read_dir(&self.path)
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        let named = |wanted: &&str| {
            let is_it = |path: &&PathBuf| name_of(path).eq_ignore_ascii_case(wanted);
            entries.iter().find(is_it)
        };
        let document = || entries.iter().find(|path| is_shiny_document(path));
        match APP_FILES.iter().find_map(named).or_else(document) {
            Some(path) => Ok(name_of(path)),
            None if entries.iter().any(|path| is_r_file(path)) => nothing(
                "it contains R files but no `app.R`, `server.R`, `entrypoint.R`, `plumber.R` or \
                 `_server.yml`, so it is neither an app nor a static site: name the file to serve",
            ),
            None => nothing(
                "it contains no `_server.yml`, `app.R`, `server.R`, `entrypoint.R`, `plumber.R`, \
                 `index.html` or document with Shiny",
            ),
        }
    }
}

/// Returns the folder of an app, document or folder.
fn folder_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.into() } else { parent_folder(path).into() }
}

/// Returns true if a folder is a static site: it has an `index.html`, but no R file, no
/// `_server.yml` and no document that may use Shiny. File names are compared without regard to
/// case.
fn is_site(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    folder.join("index.html").is_file()
        && !entries.flatten().any(|entry| {
            let path = entry.path();
            is_r_file(&path)
                || entry.file_name().eq_ignore_ascii_case("_server.yml")
                || is_shiny_document(&path)
        })
}

/// Returns true if the name of a file has the extension of R files.
fn is_r_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("r"))
}

/// Returns true if a file is an R Markdown or Quarto document whose front matter contains the word
/// `shiny`.
fn is_shiny_document(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    (extension == "rmd" || extension == "qmd") && mentions_shiny(path)
}

/// Returns true if the front matter of a document contains the word `shiny`, so that the document
/// may use Shiny. Returns false for a document that cannot be read.
fn mentions_shiny(document: &Path) -> bool {
    let Ok(file) = File::open(document) else { return false };
    let lines = BufReader::new(file.take(MAX_FRONT_MATTER_SIZE)).split(b'\n').map_while(Result::ok);
    let mut lines = lines.take(MAX_FRONT_MATTER_LINES).map(|line| line.trim_ascii_end().to_vec());
    lines.next().is_some_and(|first| first == b"---")
        && lines
            .take_while(|line| line != b"---" && line != b"...")
            .any(|line| line.windows(5).any(|word| word == b"shiny"))
}

/// Returns the failure for a path that does not exist. The message suggests similar names, or says
/// where a symbolic link leads.
pub(crate) fn not_found(path_given: &Path) -> Failure {
    let path = expand_tilde(path_given);
    // The path or one of its folders may be a link whose destination is missing.
    let link = path.ancestors().find_map(|at| Some((at, fs::read_link(at).ok()?)));
    if let Some((link, to)) = link.filter(|(link, _)| !link.exists()) {
        let missing = parent_folder(link).join(to.as_path());
        let place = if missing == to { String::new() } else { format!(" ({})", missing.display()) };
        return Failure::Unavailable(format!(
            "`{}` cannot be served: `{}` is a symbolic link to `{}`{place}, where there is no \
             file or folder.",
            path_given.display(),
            link.display(),
            to.display()
        ));
    }
    let parent = parent_folder(&path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let found = similar_names(&name, names.iter().map(String::as_str));
    // The suggestion shows the folder as the user wrote it.
    let place = if parent == Path::new(".") { Path::new("") } else { parent };
    let names: Vec<String> =
        found.iter().map(|name| format!("`{}`", place.join(name).display())).collect();
    let hint = if names.is_empty() {
        String::new()
    } else {
        format!("\nDid you mean {}?", names.join(", "))
    };
    let looked = match std::env::current_dir() {
        Ok(folder) if path.is_relative() => format!(" (looked in {})", folder.display()),
        _ => String::new(),
    };
    Failure::Unavailable(format!("`{}` does not exist{looked}.{hint}", path_given.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::message_of;

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_nowhere_is_named_with_its_destination() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("current");
        let shown = link.display();
        for to in ["/none/there", "releases/7"] {
            std::os::unix::fs::symlink(to, &link).unwrap();
            for path in [link.clone(), link.join("app.R")] {
                let message = message_of(Target::find(&path));
                let wanted = format!("`{shown}` is a symbolic link to `{to}`");
                assert!(message.contains(&wanted), "{message}");
                assert!(message.contains(&*path.to_string_lossy()), "{message}");
            }
            fs::remove_file(&link).unwrap();
        }
        // Without a dangling link, similar names are suggested.
        fs::create_dir(folder.path().join("currents")).unwrap();
        assert!(message_of(Target::find(&link)).contains("Did you mean"));
    }

    #[test]
    fn recognizes_an_app_by_the_names_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let found = |name: &str, text: &str| {
            let own = folder.path().join(name.replace('.', "-"));
            fs::create_dir(&own).unwrap();
            fs::write(own.join(name), text).unwrap();
            let app_file = |path: &Path| Target::find(path).unwrap().app_file().ok();
            (app_file(&own), app_file(&own.join(name)))
        };
        let file = |name: &str| Some(name.to_owned());
        for name in ["app.R", "Server.R", "entrypoint.R", "plumber.R", "_server.yml"] {
            assert_eq!(found(name, ""), (file(name), file(name)));
        }
        assert_eq!(found("other.R", ""), (None, file("other.R")));
        assert_eq!(found("index.html", ""), (file("site"), None));
        let shiny = "---\nruntime: shiny\n---\n";
        for name in ["a.Rmd", "a.qmd"] {
            assert_eq!(found(name, shiny), (file(name), file(name)));
        }
        assert_eq!(found("b.Rmd", "---\n---\n"), (None, None));
        assert_eq!(found("notes.txt", ""), (None, None));
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn a_folder_with_index_html_is_a_static_site_unless_it_has_r_files() {
        let index = ("index.html", "<p>");
        for (files, is_site) in [
            (&[index][..], true),
            (&[index, ("style.css", ""), ("index.Rmd", "---\ntitle: x\n---\nshiny")], true),
            (&[("INDEX.HTML", "")], false),
            (&[("page.html", "")], false),
            (&[], false),
            (&[index, ("App.R", "")], false),
            (&[index, ("_server.yml", "")], false),
            (&[index, ("plumber.R", "")], false),
            (&[index, ("secrets.r", "")], false),
            (&[index, ("doc.qmd", "---\r\nserver: shiny\r\n---\r\n")], false),
            (&[index, ("doc.Rmd", "---\nruntime: shiny\n---\n")], false),
            (&[index, ("doc.Rmd", "title: x\nruntime: shiny\n")], true),
        ] {
            let folder = folder(files);
            let found = Target::find(folder.path()).unwrap();
            assert_eq!((found.is_site, &found.folder), (is_site, &found.path), "{files:?}");
        }
    }

    #[test]
    fn a_file_is_served_in_its_folder() {
        let folder = folder(&[("my app.R", "1")]);
        let found = Target::find(&folder.path().join("my app.R")).unwrap();
        assert!(!found.is_site && found.path.ends_with("my app.R"));
        assert_eq!(found.folder, fs::canonicalize(folder.path()).unwrap());
    }

    #[test]
    fn a_missing_path_is_reported_with_similar_names() {
        let folder = folder(&[("shiny-app", "")]);
        let message = |name: &str| message_of(Target::find(&folder.path().join(name)));
        let near = format!("Did you mean `{}`?", folder.path().join("shiny-app").display());
        assert!(message("shinyapp").contains(&near), "{}", message("shinyapp"));
        assert!(!message("something/else").contains("Did you mean"));
        let relative = message_of(Target::find(Path::new("not-here-at-all")));
        assert!(
            relative.starts_with("`not-here-at-all` does not exist (looked in /"),
            "{relative}"
        );
    }
}
