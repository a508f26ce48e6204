//! Static files over real connections. Clients get the same bytes whichever thread reads the file.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rookery_exchange::ResponseBody;
use rookery_server::access_log::AccessLog;
use rookery_server::static_files::{Overrides, StaticFiles, StaticPath};
use rookery_server::{Config, Limits, ListenerConfig, PageScript};

use crate::support::{App, Client, Response, bytes, echo, hello, in_own_process, wait_until};

/// A folder that is served at `/s`, and at `/f` with `fallthrough`.
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
            .set([
                ("/s".to_owned(), path(Overrides::default())),
                ("/f".to_owned(), path(overrides)),
            ])
            .unwrap();
        let app = App::with(
            Config::default(),
            ListenerConfig { files, ..ListenerConfig::default() },
            echo(hello),
        );
        Folder { app, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Writes a file with a modification time an hour ago.
    fn write_old(&self, name: &str, bytes: &[u8]) {
        self.write(name, bytes);
        let old = SystemTime::now() - Duration::from_secs(3600);
        File::options().write(true).open(self.path(name)).unwrap().set_modified(old).unwrap();
    }
}

/// A server under development that serves a folder at `/`, without `fallthrough`.
fn development(dir: &std::path::Path) -> App {
    let files = StaticFiles::new();
    let path = StaticPath { path: dir.into(), overrides: Overrides::default() };
    files.set([("/".to_owned(), path)]).unwrap();
    let script = Arc::new(PageScript::new("__rookery__/reload.js"));
    let site = ListenerConfig { files, page_script: Some(script), ..ListenerConfig::default() };
    App::with(Config::default(), site, echo(hello))
}

#[test]
fn a_static_path_does_not_hide_the_page_script_during_development() {
    let dir = tempfile::tempdir().unwrap();
    let app = development(dir.path());
    let mut client = app.connect();
    assert_eq!(client.get("/other").status, 404);
    for path in ["/__rookery__/reload.js", "/__rookery__/live"] {
        let response = client.get(path);
        assert_eq!((response.status, response.body), (200, b"Hello, World!".to_vec()), "{path}");
    }
}

#[test]
fn a_page_of_any_size_up_to_the_limit_gets_the_script() {
    let dir = tempfile::tempdir().unwrap();
    let app = development(dir.path());
    let limit = rookery_server::MAX_PAGE_SIZE as usize;
    for (len, has_script) in [(100, true), (70_000, true), (limit, true), (limit + 1, false)] {
        let page = format!("<head></head>{}", " ".repeat(len - "<head></head>".len()));
        for name in ["page.html", "page.txt"] {
            fs::write(dir.path().join(name), &page).unwrap();
        }
        let mut client = app.connect();
        let response = client.get("/page.html");
        let start = b"<head><script src=\"__rookery__/reload.js\"";
        assert_eq!((response.status, response.body.starts_with(start)), (200, has_script), "{len}");
        assert_eq!(response.body.len() > len, has_script, "{len}");
        assert_eq!(client.get("/page.txt").body, page.as_bytes());
    }
}

#[test]
fn a_copy_from_before_the_development_mode_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    for len in [100, 70_000] {
        fs::write(dir.path().join("a.html"), format!("<head></head>{}", " ".repeat(len))).unwrap();
        let files = StaticFiles::new();
        let path = StaticPath { path: dir.path().into(), overrides: Overrides::default() };
        files.set([("/".to_owned(), path)]).unwrap();
        let site = ListenerConfig { files, ..ListenerConfig::default() };
        let before = App::with(Config::default(), site, echo(hello));
        let before = before.connect().get("/a.html");
        let conditions = format!(
            "If-None-Match: {}\r\nIf-Modified-Since: {}\r\n",
            before.header("etag").unwrap(),
            before.header("last-modified").unwrap()
        );
        let app = development(dir.path());
        let mut client = app.connect();
        let ask = |headers: &str| format!("GET /a.html HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        for page in ["Sec-Fetch-Dest: iframe", "Accept: text/html,*/*;q=0.8"] {
            client.send(ask(&format!("{conditions}{page}\r\n")));
            let response = client.response().unwrap();
            assert_eq!(response.status, 200, "{}", response.head);
            assert!(String::from_utf8_lossy(&response.body).contains("__rookery__"));
        }
        // Requests of other programs, and for other things than pages, keep their conditions.
        for other in ["", "Accept: */*\r\n", "Accept: image/*\r\n", "Sec-Fetch-Dest: empty\r\n"] {
            client.send(ask(&format!("{conditions}{other}")));
            assert_eq!(client.response().unwrap().status, 304, "{other}");
        }
    }
}

#[cfg(unix)]
/// Returns the URL path to which a browser resolves the relative reference in a redirect.
fn resolve(target: &str, reference: &str) -> String {
    let path = target.split('?').next().unwrap();
    let folder = &path[..=path.rfind('/').unwrap()];
    format!("{folder}{}", reference.strip_prefix("./").unwrap())
}

// Other systems have no folder with a colon in its name.
#[cfg(unix)]
#[test]
fn a_site_redirects_to_its_folders_and_allows_only_get_and_head() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["docs", "docs/deep", "a b", "\u{e9}", "x:y", "evil.example"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("index.html"), name).unwrap();
    }
    let files = StaticFiles::new();
    let overrides = Overrides { site: Some(true), ..Overrides::default() };
    files.set([("/".to_owned(), StaticPath { path: dir.path().into(), overrides })]).unwrap();
    let site = ListenerConfig { files, ..ListenerConfig::default() };
    let app = App::with(Config::default(), site, echo(hello));
    let mut client = app.connect();
    // The first request is served by a thread that may block, and the second one is not.
    for _ in 0..2 {
        for (target, location, name) in [
            ("/docs", "/docs/", "docs"),
            ("/docs?a=1&b=%2F/?", "/docs/?a=1&b=%2F/?", "docs"),
            ("/docs/deep?", "/docs/deep/?", "docs/deep"),
            ("/a%20b", "/a%20b/", "a b"),
            ("/\u{e9}", "/%C3%A9/", "\u{e9}"),
            ("/x:y?q=\"<\u{e9}>", "/x:y/?q=%22%3C%C3%A9%3E", "x:y"),
            ("//evil.example", "//evil.example/", "evil.example"),
            ("/./evil.example", "/./evil.example/", "evil.example"),
            ("/%2fevil.example", "/%2fevil.example/", "evil.example"),
            ("/docs%2Fdeep", "/docs%2Fdeep/", "docs/deep"),
        ] {
            for method in ["HEAD", "GET"] {
                let reply = ask(&mut client, method, target, "");
                let found = reply.header("location").unwrap();
                assert_eq!((reply.status, &*resolve(target, found)), (301, location), "{method}");
                // Only a path relative to the folder of the request stays on its host.
                assert!(found.starts_with("./"), "{found}");
            }
            assert_eq!(client.get(location).text(), name, "{location}");
        }
    }
    for method in ["POST", "PUT", "OPTIONS", "DELETE", "TRACE"] {
        let reply = ask(&mut client, method, "/docs/", "");
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
}

/// Waits until the files that were written are old enough to be cached when they are requested.
fn settle() {
    std::thread::sleep(Duration::from_millis(2500));
}

fn ask(client: &mut Client, method: &str, target: &str, more: &str) -> Response {
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{more}\r\n"));
    let mut reply = client.response_to(method).unwrap();
    let date = reply.head.lines().find(|line| line.starts_with("Date:")).unwrap().to_owned();
    reply.head = reply.head.replace(&date, "Date:");
    reply
}

/// Requests for files. The last one is for a file that does not exist.
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

/// Returns the responses to each of the requests: the first one, and those after the file may have
/// been cached.
fn answers(folder: &Folder) -> Vec<[Response; 4]> {
    let mut page = b"<p>".to_vec();
    page.extend(bytes(20_000).into_iter().map(|byte| b'a' + byte % 7));
    folder.write_old("page.html", &page);
    folder.write_old("small.css", &page[..3000]);
    folder.write_old("empty.txt", b"");
    folder.write_old("large.bin", &bytes(3_000_000));
    settle();
    let mut client = folder.app.connect();
    REQUESTS
        .map(|(method, target, more)| {
            std::array::from_fn(|_| ask(&mut client, method, target, more))
        })
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
            ("HEAD", _, "Accept-Encoding: gzip\r\n") => (200, vec![]),
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

#[cfg(target_os = "linux")]
#[test]
fn a_kernel_without_these_calls_gives_the_same_answers() {
    if !in_own_process!() {
        return;
    }
    let folder = Folder::new();
    let before = answers(&folder);
    // The last combination forbids the call by which the others are tested.
    for call in
        [libc::SYS_preadv2, libc::SYS_sendfile, CACHESTAT, libc::SYS_statx, libc::SYS_openat2]
    {
        let files = files_of(&folder);
        let before = &before;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                forbid(call);
                // A new server has no cached files.
                let app = App::with(
                    Config::default(),
                    ListenerConfig { files, ..ListenerConfig::default() },
                    echo(hello),
                );
                let mut client = app.connect();
                for ((method, target, more), replies) in REQUESTS.into_iter().zip(before) {
                    for _ in 0..3 {
                        let reply = ask(&mut client, method, target, more);
                        let heads = (&replies[0].head, &reply.head);
                        assert!(
                            reply == replies[0],
                            "{call}: {method} {target} {more:?}: {heads:?}"
                        );
                    }
                }
            });
        });
    }
}

#[cfg(target_os = "linux")]
fn files_of(folder: &Folder) -> StaticFiles {
    let files = StaticFiles::new();
    let path = StaticPath { path: folder.dir.path().into(), ..StaticPath::default() };
    files.set([("/s".to_owned(), path)]).unwrap();
    files
}

#[cfg(target_os = "linux")]
const CACHESTAT: libc::c_long = 451;

/// Makes a system call fail in this thread and in threads that it starts, as in a sandbox that does
/// not know the call.
#[cfg(target_os = "linux")]
fn forbid(call: libc::c_long) {
    const RETURN_ENOSYS: u32 = 0x0005_0000 | libc::ENOSYS as u32;
    const ALLOW: u32 = 0x7FFF_0000;
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    // The filter compares the number of the call, and skips the next instruction if it is another
    // one.
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, u32::try_from(call).unwrap()),
        step(libc::BPF_RET | libc::BPF_K, 0, RETURN_ENOSYS),
        step(libc::BPF_RET | libc::BPF_K, 0, ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: The only pointer is that of the filter, which the kernel copies.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
    // SAFETY: The arguments are invalid, so that nothing is read or written.
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

#[test]
fn a_large_file_arrives_byte_by_byte_and_with_what_is_asked_for_behind_it() {
    let folder = Folder::new();
    let (large, odd) = (bytes(5_000_001), bytes(70_001));
    folder.write("large.bin", &large);
    folder.write("odd.bin", &odd);
    folder.write("small.txt", b"small");
    let mut client = folder.app.connect();
    for _ in 0..3 {
        // The requests are sent at once, so that several files are queued for one connection, with
        // heads between them.
        let get =
            |target: &str, more: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n{more}\r\n");
        client.send(
            [
                get("/s/large.bin", ""),
                get("/s/odd.bin", ""),
                get("/s/small.txt", ""),
                get("/s/large.bin", "Range: bytes=1000001-4000000\r\n"),
                get("/s/odd.bin", "Range: bytes=-70000\r\n"),
                get("/f/missing", ""),
            ]
            .concat(),
        );
        let expected: [&[u8]; 6] =
            [&large, &odd, b"small", &large[1_000_001..=4_000_000], &odd[1..], b"Hello, World!"];
        for (at, expected) in expected.into_iter().enumerate() {
            let reply = client.response().unwrap();
            assert!(reply.body == expected, "reply {at}: {}", reply.head);
        }
    }
}

#[test]
fn a_file_that_an_application_sends_arrives_as_it_is() {
    let content = bytes(3_000_017);
    let sent = content.clone();
    let app = App::new(Limits::default(), move |exchange| {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &sent).unwrap();
        exchange.begin_response(200);
        exchange.response_mut().set_body(ResponseBody::File {
            file,
            len: sent.len() as u64,
            charge: None,
        });
    });
    let mut client = app.connect();
    for _ in 0..3 {
        assert!(client.get("/").body == content);
    }
}

/// A size that exceeds what the sockets buffer if the client does not read.
const UNREAD: usize = 24 << 20;

/// Returns what a client receives that reads only after `change` was made to the file, and the
/// original content.
fn changed_while_sent(change: impl FnOnce(&Folder)) -> (Vec<u8>, Vec<u8>) {
    let folder = Folder::new();
    let content = bytes(UNREAD);
    folder.write("a.bin", &content);
    let mut client = folder.app.connect();
    client.send("GET /s/a.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    while client.read.len() < 1 << 16 {
        assert!(client.fill());
    }
    change(&folder);
    while client.fill() {}
    let head = client.read.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    (content, client.read.split_off(head))
}

#[test]
fn a_file_truncated_while_it_is_sent_ends_the_connection() {
    let (content, got) = changed_while_sent(|folder| {
        File::options().write(true).open(folder.path("a.bin")).unwrap().set_len(0).unwrap();
    });
    assert!(got.len() < content.len());
    assert!(got == content[..got.len()], "all that came is the file's");
}

#[cfg(unix)]
#[test]
fn a_file_written_anew_while_it_is_sent_ends_the_connection_or_is_the_old_one() {
    let (content, got) = changed_while_sent(|folder| folder.write("a.bin", &vec![b'x'; 1000]));
    assert!(got.len() < content.len());
    assert!(got == content[..got.len()]);
    let (content, got) = changed_while_sent(|folder| {
        folder.write("new", &vec![b'x'; UNREAD]);
        fs::rename(folder.path("new"), folder.path("a.bin")).unwrap();
    });
    assert!(got == content, "the one that was opened");
}

#[test]
fn the_log_counts_the_bytes_of_large_files() {
    let folder = Folder::new();
    let log = Arc::new(AccessLog::read());
    folder.app.server.set_access_log(Some(Arc::clone(&log)));
    folder.write("large.bin", &bytes(5_000_001));
    let mut client = folder.app.connect();
    ask(&mut client, "GET", "/s/large.bin", "");
    ask(&mut client, "HEAD", "/s/large.bin", "");
    ask(&mut client, "GET", "/s/large.bin", "Range: bytes=5-3000004\r\n");
    // The client disconnects in the middle of the file. The log counts only what both sockets have
    // taken.
    folder.write("unread.bin", &bytes(UNREAD));
    client.send("GET /s/unread.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    while client.read.len() < 1 << 16 {
        assert!(client.fill());
    }
    drop(client);
    let mut seen = Vec::new();
    while seen.len() < 4 {
        seen.extend(log.take().map(|record| record.bytes));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(seen[..3], [5_000_001, 0, 3_000_000]);
    assert!(seen[3] >= 1 << 16 && seen[3] < UNREAD as u64, "{}", seen[3]);
}

#[test]
fn a_client_that_does_not_read_a_large_file_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.bin"), bytes(UNREAD)).unwrap();
    let files = StaticFiles::new();
    files
        .set([("/s".to_owned(), StaticPath { path: dir.path().into(), ..StaticPath::default() })])
        .unwrap();
    let limits = Limits { idle_timeout: Duration::from_secs(1), ..Limits::default() };
    let app = App::with(
        Config { limits, ..Config::default() },
        ListenerConfig { files, ..ListenerConfig::default() },
        echo(hello),
    );
    let mut slow = app.connect();
    slow.send("GET /s/a.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    // Other clients are served meanwhile.
    let mut other = app.connect();
    assert_eq!(other.get("/").body, b"Hello, World!");
    wait_until("both have been given up", || app.listener().connections() == 0);
    while slow.fill() {}
    assert!(slow.read.len() < UNREAD, "the connection has ended");
}
