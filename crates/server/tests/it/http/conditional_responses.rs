//! Headers of HEAD, 304 and 412 responses, compared with those of the 200.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use rookery_exchange::Exchange;
use rookery_server::static_files::{Header, Overrides, StaticFiles, StaticPath};
use rookery_server::{Config, ListenerConfig};

use crate::support::http2::{Answer, Two, to};
use crate::support::tls::{settings, site};
use crate::support::{App, Client, Response, echo};

/// A server with files at `/s`, and an application that responds with bodies of several sizes.
struct Served {
    app: App,
    dir: tempfile::TempDir,
}

const SIZES: [(&str, usize); 4] =
    [("tiny.txt", 10), ("small.txt", 3000), ("page.txt", 20_000), ("large.txt", 300_000)];

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| b'a' + (at * at % 7) as u8).collect()
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let served = |name: &str| dir.path().join(name);
        for (name, len) in SIZES {
            fs::write(served(name), text(len)).unwrap();
        }
        fs::write(served("raw.bin"), text(3000)).unwrap();
        fs::write(served("empty.txt"), b"").unwrap();
        // The validators of a file change once, when the file has been unchanged for two seconds.
        std::thread::sleep(Duration::from_millis(2100));
        let headers = ["Cache-Control: max-age=60", "Content-Location: /elsewhere", "X-Other: x"];
        let headers = headers.map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            Header::new(name.as_bytes(), value.as_bytes()).unwrap()
        });
        let overrides = Overrides { headers: Some(headers.into()), ..Overrides::default() };
        let files = StaticFiles::new();
        files.set([("/s".to_owned(), StaticPath { path: dir.path().into(), overrides })]).unwrap();
        let site = ListenerConfig { files, ..site(settings(&["localhost"])) };
        let reply = |exchange: &mut Exchange| {
            let len = String::from_utf8_lossy(&exchange.path()[1..]).parse().unwrap();
            exchange.begin_response(200);
            exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
            exchange.push_response_header(b"ETag", b"\"of the app\"").unwrap();
            exchange.set_response_body(&text(len));
        };
        Served { app: App::with(Config::default(), site, echo(reply)), dir }
    }
}

fn ask(client: &mut Client, method: &str, path: &str, more: &str) -> Response {
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"));
    client.response_to(method).unwrap()
}

/// Returns the headers, except those that differ from message to message.
fn of_reply(reply: &Response) -> BTreeMap<String, String> {
    let lines = reply.head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .filter(|(name, _)| name != "date" && name != "transfer-encoding")
        .collect()
}

fn of_answer(answer: &Answer) -> BTreeMap<String, String> {
    let lines = answer.headers.iter().filter(|(name, _)| *name != "date");
    lines.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
}

#[test]
fn head_says_what_get_sends() {
    let served = Served::new();
    let (mut client, two) = (served.app.secure(), Two::new(&served.app));
    let mut paths: Vec<String> = SIZES.iter().map(|(name, _)| format!("/s/{name}")).collect();
    paths.extend(
        ["/s/raw.bin", "/s/empty.txt", "/s/none", "/10", "/3000", "/20000", "/300000"]
            .map(String::from),
    );
    // A file is read the first time, and comes from memory the second time. Each method comes first
    // once.
    for order in [["HEAD", "GET"], ["GET", "HEAD"]] {
        for path in &paths {
            for encoding in ["", "Accept-Encoding: gzip\r\n"] {
                let replies = order.map(|method| ask(&mut client, method, path, encoding));
                let [one, other] = &replies;
                assert_eq!(one.status, other.status, "{path} {encoding}");
                assert_eq!(of_reply(one), of_reply(other), "{order:?} {path} {encoding}");
                let headers: &[(&str, &str)] =
                    if encoding.is_empty() { &[] } else { &[("accept-encoding", "gzip")] };
                let answers = order.map(|method| {
                    two.request(to(method, path, headers).body(Vec::new()).unwrap()).unwrap()
                });
                assert_eq!(
                    of_answer(&answers[0]),
                    of_answer(&answers[1]),
                    "{order:?} {path} {encoding}"
                );
                assert_eq!(of_answer(&answers[0]), of_reply(one), "{path} {encoding}");
            }
        }
    }
    // The comparison would be useless without compression.
    let head = ask(&mut client, "HEAD", "/s/small.txt", "Accept-Encoding: gzip\r\n");
    assert_eq!(
        (head.header("content-encoding"), head.header("vary")),
        (Some("gzip"), Some("Accept-Encoding"))
    );
    assert!(
        head.header("etag").unwrap().starts_with("W/") && head.header("content-length").is_some()
    );
}

#[test]
fn a_304_has_the_tag_and_the_vary_of_the_200() {
    const KEPT: [&str; 5] = ["etag", "vary", "cache-control", "content-location", "expires"];
    let served = Served::new();
    let (mut client, two) = (served.app.secure(), Two::new(&served.app));
    for _ in 0..2 {
        for path in ["/s/small.txt", "/s/page.txt", "/s/large.txt", "/s/raw.bin", "/s/empty.txt"] {
            for encoding in ["", "Accept-Encoding: gzip\r\n"] {
                let mut whole = of_reply(&ask(&mut client, "GET", path, encoding));
                whole.retain(|name, _| KEPT.contains(&&**name));
                let tag = whole["etag"].clone();
                let conditional =
                    format!("{encoding}If-None-Match: \"x\"\r\nIf-None-Match: {tag}\r\n");
                for method in ["GET", "HEAD"] {
                    let unchanged = ask(&mut client, method, path, &conditional);
                    assert_eq!(unchanged.status, 304, "{path} {conditional}");
                    assert!(unchanged.header("date").is_some());
                    assert_eq!(of_reply(&unchanged), whole, "{method} {path} {encoding}");
                }
                let mut headers = vec![("if-none-match", &*tag)];
                if !encoding.is_empty() {
                    headers.push(("accept-encoding", "gzip"));
                }
                let answer =
                    two.request(to("GET", path, &headers).body(Vec::new()).unwrap()).unwrap();
                assert_eq!((answer.status, of_answer(&answer)), (304, whole), "{path} {encoding}");
            }
        }
    }
}

#[test]
fn a_download_of_another_version_fails_before_it_goes_on() {
    let served = Served::new();
    let (mut client, two) = (served.app.secure(), Two::new(&served.app));
    for path in ["/s/small.txt", "/s/large.txt"] {
        let whole = ask(&mut client, "GET", path, "");
        let tag = whole.header("etag").unwrap().to_owned();
        let date = whole.header("last-modified").unwrap().to_owned();
        let earlier = "Sun, 06 Nov 1994 08:49:37 GMT";
        let meant = [
            format!("If-Match: {tag}"),
            format!("If-Match: \"x\"\r\nIf-Match: {tag}"),
            "If-Match: *".to_owned(),
            format!("If-Unmodified-Since: {date}"),
            format!("If-Match: {tag}\r\nIf-Unmodified-Since: {earlier}"),
            "If-Unmodified-Since: no date".to_owned(),
        ];
        let another = [
            "If-Match: \"x\"".to_owned(),
            "If-Match: \"x\"\r\nIf-Match: \"y\"".to_owned(),
            format!("If-Match: W/{tag}"),
            format!("If-Unmodified-Since: {earlier}"),
            format!("If-Match: \"x\"\r\nIf-None-Match: {tag}"),
        ];
        for (lines, is_meant) in meant
            .iter()
            .map(|lines| (lines, true))
            .chain(another.iter().map(|lines| (lines, false)))
        {
            for range in ["", "Range: bytes=10-19\r\n", "Range: bytes=10-19\r\nIf-Range: \"x\"\r\n"]
            {
                let reply = ask(&mut client, "GET", path, &format!("{lines}\r\n{range}"));
                let expected = match (is_meant, range.is_empty() || range.contains("If-Range")) {
                    (false, _) => 412,
                    (true, true) => 200,
                    (true, false) => 206,
                };
                assert_eq!(reply.status, expected, "{path} {lines} {range}");
                match expected {
                    412 => assert_eq!(
                        (&reply.body[..], reply.header("etag")),
                        (&b"412 Precondition Failed\n"[..], Some(&*tag))
                    ),
                    200 => assert_eq!(reply.body, whole.body),
                    _ => assert_eq!(reply.body, whole.body[10..20]),
                }
            }
        }
        // The file changes between the two parts of the download.
        let file = served.dir.path().join(path.strip_prefix("/s/").unwrap());
        fs::write(&file, vec![b'z'; whole.body.len()]).unwrap();
        let rest = format!("Range: bytes=10-\r\nIf-Match: {tag}\r\n");
        assert_eq!(ask(&mut client, "GET", path, &rest).status, 412);
        let headers = [("range", "bytes=10-"), ("if-match", &*tag)];
        let answer = two.request(to("GET", path, &headers).body(Vec::new()).unwrap()).unwrap();
        assert_eq!(answer.status, 412);
        let head = ask(&mut client, "HEAD", path, &rest);
        assert_eq!((head.status, head.body.len()), (412, 0));
    }
    assert_eq!(ask(&mut client, "GET", "/s/none", "If-Match: *\r\n").status, 404);
}

#[test]
fn a_412_and_a_416_of_a_file_are_not_compressed_and_keep_its_strong_tag() {
    let served = Served::new();
    let (mut client, two) = (served.app.secure(), Two::new(&served.app));
    for path in ["/s/small.txt", "/s/large.txt"] {
        let tag = ask(&mut client, "GET", path, "").header("etag").unwrap().to_owned();
        assert!(tag.starts_with('"'), "{tag}");
        for (status, name, value) in [(412, "if-match", "\"x\""), (416, "range", "bytes=9999999-")]
        {
            // A range has no meaning for HEAD (RFC 9110, 14.2).
            let methods = if status == 412 { &["GET", "HEAD"][..] } else { &["GET"] };
            for method in methods {
                // The second response may come from memory.
                for _ in 0..2 {
                    let lines = format!("{name}: {value}\r\nAccept-Encoding: gzip\r\n");
                    let reply = ask(&mut client, method, path, &lines);
                    assert_eq!(
                        (reply.status, reply.header("content-encoding")),
                        (status, None),
                        "{path}"
                    );
                    assert!(
                        reply.header("etag").is_none_or(|found| found == tag),
                        "{path} {status}"
                    );
                    assert_eq!(reply.header("etag").is_some(), status == 412, "{path} {status}");
                }
                let headers = [(name, value), ("accept-encoding", "gzip")];
                let answer =
                    two.request(to(method, path, &headers).body(Vec::new()).unwrap()).unwrap();
                assert_eq!(
                    (answer.status, answer.header("content-encoding")),
                    (status, None),
                    "{path}"
                );
            }
        }
    }
}

#[test]
fn a_205_says_that_it_is_empty_to_get_and_to_head() {
    let reply = |exchange: &mut Exchange| {
        exchange.begin_response(205);
        exchange.set_response_body(&text(5000));
    };
    let app = crate::support::tls::app(rookery_server::Limits::default(), reply);
    let (mut client, two) = (app.secure(), Two::new(&app));
    for method in ["GET", "HEAD", "GET"] {
        for lines in ["", "Accept-Encoding: gzip\r\n"] {
            let reply = ask(&mut client, method, "/", lines);
            assert_eq!(
                (reply.status, reply.header("content-length")),
                (205, Some("0")),
                "{method}"
            );
            assert_eq!((reply.header("content-encoding"), reply.body.len()), (None, 0), "{method}");
        }
        let answer = two.request(to(method, "/", &[]).body(Vec::new()).unwrap()).unwrap();
        assert_eq!((answer.status, answer.header("content-length")), (205, Some("0")), "{method}");
    }
}
