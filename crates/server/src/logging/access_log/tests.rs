use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use rookery_exchange::{TerminationState, UpstreamLog, UpstreamWorker};

use super::record::PATH_BYTES;
use super::*;
use crate::logging::civil::Civil;
use crate::logging::line_writer::BUFFER_BYTES;

fn record<'a>(path: &'a [u8], query: &'a [u8]) -> Record<'a> {
    Record {
        // The time is 2026-11-21 07:36:11.250.
        time: UNIX_EPOCH + Duration::from_millis(1_795_246_571_250),
        remote: Some("127.0.0.1:4711".parse().unwrap()),
        method: b"GET",
        path,
        query,
        protocol: Protocol::Http11,
        status: 200,
        bytes: 12,
        elapsed: Duration::from_micros(1234),
        aborted: None,
        request_id: b"",
        trace_id: None,
        referer: b"",
        user_agent: b"",
        app: b"",
        host: b"",
        user: b"",
        route: b"",
        queue: None,
        r: None,
        upstream: None,
    }
}

fn line(record: &Record<'_>, format: Format) -> String {
    let mut out = Vec::new();
    record.write_line(format, &mut out);
    String::from_utf8(out).unwrap()
}

/// The test's simulated log output. Each write sends its bytes to the test, and then blocks until
/// the test lets it return.
struct Gate {
    written: mpsc::Sender<Vec<u8>>,
    go_on: mpsc::Receiver<()>,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.send(bytes.to_vec()).unwrap();
        // `recv` fails once the test has dropped its end of the channel. From that time, writes
        // succeed at once.
        let _ = self.go_on.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_common_line_has_the_fields_in_their_order() {
    assert_eq!(
        line(&record(b"/a%20b", b"?x=1"), Format::Common),
        "127.0.0.1 - - [21/Nov/2026:07:36:11 +0000] \"GET /a%20b?x=1 HTTP/1.1\" 200 12 0.001234\n"
    );
    let socket =
        Record { remote: None, protocol: Protocol::Http10, status: 503, ..record(b"/", b"") };
    assert_eq!(
        line(&socket, Format::Common),
        "- - - [21/Nov/2026:07:36:11 +0000] \"GET / HTTP/1.0\" 503 12 0.001234\n"
    );
}

#[test]
fn a_json_line_is_one_object() {
    assert_eq!(
        line(&record(b"/a", b"?x=1"), Format::Json),
        "{\"time\":\"2026-11-21T07:36:11.250Z\",\"remote\":\"127.0.0.1\",\"method\":\"GET\",\"path\":\"/a\",\
         \"query\":\"?x=1\",\"status\":200,\"bytes\":12,\"seconds\":0.001234}\n"
    );
    let aborted = Record {
        aborted: Some(rookery_exchange::StreamEnd::Timeout),
        request_id: b"ab-1",
        ..record(b"/a", b"")
    };
    assert!(line(&aborted, Format::Json).ends_with(
        ",\"seconds\":0.001234,\"request_id\":\"ab-1\",\"aborted\":true,\"reason\":\"timeout\"}\n"
    ));
}

/// A record with everything that the application and the client say about a request.
fn full_record() -> Record<'static> {
    Record {
        referer: b"https://example.org/",
        user_agent: b"Mozilla/5.0 \"x\"",
        route: b"/users/<id>",
        queue: Some(Duration::from_micros(200)),
        r: Some(Duration::from_micros(900)),
        ..record(b"/users/7", b"?x=1")
    }
}

#[test]
fn a_combined_line_names_the_client_the_times_and_the_route() {
    assert_eq!(
        line(&full_record(), Format::Combined),
        "127.0.0.1 - - [21/Nov/2026:07:36:11 +0000] \"GET /users/7?x=1 HTTP/1.1\" 200 12 \
         \"https://example.org/\" \"Mozilla/5.0 \\\"x\\\"\" 0.001234 0.000200 0.000900 \
         \"/users/<id>\"\n"
    );
    let refused = line(&record(b"/", b""), Format::Combined);
    assert!(refused.ends_with(" 200 12 \"-\" \"-\" 0.001234 - - \"-\"\n"), "{refused}");
}

#[test]
fn a_json_line_has_the_route_and_the_times_of_the_application() {
    let json = line(&full_record(), Format::Json);
    assert!(
        json.ends_with(
            ",\"seconds\":0.001234,\"route\":\"/users/<id>\",\"referer\":\"https://example.org/\",\
             \"user_agent\":\"Mozilla/5.0 \\\"x\\\"\",\"r_seconds\":0.000900,\"queue_seconds\":0.000200}\n"
        ),
        "{json}"
    );
}

#[test]
fn fields_for_an_r_session_are_separated_by_tabs() {
    let record = Record { route: b"/a\tb", ..full_record() };
    assert_eq!(
        line(&record, Format::Fields),
        "record\t1795246571.250000\t127.0.0.1\tGET\t/users/7\t?x=1\t200\t12\t0.001234\t\t\t/a%09b\t\
         0.000200\t0.000900\n"
    );
    let record = Record {
        remote: None,
        aborted: Some(rookery_exchange::StreamEnd::Client),
        ..super::tests::record(b"/50%\n", b"")
    };
    let text = line(&record, Format::Fields);
    assert!(text.contains("\t\tGET\t/50%25%0A\t\t200\t"), "{text}");
    assert!(text.ends_with("\tclient\t\t\t\n"), "{text}");
}

#[test]
fn lines_at_a_terminal_are_aligned() {
    let plain = Format::Terminal { is_coloured: false };
    let slow = Record {
        method: b"OPTIONS",
        status: 503,
        bytes: 1_234_567,
        elapsed: Duration::from_secs(75),
        aborted: Some(rookery_exchange::StreamEnd::Timeout),
        queue: Some(Duration::from_secs(11)),
        r: None,
        ..record(b"/slow", b"")
    };
    let lines = [line(&full_record(), plain), line(&slow, plain)];
    assert_eq!(
        lines,
        [
            "07:36:11Z GET     200     1.2 ms  queue    0.2 ms  R    0.9 ms      12 B  /users/7?x=1  \
             /users/<id>\n",
            "07:36:11Z OPTIONS 503     75.0 s  queue    11.0 s  R         -    1.2 MB  /slow  \
             aborted: timeout\n",
        ]
    );
    assert_eq!(lines[0].find("/users/7"), lines[1].find("/slow"));
}

#[test]
fn lines_at_a_terminal_have_colour_and_no_sequences_of_the_client() {
    let coloured = Format::Terminal { is_coloured: true };
    let strip = |text: String| {
        ["31", "32", "33", "2", "0"]
            .iter()
            .fold(text, |text, code| text.replace(&format!("\x1b[{code}m"), ""))
    };
    let evil = Record { route: b"/\x1b[2J\n", ..record(b"/\x1b[2J", b"?\x1b]0;x\x07") };
    for record in [full_record(), evil] {
        let text = line(&record, coloured);
        assert!(text.contains("\x1b[32m200\x1b[0m"), "{text:?}");
        let plain = Format::Terminal { is_coloured: false };
        assert_eq!(strip(text), line(&record, plain));
        assert!(!line(&record, plain).trim_end().contains(['\x1b', '\n']));
    }
    let error = Record { status: 500, elapsed: Duration::from_secs(2), ..full_record() };
    let text = line(&error, coloured);
    assert!(text.contains("\x1b[31m500\x1b[0m \x1b[33m 2000.0 ms\x1b[0m"), "{text:?}");
}

#[test]
fn a_line_of_workers_tells_what_became_of_the_request_at_them() {
    let nothing = line(&record(b"/a", b""), Format::CommonOfWorkers);
    assert!(nothing.ends_with("\" 200 12 0.001234 - - - - - - - - -\n"), "{nothing}");
    let upstream = UpstreamLog {
        worker: Some(UpstreamWorker { slot: 2, pid: 4711, epoch: 5 }),
        attempts: 2,
        queued: Duration::from_micros(7),
        response_time: Some(Duration::from_micros(1200)),
        termination_state: Some(TerminationState::WorkerDied),
        session: Some(0xab),
        ..UpstreamLog::default()
    };
    let all = Record { request_id: b"ab-1", upstream: Some(upstream), ..record(b"/a", b"") };
    let text = line(&all, Format::CommonOfWorkers);
    assert!(
        text.ends_with(" 0.001234 ab-1 2 4711 5 0.000007 0.001200 1 D 00000000000000ab\n"),
        "{text}"
    );
    assert!(line(&all, Format::Common).ends_with(" 0.001234\n"));
    let json = line(&all, Format::Json);
    assert!(
        json.ends_with(
            ",\"request_id\":\"ab-1\",\"slot\":2,\"pid\":4711,\"epoch\":5,\"queue_seconds\":0.000007,\
             \"upstream_seconds\":0.001200,\"retries\":1,\"ended\":\"D\",\"session\":\"00000000000000ab\"}\n"
        ),
        "{json}"
    );
    // The request waited in the queue and was never sent to a worker.
    let queued = UpstreamLog { queued: Duration::from_secs(10), ..UpstreamLog::default() };
    let late = Record { upstream: Some(queued), ..record(b"/a", b"") };
    assert!(line(&late, Format::CommonOfWorkers).ends_with(" - - - - 10.000000 - 0 - -\n"));
    assert!(line(&late, Format::Json).ends_with(",\"queue_seconds\":10.000000,\"retries\":0}\n"));
}

#[test]
fn what_ended_a_request_is_what_the_application_says_or_what_was_seen() {
    use rookery_exchange::StreamEnd;
    let worker = Some(UpstreamWorker { slot: 0, pid: 1, epoch: 1 });
    let with = |worker, ended| {
        Some(UpstreamLog { worker, termination_state: ended, ..UpstreamLog::default() })
    };
    for (upstream, aborted, ended) in [
        (None, None, None),
        (with(worker, None), None, None),
        (with(None, Some(TerminationState::Queue)), None, Some(TerminationState::Queue)),
        // A request that was refused in the queue keeps that state, although its client
        // disconnected before it received the response.
        (
            with(None, Some(TerminationState::Queue)),
            Some(StreamEnd::Client),
            Some(TerminationState::Queue),
        ),
        (with(worker, None), Some(StreamEnd::Client), Some(TerminationState::ClientDisconnected)),
        (with(worker, None), Some(StreamEnd::Slow), Some(TerminationState::ClientDisconnected)),
        (with(worker, None), Some(StreamEnd::Timeout), Some(TerminationState::Timeout)),
        (with(worker, None), Some(StreamEnd::Error), Some(TerminationState::WorkerDied)),
        (None, Some(StreamEnd::Error), None),
        (with(worker, None), Some(StreamEnd::Stop), None),
    ] {
        let record = Record { aborted, upstream, ..record(b"/", b"") };
        assert_eq!(record.ended(), ended, "{upstream:?} {aborted:?}");
    }
    assert_eq!(
        Record { status: 408, ..record(b"/", b"") }.ended(),
        Some(TerminationState::Timeout)
    );
}

#[test]
fn a_client_cannot_write_lines_into_the_log() {
    let evil = b"/\n127.0.0.1 \"x\" \\ \x1b[2J\xff";
    let common = line(&record(evil, b""), Format::Common);
    assert_eq!(common.matches('\n').count(), 1);
    assert!(common.contains("/\\x0a127.0.0.1 \\\"x\\\" \\\\ \\x1b[2J\\xff"), "{common}");
    let json = line(&record(evil, b""), Format::Json);
    assert_eq!(json.matches('\n').count(), 1);
    assert!(json.contains("/\\u000a127.0.0.1 \\\"x\\\" \\\\ \\u001b[2J\u{fffd}"), "{json}");
}

#[test]
fn a_json_line_names_the_app_the_host_and_the_user() {
    let named =
        Record { app: b"report", host: b"a.example\"", user: b"CN=Ada", ..record(b"/", b"") };
    let line = line(&named, Format::Json);
    let fields = ",\"app\":\"report\",\"host\":\"a.example\\\"\",\"user\":\"CN=Ada\",\"method\":";
    assert!(line.contains(fields), "{line}");
}

#[test]
fn a_long_path_is_cut() {
    let long = vec![b'a'; 90_000];
    assert!(line(&record(&long, &long), Format::Common).len() < 2 * PATH_BYTES + 200);
    assert_eq!(record(&long, b"").to_owned().path.len(), PATH_BYTES);
}

#[test]
fn a_mapped_address_is_shown_as_ipv4() {
    let mapped =
        Record { remote: Some("[::ffff:10.0.0.1]:80".parse().unwrap()), ..record(b"/", b"") };
    assert!(line(&mapped, Format::Common).starts_with("10.0.0.1 - - "));
}

#[test]
fn dates_agree_with_the_calendar() {
    let date = |seconds: u64| {
        let civil = Civil::of(UNIX_EPOCH + Duration::from_secs(seconds));
        (civil.year, civil.month, civil.day)
    };
    assert_eq!(date(0), (1970, 1, 1));
    assert_eq!(date(951_782_400), (2000, 2, 29));
    assert_eq!(date(951_868_800), (2000, 3, 1));
    assert_eq!(date(1_735_689_599), (2024, 12, 31));
    assert_eq!(date(4_107_542_400), (2100, 3, 1));
    // Tests that each day of 400 years follows the day before it.
    let mut before = date(0);
    for day in 1..146_097u64 {
        let next = date(day * 86_400);
        let is_next = next == (before.0, before.1, before.2 + 1)
            || (next.2 == 1 && next.0 == before.0 && next.1 == before.1 + 1 && before.2 >= 28)
            || next == (before.0 + 1, 1, 1) && before.1 == 12 && before.2 == 31;
        assert!(is_next, "{before:?} {next:?}");
        before = next;
    }
    assert_eq!(before, (2369, 12, 31));
}

#[test]
fn closing_writes_what_waits() {
    let (written, lines) = mpsc::channel();
    let (_, go_on) = mpsc::channel();
    let log = AccessLog::written(Gate { written, go_on }, Format::Common).unwrap();
    for _ in 0..100 {
        log.record(&record(b"/", b""));
    }
    log.close();
    let all: Vec<u8> = lines.try_iter().flatten().collect();
    assert_eq!(all.split_inclusive(|byte| *byte == b'\n').count(), 100);
}

#[test]
fn an_output_that_stands_still_costs_lines_not_memory_or_time() {
    let (written, lines) = mpsc::channel();
    let (go, go_on) = mpsc::channel();
    let log = AccessLog::written(Gate { written, go_on }, Format::Common).unwrap();
    log.record(&record(b"/first", b""));
    // The writer is now blocked in the write.
    let first = lines.recv().unwrap();
    assert!(first.ends_with(b"\n"));
    let one = line(&record(b"/", b""), Format::Common).len();
    let fitting = BUFFER_BYTES.div_ceil(one);
    for _ in 0..fitting + 7 {
        log.record(&record(b"/", b""));
    }
    drop(go);
    log.close();
    let rest: Vec<u8> = lines.try_iter().flatten().collect();
    let rest = String::from_utf8(rest).unwrap();
    assert_eq!(rest.lines().filter(|line| line.starts_with("127.")).count(), fitting);
    assert!(rest.contains("# 7 lines were lost"), "{}", rest.lines().last().unwrap());
}

/// The test's simulated disk, which has space for a limited number of bytes.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (written, room) = &mut *lock(&self.0);
        if *room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let some = bytes.len().min(*room);
        written.extend_from_slice(&bytes[..some]);
        *room -= some;
        Ok(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_costs_lines_which_are_counted() {
    let one = line(&record(b"/", b""), Format::Common);
    let disk = Disk::default();
    // There is space for two lines and a part of a third.
    lock(&disk.0).1 = 2 * one.len() + 20;
    let log = AccessLog::written(disk.clone(), Format::Common).unwrap();
    for lines in 1..=10 {
        log.record(&record(b"/", b""));
        let deadline = Instant::now() + Duration::from_secs(60);
        while log.lines_lost() + 2 < lines && lines > 2 {
            assert!(Instant::now() < deadline, "line {lines} is not counted");
            thread::yield_now();
        }
    }
    assert_eq!(log.lines_lost(), 8);
    lock(&disk.0).1 = 10_000;
    log.record(&record(b"/", b""));
    log.close();
    let text = String::from_utf8(lock(&disk.0).0.clone()).unwrap();
    let cut = &one[..20];
    assert!(text.starts_with(&format!("{one}{one}{cut}\n{one}# 8 lines were lost")), "{text}");
    assert_eq!((text.lines().count(), log.lines_lost()), (5, 8));
}

#[test]
fn an_application_reads_records_up_to_a_limit() {
    let log = AccessLog::read();
    for _ in 0..QUEUE_RECORDS + 3 {
        log.record(&record(b"/x", b"?y"));
    }
    assert_eq!(log.take_lost(), 3);
    assert_eq!(log.take_lost(), 0);
    let first = log.take().unwrap();
    assert_eq!(
        (first.path.as_slice(), first.query.as_slice(), first.status),
        (&b"/x"[..], &b"?y"[..], 200)
    );
    assert_eq!(std::iter::from_fn(|| log.take()).count(), QUEUE_RECORDS - 1);
}
