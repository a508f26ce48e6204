//! Tests of deployments that switch a symbolic link, such as `/srv/app/current`, from one release
//! to the next. A shell script takes the place of R.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::r_processes::Installed;
use crate::support::{Running, TEST_TIMEOUT, executable, get, rookery};

/// The setting `reconnect` of each release.
const RECONNECT: [&str; 3] = ["", "always", "never"];

/// A function that returns the text of a file in a release.
type Text = fn(u32) -> String;

/// The releases 1 and 2 of an app or a site in subfolders, and a link to one of them.
struct Releases {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl Releases {
    /// Creates the releases, each with files whose text is the result of `text(release)`. The link
    /// leads to release 1.
    fn new(files: &[(&str, Text)]) -> Releases {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        for release in 1..=2 {
            let own = root.join(release.to_string());
            fs::create_dir(&own).unwrap();
            for (name, text) in files {
                fs::write(own.join(name), text(release)).unwrap();
            }
        }
        let releases = Releases { _folder: folder, root };
        releases.switch_to(1);
        releases
    }

    /// Returns the releases of an app with settings that differ.
    fn of_app() -> Releases {
        let settings = |release| {
            let options = format!("  port: 0\n  reconnect: {}\n", RECONNECT[release as usize]);
            format!("engine: rookery\napp: app.R\noptions:\n{options}")
        };
        Releases::new(&[("_server.yml", settings), ("app.R", |_| "1".to_owned())])
    }

    /// Returns the releases of a static site.
    fn of_site() -> Releases {
        Releases::new(&[("index.html", |release| format!("release {release}"))])
    }

    fn folder(&self, release: u32) -> PathBuf {
        self.root.join(release.to_string())
    }

    fn link(&self) -> PathBuf {
        self.root.join("current")
    }

    /// Makes the link lead to a release, as deployment tools do.
    fn switch_to(&self, release: u32) {
        let new = self.root.join("new");
        std::os::unix::fs::symlink(release.to_string(), &new).unwrap();
        fs::rename(new, self.link()).unwrap();
    }

    /// Waits until a worker has started in a release and has noted `words`. Returns the line.
    fn await_start(&self, release: u32, words: &str) -> String {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let text = fs::read_to_string(self.folder(release).join("notes")).unwrap_or_default();
            let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some(line) = lines.find(|line| line.contains(words)) {
                return line.to_owned();
            }
            assert!(Instant::now() < until, "no {words:?} of release {release}: {text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn lines(&self, release: u32) -> usize {
        fs::read_to_string(self.folder(release).join("notes")).unwrap_or_default().lines().count()
    }
}

/// Starts the program with an `R` that notes its process id, generation and settings in the file
/// `notes` of the folder in which it was started.
fn start(installed: &Installed, words: &[&str], at: &Path) -> Running {
    executable(
        &installed.r(),
        "#!/bin/bash\necho \"$$ generation $ROOKERY_GENERATION:\" $ROOKERY_INTERNAL_SETTINGS \
         >>notes\nexec sleep 1000\n",
    );
    let mut command = Command::new(installed.program());
    command.args(words).args(["--log=none", "--open=off"]).current_dir(at).env("PWD", at);
    Running::start(installed.on_path(&mut command))
}

fn end(mut it: Running) {
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn a_reload_serves_the_release_to_which_the_link_leads_now() {
    let installed = Installed::new();
    // The path of the app contains the link, or it is relative to a folder to which the shell has
    // gone by the link.
    for (path, at) in
        [("current", "."), ("current/app.R", "."), ("current/", "."), (".", "current")]
    {
        let releases = Releases::of_app();
        let words = ["serve", path, "--port=0"];
        let mut it = start(&installed, &words, &releases.root.join(at));
        let first = releases.await_start(1, "generation 0:");
        assert!(first.contains(&format!("target={}", releases.folder(1).display())), "{first}");
        releases.switch_to(2);
        it.signal(libc::SIGHUP);
        let line = it.await_line("the new workers serve ");
        assert!(line.contains(&releases.folder(2).display().to_string()), "{line}");
        assert!(line.contains(&format!("(`{}", releases.link().display())), "{line}");
        let second = releases.await_start(2, "generation 1:");
        assert!(second.contains(&format!("target={}", releases.folder(2).display())), "{second}");
        assert!(second.contains("file:text:reconnect=never"), "{second}");
        assert_eq!(releases.lines(1), 1);
        end(it);
    }
}

#[test]
fn a_reload_without_a_release_is_refused() {
    let installed = Installed::new();
    let releases = Releases::of_app();
    let mut it = start(&installed, &["serve", "current"], &releases.root);
    releases.await_start(1, "generation 0:");
    fs::remove_file(releases.link()).unwrap();
    it.signal(libc::SIGHUP);
    let line = it.await_line("the reload is refused, and no worker is replaced: ");
    assert!(line.contains(&format!("`{}` does not exist", releases.link().display())), "{line}");
    // An app that has become a static site needs another process.
    releases.switch_to(2);
    for name in ["app.R", "_server.yml"] {
        fs::remove_file(releases.folder(2).join(name)).unwrap();
    }
    fs::write(releases.folder(2).join("index.html"), "").unwrap();
    it.signal(libc::SIGHUP);
    let line = it.await_line("the reload is refused, and no worker is replaced: ");
    assert!(line.contains("is a static site and not an app any more"), "{line}");
    end(it);
}

#[test]
fn a_worker_starts_again_although_its_release_was_deleted() {
    let installed = Installed::new();
    let releases = Releases::of_app();
    let mut it = start(&installed, &["serve", "current"], &releases.root);
    let first = releases.await_start(1, "generation 0:");
    let kill = |line: &str| {
        let pid: i32 = line.split(' ').next().unwrap().parse().unwrap();
        // SAFETY: the call passes no memory. The worker has not ended, because it sleeps.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    };
    // As long as the release exists, all workers of a generation serve it.
    releases.switch_to(2);
    kill(&first);
    let until = Instant::now() + TEST_TIMEOUT;
    while releases.lines(1) < 2 {
        assert!(Instant::now() < until, "{}", it.stderr);
        std::thread::sleep(Duration::from_millis(5));
    }
    let text = fs::read_to_string(releases.folder(1).join("notes")).unwrap();
    fs::remove_dir_all(releases.folder(1)).unwrap();
    kill(text.lines().last().unwrap());
    let line = it.await_line(" does not exist any more, so workers are started in ");
    assert!(line.contains(&releases.folder(2).display().to_string()), "{line}");
    let again = releases.await_start(2, "generation 0:");
    // The settings are those of the generation.
    assert!(again.contains("file:text:reconnect=always"), "{again}");
    end(it);
}

#[test]
fn development_follows_the_link() {
    let installed = Installed::new();
    let releases = Releases::of_app();
    let it = start(&installed, &["dev", "current"], &releases.root);
    releases.await_start(1, "generation 0:");
    releases.switch_to(2);
    // This change makes the watcher scan at once.
    fs::write(releases.folder(1).join("app.R"), "2").unwrap();
    let line = releases.await_start(2, "generation 1:");
    assert!(line.contains("file:text:reconnect=never"), "{line}");
    end(it);
}

#[test]
fn sighup_switches_a_static_site_to_the_release_to_which_the_link_leads_now() {
    let releases = Releases::of_site();
    let mut command = rookery();
    // A shell completes the name of a link to a folder with a slash.
    command.args(["serve", "--port=0", "--log=none"]).arg(releases.link().join(""));
    let mut it = Running::start(command.env("PATH", "/nowhere"));
    let port = it.port();
    let line =
        format!("site in {} (`{}`)", releases.folder(1).display(), releases.link().display());
    assert!(it.stderr.contains(&line), "{}", it.stderr);
    releases.switch_to(2);
    it.signal(libc::SIGHUP);
    it.await_line(&format!("the site is served from {}", releases.folder(2).display()));
    fs::remove_dir_all(releases.folder(1)).unwrap();
    assert!(get(port, "/").ends_with("release 2"));
    // The source code of an app is not published.
    fs::create_dir(releases.folder(1)).unwrap();
    for name in ["index.html", "app.R"] {
        fs::write(releases.folder(1).join(name), "1").unwrap();
    }
    releases.switch_to(1);
    it.signal(libc::SIGHUP);
    it.await_line("is an app and not a static site any more");
    assert!(get(port, "/").ends_with("release 2"));
    assert!(get(port, "/app.R").starts_with("HTTP/1.1 404 "));
    end(it);
}

#[test]
fn development_of_a_static_site_follows_the_link() {
    let releases = Releases::of_site();
    let mut command = rookery();
    command.args(["dev", "--port=0", "--log=none", "--open=off"]).arg(releases.link());
    let mut it = Running::start(command.env("PATH", "/nowhere"));
    let port = it.port();
    releases.switch_to(2);
    fs::write(releases.folder(1).join("index.html"), "changed").unwrap();
    it.await_line(&format!("the site is served from {}", releases.folder(2).display()));
    assert!(get(port, "/").ends_with("release 2"));
    end(it);
}
