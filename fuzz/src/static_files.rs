//! Fuzz targets of requests for static paths, and of gzip.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use rookery_server::compress::{Candidate, Gzip, mark, negotiate};
use rookery_server::static_files::{
    BodyFraming, Found, Header, NameRules, Overrides, RequestHead, RequiredHeader, Route,
    StaticFiles, StaticPath, Validation, read_announcement,
};

/// Reads a request. The first line is the method, a space and the target; each further line is a
/// header.
///
/// For any request, an opened file must be under the mapped directory, must not be excluded, and
/// must have valid headers.
pub fn static_files_decide(data: &[u8]) {
    static SITE: OnceLock<Site> = OnceLock::new();
    let site = SITE.get_or_init(Site::new);
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut first = lines.next().unwrap_or_default().splitn(2, |byte| *byte == b' ');
    let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let Ok(method) = std::str::from_utf8(method) else { return };
    let headers: HeaderMap = lines.filter_map(header_line).collect();
    let body = match headers.get("content-length").map(|value| value.to_str().ok()?.parse().ok()) {
        Some(Some(length)) => BodyFraming::Length(length),
        Some(None) => return,
        None if headers.contains_key("transfer-encoding") => BodyFraming::Chunked,
        None => BodyFraming::Absent,
    };
    let is_upgrade = headers.contains_key("upgrade");
    let request = RequestHead { method, target, is_upgrade, body, headers: &headers };

    match site.files.route(&request) {
        Route::Application => {}
        Route::Refuse(status) => {
            assert!(matches!(
                status,
                StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED
            ));
        }
        Route::Open(lookup) => {
            assert!(!is_upgrade && matches!(method, "GET" | "HEAD"));
            assert!(matches!(body, BodyFraming::Absent | BodyFraming::Length(0)));
            site.check_path(lookup.path());
            site.check_found(lookup.open(), &request);
        }
    }
}

/// Routes a request target by Windows' rules for file names.
///
/// For any target, a path that would be opened must be under the mapped directory. No name in the
/// path may lead to a device, or to a file of another name. The path must not be excluded, in
/// whatever case it is written.
pub fn static_files_windows(target: &[u8]) {
    static SITE: OnceLock<Site> = OnceLock::new();
    let site = SITE.get_or_init(|| Site::with(StaticFiles::with_rules(NameRules::Windows)));
    let headers = HeaderMap::new();
    let body = BodyFraming::Absent;
    let request = RequestHead { method: "GET", target, is_upgrade: false, body, headers: &headers };
    let Route::Open(lookup) = site.files.route(&request) else { return };
    site.check_path(lookup.path());
    let Ok(rest) = lookup.path().strip_prefix(&site.public) else {
        panic!("{:?} is outside", lookup.path())
    };
    let rest = rest.to_str().expect("a name on Windows is text");
    for name in rest.split('/').filter(|name| !name.is_empty()) {
        assert!(!name.contains(['\\', ':', '*', '?', '"', '<', '>', '|']), "{rest:?}");
        assert!(!name.chars().any(|one| one < ' '), "{rest:?}");
        assert!(!name.ends_with(['.', ' ']), "{rest:?}");
        let stem = name.split('.').next().unwrap_or_default().trim_end().to_uppercase();
        let is_device = matches!(&*stem, "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$")
            || ["COM", "LPT"].iter().any(|port| {
                let number = stem.strip_prefix(port).unwrap_or_default();
                number.chars().count() == 1
                    && number.contains(|one: char| "0123456789\u{b9}\u{b2}\u{b3}".contains(one))
            });
        assert!(!is_device, "{rest:?}");
    }
    let first = rest.split('/').next().unwrap_or_default();
    assert!(!first.eq_ignore_ascii_case("priv"), "{rest:?} is excluded");
    assert!(!first.eq_ignore_ascii_case("priv~1"), "{rest:?} is a short name");
}

/// Reads an announcement of a worker. What is read can be served, and its announcement is read as
/// the same.
pub fn static_files_announcement(data: &[u8]) {
    let Ok(paths) = read_announcement(data) else { return };
    let files = StaticFiles::new();
    files.replace(paths.clone()).expect("it was checked as it was read");
    let (written, is_complete) = files.announcement(data.len());
    assert_eq!(read_announcement(&written).as_ref(), Ok(&paths));
    assert!(is_complete);
    // The paths of a part of it are a subset.
    let part = read_announcement(&files.announcement(data.len() / 2).0).expect("it is whole");
    assert!(part.iter().all(|(key, path)| paths.get(key) == Some(path)));
}

/// Reads an Accept-Encoding, and after a line break a Content-Type.
///
/// Gzip may be chosen only if the client names it or accepts anything, and marking the headers
/// twice must change nothing.
pub fn static_files_negotiate(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let accepted = lines.next().unwrap_or_default();
    let mut headers = HeaderMap::new();
    if let Some(kind) = lines.next().and_then(|line| HeaderValue::from_bytes(line).ok()) {
        headers.insert("content-type", kind.clone());
        headers.insert("vary", kind.clone());
        headers.insert("etag", kind);
    }
    let candidate = Candidate {
        method: &Method::GET,
        version: Version::HTTP_11,
        status: StatusCode::OK,
        headers: &headers,
        len: None,
    };
    if negotiate(Some(accepted), &candidate) {
        let lower = accepted.to_ascii_lowercase();
        assert!(lower.contains(&b'*') || lower.windows(4).any(|window| window == b"gzip"));
        mark(&mut headers);
        let once = headers.clone();
        mark(&mut headers);
        assert_eq!(headers, once);
    }
}

/// Reads chunks. The low six bits of a chunk's first byte are its length, the highest bit requests
/// a flush, and the next bit ends the stream.
///
/// A decoder must return the same data: all of it at the end of a stream, and up to the flush after
/// each flush.
pub fn static_files_gzip(mut data: &[u8]) {
    let mut gzip = Gzip::new();
    let (mut out, mut sent) = (Vec::new(), Vec::new());
    while let Some((&control, rest)) = data.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(control & 0x3F)));
        data = rest;
        gzip.push(piece, &mut out);
        sent.extend_from_slice(piece);
        if control & 0x80 != 0 {
            gzip.flush(&mut out);
            let mut seen = vec![0; sent.len()];
            std::io::Read::read_exact(&mut GzDecoder::new(&out[..]), &mut seen)
                .expect("what was flushed can be decoded");
            assert_eq!(seen, sent);
        }
        if control & 0x40 != 0 {
            finish(&mut gzip, &mut out, &mut sent);
        }
    }
    finish(&mut gzip, &mut out, &mut sent);
}

fn finish(gzip: &mut Gzip, out: &mut Vec<u8>, sent: &mut Vec<u8>) {
    gzip.finish(out);
    let mut seen = Vec::new();
    std::io::Read::read_to_end(&mut GzDecoder::new(&out[..]), &mut seen)
        .expect("a whole stream can be decoded");
    assert_eq!(seen, *sent);
    out.clear();
    sent.clear();
}

fn header_line(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = HeaderName::from_bytes(&line[..colon]).ok()?;
    Some((name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
}

/// A site in which `public` is mapped five times and `public/priv` is excluded each time.
/// `secret.txt` is beside it. The only link in it leads to a directory in it.
struct Site {
    _dir: tempfile::TempDir,
    public: PathBuf,
    files: StaticFiles,
}

impl Site {
    fn new() -> Site {
        Site::with(StaticFiles::new())
    }

    fn with(files: StaticFiles) -> Site {
        let dir = tempfile::tempdir().expect("there is a directory for temporary files");
        let public = dir.path().canonicalize().expect("it was just made").join("public");
        let write = |name: &str, content: &str| {
            let path = public.join(name);
            fs::create_dir_all(path.parent().expect("it is joined")).expect("it is ours");
            fs::write(path, content).expect("it is ours");
        };
        for name in
            ["a.txt", "sub/index.html", "sub/deep/x.js", "priv/x", "..foo", ".dot", "a b", "a%zz"]
        {
            write(name, name);
        }
        write("empty", "");
        write("../secret.txt", "secret");
        symlink("sub", public.join("link")).expect("it is ours");
        let fifo = std::process::Command::new("mkfifo").arg(public.join("fifo")).status();
        assert!(fifo.is_ok_and(|status| status.success()), "mkfifo");

        let at = |path: &str, overrides| StaticPath { path: public.join(path), overrides };
        let exclude = || at("", Overrides { exclude: Some(true), ..Overrides::default() });
        let fallthrough =
            || Overrides { fallthrough: Some(true), index: Some(false), ..Overrides::default() };
        let secret = RequiredHeader::new("X-Key", b"secret").expect("a token");
        let validated =
            Overrides { validation: Some(Validation::Require(secret)), ..Overrides::default() };
        let paths = [
            ("/s", at("", Overrides::default())),
            ("/f", at("", fallthrough())),
            ("/v", at("", validated)),
            ("/file", at("a.txt", Overrides::default())),
            ("/", at("", Overrides { site: Some(true), ..Overrides::default() })),
            ("/s/priv", exclude()),
            ("/f/priv", exclude()),
            ("/v/priv", exclude()),
            ("/priv", exclude()),
        ];
        files
            .set(paths.map(|(key, path)| (key.into(), path)))
            .expect("keys and paths are well formed");
        Site { _dir: dir, public, files }
    }

    /// Checks the spelling of a path before it is opened.
    fn check_path(&self, path: &Path) {
        let text = path.as_os_str().as_encoded_bytes();
        assert!(path.starts_with(&self.public), "{path:?}");
        assert!(!text.contains(&0) && !text.windows(2).any(|window| window == b"//"), "{path:?}");
        assert!(
            text.split(|byte| *byte == b'/').all(|segment| segment != b".." && segment != b"."),
            "{path:?}"
        );
        if let Ok(real) = path.canonicalize() {
            self.check_real(&real);
        }
    }

    /// Checks the path that the file system resolves it to.
    fn check_real(&self, real: &Path) {
        assert!(real.starts_with(&self.public), "{real:?} is outside");
        assert!(!real.starts_with(self.public.join("priv")), "{real:?} is excluded");
    }

    fn check_found(&self, found: Found, request: &RequestHead<'_>) {
        let has_range =
            |headers: &[Header]| headers.iter().any(|header| header.name() == b"Content-Range");
        match found {
            Found::Application => {}
            Found::Folder => {
                let path = request.target.split(|byte| *byte == b'?').next().unwrap_or_default();
                assert!(!path.ends_with(b"/"));
            }
            Found::NotModified { headers, .. } => {
                let is_conditional = ["if-none-match", "if-modified-since"]
                    .map(|name| request.headers.list(name).is_some());
                assert!(is_conditional.contains(&true) && !has_range(&headers));
            }
            Found::Status { status, headers } => {
                assert_eq!(status == StatusCode::RANGE_NOT_SATISFIABLE, has_range(&headers));
                assert_ne!(status, StatusCode::OK);
            }
            Found::File { file, offset, len, status, headers } => {
                let metadata = file.metadata().expect("it is open");
                assert!(
                    metadata.is_file()
                        && offset.checked_add(len).is_some_and(|end| end <= metadata.len())
                );
                #[cfg(target_os = "linux")]
                self.check_real(&path_of(&file));
                let is_part = status == StatusCode::PARTIAL_CONTENT;
                assert_eq!(is_part, has_range(&headers));
                assert!(
                    is_part && len > 0 && request.method == "GET"
                        || (offset, len) == (0, metadata.len())
                );
                headers.into_iter().for_each(|header| drop(header.into_http()));
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn path_of(file: &fs::File) -> PathBuf {
    use std::os::fd::AsRawFd;
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("Linux has /proc")
}
