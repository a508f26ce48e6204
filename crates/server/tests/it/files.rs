//! Static files over real connections: whoever reads them, what the client gets is the same.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rookery_server::static_files::{Overrides, StaticFiles, StaticPath};
use rookery_server::{Config, Site};

use crate::support::{App, Client, Reply, alone, echo, hello};

/// A folder that is served at `/s`, and at `/f` with misses for the application.
struct Folder {
    app: App,
    dir: tempfile::TempDir,
}

impl Folder {
    fn new() -> Folder {
        let dir = tempfile::tempdir().unwrap();
        let files = StaticFiles::new();
        let overrides = Overrides { fallthrough: Some(true), ..Overrides::default() };
        let path = |overrides| StaticPath { path: dir.path().into(), overrides };
        files
            .set([("/s".to_owned(), path(Overrides::default())), ("/f".to_owned(), path(overrides))])
            .unwrap();
        let app = App::with(Config::default(), Site { files, ..Site::default() }, echo(hello));
        Folder { app, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// A file that nothing has happened to for an hour, as far as its time of modification says.
    fn write_old(&self, name: &str, bytes: &[u8]) {
        self.write(name, bytes);
        let old = SystemTime::now() - Duration::from_secs(3600);
        File::options().write(true).open(self.path(name)).unwrap().set_modified(old).unwrap();
    }
}

/// Waits until what has been written is kept when it is asked for.
fn settle() {
    std::thread::sleep(Duration::from_millis(2500));
}

/// Bytes in no order, the same each time.
fn bytes(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

fn ask(client: &mut Client, method: &str, target: &str, more: &str) -> Reply {
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{more}\r\n"));
    let mut reply = client.reply_to(method).unwrap();
    let date = reply.head.lines().find(|line| line.starts_with("Date:")).unwrap().to_owned();
    reply.head = reply.head.replace(&date, "Date:");
    reply
}

/// What may be asked of a file; the last is no file.
const REQUESTS: [(&str, &str, &str); 14] = [
    ("GET", "/s/page.html", ""),
    ("GET", "/s/page.html", "Accept-Encoding: gzip\r\n"),
    ("GET", "/s/small.css", "Accept-Encoding: gzip\r\n"),
    ("HEAD", "/s/page.html", ""),
    ("HEAD", "/s/page.html", "Accept-Encoding: gzip\r\n"),
    ("GET", "/s/page.html", "Range: bytes=10-19\r\n"),
    ("GET", "/s/page.html", "Range: bytes=-5\r\nAccept-Encoding: gzip\r\n"),
    ("GET", "/s/page.html", "Range: bytes=99999999-\r\n"),
    ("GET", "/s/page.html", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n"),
    ("GET", "/s/page.html", "If-None-Match: *\r\nAccept-Encoding: gzip\r\n"),
    ("GET", "/s/empty.txt", ""),
    ("GET", "/s/large.bin", ""),
    ("GET", "/s/large.bin", "Range: bytes=100000-299999\r\n"),
    ("GET", "/s/missing", ""),
];

/// What each of the requests is answered the first time, and then from what is at hand.
fn answers(folder: &Folder) -> Vec<[Reply; 4]> {
    let mut page = b"<p>".to_vec();
    page.extend(bytes(20_000).into_iter().map(|byte| b'a' + byte % 7));
    folder.write_old("page.html", &page);
    folder.write_old("small.css", &page[..3000]);
    folder.write_old("empty.txt", b"");
    folder.write_old("large.bin", &bytes(3_000_000));
    settle();
    let mut client = folder.app.connect();
    REQUESTS
        .map(|(method, target, more)| std::array::from_fn(|_| ask(&mut client, method, target, more)))
        .into()
}

#[test]
fn an_answer_is_the_same_from_a_thread_and_from_memory() {
    let folder = Folder::new();
    let read = |name: &str| fs::read(folder.path(name)).unwrap();
    for (request, replies) in REQUESTS.iter().zip(answers(&folder)) {
        for reply in &replies[1..] {
            assert!(*reply == replies[0], "{request:?}: {} and {}", replies[0].head, reply.head);
        }
        let [reply, ..] = replies;
        let (method, target, more) = *request;
        let whole = || read(target.strip_prefix("/s/").unwrap());
        let expected: (u16, Vec<u8>) = match (method, target, more) {
            (_, "/s/missing", _) => (404, b"404 Not Found\n".to_vec()),
            ("HEAD", ..) => {
                assert_eq!(reply.header("content-length"), Some(&*whole().len().to_string()));
                (200, vec![])
            }
            (.., more) if more.starts_with("If-") => (304, vec![]),
            (.., "Range: bytes=10-19\r\n") => (206, whole()[10..20].to_vec()),
            (.., "Range: bytes=100000-299999\r\n") => (206, whole()[100_000..300_000].to_vec()),
            (.., "Range: bytes=99999999-\r\n") => (416, b"416 Range Not Satisfiable\n".to_vec()),
            (.., more) if more.starts_with("Range: bytes=-5") => {
                let page = whole();
                (206, page[page.len() - 5..].to_vec())
            }
            (.., "Accept-Encoding: gzip\r\n") => {
                assert_eq!(reply.header("content-encoding"), Some("gzip"));
                assert_eq!(reply.header("vary"), Some("Accept-Encoding"));
                let mut plain = Vec::new();
                flate2::read::GzDecoder::new(&reply.body[..]).read_to_end(&mut plain).unwrap();
                assert!(plain == whole(), "{request:?}");
                (200, reply.body.clone())
            }
            _ => (200, whole()),
        };
        assert_eq!(reply.status, expected.0, "{request:?}");
        assert!(reply.body == expected.1, "{request:?}");
    }
}

#[test]
fn a_kernel_without_these_calls_gives_the_same_answers() {
    if !alone("files::a_kernel_without_these_calls_gives_the_same_answers") {
        return;
    }
    let folder = Folder::new();
    let before = answers(&folder);
    // The last one forbids what the others are tried with.
    for call in [libc::SYS_preadv2, libc::SYS_sendfile, CACHESTAT, libc::SYS_statx, libc::SYS_openat2] {
        let files = files_of(&folder);
        let before = &before;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                forbid(call);
                // Another server, none of whose files is kept.
                let app = App::with(Config::default(), Site { files, ..Site::default() }, echo(hello));
                let mut client = app.connect();
                for ((method, target, more), replies) in REQUESTS.into_iter().zip(before) {
                    for _ in 0..3 {
                        let reply = ask(&mut client, method, target, more);
                        let heads = (&replies[0].head, &reply.head);
                        assert!(reply == replies[0], "{call}: {method} {target} {more:?}: {heads:?}");
                    }
                }
            });
        });
    }
}

fn files_of(folder: &Folder) -> StaticFiles {
    let files = StaticFiles::new();
    let path = StaticPath { path: folder.dir.path().into(), ..StaticPath::default() };
    files.set([("/s".to_owned(), path)]).unwrap();
    files
}

const CACHESTAT: libc::c_long = 451;

/// Makes a system call fail in this thread and those it starts, as in a sandbox that does not know it.
fn forbid(call: libc::c_long) {
    const RETURN_ENOSYS: u32 = 0x0005_0000 | libc::ENOSYS as u32;
    const ALLOW: u32 = 0x7FFF_0000;
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    // If the number of the call is another one, the next step is left out.
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, u32::try_from(call).unwrap()),
        step(libc::BPF_RET | libc::BPF_K, 0, RETURN_ENOSYS),
        step(libc::BPF_RET | libc::BPF_K, 0, ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: no pointer but that of the filter, which the kernel copies.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
    // SAFETY: nothing that could be read or written to is passed.
    let told = unsafe { libc::syscall(call, -1, 0, 0, 0, 0) };
    assert_eq!((told, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOSYS)));
}

#[test]
fn misses_fall_through_with_the_request_as_it_came() {
    let folder = Folder::new();
    let mut client = folder.app.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/f/missing").body, b"Hello, World!");
    }
    folder.write("missing", b"here");
    assert_eq!(client.get("/f/missing").body, b"here");
    fs::remove_file(folder.path("missing")).unwrap();
    assert_eq!(client.get("/f/missing").body, b"Hello, World!");
}

#[test]
fn a_change_on_disk_is_seen_by_the_next_request() {
    let folder = Folder::new();
    folder.write("a.txt", b"one");
    settle();
    let mut client = folder.app.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/s/a.txt").body, b"one");
    }
    let etag = client.get("/s/a.txt").header("etag").unwrap().to_owned();
    for round in 0..20 {
        let text = format!("{round:03}");
        folder.write("a.txt", text.as_bytes());
        let reply = client.get("/s/a.txt");
        assert_eq!(reply.body, text.as_bytes());
        assert!(reply.header("etag") != Some(&*etag));
        folder.write("new", b"new");
        fs::rename(folder.path("new"), folder.path("a.txt")).unwrap();
        assert_eq!(client.get("/s/a.txt").body, b"new");
    }
}
