//! Tests of static files against the rules in `httpuv-compat.md`, sections 5.1 to 5.3, with files
//! in a real directory.

mod declaration;
mod name_rules;
mod request;
mod response;
mod site;

use std::fs;
use std::io::{Read, Seek as _};
#[cfg(target_os = "linux")]
use std::path::Path;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::*;

/// The time at which every test file was modified, Sun, 06 Nov 1994 08:49:37 GMT, in seconds since
/// 1970.
const MODIFIED: u64 = 784_111_777;
/// The time [`MODIFIED`] as an HTTP date.
const MODIFIED_DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// A test directory with files, and the static paths that map to it.
struct Site {
    dir: tempfile::TempDir,
    files: StaticFiles,
}

/// The response of the server to a test request, or its decision that the application should
/// respond.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Application,
    Folder,
    Refused(u16),
    NotModified(Vec<String>),
    Status(u16, Vec<String>),
    File { status: u16, headers: Vec<String>, body: Vec<u8> },
}

impl Answer {
    /// Returns the response in the short form that tables of expected results use: `app`, the
    /// status code of an error, or the body of a file.
    fn brief(&self) -> String {
        match self {
            Answer::Application => "app".into(),
            Answer::Folder => "folder".into(),
            Answer::Refused(status) | Answer::Status(status, _) => status.to_string(),
            Answer::NotModified(_) => "304".into(),
            Answer::File { body, .. } => String::from_utf8_lossy(body).into(),
        }
    }

    fn headers(&self) -> &[String] {
        match self {
            Answer::File { headers, .. }
            | Answer::NotModified(headers)
            | Answer::Status(_, headers) => headers,
            Answer::Application | Answer::Folder | Answer::Refused(_) => &[],
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers().iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A request for a static file, as a test builds it.
struct Ask<'a> {
    head: (&'a str, &'a str),
    is_upgrade: bool,
    body: BodyFraming,
    headers: HeaderMap,
    now: SystemTime,
}

impl<'a> Ask<'a> {
    fn new(method: &'a str, target: &'a str) -> Ask<'a> {
        // The current time of a test is one day after the files were written.
        let now = SystemTime::now() + Duration::from_secs(86_400);
        Ask {
            head: (method, target),
            is_upgrade: false,
            body: BodyFraming::Absent,
            headers: HeaderMap::new(),
            now,
        }
    }

    fn get(target: &'a str) -> Ask<'a> {
        Ask::new("GET", target)
    }

    fn with(mut self, name: &'static str, value: &str) -> Ask<'a> {
        self.headers.append(
            HeaderName::from_static(name),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
        self
    }

    fn body(self, body: BodyFraming) -> Ask<'a> {
        Ask { body, ..self }
    }

    fn decide(&self, files: &StaticFiles) -> Route {
        let (method, target) = self.head;
        let (is_upgrade, body) = (self.is_upgrade, self.body);
        files.route(&RequestHead {
            method,
            target: target.as_bytes(),
            is_upgrade,
            body,
            headers: &self.headers,
        })
    }

    fn of(&self, files: &StaticFiles) -> Answer {
        let lookup = match self.decide(files) {
            Route::Application => return Answer::Application,
            Route::Refuse(status) => return Answer::Refused(status.as_u16()),
            Route::Open(lookup) => lookup,
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.into()).unwrap();
        let line = |header: &Header| format!("{}: {}", text(header.name()), text(header.value()));
        let lines = |headers: Vec<Header>| headers.iter().map(line).collect();
        match lookup.open_at(self.now) {
            Found::Application => Answer::Application,
            Found::Folder => Answer::Folder,
            Found::NotModified { headers, .. } => Answer::NotModified(lines(headers)),
            Found::Status { status, headers } => Answer::Status(status.as_u16(), lines(headers)),
            Found::File { mut file, offset, len, status, headers } => {
                let mut body = vec![0; usize::try_from(len).unwrap()];
                rookery_system::file::read_exact_at(&file, &mut body, offset).unwrap();
                file.rewind().unwrap();
                if status == StatusCode::OK {
                    let mut whole = Vec::new();
                    file.read_to_end(&mut whole).unwrap();
                    assert_eq!(whole, body, "a 200 is the whole file");
                }
                Answer::File { status: status.as_u16(), headers: lines(headers), body }
            }
        }
    }
}

impl Site {
    /// Creates a test directory with the files `names`, each of which contains its own name.
    /// `paths` are the static paths, which map URL paths to paths relative to this directory.
    fn new(names: &[&str], paths: &[(&str, &str)]) -> Site {
        let site = Site { dir: tempfile::tempdir().unwrap(), files: StaticFiles::new() };
        for name in names {
            site.write(name, name.as_bytes());
        }
        for (key, path) in paths {
            site.map(key, path, Overrides::default());
        }
        site
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        self.touch(name, UNIX_EPOCH + Duration::from_secs(MODIFIED));
    }

    fn touch(&self, name: &str, modified: SystemTime) {
        fs::File::options()
            .write(true)
            .open(self.dir.path().join(name))
            .unwrap()
            .set_modified(modified)
            .unwrap();
    }

    fn map(&self, key: &str, path: &str, overrides: Overrides) {
        self.files.set([(key.into(), StaticPath { path: self.path(path), overrides })]).unwrap();
    }

    fn exclude(&self, key: &str) {
        let overrides = Overrides { exclude: Some(true), ..Overrides::default() };
        self.files.set([(key.into(), StaticPath { path: PathBuf::new(), overrides })]).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.dir.path().into() } else { self.dir.path().join(name) }
    }

    fn get(&self, target: &str) -> Answer {
        Ask::get(target).of(&self.files)
    }

    #[track_caller]
    fn check(&self, table: &[(&str, &str)]) {
        for (target, expected) in table {
            assert_eq!(self.get(target).brief(), *expected, "GET {target}");
        }
    }
}

fn fallthrough() -> Overrides {
    Overrides { fallthrough: Some(true), ..Overrides::default() }
}

/// Returns an absolute path of this system.
pub(super) fn absolute(path: &str) -> PathBuf {
    PathBuf::from(if cfg!(windows) { format!("C:{path}") } else { path.to_owned() })
}

fn header(name: &str, value: &str) -> Header {
    Header::new(name.as_bytes(), value.as_bytes()).unwrap()
}

/// Returns the path on disk of an open file.
#[cfg(target_os = "linux")]
fn path_of(file: &fs::File) -> PathBuf {
    use std::os::fd::AsRawFd;
    fs::read_link(Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())).unwrap()
}
