//! Tests of static sites, which the program serves without R.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::authority::free_port;
use crate::support::{Running, TEST_TIMEOUT, ask, connect, folder, get, rookery};

fn serve(folder: &tempfile::TempDir, options: &[&str]) -> Running {
    // PATH contains neither R nor any other program.
    Running::start(rookery().arg("serve").arg(folder.path()).args(options).env("PATH", "/nowhere"))
}

#[test]
fn files_are_served_and_logged_until_sigterm() {
    let folder =
        folder(&[("index.html", "<p>home"), ("a/index.html", "<p>inner"), ("a/style.css", "b{}")]);
    let mut it = serve(&folder, &["--port", "0", "--log-format", "json"]);
    let port = it.port();
    let home = get(port, "/");
    assert!(home.starts_with("HTTP/1.1 200 ") && home.ends_with("<p>home"), "{home}");
    assert!(home.to_lowercase().contains("content-type: text/html; charset=utf-8"), "{home}");
    assert!(get(port, "/a/").ends_with("<p>inner"));
    assert!(get(port, "/a/style.css").ends_with("b{}"));
    assert!(get(port, "/none").starts_with("HTTP/1.1 404 "));
    assert!(get(port, "/../Cargo.toml").starts_with("HTTP/1.1 400 "));
    // A static site has no application that could handle these requests.
    let handshake = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: \
                     websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \
                     dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    assert!(ask(port, handshake).starts_with("HTTP/1.1 404 "));
    assert!(
        ask(port, "GET /a\\b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .starts_with("HTTP/1.1 404 ")
    );
    it.signal(libc::SIGTERM);
    let (status, out) = it.end();
    assert_eq!(status.code(), Some(0), "{}", it.stderr);
    assert_eq!(out.lines().count(), 7, "{out}");
    assert!(out.contains("\"path\":\"/a/style.css\",\"query\":\"\",\"status\":200,"), "{out}");
    let name = folder.path().file_name().unwrap().to_str().unwrap();
    assert!(out.contains(&format!(",\"app\":\"{name}\",\"host\":\"")), "{out}");
    // The start screen consists of JSON objects as well.
    let screen: Vec<serde_json::Value> =
        it.stderr.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let first = format!("rookery {}: site in ", env!("CARGO_PKG_VERSION"));
    assert!(screen[0]["message"].as_str().unwrap().starts_with(&first), "{screen:?}");
    assert_eq!(screen[0]["level"], "info");
}

#[test]
fn with_a_json_log_the_reason_of_a_failed_start_is_json() {
    let folder = folder(&[("index.html", "")]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut it = serve(&folder, &["--port", &port, "--log-format", "json"]);
    let (status, _) = it.end();
    assert_eq!(status.code(), Some(4), "{}", it.stderr);
    let last: serde_json::Value =
        serde_json::from_str(it.stderr.lines().last().unwrap()).expect("JSON");
    assert_eq!(last["level"], "error");
}

#[test]
fn finds_folders_and_pages_and_hides_settings_and_sources() {
    let folder = folder(&[
        ("index.html", "home"),
        ("docs/index.html", "docs"),
        ("docs/page.html", "page"),
        ("404.html", "<h1>missing"),
        ("index.Rmd", "secret"),
        ("docs/_server.yml", "secret"),
        ("_server.yaml", "secret"),
        ("_SERVER.YAML", "secret"),
        ("_SERVE~1.YAM", "secret"),
    ]);
    let mut it = serve(&folder, &["--port", "0", "--log=none"]);
    let port = it.port();
    let redirect = get(port, "/docs?a=b");
    assert!(redirect.starts_with("HTTP/1.1 301 "), "{redirect}");
    assert!(redirect.contains("Location: ./docs/?a=b\r\n"), "{redirect}");
    assert!(get(port, "/docs/?a=b").ends_with("docs"));
    assert!(get(port, "/docs/page").ends_with("page"));
    // The second response comes from the cache of small files.
    for _ in 0..2 {
        let missing = get(port, "/docs/none").to_lowercase();
        assert!(missing.starts_with("http/1.1 404 ") && missing.ends_with("<h1>missing"));
        assert!(missing.contains("\r\ncontent-type: text/html; charset=utf-8\r\n"), "{missing}");
        assert!(missing.contains("\r\ncontent-length: 11\r\n"), "{missing}");
    }
    let names = ["_server.yml", "_server.yaml", "_SERVER.YAML", "_Server.Yml", "_SERVE~1.YAM"];
    for path in names.map(|name| format!("/{name}")).iter().map(String::as_str).chain([
        "/%5fserver.yaml",
        "//_server.yaml",
        "/docs/_server.yml",
        "/index.Rmd",
        "/docs/../_server.yaml",
        "/_server.yaml/",
        "/_server.yaml.",
        "/_server.yaml::$DATA",
    ]) {
        let reply = get(port, path);
        assert!(reply.starts_with("HTTP/1.1 40") && !reply.contains("secret"), "{path}: {reply}");
    }
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0));
}

#[test]
fn finishes_responses_after_a_signal_and_stops_at_a_second_one() {
    let folder = folder(&[("index.html", "")]);
    let large = vec![b'x'; 64 << 20];
    fs::write(folder.path().join("large.bin"), &large).unwrap();
    for signals in [1, 2] {
        let mut it = serve(&folder, &["--port", "0", "--log=none"]);
        let mut client = connect(it.port());
        client
            .write_all(b"GET /large.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut first = [0; 4096];
        client.read_exact(&mut first).unwrap();
        it.signal(libc::SIGINT);
        it.await_line(
            "Stopping: 1 connection is being finished. A second signal stops the server at once.",
        );
        if signals == 2 {
            it.signal(libc::SIGTERM);
            let (status, _) = it.end();
            assert_eq!(status.signal(), Some(libc::SIGTERM));
        } else {
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).unwrap();
            assert!(
                rest.ends_with(b"xxxx") && rest.len() > large.len() - first.len(),
                "{}",
                rest.len()
            );
            assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
        }
    }
}

#[test]
fn serves_without_a_reader_of_its_output() {
    let folder = folder(&[("index.html", "home")]);
    // Standard output and standard error have no reader, or are closed.
    for redirections in ["", ">&- 2>&-"] {
        let socket = folder.path().join("site.sock");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("exec \"$0\" serve \"$1\" --host \"unix:$2\" {redirections}")]);
        shell.arg(env!("CARGO_BIN_EXE_rookery")).arg(folder.path()).arg(&socket);
        let mut it = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop((it.stdout.take(), it.stderr.take()));
        let until = Instant::now() + TEST_TIMEOUT;
        let mut stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < until, "{redirections}: {error}"),
            }
            assert!(it.try_wait().unwrap().is_none(), "{redirections}: it has ended");
            std::thread::sleep(Duration::from_millis(5));
        };
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = [0; 512];
        let read = stream.read(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{redirections}: {read} bytes");
        // SAFETY: the child has not been waited for, so the process id is its own.
        assert_eq!(unsafe { libc::kill(i32::try_from(it.id()).unwrap(), libc::SIGTERM) }, 0);
        drop(stream);
        assert_eq!(it.wait().unwrap().code(), Some(0), "{redirections}");
    }
}

#[test]
fn uses_limits_and_proxies_from_options_and_environment() {
    let folder = folder(&[("index.html", "home")]);
    let request_with = |options: &[&str], variables: &[(&str, &str)], request: &str| {
        let mut command = rookery();
        command
            .arg("serve")
            .arg(folder.path())
            .args(["--port", "0", "--log-format", "json"])
            .args(options);
        let mut it = Running::start(command.envs(variables.iter().copied()));
        let answer = ask(it.port(), request);
        it.signal(libc::SIGTERM);
        (answer.lines().next().unwrap_or_default().to_owned(), it.end().1)
    };
    let three = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Request-Id: mine\r\n\r\n";
    let long =
        format!("GET /{} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "a".repeat(20_000));
    let size = |size: &'static str| ("ROOKERY_MAX_HEADER_SIZE", size);
    for (options, variables, status) in [
        (&[][..], &[][..], "404"),
        (&["--max-header-size", "9000"], &[], "431"),
        (&[], &[size("9000")], "431"),
        (&["--max-header-size=90000"], &[size("9000")], "404"),
    ] {
        let (answer, _) = request_with(options, variables, &long);
        let is_right = answer.contains(&format!(" {status} "));
        assert!(is_right, "{options:?} {variables:?}: {answer:?}");
    }
    for (options, variables, status) in [
        (&[][..], &[][..], "200"),
        (&["--proxy-protocol"], &[], ""),
        (&[], &[("ROOKERY_PROXY_PROTOCOL", "true")], ""),
    ] {
        let (answer, _) = request_with(options, variables, three);
        let is_right = if status.is_empty() {
            !answer.contains(" 200 ")
        } else {
            answer.contains(&format!(" {status} "))
        };
        assert!(is_right, "{options:?} {variables:?}: {answer:?}");
    }
    // The log shows the request id only of a trusted proxy.
    for (options, variables, is_believed) in [
        (&[][..], &[][..], false),
        (&["--trusted-proxies", "127.0.0.1"], &[], true),
        (&[], &[("ROOKERY_TRUSTED_PROXIES", "10.0.0.0/8, 127.0.0.1")], true),
        (&["--trusted-proxies", "192.0.2.1"], &[("ROOKERY_TRUSTED_PROXIES", "127.0.0.1")], false),
    ] {
        let (_, log) = request_with(options, variables, three);
        assert_eq!(log.contains("\"mine\""), is_believed, "{options:?} {variables:?}: {log}");
    }
    let mut it = Running::start(
        rookery()
            .arg("serve")
            .arg(folder.path())
            .args(["--port", "0"])
            .env("ROOKERY_MAX_BODY_SIZE", "a lot"),
    );
    assert_eq!(it.end().0.code(), Some(1));
    assert!(
        it.stderr.starts_with(
            "rookery: The environment variable ROOKERY_MAX_BODY_SIZE must be a size such as"
        ),
        "{}",
        it.stderr
    );
}

#[test]
fn sighup_never_ends_a_static_site() {
    let folder = folder(&[("index.html", "home")]);
    let mut it = serve(&folder, &["--port", "0", "--log=none"]);
    let port = it.port();
    for _ in 0..2 {
        it.signal(libc::SIGHUP);
        it.await_line("reloaded: the files of a site are read for each request");
        assert!(get(port, "/").ends_with("home"));
    }
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0));

    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "trap '' HUP INT; exec \"$0\" serve \"$1\" --port 0 --log=none"]);
    let mut it = Running::start(shell.arg(env!("CARGO_BIN_EXE_rookery")).arg(folder.path()));
    let port = it.port();
    for number in [libc::SIGINT, libc::SIGHUP] {
        it.signal(number);
    }
    it.await_line("reloaded: ");
    assert!(get(port, "/").ends_with("home"));
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0));
}

#[test]
fn sighup_reads_certificates_again() {
    let folder = folder(&[("index.html", "home")]);
    let data = tempfile::tempdir().unwrap();
    let mut it = Running::start(
        rookery()
            .arg("serve")
            .arg(folder.path())
            .args(["--port", "0", "--log=none", "--tls", "dev"])
            .env("R_USER_DATA_DIR", data.path()),
    );
    let port = it.port();
    assert!(it.stderr.contains(&format!("Serving on https://127.0.0.1:{port} ")), "{}", it.stderr);
    it.await_line("Created a certificate for localhost: ");
    let certificate = data.path().join("R/rookery/tls/localhost.pem");
    // The response to plaintext HTTP shows that the port uses TLS.
    assert!(get(port, "/").starts_with("HTTP/1.1 400 "));
    it.signal(libc::SIGHUP);
    it.await_line("TLS: the certificates have been read again");
    fs::write(certificate, "rubbish").unwrap();
    it.signal(libc::SIGHUP);
    it.await_line("New connections keep using the previous certificate");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0));
}

#[test]
fn redirects_plaintext_http() {
    let folder = folder(&[("index.html", "home")]);
    let data = tempfile::tempdir().unwrap();
    let mut made = Running::start(
        rookery()
            .arg("serve")
            .arg(folder.path())
            .args(["--port=0", "--tls=dev", "--log=none"])
            .env("R_USER_DATA_DIR", data.path()),
    );
    let other = made.port();
    let certificate = data.path().join("R/rookery/tls/localhost.pem");
    let free = free_port();
    let options = ["--port=0", "--log=none", "--hsts=60", "--tls-cert"].map(String::from);
    let mut options = options.to_vec();
    options.extend([
        certificate.display().to_string(),
        "--redirect-from".to_owned(),
        free.to_string(),
    ]);
    let words: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut it = serve(&folder, &words);
    let port = it.port();
    let answer = ask(free, "GET /a?b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
    let location = format!("location: https://localhost:{port}/a?b\r\n");
    assert!(answer.to_lowercase().contains(&location), "{answer}");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);

    // A port in use, and a Unix socket, which has no port to redirect from.
    let mut taken =
        serve(&folder, &[&words[..], &["--redirect-from", &other.to_string()]].concat());
    assert_eq!(taken.end().0.code(), Some(4));
    assert!(taken.stderr.contains(" of 127.0.0.1 is in use, by "), "{}", taken.stderr);
    let mut socket = serve(&folder, &[&words[..], &["--host", "unix:/tmp/none.sock"]].concat());
    assert_eq!(socket.end().0.code(), Some(2));
    assert!(
        socket.stderr.contains("`--redirect-from` cannot be used with a Unix socket"),
        "{}",
        socket.stderr
    );
}

#[test]
fn serves_on_a_unix_socket_and_removes_it() {
    let folder = folder(&[("index.html", "home")]);
    let path = folder.path().join("site.sock");
    let mut it = serve(&folder, &["--log=none", "--host", &format!("unix:{}", path.display())]);
    it.await_line("Serving on ");
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("home"), "{answer}");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn reports_a_busy_port_with_its_owner() {
    let folder = folder(&[("index.html", "")]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut it = serve(&folder, &["--port", &port.to_string()]);
    assert_eq!(it.end().0.code(), Some(4));
    assert!(
        it.stderr.starts_with(&format!("rookery: Port {port} of 127.0.0.1 is in use, by ")),
        "{}",
        it.stderr
    );
}

/// Returns the resident memory of a process in bytes.
fn resident(process: u32) -> usize {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn idle_connections_return_their_memory() {
    const CROWD: usize = 800;
    // The first ten connections allocate memory that is needed only once.
    const MOST_EACH: usize = 6 << 10;
    let folder = folder(&[("index.html", "<p>home")]);
    let mut it = serve(&folder, &["--port", "0", "--log=none"]);
    let port = it.port();
    let kept = |many: usize| -> Vec<_> {
        let open = |_| {
            let mut client = connect(port);
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"<p>home") {
                let mut piece = [0; 1024];
                let read = client.read(&mut piece).unwrap();
                assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&answer));
                answer.extend_from_slice(&piece[..read]);
            }
            client
        };
        (0..many).map(open).collect()
    };
    let few = kept(10);
    let before = resident(it.id());
    let crowd = kept(CROWD);
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let each = resident(it.id()).saturating_sub(before) / CROWD;
        if each < MOST_EACH {
            break;
        }
        assert!(Instant::now() < until, "{each} bytes for each connection that is quiet");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop((few, crowd));
}

#[test]
fn idle_connections_leave_descriptors_for_files_and_other_clients() {
    const LEN: usize = 3_000_000;
    let folder = folder(&[("index.html", ""), ("large.txt", &"x".repeat(LEN))]);
    let mut command = rookery();
    let few = || {
        let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
        // SAFETY: the pointer is that of a valid limit.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(few) };
    let mut it = Running::start(command.arg("serve").arg(folder.path()).args(["--port", "0"]));
    let port = it.port();
    let began = Instant::now();
    let idle: Vec<_> = (0..400).map(|_| connect(port)).collect();
    for _ in 0..20 {
        // For a second, no connection counts as idle, and further ones get 503.
        let is_served = || {
            let mut client = connect(port);
            let _ = client
                .write_all(b"GET /large.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            let mut response = Vec::new();
            let _ = client.read_to_end(&mut response);
            response.starts_with(b"HTTP/1.1 200 ") && response.len() > LEN
        };
        while !is_served() {
            // The idle connections are closed after 30 s in any case.
            assert!(began.elapsed() < Duration::from_secs(20), "idle clients lock others out");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    drop(idle);
}

#[test]
fn rejects_settings_of_r_processes_for_a_static_site() {
    let folder = folder(&[("index.html", "")]);
    for (command, option, value) in [
        ("serve", "--admin", "127.0.0.1:0"),
        ("check", "--admin", "127.0.0.1:0"),
        ("serve", "--workers", "4"),
        ("check", "--queue-timeout", "3s"),
        ("serve", "--error-detail", "full"),
    ] {
        let output = rookery()
            .arg(command)
            .arg(folder.path())
            .args(["--port", "0", option, value])
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{command} {option}");
        let printed = String::from_utf8_lossy(&output.stderr);
        let why =
            format!("`{option}` concerns the R processes of an app, and a static site has none");
        assert!(printed.contains(&why), "{command}: {printed}");
    }
}

#[test]
fn variables_of_r_processes_are_a_warning_for_a_static_site() {
    let folder = folder(&[("index.html", "")]);
    let output = rookery()
        .arg("check")
        .arg(folder.path())
        .args(["--port", "0"])
        .envs([("ROOKERY_WORKERS", "4"), ("WEB_CONCURRENCY", "4")])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        printed.trim_end(),
        "rookery: `ROOKERY_WORKERS` has no effect: a static site has no R processes"
    );
}

#[test]
fn errors_have_the_form_that_the_client_prefers() {
    let folder = folder(&[("site/index.html", "home"), ("pages/404.html", "<p>our own page")]);
    let (site, pages) = (folder.path().join("site"), folder.path().join("pages"));
    for pages in [None, Some(pages)] {
        let mut command = rookery();
        command.arg("serve").arg(&site).args(["--port=0", "--log=none"]).env("PATH", "/nowhere");
        if let Some(pages) = &pages {
            command.arg("--error-pages").arg(pages);
        }
        let mut it = Running::start(&mut command);
        let port = it.port();
        let answer = |line: &str, accept: &str| {
            let head = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
            let reply = ask(port, &format!("{head}Accept: {accept}\r\n\r\n"));
            let (head, body) = reply.split_once("\r\n\r\n").unwrap();
            (head.to_lowercase(), body.to_owned())
        };
        let (head, body) = answer("GET /none", "*/*");
        assert!(head.starts_with("http/1.1 404 "), "{head}");
        assert_eq!(body, "404 Not Found\n");
        let (head, body) = answer("GET /none", "application/json");
        assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{head}");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["error"], "Not Found");
        assert!(body["request_id"].as_str().is_some_and(|id| id.len() == 32), "{body}");
        let (head, page) = answer("GET /none", "text/html,*/*;q=0.8");
        assert!(head.starts_with("http/1.1 404 ") && head.contains("text/html"), "{head}");
        let length = format!("\r\ncontent-length: {}", page.len());
        assert!(head.contains(&length), "{head}");
        let is_own = page == "<p>our own page";
        assert!(is_own == pages.is_some() && (is_own || page.contains(">Reload</a>")), "{page}");
        // HEAD has the headers of GET, and no body.
        let (head, body) = answer("HEAD /none", "text/html");
        assert!(head.contains(&length) && body.is_empty(), "{head} {body}");
        // A request that no application gets, and one that the server rejects by its head.
        let (head, page) = answer("POST /", "text/html");
        assert!(
            head.starts_with("http/1.1 405 ") && head.contains("\r\nallow: get, head"),
            "{head}"
        );
        assert!(page.contains("<h1>405 Method Not Allowed</h1>"), "{page}");
        let (head, page) = answer("GET /a\\b", "text/html");
        assert!(head.starts_with("http/1.1 404 ") && page.contains('<'), "{head} {page}");
        let (head, page) = answer("GET *", "text/html");
        assert!(head.starts_with("http/1.1 400 "), "{head}");
        assert!(page.contains("Reason: the target must be a path"), "{page}");
        it.signal(libc::SIGTERM);
        assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
    }
    let mut wrong = serve_with_error_pages(&site, &folder.path().join("none"));
    assert_eq!(wrong.end().0.code(), Some(1), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("`--error-pages` names `"), "{}", wrong.stderr);
}

fn serve_with_error_pages(site: &std::path::Path, pages: &std::path::Path) -> Running {
    let mut command = rookery();
    command.arg("serve").arg(site).args(["--port=0", "--error-pages"]).arg(pages);
    Running::start(&mut command)
}
