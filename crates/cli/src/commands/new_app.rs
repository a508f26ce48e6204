//! The command `rookery new`, which writes a small app to start from.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rookery_settings::escaped;

use crate::failure::Failure;
use crate::terminal::startup_screen::shell_word;
use crate::user_paths::expand_tilde;

/// The files that `rookery new` writes, each with its path in the app's folder and its content.
type Files = &'static [(&'static str, &'static str)];

const STYLE: &str = include_str!("../../templates/style.css");
const SHINY: Files = &[
    ("_server.yml", include_str!("../../templates/shiny/_server.yml")),
    ("app.R", include_str!("../../templates/shiny/app.R")),
    ("www/style.css", STYLE),
];
const API: Files = &[
    ("_server.yml", include_str!("../../templates/api/_server.yml")),
    ("plumber.R", include_str!("../../templates/api/plumber.R")),
    ("www/index.html", include_str!("../../templates/api/index.html")),
    ("www/style.css", STYLE),
];
const CHAT: Files = &[
    ("_server.yml", include_str!("../../templates/chat/_server.yml")),
    ("app.R", include_str!("../../templates/chat/app.R")),
    ("www/index.html", include_str!("../../templates/chat/index.html")),
    ("www/style.css", STYLE),
];
// The site has no `_server.yml`, so that the program serves it without an R process.
const SITE: Files =
    &[("index.html", include_str!("../../templates/site/index.html")), ("style.css", STYLE)];

/// The kind of app that `rookery new` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Shiny,
    Api,
    Chat,
    Site,
}

impl Kind {
    fn title(self) -> &'static str {
        match self {
            Kind::Shiny => "a Shiny app",
            Kind::Api => "a plumber API",
            Kind::Chat => "a chat with an event stream",
            Kind::Site => "a site",
        }
    }

    fn files(self) -> Files {
        match self {
            Kind::Shiny => SHINY,
            Kind::Api => API,
            Kind::Chat => CHAT,
            Kind::Site => SITE,
        }
    }
}

/// The arguments of `rookery new`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "rookery new <shiny, api, chat or site> <folder>",
    long_about = "Writes a small app into a new or empty folder: a Shiny app, a plumber API, a \
                  chat in plain R,\nor a static site, which needs no R.\nSettings of an app \
                  belong in its _server.yml. `rookery schema --help` shows how an\neditor \
                  completes and checks them."
)]
pub(crate) struct NewArgs {
    #[arg(hide = true, value_name = "kind")]
    pub(crate) kind: Kind,
    /// The folder for the new app. It must be empty or not exist.
    #[arg(hide = true, value_name = "folder")]
    pub(crate) folder: PathBuf,
}

/// Writes the files of a new app, and returns the message for the user.
///
/// # Errors
/// Fails if the folder is not empty or cannot be written to, or if its name contains control
/// characters.
pub(crate) fn write(app: &NewArgs) -> Result<String, Failure> {
    let name = app.folder.to_string_lossy();
    if name.contains(char::is_control) {
        return Err(Failure::CommandLine(format!(
            "The name of the folder must not contain control characters, such as line ends: `{}`.",
            escaped(&name)
        )));
    }
    let folder = expand_tilde(&app.folder);
    let failed = |error: &io::Error| {
        Failure::Unavailable(format!("`{}` cannot be written: {error}.", app.folder.display()))
    };
    if let Some(name) = first_entry(&folder).map_err(|error| failed(&error))? {
        return Err(Failure::Unavailable(format!(
            "`{}` is not empty (it contains `{}`), and no file is overwritten: choose another \
             folder, or empty this one.",
            app.folder.display(),
            escaped(&name)
        )));
    }
    for (name, content) in app.kind.files() {
        write_new(&folder.join(name), content).map_err(|error| failed(&error))?;
    }
    let names: Vec<&str> = app.kind.files().iter().map(|(name, _)| *name).collect();
    Ok(format!(
        "Wrote {} to {}:\n  {}\nNext: rookery dev {}\n",
        app.kind.title(),
        app.folder.display(),
        names.join("\n  "),
        shell_argument(&app.folder)
    ))
}

/// Returns the name of any file or subfolder in a folder, or `None` if the folder is empty or does
/// not exist.
fn first_entry(folder: &Path) -> io::Result<Option<String>> {
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
            entries.next().map(|entry| entry.map(name)).transpose()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create_new(path)?.write_all(content.as_bytes())
}

/// Returns a path as a quoted argument for a shell command. The argument cannot be mistaken for an
/// option.
fn shell_argument(path: &Path) -> String {
    let text = path.display().to_string();
    shell_word(&if text.starts_with('-') { format!("./{text}") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app_detection::Target;
    use crate::failure::message_of;
    use crate::settings::server_yml;

    fn new(kind: Kind, folder: &Path) -> Result<String, Failure> {
        write(&NewArgs { kind, folder: folder.into() })
    }

    #[test]
    fn each_kind_of_app_has_a_valid_server_yml() {
        let root = tempfile::tempdir().unwrap();
        for kind in [Kind::Shiny, Kind::Api, Kind::Chat] {
            let folder = root.path().join("a b").join(format!("{kind:?}"));
            let text = new(kind, &folder).unwrap();
            assert!(
                text.ends_with(&format!("Next: rookery dev '{}'\n", folder.display())),
                "{text}"
            );
            let text = fs::read_to_string(folder.join("_server.yml")).unwrap();
            let target = Target::find(&folder).unwrap();
            assert!(!target.is_site && target.app_file().is_ok());
            let file = server_yml::read(&target).unwrap().unwrap();
            assert!(file.app.exists() && file.given.is_empty());
            // The options that the comments in `_server.yml` suggest must be valid options.
            let on = text.replace("# options:", "options:").replace("#   ", "  ");
            fs::write(folder.join("_server.yml"), on).unwrap();
            assert!(server_yml::read(&target).unwrap().unwrap().given.len() >= 2);
        }
    }

    #[test]
    fn a_new_site_is_served_without_r() {
        let root = tempfile::tempdir().unwrap();
        new(Kind::Site, root.path()).unwrap();
        assert!(Target::find(root.path()).unwrap().is_site);
    }

    #[test]
    fn no_file_is_overwritten() {
        let root = tempfile::tempdir().unwrap();
        let (empty, taken) = (root.path().join("empty"), root.path().join("taken"));
        fs::create_dir(&empty).unwrap();
        new(Kind::Site, &empty).unwrap();
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join(".keep"), "mine").unwrap();
        let text = message_of(new(Kind::Api, &taken));
        assert!(
            text.contains("is not empty (it contains `.keep`), and no file is overwritten"),
            "{text}"
        );
        assert_eq!(fs::read_dir(&taken).unwrap().count(), 1);
        assert!(message_of(new(Kind::Site, &empty)).contains("is not empty"));
        let file = taken.join(".keep");
        assert!(message_of(new(Kind::Site, &file)).contains("cannot be written"));
        assert!(message_of(new(Kind::Site, &file.join("below"))).contains("cannot be written"));
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
    }

    #[test]
    fn rejects_folder_names_with_control_characters() {
        let root = tempfile::tempdir().unwrap();
        for (name, shown) in
            [("a\nb", "a\\nb`."), ("a\x1b[31m", "a\\u{1b}[31m`."), ("a\u{9b}1m", "a\\u{9b}1m`.")]
        {
            let text = message_of(new(Kind::Site, &root.path().join(name)));
            assert!(text.contains("must not contain control characters"), "{text}");
            assert!(text.ends_with(shown) || text.contains("..."), "{text}");
            assert!(!text.contains(char::is_control), "{text:?}");
        }
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        fs::write(root.path().join("a\x1bb"), "").unwrap();
        assert!(message_of(new(Kind::Site, root.path())).contains("`a\\u{1b}b`"));
    }

    #[test]
    fn the_suggested_command_is_quoted_for_a_shell() {
        assert_eq!(shell_argument(Path::new("my app")), "'my app'");
        assert_eq!(shell_argument(Path::new("it's")), "'it'\\''s'");
        assert_eq!(shell_argument(Path::new("-x")), "./-x");
        assert_eq!(shell_argument(Path::new("../app_1.2")), "../app_1.2");
    }
}
