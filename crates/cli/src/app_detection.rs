//! Determines what kind of app to serve at a path. This program itself serves static sites.
//! Everything else is served by an R process, which determines the exact kind of app
//! (`serve-detect.R`).

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

/// The annotations, such as `@get`, by which an R file is recognized as a plumber API. The function
/// `detect_script()` in the R package uses the same ones, and those that begin with `api` and an
/// upper-case letter.
const PLUMBER_TAGS: [&str; 11] = [
    "get", "post", "put", "delete", "patch", "head", "options", "use", "filter", "assets",
    "plumber",
];
/// The calls by which an R file is recognized as a Shiny app, as in `detect_script()`.
const SHINY_CALLS: [&str; 5] =
    ["shinyApp(", "shinyAppDir(", "shinyAppFile(", "shinyUI(", "shinyServer("];
/// The number of bytes at the start of an R file that are searched to determine the kind of its
/// app.
const MAX_SCRIPT_SIZE: u64 = 64 << 10;

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
    /// Whether the server serves a static site: a folder that has an `index.html` but no files for
    /// R. A folder with files for R is not a static site, because the source code of an app must
    /// not be published.
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

    /// Returns the kind of app, such as a Shiny app, judged by the names of its files.
    ///
    /// # Errors
    /// Fails if the folder or file cannot be served.
    pub(crate) fn kind(&self) -> Result<&'static str, Failure> {
        if self.is_site {
            return Ok("a site");
        }
        let nothing = |why: &str| {
            Err(Failure::Unavailable(format!("`{}` cannot be served: {why}.", self.path.display())))
        };
        if !self.path.is_dir() {
            let name =
                self.path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
            return match name.rsplit_once('.').map(|(_, extension)| extension) {
                Some("yml" | "yaml") if name.starts_with("_server.") => {
                    Ok("what _server.yml describes")
                }
                Some("r") => Ok(kind_of_script(&self.path)),
                Some("rmd" | "qmd") if mentions_shiny(&self.path) => {
                    Ok(kind_of_document(&self.path))
                }
                Some("rmd" | "qmd") => nothing("its front matter does not ask for Shiny"),
                _ => nothing("it is not an R file, a document or a `_server.yml`"),
            };
        }
        let entries = fs::read_dir(&self.path)
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect());
        let entries: Vec<PathBuf> = entries.unwrap_or_default();
        let has = |name: &str| {
            entries
                .iter()
                .any(|path| path.file_name().is_some_and(|own| own.eq_ignore_ascii_case(name)))
        };
        for (name, kind) in [
            ("_server.yml", "what _server.yml describes"),
            ("app.R", ""),
            ("server.R", "a Shiny app"),
            ("entrypoint.R", "a plumber API"),
            ("plumber.R", "a plumber API"),
        ] {
            if has(name) {
                let script = || kind_of_script(&self.path.join(name));
                return Ok(if kind.is_empty() { script() } else { kind });
            }
        }
        if let Some(document) = entries.iter().find(|path| is_shiny_document(path)) {
            return Ok(kind_of_document(document));
        }
        nothing(
            "it contains no `_server.yml`, `app.R`, `server.R`, `entrypoint.R`, `plumber.R`, \
             `index.html` or document with Shiny",
        )
    }

    /// Returns a description of the app for the start-up screen, such as `Shiny app (app.R)`. The
    /// function `detect_target()` in the R package uses the same words.
    pub(crate) fn label(&self) -> String {
        const NAMES: [&str; 5] = ["_server.yml", "app.R", "server.R", "entrypoint.R", "plumber.R"];
        let file = if self.path.is_dir() {
            NAMES.iter().map(|name| self.path.join(name)).find(|path| path.is_file())
        } else {
            Some(self.path.clone())
        };
        let name = file.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
        let kind = self.kind().unwrap_or("an R app");
        match (kind, &file, name) {
            ("what _server.yml describes", Some(file), Some(name)) => {
                let text = fs::read_to_string(file).unwrap_or_default();
                let engine =
                    text.lines().find_map(|line| line.strip_prefix("engine:")).unwrap_or_default();
                let engine = engine.split('#').next().unwrap_or_default();
                format!("{name} (engine {})", engine.trim().trim_matches(['"', '\'']))
            }
            ("an R app", _, Some(name)) => format!("the app that {name} ends with"),
            (kind, _, name) => {
                let kind = kind.trim_start_matches("an ").trim_start_matches("a ");
                name.map_or_else(|| kind.to_owned(), |name| format!("{kind} ({name})"))
            }
        }
    }
}

/// Returns the folder of an app, document or folder.
fn folder_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.into() } else { parent_folder(path).into() }
}

/// Returns the kind of a document that uses Shiny, judged by its file extension.
fn kind_of_document(path: &Path) -> &'static str {
    let is_quarto = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("qmd"));
    if is_quarto { "a Quarto document with Shiny" } else { "an R Markdown document with Shiny" }
}

/// Returns true if a folder is a static site: it has an `index.html`, but no R file, no
/// `_server.yml` and no document that may use Shiny. File names are compared without regard to
/// case.
fn is_site(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    folder.join("index.html").is_file()
        && !entries.flatten().any(|entry| {
            let path = entry.path();
            let is_r =
                path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("r"));
            is_r || entry.file_name().eq_ignore_ascii_case("_server.yml")
                || is_shiny_document(&path)
        })
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

/// Returns the probable kind of app in an R file, judged by words in its text. The R package later
/// determines the exact kind (`detect_script()`).
fn kind_of_script(path: &Path) -> &'static str {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_SCRIPT_SIZE).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    if read.is_err() {
        return "an R app";
    }
    let code = || text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    let annotations = text.lines().map(str::trim_start).filter_map(|line| {
        let words = line.strip_prefix("#*").or_else(|| line.strip_prefix("#'"))?;
        words.trim_start().strip_prefix('@')?.split_whitespace().next()
    });
    let is_plumber_tag = |word: &str| {
        PLUMBER_TAGS.contains(&word)
            || word.strip_prefix("api").is_some_and(|rest| rest.starts_with(char::is_uppercase))
    };
    if annotations.into_iter().any(is_plumber_tag) {
        "a plumber API"
    } else if code().any(|line| SHINY_CALLS.iter().any(|call| line.contains(call))) {
        "a Shiny app"
    } else if code().any(|line| line.contains("Ambiorix$new(")) {
        "an ambiorix app"
    } else {
        "an R app"
    }
}

fn not_found(path_given: &Path) -> Failure {
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
    fn detects_the_kind_of_an_app_by_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |name: &str, text: &str| {
            let own = folder.path().join(name.replace('.', "-"));
            fs::create_dir(&own).unwrap();
            fs::write(own.join(name), text).unwrap();
            let kind = |path: &Path| Target::find(path).unwrap().kind().ok();
            (kind(&own), kind(&own.join(name)))
        };
        assert_eq!(kind("app.R", ""), (Some("an R app"), Some("an R app")));
        let shiny_app = Some("a Shiny app");
        fs::remove_dir_all(folder.path().join("app-R")).unwrap();
        assert_eq!(kind("app.R", "# x\nshinyApp(ui, server)\n"), (shiny_app, shiny_app));
        assert_eq!(kind("api.R", "#* @get /\nfunction() 1\n").1, Some("a plumber API"));
        assert_eq!(kind("files.R", "#' @assets ./www\nlist()\n").1, Some("a plumber API"));
        assert_eq!(kind("titled.R", "#* @apiTitle A title\n").1, Some("a plumber API"));
        assert_eq!(kind("other.R", "#* @apiary\n1\n").1, Some("an R app"));
        assert_eq!(kind("ui.R", "shinyUI(fluidPage())\n").1, shiny_app);
        assert_eq!(kind("entrypoint.R", "").0, Some("a plumber API"));
        assert_eq!(kind("not.R", "# shinyApp(ui, server)\n1\n").1, Some("an R app"));
        assert_eq!(kind("Server.R", "").0, Some("a Shiny app"));
        assert_eq!(kind("plumber.R", "").0, Some("a plumber API"));
        assert_eq!(kind("index.html", ""), (Some("a site"), None));
        let shiny = "---\nruntime: shiny\n---\n";
        assert_eq!(
            kind("a.Rmd", shiny),
            (Some("an R Markdown document with Shiny"), Some("an R Markdown document with Shiny"))
        );
        assert_eq!(kind("a.qmd", shiny).0, Some("a Quarto document with Shiny"));
        assert_eq!(kind("b.Rmd", "---\n---\n"), (None, None));
        assert_eq!(kind("notes.txt", ""), (None, None));
        let label = |name: &str| Target::find(&folder.path().join(name)).unwrap().label();
        assert_eq!(label("app-R"), "Shiny app (app.R)");
        assert_eq!(label("api-R/api.R"), "plumber API (api.R)");
        assert_eq!(label("not-R/not.R"), "the app that not.R ends with");
        assert_eq!(label("index-html"), "site");
        let described = Some("what _server.yml describes");
        assert_eq!(kind("_server.yml", "engine: x # y\n"), (described, described));
        let label = Target::find(&folder.path().join("_server-yml")).unwrap().label();
        assert_eq!(label, "_server.yml (engine x)");
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
