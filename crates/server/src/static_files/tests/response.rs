//! Tests of section 5.2, steps 10 to 13, of `httpuv-compat.md`: the content of responses with
//! static files.

#[cfg(unix)]
use std::ffi::CString;
#[cfg(unix)]
use std::os::unix::ffi::OsStrExt;
#[cfg(unix)]
use std::os::unix::fs::{PermissionsExt, symlink};
#[cfg(unix)]
use std::os::unix::net::UnixListener;

use super::*;
#[cfg(unix)]
use crate::blocking::file_state::FileState;

#[test]
fn directories_are_served_by_their_index() {
    let site = Site::new(&["d/index.html", "d/sub/index.html", "d/none/x"], &[("/s", "d")]);
    site.map("/off", "d", Overrides { index: Some(false), ..Overrides::default() });
    site.map("/f", "d", fallthrough());
    site.check(&[
        ("/s", "d/index.html"),
        ("/s/", "d/index.html"),
        ("/s/sub", "d/sub/index.html"),
        ("/s/none", "404"),
        ("/s/none/", "404"),
        ("/f/none", "app"),
        ("/off", "404"),
        ("/off/sub", "404"),
        ("/off/index.html", "d/index.html"),
    ]);
    fs::create_dir(site.path("d/odd")).unwrap();
    fs::create_dir(site.path("d/odd/index.html")).unwrap();
    site.check(&[("/s/odd", "404")]);
}

#[test]
fn a_missing_file_is_404_or_falls_through() {
    let site = Site::new(&["d/a"], &[("/s", "d"), ("/file", "d/a"), ("/gone", "nowhere")]);
    site.map("/f", "d", fallthrough());
    site.map("/ffile", "d/a", fallthrough());
    let long = "n".repeat(300);
    let (long_static, long_fallthrough) = (format!("/s/{long}"), format!("/f/{long}"));
    site.check(&[
        ("/s/nope", "404"),
        ("/s/no/pe", "404"),
        ("/f/nope", "app"),
        ("/gone", "404"),
        ("/gone/x", "404"),
        // httpuv responds to the next four with 500, also with `fallthrough`.
        ("/file/x", "404"),
        ("/ffile/x", "app"),
        (&long_static, "404"),
        (&long_fallthrough, "app"),
    ]);
    assert_eq!(
        site.get("/s/nope"),
        Answer::Status(404, vec![]),
        "no extra headers, no Content-Type"
    );
    assert_eq!(error_body(StatusCode::NOT_FOUND), "404 Not Found\n");
}

#[cfg(unix)]
#[test]
fn a_loop_of_links_is_no_file_and_a_file_that_may_not_be_opened_is_403() {
    let site = Site::new(&["d/a"], &[("/s", "d")]);
    site.map("/f", "d", fallthrough());
    symlink("loop", site.path("d/loop")).unwrap();
    site.check(&[("/s/loop", "404"), ("/f/loop", "app"), ("/s/loop/x", "404")]);
    fs::set_permissions(site.path("d/a"), fs::Permissions::from_mode(0o0)).unwrap();
    // SAFETY: `geteuid` has no arguments and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let expected = if is_root { "d/a" } else { "403" };
    site.check(&[("/s/a", expected), ("/f/a", expected)]);
    assert_eq!(error_body(StatusCode::FORBIDDEN), "403 Forbidden\n");
}

/// Checks that a FIFO is not opened. Opening the test's FIFO would block for ever, because no
/// program writes to it.
#[cfg(unix)]
#[test]
fn only_regular_files_are_served() {
    let site = Site::new(&["d/a"], &[("/s", "d"), ("/null", "/dev/null"), ("/zero", "/dev/zero")]);
    let fifo = CString::new(site.path("d/fifo").as_os_str().as_bytes()).unwrap();
    // SAFETY: `fifo` is a C string that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    let _socket = UnixListener::bind(site.path("d/socket")).unwrap();
    site.check(&[
        ("/s/fifo", "404"),
        ("/s/socket", "404"),
        ("/null", "404"),
        ("/zero", "404"),
        ("/s/a", "d/a"),
    ]);
}

#[cfg(unix)]
#[test]
fn symbolic_links_and_dotfiles_are_served() {
    let site = Site::new(&["d/.hidden", "elsewhere/index.html"], &[("/s", "d")]);
    symlink(site.path("elsewhere"), site.path("d/link")).unwrap();
    symlink("nowhere", site.path("d/dangling")).unwrap();
    site.check(&[
        ("/s/.hidden", "d/.hidden"),
        ("/s/link", "elsewhere/index.html"),
        ("/s/dangling", "404"),
    ]);
}

#[test]
fn types_go_by_the_extension_in_any_case() {
    let site = Site::new(&[], &[("/s", "d")]);
    for (name, expected) in [
        ("a.html", "text/html; charset=utf-8"),
        ("A.HTM", "text/html; charset=utf-8"),
        ("a.js", "text/javascript"),
        ("a.MJS", "text/javascript"),
        ("a.css", "text/css"),
        ("a.json", "application/json"),
        ("a.svg", "image/svg+xml"),
        ("a.ico", "image/vnd.microsoft.icon"),
        ("a.wasm", "application/wasm"),
        ("a.woff", "font/woff"),
        ("a.woff2", "font/woff2"),
        ("a.xml", "application/xml"),
        ("a.xhtml", "application/xhtml+xml"),
        ("a.csv", "text/csv"),
        ("a.txt", "text/plain"),
        ("a.md", "text/markdown"),
        ("a.png", "image/png"),
        ("a.jpeg", "image/jpeg"),
        ("a.gif", "image/gif"),
        ("a.webp", "image/webp"),
        ("a.pdf", "application/pdf"),
        ("a.mp4", "video/mp4"),
        ("a.min.js", "text/javascript"),
        ("a.js.map", "application/octet-stream"),
        ("a.Rmd", "application/octet-stream"),
        ("a.R", "application/octet-stream"),
        ("a.parquet", "application/octet-stream"),
        ("a.html.unheard-of", "application/octet-stream"),
        ("none", "application/octet-stream"),
        (".html", "application/octet-stream"),
        ("a.", "application/octet-stream"),
        ("dir.html/none", "application/octet-stream"),
    ] {
        // Windows ignores a dot at the end of a name.
        if cfg!(windows) && name.ends_with('.') {
            continue;
        }
        site.write(&format!("d/{name}"), b"x");
        assert_eq!(
            site.get(&format!("/s/{name}")).header("Content-Type"),
            Some(expected),
            "{name}"
        );
    }
    // The media type is that of the file on disk, not that of the key.
    site.map("/page.txt", "d/a.html", Overrides::default());
    assert_eq!(site.get("/page.txt").header("Content-Type"), Some("text/html; charset=utf-8"));
}

#[test]
fn a_whole_file_has_these_headers_in_this_order() {
    let site = Site::new(&["d/index.html"], &[]);
    let headers =
        vec![header("X-Twice", "1"), header("X-Twice", "2"), header("cache-control", "no-cache")];
    site.map("/s", "d", Overrides { headers: Some(headers), ..Overrides::default() });
    let Answer::File { status: 200, headers, body } = site.get("/s") else { panic!("it is there") };
    assert_eq!(body, b"d/index.html");
    let etag = site.get("/s").header("ETag").map(String::from).unwrap();
    assert!(etag.starts_with('"') && etag.ends_with("-c\""), "{etag}");
    let expected = [
        "X-Twice: 1".into(),
        "X-Twice: 2".into(),
        "cache-control: no-cache".into(),
        "Content-Type: text/html; charset=utf-8".into(),
        format!("Last-Modified: {MODIFIED_DATE}"),
        format!("ETag: {etag}"),
        "Accept-Ranges: bytes".into(),
    ];
    assert_eq!(headers, expected);
}

#[test]
fn headers_of_the_application_replace_those_of_the_server() {
    let site = Site::new(&["d/a.txt"], &[]);
    let headers = ["content-type", "LAST-MODIFIED", "Etag", "accept-ranges"]
        .map(|name| header(name, "\"mine\""))
        .into();
    site.map("/s", "d", Overrides { headers: Some(headers), ..Overrides::default() });
    let expected = [
        "content-type: \"mine\"",
        "LAST-MODIFIED: \"mine\"",
        "Etag: \"mine\"",
        "accept-ranges: \"mine\"",
    ];
    assert_eq!(site.get("/s/a.txt").headers(), expected);
    let conditional = Ask::get("/s/a.txt").with("if-none-match", "W/\"mine\"");
    assert_eq!(conditional.of(&site.files), Answer::NotModified(vec!["Etag: \"mine\"".into()]));
}

// Windows does not record the time of the last change.
#[cfg(unix)]
#[test]
fn not_modified_by_date() {
    let site = Site::new(&["d/a.txt"], &[]);
    let names =
        ["Cache-Control", "content-location", "Expires", "Vary", "X-Other", "Content-Language"];
    let headers = names.map(|name| header(name, "v")).into();
    site.map("/s", "d", Overrides { headers: Some(headers), ..Overrides::default() });
    let etag = site.get("/s/a.txt").header("ETag").map(String::from).unwrap();
    for (date, is_modified) in [
        ("Fri, 01 Jan 2100 00:00:00 GMT", false),
        // The day of the week is not checked.
        ("Mon, 01 Jan 2100 00:00:00 GMT", false),
        ("Sun, 06 Nov 1994 08:49:36 GMT", true),
        // Programs can set the time of modification, but not that of the last change.
        (MODIFIED_DATE, true),
        ("Sunday, 06-Nov-94 08:49:37 GMT", true),
        ("Fri, 1 Jan 2100 00:00:00 GMT", true),
        ("fri, 01 jan 2100 00:00:00 gmt", true),
        ("tomorrow", true),
        ("", true),
    ] {
        for method in ["GET", "HEAD"] {
            let answer =
                Ask::new(method, "/s/a.txt").with("if-modified-since", date).of(&site.files);
            assert_eq!(answer.brief() == "304", !is_modified, "{method} {date}");
            if !is_modified {
                let kept = [
                    "Cache-Control: v",
                    "content-location: v",
                    "Expires: v",
                    "Vary: v",
                    &format!("ETag: {etag}"),
                ];
                assert_eq!(answer.headers(), kept);
            }
        }
    }
    // Fractions of a second are ignored, because an HTTP date cannot express them.
    let changed = changed(&site.path("d/a.txt"));
    for (time, expected) in [(changed, "304"), (changed - Duration::from_secs(1), "d/a.txt")] {
        let date = httpdate::fmt_http_date(time);
        let answer = Ask::get("/s/a.txt").with("if-modified-since", &date).of(&site.files);
        assert_eq!(answer.brief(), expected, "{date}");
    }
}

#[cfg(unix)]
/// Returns the time at which the content or the attributes of a file last changed.
fn changed(path: &std::path::Path) -> SystemTime {
    FileState::of(&fs::metadata(path).unwrap()).changed().unwrap()
}

#[test]
fn not_modified_by_tag() {
    let site = Site::new(&["d/a.txt"], &[("/s", "d")]);
    let etag = site.get("/s/a.txt").header("ETag").map(String::from).unwrap();
    let ask = |tags: &str| Ask::get("/s/a.txt").with("if-none-match", tags).of(&site.files);
    assert_eq!(ask(&etag), Answer::NotModified(vec![format!("ETag: {etag}")]));
    assert_eq!(ask(&format!("\"x\", W/{etag}")).brief(), "304", "as a compressed answer has it");
    assert_eq!(ask("\"x\"").brief(), "d/a.txt");
    site.write("d/a.txt", b"longer than before");
    assert_eq!(ask(&etag).brief(), "longer than before");
    let both = Ask::get("/s/a.txt")
        .with("if-none-match", "\"x\"")
        .with("if-modified-since", MODIFIED_DATE);
    assert_eq!(both.of(&site.files).brief(), "longer than before");
}

#[test]
fn a_site_redirects_to_a_folder_only_if_it_has_an_index() {
    let names =
        ["d/index.html", "d/sub/index.html", "d/sub/a.html", "d/none/x", "d/a b/index.html"];
    let site = Site::new(&names, &[("/s", "d")]);
    site.map("/", "d", Overrides { site: Some(true), ..Overrides::default() });
    site.map(
        "/off",
        "d",
        Overrides { site: Some(true), index: Some(false), ..Overrides::default() },
    );
    site.check(&[
        ("/", "d/index.html"),
        ("/?a=/", "d/index.html"),
        ("/sub", "folder"),
        ("/sub?a=/", "folder"),
        ("//sub", "folder"),
        ("/sub%2F", "folder"),
        ("/a%20b", "folder"),
        ("/sub/", "d/sub/index.html"),
        ("/sub//", "d/sub/index.html"),
        ("/sub/index.html", "d/sub/index.html"),
        ("/sub/a.html/", "d/sub/a.html"),
        ("/none", "404"),
        ("/missing", "404"),
        ("/off", "404"),
        // As httpuv.
        ("/s", "d/index.html"),
        ("/s/sub", "d/sub/index.html"),
    ]);
}

#[test]
fn one_range_is_a_part_and_anything_else_the_whole() {
    let site = Site::new(&[], &[("/s", "d")]);
    site.write("d/ten", b"0123456789");
    site.write("d/empty", b"");
    let whole = site.get("/s/ten");
    for (range, expected) in [
        ("bytes=2-4", Some(("234", "bytes 2-4/10"))),
        ("bytes=0-", Some(("0123456789", "bytes 0-9/10"))),
        ("bytes=8-100", Some(("89", "bytes 8-9/10"))),
        ("bytes=-3", Some(("789", "bytes 7-9/10"))),
        ("bytes=0-1,3-4", None),
        ("lines=0-1", None),
        ("bytes=4-2", None),
    ] {
        let answer = Ask::get("/s/ten").with("range", range).of(&site.files);
        let Some((body, content_range)) = expected else {
            assert_eq!(answer, whole, "{range}");
            continue;
        };
        assert_eq!(
            (answer.brief().as_str(), answer.header("Content-Range")),
            (body, Some(content_range)),
            "{range}"
        );
        assert!(matches!(answer, Answer::File { status: 206, .. }));
        assert_eq!(
            answer.headers()[..4],
            whole.headers()[..4],
            "a part is described as the whole is"
        );
        assert_eq!(
            Ask::new("HEAD", "/s/ten").with("range", range).of(&site.files),
            whole,
            "HEAD {range}"
        );
    }
    let beyond = Ask::get("/s/ten").with("range", "bytes=10-").of(&site.files);
    assert_eq!(beyond, Answer::Status(416, vec!["Content-Range: bytes */10".into()]));
    assert_eq!(error_body(StatusCode::RANGE_NOT_SATISFIABLE), "416 Range Not Satisfiable\n");
    let nothing = Ask::get("/s/empty").with("range", "bytes=0-").of(&site.files);
    assert!(matches!(nothing, Answer::File { status: 200, ref body, .. } if body.is_empty()));
}

// Windows does not record the time of the last change.
#[cfg(unix)]
#[test]
fn a_download_resumes_only_with_the_same_file() {
    let site = Site::new(&[], &[("/s", "d")]);
    site.write("d/ten", b"0123456789");
    let etag = site.get("/s/ten").header("ETag").map(String::from).unwrap();
    let rest = |if_range: &str| {
        Ask::get("/s/ten")
            .with("range", "bytes=5-")
            .with("if-range", if_range)
            .of(&site.files)
            .brief()
    };
    assert_eq!(rest(&etag), "56789");
    assert_eq!(rest(&format!("W/{etag}")), "0123456789", "a weak validator (RFC 9110, 13.1.5)");
    assert_eq!(rest("\"other\""), "0123456789");
    // The time of modification was set, so another version of the file may have the same.
    assert_eq!(rest(MODIFIED_DATE), "0123456789");
    site.write("d/ten", b"9876543210");
    assert_eq!(rest(&etag), "9876543210", "the same length and time of modification");
    assert_eq!(rest(MODIFIED_DATE), "9876543210");
    // A date is a validator only if the file was written at that time.
    fs::write(site.path("d/ten"), "0123456789").unwrap();
    let written = httpdate::fmt_http_date(changed(&site.path("d/ten")));
    assert_eq!(rest(&written), "56789");
}

#[cfg(unix)]
/// Writes a file as build systems do, with a constant time of modification, in place of another
/// file of the same length.
fn replace(site: &Site, name: &str, content: &[u8], modified: SystemTime) {
    site.write("d/new", content);
    site.touch("d/new", modified);
    fs::rename(site.path("d/new"), site.path(name)).unwrap();
}

// Windows does not record the time of the last change.
#[cfg(unix)]
#[test]
fn a_version_with_the_same_time_and_length_is_another_file() {
    let site = Site::new(&[], &[("/s", "d")]);
    // 1980-01-01, the first time of a zip archive; 1985-10-26, the time in npm packages; and a
    // time that is not known as a constant.
    for seconds in [0, 1, 315_532_800, 499_162_500, 1_577_836_800] {
        let modified = UNIX_EPOCH + Duration::from_secs(seconds);
        replace(&site, "d/a", b"version one", modified);
        let before = site.get("/s/a");
        let etag = before.header("ETag").map(String::from).unwrap();
        let date = before.header("Last-Modified").map(String::from);
        let is_meaningful = seconds > 1_000_000_000;
        assert_eq!(date.is_some(), is_meaningful, "{seconds}");
        assert_eq!(etag.starts_with("W/"), !is_meaningful, "{seconds}: {etag}");
        let unchanged = Ask::get("/s/a").with("if-none-match", &etag).of(&site.files);
        assert_eq!(unchanged.brief(), "304", "{seconds}");
        replace(&site, "d/a", b"version two", modified);
        let date = date.unwrap_or_else(|| httpdate::fmt_http_date(modified));
        for condition in [
            Ask::get("/s/a").with("if-none-match", &etag),
            Ask::get("/s/a").with("if-none-match", etag.trim_start_matches("W/")),
            Ask::get("/s/a").with("if-modified-since", &date),
            Ask::get("/s/a").with("range", "bytes=8-").with("if-range", &etag),
            Ask::get("/s/a")
                .with("range", "bytes=8-")
                .with("if-range", etag.trim_start_matches("W/")),
            Ask::get("/s/a").with("range", "bytes=8-").with("if-range", &date),
        ] {
            assert_eq!(condition.of(&site.files).brief(), "version two", "{seconds}");
        }
        let by_tag = Ask::get("/s/a").with("if-match", &etag).of(&site.files);
        assert_eq!(by_tag.brief(), "412", "{seconds}");
        // Both versions have the same Last-Modified, so the client gets a whole version.
        let expected = if is_meaningful { "version two" } else { "412" };
        for range in ["", "bytes=8-"] {
            let ask = Ask::get("/s/a").with("if-unmodified-since", &date).with("range", range);
            assert_eq!(ask.of(&site.files).brief(), expected, "{seconds} {range}");
        }
    }
}

/// Checks that the validators of a file are weak for two seconds after a change. Within that time,
/// a further change may not be visible in the times of the file.
// Windows does not record the time of the last change.
#[cfg(unix)]
#[test]
fn validators_of_a_file_just_changed_are_weak() {
    let site = Site::new(&[], &[("/s", "d")]);
    fs::create_dir(site.path("d")).unwrap();
    fs::write(site.path("d/a"), "d/a").unwrap();
    // The second file was changed just as recently, although its time of modification is old.
    site.write("d/b", b"d/b");
    for name in ["a", "b"] {
        let target = format!("/s/{name}");
        let changed = changed(&site.path(&format!("d/{name}")));
        let at = |millis| Ask { now: changed + Duration::from_millis(millis), ..Ask::get(&target) };
        let recent = at(1999).of(&site.files).header("ETag").map(String::from).unwrap();
        let settled = at(2000).of(&site.files).header("ETag").map(String::from).unwrap();
        assert!(recent.starts_with("W/") && settled.starts_with('"'), "{recent} {settled}");
        // The copy may be older than the last change.
        assert_eq!(
            at(2000).with("if-none-match", &recent).of(&site.files).brief(),
            site_text(name)
        );
        assert_eq!(at(1999).with("if-none-match", &recent).of(&site.files).brief(), "304");
        for validator in
            [&recent, recent.trim_start_matches("W/"), &httpdate::fmt_http_date(changed)]
        {
            let resumed = at(1999).with("range", "bytes=0-0").with("if-range", validator);
            assert_eq!(resumed.of(&site.files).brief(), site_text(name), "{validator}");
        }
    }
}

/// Returns the content of the file `name` in the folder `d`.
#[cfg(unix)]
fn site_text(name: &str) -> String {
    format!("d/{name}")
}

#[test]
fn times_that_an_http_date_cannot_represent_are_handled() {
    let site = Site::new(&["d/old", "d/future", "d/far"], &[("/s", "d")]);
    site.touch("d/old", UNIX_EPOCH - Duration::from_secs(100));
    site.touch("d/future", SystemTime::now() + Duration::from_secs(1_000_000));
    site.touch("d/far", UNIX_EPOCH + Duration::from_secs(15_000_000_000));
    let old = Ask::get("/s/old").with("if-modified-since", MODIFIED_DATE).of(&site.files);
    assert_eq!((old.brief().as_str(), old.header("Last-Modified")), ("d/old", None));
    // Last-Modified must not be later than the response.
    for target in ["/s/future", "/s/far"] {
        let ask = Ask::get(target);
        let answer = ask.of(&site.files);
        assert_eq!(
            answer.header("Last-Modified"),
            Some(&*httpdate::fmt_http_date(ask.now)),
            "{target}"
        );
        assert!(answer.header("ETag").unwrap().starts_with("W/"), "{target}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn names_need_not_be_text() {
    let site = Site::new(&[], &[("/s", "d")]);
    fs::create_dir(site.path("d")).unwrap();
    let name = std::ffi::OsStr::from_bytes(b"\xff.txt");
    fs::write(site.path("d").join(name), "latin").unwrap();
    site.check(&[("/s/%ff.txt", "latin")]);
}

#[cfg(target_os = "linux")]
#[test]
fn the_opened_file_is_the_requested_one() {
    let site = Site::new(&["d/sub/a.txt"], &[("/s", "d")]);
    let Route::Open(lookup) = Ask::get("/s//sub/./a.txt").decide(&site.files) else {
        panic!("there is such a path")
    };
    assert_eq!(lookup.path(), site.path("d/sub/a.txt"));
    let Found::File { file, .. } = lookup.open() else { panic!("it is there") };
    assert_eq!(path_of(&file), site.path("d/sub/a.txt").canonicalize().unwrap());
    // POSIX does not define the meaning of a path that begins with two slashes.
    site.map("/disk", "/", Overrides::default());
    let Route::Open(lookup) = Ask::get("/disk/etc/hosts").decide(&site.files) else {
        panic!("there is such a path")
    };
    assert_eq!(lookup.path().as_os_str(), "/etc/hosts");
}
