use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use bytes::BytesMut;
use http::HeaderMap;

use super::*;
use crate::static_files::conditional_request::Outcome;
use crate::static_files::lookup::{Found, FoundNonblocking, Lookup, Reading};
use crate::static_files::{BodyFraming, RequestHead, Route, StaticFiles, StaticPath};

/// A test directory that is mapped to the URL path `/s`, with a file cache.
struct Folder {
    dir: tempfile::TempDir,
    files: StaticFiles,
    cache: FileCache,
    /// The time by which the test's clock is ahead of the real time.
    later: Duration,
}

/// The response to a test request: the content of the file, and how it was read.
#[derive(Debug, PartialEq, Eq)]
enum By {
    /// The content came from the file cache.
    Memory(Vec<u8>),
    /// The content was read from the file on disk without blocking.
    File(Vec<u8>),
    /// The content was read from disk by a thread that may block.
    Thread(Vec<u8>),
    Missing,
}

fn body(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

impl Folder {
    fn new() -> Folder {
        let dir = tempfile::tempdir().unwrap();
        let files = StaticFiles::new();
        let path = StaticPath { path: dir.path().into(), ..StaticPath::default() };
        files.set([("/s".to_owned(), path)]).unwrap();
        Folder { dir, files, cache: FileCache::default(), later: Duration::ZERO }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Advances the test's clock, so that all files have been unchanged for long enough to be
    /// cached.
    fn settle(&mut self) {
        self.later += SETTLED + Duration::from_secs(1);
    }

    fn lookup(&self, name: &str) -> Lookup {
        let (headers, target) = (HeaderMap::new(), format!("/s/{name}"));
        let body = BodyFraming::Absent;
        let request = RequestHead {
            method: "GET",
            target: target.as_bytes(),
            is_upgrade: false,
            body,
            headers: &headers,
        };
        match self.files.route(&request) {
            Route::Open(lookup) => lookup,
            other => panic!("{other:?}"),
        }
    }

    /// Requests a file as the server does: first without blocking, and if that is impossible, on a
    /// thread that may block.
    fn get(&mut self, name: &str) -> By {
        let now = SystemTime::now() + self.later;
        let mut found = FoundNonblocking::WouldBlock(self.lookup(name));
        // `openat2` with RESOLVE_CACHED may also fail if a file is renamed anywhere in the system
        // at the same time, so it is repeated.
        for _ in 0..100 {
            let FoundNonblocking::WouldBlock(lookup) = found else { break };
            found = lookup.open_nonblocking(&mut self.cache, now, Some(&mut BytesMut::new()));
        }
        match found {
            FoundNonblocking::Ready(file, Outcome::Whole) => {
                By::Memory(file.plain().bytes.to_vec())
            }
            FoundNonblocking::Found(Found::File { .. }, Reading::Done(bytes)) => {
                By::File(bytes.to_vec())
            }
            FoundNonblocking::Found(Found::Status { .. }, _) => By::Missing,
            FoundNonblocking::WouldBlock(lookup) => {
                let fetched = lookup.fetch(now).unwrap();
                if let Some(device) = fetched.local {
                    self.cache.learn_local(device, now);
                }
                if let (Some(cacheable), Some(bytes)) = (fetched.cacheable, &fetched.bytes) {
                    self.cache.keep(cacheable, bytes.clone());
                }
                match fetched.found {
                    Found::File { .. } => By::Thread(fetched.bytes.unwrap().to_vec()),
                    _ => By::Missing,
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns the content of a requested file, wherever it came from.
    fn text(&mut self, name: &str) -> String {
        match self.get(name) {
            By::Memory(bytes) | By::File(bytes) | By::Thread(bytes) => {
                String::from_utf8(bytes).unwrap()
            }
            By::Missing => "missing".to_owned(),
        }
    }

    /// Requests a file repeatedly until it is cached.
    fn warm(&mut self, name: &str) {
        self.settle();
        (0..3).for_each(|_| drop(self.get(name)));
        assert!(matches!(self.get(name), By::Memory(_)), "kept");
    }
}

fn set_modified(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn a_file_is_cached_only_once_it_is_old_enough() {
    let mut folder = Folder::new();
    folder.write("a", "one");
    assert_eq!(folder.get("a"), By::Thread(body("one")), "nobody knows the device");
    for _ in 0..2 {
        assert_eq!(folder.get("a"), By::File(body("one")), "young");
    }
    folder.settle();
    assert_eq!(folder.get("a"), By::File(body("one")));
    for _ in 0..2 {
        assert_eq!(folder.get("a"), By::Memory(body("one")));
    }
}

type Change = fn(&Folder);

#[test]
fn a_change_is_seen_by_the_next_request() {
    let mut folder = Folder::new();
    let changes: [(&str, Change); 6] = [
        ("two", |folder| folder.write("a", "two")),
        ("twice", |folder| {
            let mut file = fs::File::options().append(true).open(folder.path("a")).unwrap();
            file.set_len(0).unwrap();
            file.write_all(b"twice").unwrap();
        }),
        ("renamed over", |folder| {
            folder.write("new", "renamed over");
            fs::rename(folder.path("new"), folder.path("a")).unwrap();
        }),
        // The length and the time of modification stay the same. Only the time of the last status
        // change (ctime) differs, which programs cannot set.
        ("RENAMED OVER", |folder| {
            let modified = fs::metadata(folder.path("a")).unwrap().modified().unwrap();
            folder.write("a", "RENAMED OVER");
            set_modified(&folder.path("a"), modified);
        }),
        ("", |folder| {
            fs::File::options().write(true).open(folder.path("a")).unwrap().set_len(0).unwrap();
        }),
        ("missing", |folder| fs::remove_file(folder.path("a")).unwrap()),
    ];
    folder.write("a", "one");
    for (expected, change) in changes {
        folder.warm("a");
        change(&folder);
        assert_eq!(folder.text("a"), expected);
        assert_eq!(folder.text("a"), expected);
    }
}

#[test]
fn a_symbolic_link_is_followed_anew_each_time() {
    let mut folder = Folder::new();
    for release in ["1", "2"] {
        fs::create_dir(folder.path(release)).unwrap();
        folder.write(&format!("{release}/a"), release);
    }
    symlink("1", folder.path("current")).unwrap();
    folder.warm("current/a");
    assert_eq!(folder.text("current/a"), "1");
    symlink("2", folder.path("next")).unwrap();
    fs::rename(folder.path("next"), folder.path("current")).unwrap();
    assert_eq!(folder.text("current/a"), "2");
    symlink("1/a", folder.path("link")).unwrap();
    folder.warm("link");
    fs::remove_file(folder.path("link")).unwrap();
    symlink("2/a", folder.path("link")).unwrap();
    assert_eq!(folder.text("link"), "2");
}

#[test]
fn changes_within_one_second_are_all_seen() {
    let mut folder = Folder::new();
    for round in 0..300 {
        folder.write("a", &format!("{round:03}"));
        assert_eq!(
            folder.text("a"),
            format!("{round:03}"),
            "of one length, and perhaps of one time"
        );
    }
}

#[test]
fn a_folder_is_its_index_and_a_change_of_it_is_seen() {
    let mut folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    assert_eq!(folder.get("d"), By::Missing);
    folder.write("d/index.html", "one");
    folder.warm("d");
    folder.write("d/index.html", "two");
    assert_eq!(folder.text("d"), "two");
    folder.warm("d");
    fs::remove_dir_all(folder.path("d")).unwrap();
    folder.write("d", "a file now");
    assert_eq!(folder.text("d"), "a file now");
}

#[test]
fn what_is_no_file_is_not_opened() {
    let mut folder = Folder::new();
    folder.write("a", "one");
    folder.warm("a");
    let fifo = std::ffi::CString::new(folder.path("fifo").to_str().unwrap()).unwrap();
    // SAFETY: the path ends with a NUL.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    for _ in 0..3 {
        assert_eq!(folder.get("fifo"), By::Missing);
    }
    // If the FIFO had been opened for reading, the writer's `open` would succeed.
    let open =
        fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(folder.path("fifo"));
    assert_eq!(open.unwrap_err().raw_os_error(), Some(libc::ENXIO));
}

#[test]
fn other_options_make_other_headers() {
    let mut folder = Folder::new();
    folder.write("a.html", "one");
    folder.warm("a.html");
    let content_type = |folder: &mut Folder| {
        let now = SystemTime::now() + folder.later;
        match folder.lookup("a.html").open_nonblocking(
            &mut folder.cache,
            now,
            Some(&mut BytesMut::new()),
        ) {
            FoundNonblocking::Ready(file, _) => {
                file.plain().headers[0].1.to_str().unwrap().to_owned()
            }
            FoundNonblocking::Found(Found::File { headers, .. }, _) => {
                String::from_utf8(headers[0].value().to_vec()).unwrap()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(content_type(&mut folder), "text/html; charset=utf-8");
    let options = crate::static_files::StaticOptions {
        html_charset: crate::static_files::Charset::new("latin1").unwrap(),
        ..Default::default()
    };
    folder.files.set_options(options);
    for _ in 0..2 {
        assert_eq!(content_type(&mut folder), "text/html; charset=latin1");
    }
}

#[test]
fn with_the_clock_set_back_a_file_is_read() {
    let mut folder = Folder::new();
    folder.write("a", "one");
    folder.warm("a");
    folder.later = Duration::ZERO;
    assert!(!matches!(folder.get("a"), By::Memory(_)));
    assert!(!folder.cache.is_local(0, UNIX_EPOCH));
}

/// Adds a test file of `len` bytes to the cache.
fn keep(cache: &mut FileCache, name: &str, len: usize) {
    let now = UNIX_EPOCH + Duration::from_secs(1 << 31);
    let state = {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len as u64).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        FileState::of(&file.metadata().unwrap())
    };
    let mapping = Arc::new(Mapping::resolve(
        &StaticPath::default(),
        &crate::static_files::StaticOptions::default(),
    ));
    let path = FilePath::from_slice(name.as_bytes());
    let file_headers = FileHeaders::new(&mapping, &path, &state, now);
    if let Some(cacheable) = Cacheable::new(path, mapping, state, file_headers, now) {
        cache.keep(cacheable, vec![0; len].into());
    }
}

#[test]
fn what_is_kept_has_limits() {
    let mut cache = FileCache::default();
    let is_kept = |cache: &FileCache, name: &str| cache.files.contains_key(name.as_bytes());
    keep(&mut cache, "large", WHOLE as usize + 1);
    keep(&mut cache, &"x".repeat(PATH_BYTES + 1), 1);
    assert!(cache.files.is_empty());

    for round in 0..3 * FILES {
        keep(&mut cache, &format!("small {round}"), 1);
        if let Some(kept) = cache.files.get_mut(&b"small 7"[..]) {
            kept.was_used = true;
        }
        assert!(cache.files.len() <= FILES && cache.order.len() == cache.files.len());
    }
    assert_eq!(cache.files.len(), FILES);
    assert!(is_kept(&cache, "small 7"), "asked for all the time");
    assert!(!is_kept(&cache, "small 8"));

    for round in 0..400 {
        keep(&mut cache, &format!("page {round}"), WHOLE as usize);
        assert!(cache.bytes <= BYTES);
    }
    let sum: usize = cache.files.values().map(|kept| kept.bytes).sum();
    assert_eq!(sum, cache.bytes);
    assert!(cache.files.len() < 200 && is_kept(&cache, "page 399"));
    // Adding the same path again does not add an entry.
    let (before, order) = (cache.bytes, cache.order.len());
    (0..10).for_each(|_| keep(&mut cache, "page 399", WHOLE as usize));
    assert_eq!((cache.bytes, cache.order.len()), (before, order));
}

#[test]
fn a_device_is_known_for_a_while() {
    let mut cache = FileCache::default();
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    for device in 0..=DEVICES as u64 {
        cache.learn_local(device, at(100));
        cache.learn_local(device, at(100));
    }
    assert_eq!(cache.local.len(), DEVICES);
    assert!(!cache.is_local(0, at(100)) && cache.is_local(1, at(100)));
    assert!(cache.is_local(1, at(159)) && !cache.is_local(1, at(160)));
    assert!(!cache.is_local(1, at(99)), "the clock was set back");
}
