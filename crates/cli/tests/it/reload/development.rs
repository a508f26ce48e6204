//! Tests of `rookery dev`: the script in open pages, their messages, and the page of an app that
//! cannot be started. A shell script takes the place of R.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::r_processes::Installed;
use crate::support::{Running, TEST_TIMEOUT, ask, connect, executable, folder, rookery};

const PAGE: &str = "<!doctype html><head><link rel=stylesheet href=style.css></head><p>home";

fn serve_site(site: &TempDir) -> Running {
    let mut command = rookery();
    // PATH contains neither R nor a browser.
    command.arg("dev").arg(site.path()).args(["--port=0", "--log=none"]).env("PATH", "/nowhere");
    Running::start(&mut command)
}

fn request(port: u16, line: &str, headers: &str) -> String {
    ask(
        port,
        &format!("{line} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n{headers}\r\n"),
    )
}

/// Returns the value of a header of a response. `name` is in lower case.
fn header<'a>(response: &'a str, name: &str) -> &'a str {
    let mut lines = response.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(own, _)| own.to_lowercase() == name).unwrap_or_else(|| panic!("{response}")).1
}

/// Opens the WebSocket of a page, and requests the version.
fn open_page(port: u16) -> TcpStream {
    let mut page = connect(port);
    let handshake = format!(
        "GET /__rookery__/live HTTP/1.1\r\nHost: localhost:{port}\r\nOrigin: \
         http://localhost:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    page.write_all(handshake.as_bytes()).unwrap();
    await_text(&mut page, "101 Switching Protocols");
    page.write_all(b"\x81\x80\x01\x02\x03\x04").unwrap();
    page
}

/// Reads from a WebSocket until `words` have arrived, and returns the text.
fn await_text(page: &mut TcpStream, words: &str) -> String {
    let until = Instant::now() + TEST_TIMEOUT;
    let mut text = String::new();
    let mut bytes = [0; 4096];
    page.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    while !text.contains(words) {
        assert!(Instant::now() < until, "no {words:?} in {text:?}");
        if let Ok(count) = page.read(&mut bytes) {
            assert!(count > 0, "closed after {text:?}");
            text += &String::from_utf8_lossy(&bytes[..count]);
        }
    }
    text
}

/// Returns the version in a page or in a message to it.
fn version(text: &str) -> u64 {
    let at = text.rfind("version").unwrap_or_else(|| panic!("no version in {text}"));
    let digits = text[at..].chars().skip_while(|it| !it.is_ascii_digit());
    digits.take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[test]
fn pages_get_the_script_and_other_responses_do_not() {
    let site = folder(&[
        ("index.html", PAGE),
        ("a/b.html", PAGE),
        ("fragment.html", "<p>a fragment"),
        ("data.json", "{\"a\":\"</head>\"}"),
        ("style.css", "a{}"),
    ]);
    let mut it = serve_site(&site);
    let port = it.port();
    let gzip = "Accept-Encoding: gzip\r\n";
    let home = request(port, "GET /", gzip);
    assert!(home.contains("<script src=\"__rookery__/reload.js\" data-version=\""), "{home}");
    assert!(home.ends_with("></script></head><p>home"), "{home}");
    let length = home.split("\r\n\r\n").nth(1).unwrap().len();
    assert_eq!(header(&home, "content-length"), length.to_string());
    assert!(header(&home, "etag").ends_with("-dev\""), "{home}");
    assert!(!home.to_lowercase().contains("last-modified"), "{home}");
    // The tag is not that of the file, whose unchanged form a browser must not keep.
    let tag = header(&home, "etag");
    let again = request(port, "GET /", &format!("If-None-Match: {tag}\r\n"));
    assert!(again.starts_with("HTTP/1.1 200 "), "{again}");
    assert!(
        request(port, "GET /a/b.html", "").contains("<script src=\"../__rookery__/reload.js\"")
    );
    for (line, headers) in [
        ("HEAD /", ""),
        ("GET /data.json", ""),
        ("GET /fragment.html", ""),
        ("GET /style.css", gzip),
        ("GET /", "Sec-Fetch-Dest: empty\r\n"),
        ("GET /", "Range: bytes=0-70\r\n"),
    ] {
        let response = request(port, line, headers);
        assert!(!response.contains("__rookery__"), "{line} {headers}: {response}");
        assert!(response.starts_with("HTTP/1.1 20"), "{line} {headers}: {response}");
    }
    let script = request(port, "GET /__rookery__/reload.js", "");
    assert!(script.contains("text/javascript") && script.contains("sessionStorage"), "{script}");
    assert!(request(port, "GET /__rookery__/other", "").starts_with("HTTP/1.1 404 "));
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn requests_for_the_names_of_other_sites_are_refused() {
    let site = folder(&[("index.html", PAGE)]);
    let mut command = rookery();
    command.arg("dev").arg(site.path()).args(["--port=0", "--log=none", "--open=no"]);
    command.arg("--dev-hosts=*.tunnel.example").env("PATH", "/nowhere");
    let mut it = Running::start(&mut command);
    let port = it.port();
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let status = |host: &str, path: &str, headers: &str| {
        let mut stream = connect(port);
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        await_text(&mut stream, "\r\n")
    };
    for (path, headers) in
        [("/", ""), ("/__rookery__/reload.js", ""), ("/__rookery__/live", upgrade)]
    {
        let own = if headers.is_empty() { " 200 " } else { " 101 " };
        for (host, expected) in [
            ("localhost", own),
            ("127.0.0.1:1", own),
            ("[::1]", own),
            ("a.tunnel.example", own),
            ("evil.example", " 403 "),
            ("localhost.evil.example", " 403 "),
        ] {
            let headers = if headers.is_empty() {
                String::new()
            } else {
                format!("Origin: http://{host}\r\n{headers}")
            };
            let response = status(host, path, &headers);
            assert!(response.contains(expected), "{host} {path}: {response}");
            assert!(expected == own || response.contains("--dev-hosts"), "{response}");
        }
    }
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn open_pages_are_told_about_changes() {
    let site = folder(&[("index.html", PAGE), ("css/style.css", "a{}")]);
    let mut it = serve_site(&site);
    let port = it.port();
    let first = version(&request(port, "GET /", ""));
    let mut page = open_page(port);
    assert_eq!(version(&await_text(&mut page, "}")), first);
    fs::write(site.path().join("css/style.css"), "b{}").unwrap();
    await_text(&mut page, r#"{"styles":["css/style.css"]}"#);
    fs::write(site.path().join("index.html"), format!("{PAGE}!")).unwrap();
    assert_eq!(version(&await_text(&mut page, "version")), first + 1);
    assert_eq!(version(&request(port, "GET /", "")), first + 1);
    // The page of another site.
    let foreign = format!(
        "GET /__rookery__/live HTTP/1.1\r\nHost: localhost:{port}\r\nOrigin: \
         http://evil.example\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    assert!(ask(port, &foreign).starts_with("HTTP/1.1 403 "));
}

#[test]
fn a_limited_number_of_pages_is_told() {
    let site = folder(&[("index.html", PAGE)]);
    let port = serve_site_and_port(&site);
    let _pages: Vec<TcpStream> = (0..64).map(|_| open_page(port.1)).collect();
    let handshake = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \
                     dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let refused = ask(
        port.1,
        &format!(
            "GET /__rookery__/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\n\
             {handshake}\r\n"
        ),
    );
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
}

fn serve_site_and_port(site: &TempDir) -> (Running, u16) {
    let mut it = serve_site(site);
    let port = it.port();
    (it, port)
}

#[test]
fn addresses_that_other_machines_reach_are_refused() {
    let site = folder(&[("index.html", PAGE)]);
    let mut command = rookery();
    command.arg("dev").arg(site.path()).args(["--host=0.0.0.0", "--port=0"]);
    for name in ["CODESPACES", "GITPOD_WORKSPACE_ID", "CODER", "JUPYTERHUB_USER"] {
        command.env_remove(name);
    }
    let mut it = Running::start(&mut command);
    assert_eq!(it.end().0.code(), Some(2), "{}", it.stderr);
    assert!(it.stderr.contains("`--dev-anywhere`"), "{}", it.stderr);
}

/// Returns the `Cookie` header of a browser that has opened the URL with the token.
fn cookie(port: u16, stderr: &str) -> String {
    let url = stderr.split_whitespace().find(|word| word.contains("?token=")).unwrap();
    let target = &url[url.find("/?token=").unwrap()..];
    let page = request(port, &format!("GET {target}"), "");
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("content=\"0;url=/\""), "{page}");
    let cookie = header(&page, "set-cookie");
    format!("Cookie: {}\r\n", cookie.split(';').next().unwrap())
}

#[test]
fn an_app_that_cannot_be_started_is_explained_until_it_is_changed() {
    let installed = Installed::new();
    executable(
        &installed.r(),
        "#!/bin/bash\necho \"start $ROOKERY_GENERATION\" >&2\n\
         grep ^editor= <<<\"$ROOKERY_INTERNAL_SETTINGS\" >&2\n\
         echo '<h1>made by R: secret</h1></body>' >\"$TMPDIR/rookery-start-error.html\"\n\
         echo 'Error in f(): secret' >\"$TMPDIR/rookery-start-error.txt\"\n\
         [ -e crash ] && rm -r \"$TMPDIR\"/*\nexit 1\n",
    );
    let app = folder(&[("app.R", "shinyApp(")]);
    let mut command = Command::new(installed.program());
    command.args(["dev", ".", "--port=0", "--log=none", "--open=off"]).current_dir(app.path());
    command.env("ROOKERY_EDITOR", "zed");
    let mut it = Running::start(installed.on_path(&mut command));
    let port = it.port();
    it.await_line("it is started again when a file of the app changes");
    let html = "Accept: text/html\r\n";
    let with_token = cookie(port, &it.stderr);
    let page = request(port, "GET /any", &format!("{html}{with_token}"));
    assert!(page.starts_with("HTTP/1.1 500 ") && page.contains("made by R: secret"), "{page}");
    assert!(page.contains("__rookery__/reload.js"), "{page}");
    assert!(header(&page, "content-security-policy").starts_with("default-src 'none'; "));
    let text = request(port, "GET /any", &with_token);
    assert!(text.contains("text/plain") && text.contains("Error in f(): secret"), "{text}");
    for headers in ["", html, "Cookie: rookery-token-1=a\r\nAccept: text/html\r\n"] {
        let page = request(port, "POST /any", &format!("{headers}Content-Length: 0\r\n"));
        assert!(page.starts_with("HTTP/1.1 500 ") && !page.contains("secret"), "{page}");
    }
    let mut open = open_page(port);
    let before = version(&await_text(&mut open, "}"));
    fs::write(app.path().join("crash"), "").unwrap();
    fs::write(app.path().join("app.R"), "shinyApp(1").unwrap();
    it.await_line("`app.R` has changed");
    it.await_line("start 1");
    assert!(it.stderr.contains("\neditor=zed://file{file}:{line}\n"), "{}", it.stderr);
    // Both messages may arrive together.
    let messages = await_text(&mut open, "version");
    assert!(messages.contains("restarting"), "{messages}");
    assert_eq!(version(&messages), before + 1);
    let page = request(port, "GET /", &format!("{html}{with_token}"));
    assert!(page.contains("ended with status 1 before the app was ready"), "{page}");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
}

#[test]
fn an_app_that_writes_its_own_files_is_not_started_for_ever() {
    const STARTS: &str = "this is a start";
    let installed = Installed::new();
    // Writes files as an app would, and fails, so that every change would start it again.
    executable(
        &installed.r(),
        &format!(
            "#!/bin/bash\necho '{STARTS}' >&2\necho $RANDOM$RANDOM >plot.png\n\
             echo $RANDOM$RANDOM >made.R\nmkdir -p output\n\
             echo $RANDOM$RANDOM >output/table.R\nexit 1\n"
        ),
    );
    let app = folder(&[
        ("app.R", "shinyApp("),
        ("_server.yml", "engine: rookery\napp: app.R\noptions:\n  ignore: [output]\n"),
    ]);
    let mut command = Command::new(installed.program());
    command.args(["dev", ".", "--port=0", "--log=none"]).current_dir(app.path());
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").env_remove("BROWSER");
    let mut it = Running::start(installed.on_path(&mut command));
    it.await_line("`made.R` changes whenever the app has been started");
    // The change of another file starts the app once more, and the files that it writes do not.
    fs::write(app.path().join("other.R"), "1").unwrap();
    it.await_line("`other.R` has changed");
    it.await_line(STARTS);
    std::thread::sleep(Duration::from_secs(3));
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
    // Four, if the machine is so idle that all starts take about the same time.
    assert!(it.stderr.matches(STARTS).count() < 12, "{}", it.stderr);
    for quiet in ["plot.png", "output/", "open a browser"] {
        assert!(!it.stderr.contains(quiet), "{quiet}: {}", it.stderr);
    }
}
