use super::*;
use crate::command_line::tests::served;
use crate::failure::message_of;

fn settings(args: &[&str]) -> ServeSettings {
    served(&[&["serve", "."], args].concat())
}

/// Returns the settings that an R process gets for these command-line arguments, for a test.
fn lines_for_r(args: &[&str]) -> String {
    let serve = settings(args);
    let target =
        Target { given: "/app".into(), path: "/app".into(), folder: "/app".into(), is_site: false };
    let address = Address::parse(&serve.host, serve.port).unwrap();
    let log = serve.log.checked().unwrap();
    let mut lines = settings_for_r(&serve, &target, &address, &log).into_bytes();
    let mut private = private_lines(None);
    pass_https(&serve.all, &mut private);
    lines.extend(private.into_bytes());
    String::from_utf8(lines).unwrap()
}

#[test]
fn passes_address_log_and_settings_to_r() {
    let here = std::env::current_dir().unwrap().display().to_string();
    let text = lines_for_r(&["--port", "0", "--log", "access.log", "--admin", "unix:look"]);
    let wanted = format!(
        "target=/app\nhost=127.0.0.1\nport=0\nlog=file\nlog_file={here}/access.log\n\
         log_format=common\nadmin=unix:{here}/look\n"
    );
    assert!(text.starts_with(&wanted), "{text}");
    let text =
        lines_for_r(&["--host", "unix:s", "--log=none", "--log-format=json", "--proxy-protocol"]);
    let wanted = format!(
        "target=/app\nsocket={here}/s\ncli:flag:proxy_protocol=TRUE\nlog=nothing\n\
         log_format=json\n"
    );
    assert!(text.starts_with(&wanted), "{text}");
    let text = lines_for_r(&[
        "--trusted-proxies=10.0.0.0/8,unix",
        "--max-body-size=10 MB",
        "--ws-compression=level=6",
    ]);
    let wanted = "cli:text:trusted_proxies=10.0.0.0/8\ncli:text:trusted_proxies=unix\n\
                  cli:number:max_body_size=10000000\ncli:number:ws_compression.level=6\n\
                  cli:number:ws_compression.threshold=512\n\
                  cli:flag:ws_compression.takeover=FALSE\n";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn passes_https_settings_to_r() {
    let [cert, key] = ["localhost.pem", "localhost.key"]
        .map(|name| rookery_test_support::tls_file(name).display().to_string());
    let files = ["--tls-cert", &cert, "--tls-key", &key];
    let text = lines_for_r(
        &[&files[..], &["--hsts=31536000,subdomains", "--redirect-from=8080"]].concat(),
    );
    let wanted = "\ntls:text:tls_min_version=1.2\ntls:flag:http2=TRUE\n\
                  tls:number:hsts.max_age=31536000\ntls:flag:hsts.include_subdomains=TRUE\n\
                  tls:flag:hsts.preload=FALSE\ntls:number:redirect_from=8080\n";
    assert!(text.contains(wanted), "{text}");
    let text = lines_for_r(&["--domain=b.example.org", "--agree-tos", "--email=me@example.org"]);
    let wanted = "\ntls:text:domain=b.example.org\ntls:text:email=me@example.org\n\
                  tls:flag:agree_tos=TRUE\n";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn what_needs_the_supervisor_is_refused() {
    let refused = check_settings(&served(&["dev", "."]));
    assert!(message_of(refused).starts_with("`rookery dev` needs Linux, except"));
    for args in
        [&["--workers", "2"][..], &["--drain", "5s"], &["--embed"], &["--shutdown-delay", "1s"]]
    {
        let refused = check_settings(&settings(args));
        assert!(message_of(refused).contains("needs Linux: leave it out"), "{args:?}");
    }
    for args in [&["--port", "0"][..], &["--restart", "never"]] {
        check_settings(&settings(args)).unwrap();
    }
}

#[test]
fn a_server_is_found_by_a_connection() {
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "0.0.0.0"] {
        assert!(is_listening(&Address::parse(host, port).unwrap()), "{host}");
    }
    drop(listener);
    assert!(!is_listening(&Address::parse("127.0.0.1", port).unwrap()));
}

/// Returns how a shell script is started as the R process.
fn shell(script: &str) -> Start {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    let address = Address::parse("127.0.0.1", 1).unwrap();
    Start {
        command,
        settings: Lines::default(),
        private: Lines::default(),
        address,
        url: None,
        restarts: true,
    }
}

/// Runs a shell script as the R process. The signals arrive after the given numbers of
/// milliseconds. Returns the result and the number of starts.
fn run(
    script: &str,
    (restarts, has_listened): (bool, bool),
    signals: &[(u64, ReceivedSignal)],
) -> (Result<(), Failure>, usize) {
    run_with(script, Ok(script), (restarts, has_listened), signals)
}

/// Does the same as [`run`], with another script or a mistake in the settings after a reload.
fn run_with(
    script: &str,
    reloaded: Result<&str, &str>,
    (restarts, has_listened): (bool, bool),
    signals: &[(u64, ReceivedSignal)],
) -> (Result<(), Failure>, usize) {
    let folder = tempfile::tempdir().unwrap();
    let counted = |script: &str| {
        let mut start = shell(&format!("echo >> starts; {script}"));
        start.command.current_dir(folder.path());
        Start { restarts, ..start }
    };
    let began = Instant::now();
    let left = std::cell::RefCell::new(signals.to_vec());
    let next_signal = |time: Duration| {
        std::thread::sleep(time.min(Duration::from_millis(20)));
        let mut left = left.borrow_mut();
        let is_due =
            left.first().is_some_and(|(at, _)| began.elapsed() >= Duration::from_millis(*at));
        is_due.then(|| left.remove(0).1)
    };
    let read_settings = |_: &Address| {
        reloaded.map(&counted).map_err(|mistake| Failure::Unavailable(mistake.to_owned()))
    };
    let mut server =
        SingleProcess { start: counted(script), has_listened: false, opens_browser: false };
    let result = server.run(next_signal, read_settings, |_| has_listened);
    let starts = std::fs::read_to_string(folder.path().join("starts")).unwrap_or_default();
    (result, starts.lines().count())
}

const RELOAD: ReceivedSignal = ReceivedSignal::for_test(libc::SIGHUP);
const STOP: ReceivedSignal = ReceivedSignal::for_test(libc::SIGTERM);

#[test]
fn a_process_that_fails_is_started_again_until_it_succeeds() {
    let script = "[ $(wc -l < starts) = 3 ] || { sleep 0.1; exit 3; }";
    assert!(matches!(run(script, (true, true), &[]), (Ok(()), 3)));
    let refused = run(script, (false, true), &[]);
    assert!(matches!(refused, (Err(Failure::WorkerExited(3)), 1)), "{refused:?}");
    let never = run(script, (true, false), &[]);
    assert!(matches!(never, (Err(Failure::NeverReady { reason: None, .. }), 1)), "{never:?}");
}

#[test]
fn a_reload_ends_the_process_before_the_next_one_starts() {
    // A process that found the lock of another one would fail.
    let script = "mkdir lock || exit 9; trap 'rmdir lock; exit 0' TERM; while :; do sleep \
                  0.01; done";
    let (result, starts) = run(script, (true, true), &[(400, RELOAD), (800, STOP)]);
    assert!(result.is_ok() && starts == 2, "{result:?} {starts}");
}

#[test]
fn a_second_request_to_stop_kills_the_process() {
    let script = "trap '' TERM; while :; do sleep 0.01; done";
    let began = Instant::now();
    let (result, starts) = run(script, (true, true), &[(200, STOP), (400, STOP)]);
    assert!(result.is_ok() && starts == 1, "{result:?} {starts}");
    assert!(began.elapsed() < END_TIMEOUT / 2);
}

#[test]
fn a_stop_during_a_reload_stops_the_server() {
    let script = "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.01; done";
    let (result, starts) = run(script, (true, true), &[(600, RELOAD), (900, STOP)]);
    assert!(result.is_ok() && starts == 1, "{result:?} {starts}");
}

#[test]
fn the_first_stop_during_a_reload_leaves_the_process_its_time_and_the_second_kills_it() {
    let script = "trap '' TERM; while :; do sleep 0.01; done";
    let signals = [(200, RELOAD), (400, STOP), (1000, STOP)];
    let began = Instant::now();
    let (result, starts) = run(script, (true, true), &signals);
    assert!(result.is_ok() && starts == 1, "{result:?} {starts}");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(began.elapsed() < END_TIMEOUT / 2, "{:?}", began.elapsed());
}

#[test]
fn a_reload_during_the_pause_before_a_restart_reads_the_settings() {
    // The pauses are 0.5 s, 1 s and 2 s. The process fails until it gets other settings.
    let began = Instant::now();
    let fails = "sleep 0.1; exit 3";
    let (result, starts) =
        run_with(fails, Ok("exit 0"), (true, true), &[(300, RELOAD), (8000, STOP)]);
    assert!(result.is_ok() && starts == 2, "{result:?} {starts}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

fn mistake(_: &Address) -> Result<Start, Failure> {
    Err(Failure::Unavailable("a mistake".to_owned()))
}

#[test]
fn only_a_mistake_in_the_settings_lets_the_pause_before_a_restart_go_on() {
    let pause = |signal, time, read_settings: fn(&Address) -> _| {
        let mut server =
            SingleProcess { start: shell("old"), has_listened: true, opens_browser: false };
        let signal = std::cell::Cell::new(Some(signal));
        let next_signal = |time: Duration| {
            std::thread::sleep(time.min(Duration::from_millis(20)));
            signal.take()
        };
        let began = Instant::now();
        let stops = server.pause(time, &next_signal, &read_settings);
        let script = server.start.command.get_args().last().unwrap().to_owned();
        (stops, script.into_string().unwrap(), began.elapsed())
    };
    let time = Duration::from_millis(300);
    let (stops, script, waited) = pause(RELOAD, time, mistake);
    assert!(!stops && script == "old" && waited >= time, "{script} {waited:?}");
    let (stops, script, waited) = pause(RELOAD, END_TIMEOUT, |_| Ok(shell("new")));
    assert!(!stops && script == "new" && waited < END_TIMEOUT / 2, "{script} {waited:?}");
    let (stops, _, waited) = pause(STOP, END_TIMEOUT, mistake);
    assert!(stops && waited < END_TIMEOUT / 2, "{waited:?}");
}

#[test]
fn a_signal_counts_if_the_process_has_ended_before_it_is_handled() {
    let end_after = |signal: Option<ReceivedSignal>, read_settings: fn(&Address) -> _| {
        let mut server =
            SingleProcess { start: shell("exit 0"), has_listened: true, opens_browser: false };
        let mut child = server.start.start().unwrap();
        while matches!(child.exit_status(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        server.wait(&mut child, &|_| signal, &read_settings, &|_| true)
    };
    let end = end_after(Some(RELOAD), |_| Ok(shell("exit 0")));
    assert!(matches!(end, End::Reload(_)), "{end:?}");
    let end = end_after(Some(RELOAD), mistake);
    assert!(matches!(end, End::RefusedReload), "{end:?}");
    let end = end_after(Some(STOP), mistake);
    assert!(matches!(end, End::Stop), "{end:?}");
    let end = end_after(None, mistake);
    assert!(matches!(end, End::Exited(0)), "{end:?}");
}

#[test]
fn a_process_that_ends_after_a_refused_reload_is_started_again() {
    // The first process gets the Ctrl-Break of the console as well, and ends with status 0.
    let script = "[ $(wc -l < starts) = 1 ] && { sleep 0.6; exit 0; }; \
                  trap 'exit 0' TERM; while :; do sleep 0.01; done";
    for restarts in [true, false] {
        let (result, starts) =
            run_with(script, Err("a mistake"), (restarts, true), &[(300, RELOAD), (1500, STOP)]);
        assert!(result.is_ok() && starts == 2, "{result:?} {starts}");
    }
    let (result, starts) = run_with(script, Err("a mistake"), (true, true), &[]);
    assert!(result.is_ok() && starts == 1, "{result:?} {starts}");
}

#[test]
fn a_reload_keeps_the_port_that_was_chosen_for_port_0() {
    let given = Address::parse("127.0.0.1", 0).unwrap();
    let chosen = given.with_free_port(None).unwrap();
    let Address::Tcp { socket, .. } = &chosen else { panic!("{chosen:?}") };
    assert!(socket.port() != 0);
    assert!(!is_listening(&chosen));
    let listener = std::net::TcpListener::bind(socket).unwrap();
    assert!(is_listening(&chosen));
    // R receives this port.
    let serve = settings(&["--port", "0"]);
    let target =
        Target { given: "/app".into(), path: "/app".into(), folder: "/app".into(), is_site: false };
    let log = serve.log.checked().unwrap();
    let lines = settings_for_r(&serve, &target, &chosen, &log).into_bytes();
    let text = String::from_utf8(lines).unwrap();
    assert!(text.contains(&format!("\nport={}\n", socket.port())), "{text}");
    // The port stays the same, although R still listens on it.
    assert_eq!(given.with_free_port(Some(&chosen)).unwrap(), chosen);
    drop(listener);
    let other = Address::parse("127.0.0.2", 0).unwrap().with_free_port(Some(&chosen)).unwrap();
    assert_ne!(other, chosen);
    let fixed = Address::parse("127.0.0.1", 7).unwrap();
    assert_eq!(fixed.with_free_port(Some(&chosen)).unwrap(), fixed);
}

#[test]
fn settings_are_read_again_if_the_folder_of_the_app_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut start = shell("exit 1");
    start.command.current_dir(folder.path().join("deleted"));
    let mut server = SingleProcess { start, has_listened: true, opens_browser: false };
    let reads = std::cell::Cell::new(0);
    let read_settings = |_: &Address| {
        reads.set(reads.get() + 1);
        Ok(shell("exit 0"))
    };
    server.run(|_| None, read_settings, |_| true).unwrap();
    assert_eq!(reads.get(), 1);
}
