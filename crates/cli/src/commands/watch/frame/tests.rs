use serde_json::json;

use super::*;

fn snapshot() -> Value {
    json!({
        "at": 1000.0,
        "certificates": [{ "hosts": ["a.example"], "ends": 1000.0 + 86_400.0 * 20.5 }],
        "report": {
            "version": "0.1.0", "pid": 4710, "target": "/srv/app", "state": "serving",
            "address": "http://127.0.0.1:8000", "started": 940.0, "connections": 1,
            "wanted": { "workers": 2 }, "queue": { "length": 3, "oldest_ms": 1500, "limit": 100 },
            "reload": { "state": "idle", "last_error": null },
            "workers": [
                { "slot": 0, "pid": 4711, "state": "ready", "r_state": "busy", "r_state_ms": 12_000,
                  "waiting_for_r": 2, "queue": { "length": 1 }, "in_flight": 1, "sessions": 4, "streams": 2,
                  "memory": 210_000_000, "cpu_s": 3.5, "restarts": 0, "route": "GET /slow",
                  "stack": { "calls": "fit < handler, app.R#12", "ago_ms": 300 },
                  "requests": 10, "last_exit": null },
                { "slot": 1, "pid": null, "state": "backing_off", "restarts": 2,
                  "last_exit": { "reason": "crash", "at": 990.0 } },
            ],
            "route_buckets": [0.1, 1.0],
            "routes": [{
                "route": "/slow", "requests": 10, "errors": 1,
                "duration": { "count": 10, "sum": 5.0, "buckets": [0, 10] },
                "queue": { "count": 10, "sum": 0.0, "buckets": [10, 10] },
                "r": { "count": 0, "sum": 0.0, "buckets": [0, 0] },
            }],
        },
    })
}

fn lines(snapshot: &Value, errors: &Value, size: (usize, usize), is_coloured: bool) -> Vec<String> {
    let figures = Figures::default();
    Frame { snapshot, figures: &figures, errors }.lines(size.0, size.1, is_coloured)
}

const LARGE: (usize, usize) = (200, 100);

#[test]
fn shows_what_the_page_shows() {
    let errors = json!([{
        "at": 997.0, "slot": 0, "request_id": "5cf0", "route": "GET /slow", "label": "handler",
        "message": "first line\nsecond line", "trace": "a()\nb()\nc()\nd()",
    }]);
    let shown = lines(&snapshot(), &errors, LARGE, false).join("\n");
    for line in [
        "rookery 0.1.0: /srv/app is serving, up 1 min 0 s\n",
        "http://127.0.0.1:8000, process 4710, 1 of 2 ready, 1 connection, 4 sessions, 2 streams, 3 \
         waiting (limit 100), the oldest for 1.5 s\n",
        "the certificate of a.example expires in 20 days\n",
        "0       4711     ready        busy  12.0 s  3        1            4         2        210 MB  \
         3.5 s  0         GET /slow in fit < handler, app.R#12 (300 ms ago)\n",
        "(the previous process: crash, 10.0 s ago)\n",
        "/slow  -           500 ms  955 ms  0 ms    -     10        1\n",
        "3.0 s ago, worker 0, request 5cf0: GET /slow handler: first line\n    b()\n    c()\n    d()",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("second line") && !shown.contains("a()"), "{shown}");
}

#[test]
fn a_frame_fits_into_any_window() {
    let errors: Value = (0..50).map(|_| json!({ "message": "x".repeat(300) })).collect();
    for size in [(80, 24), (40, 10), (20, 3), (1, 1)] {
        let shown = lines(&snapshot(), &errors, size, false);
        assert!(shown.len() <= size.1, "{size:?}: {}", shown.len());
        assert!(shown.iter().all(|line| line.chars().count() <= size.0), "{size:?}: {shown:?}");
    }
}

#[test]
fn colour_surrounds_lines_and_nothing_else() {
    let plain = lines(&snapshot(), &Value::Null, LARGE, false);
    assert!(plain.iter().all(|line| !line.contains('\x1b')));
    let coloured = lines(&snapshot(), &Value::Null, LARGE, true);
    assert!(coloured[0].starts_with("\x1b[1mrookery") && coloured[0].ends_with("\x1b[0m"));
    assert_eq!(plain.len(), coloured.len());
}

#[test]
fn an_incomplete_report_is_shown_as_far_as_it_goes() {
    for snapshot in
        [Value::Null, json!({}), json!({ "report": { "workers": [{}], "routes": [{}] } })]
    {
        let shown = lines(&snapshot, &Value::Null, LARGE, false).join("\n");
        assert!(shown.contains("no errors in R"), "{shown}");
    }
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let mut snapshot = snapshot();
    snapshot["report"]["target"] = json!("/srv/\x1b]0;title\x07");
    snapshot["report"]["routes"][0]["route"] = json!("/a\u{202e}b\u{2066}");
    let errors = json!([{ "message": "\x1b[2J\u{2067}", "trace": "f(\x1b[31m\u{202d})" }]);
    let shown = lines(&snapshot, &errors, LARGE, false).join("");
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
    assert!(shown.contains("/a\u{fffd}b\u{fffd}"), "{shown:?}");
    assert!(!shown.contains(['\u{2066}', '\u{2067}', '\u{202d}', '\u{202e}']), "{shown:?}");
}
