use super::*;
use crate::trace_context::TraceContext;

fn head(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut exchange = Exchange::new();
    exchange.begin(1, 1, 0);
    exchange.set_request_line(b"GET", b"/", Version::Http11);
    for (name, value) in lines {
        exchange.push_header(name.as_bytes(), value.as_bytes());
    }
    exchange.end_head(None, None, false);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    exchange.headers().map(|header| (text(header.cgi), text(header.value))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(cgi, value)| ((*cgi).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn headers_are_sorted_and_joined() {
    type Lines = &'static [(&'static str, &'static str)];
    let table: &[(Lines, Lines)] = &[
        (&[], &[]),
        (&[("x-foo", "1"), ("x-foo", "2"), ("x-foo", "")], &[("HTTP_X_FOO", "1,2")]),
        (&[("x-foo", ""), ("x-foo", "2")], &[("HTTP_X_FOO", "2")]),
        (&[("empty", "")], &[("HTTP_EMPTY", "")]),
        (&[("empty", ""), ("empty", "")], &[("HTTP_EMPTY", "")]),
        (
            &[("cookie", "a=1"), ("accept", "*"), ("cookie", "b=2")],
            &[("HTTP_ACCEPT", "*"), ("HTTP_COOKIE", "a=1; b=2")],
        ),
        (
            &[("x-b", "1"), ("x-a", "2"), ("x-b", "3"), ("host", "h")],
            &[("HTTP_HOST", "h"), ("HTTP_X_A", "2"), ("HTTP_X_B", "1,3")],
        ),
        // A name with an underscore has no CGI name.
        (&[("x_user", "eve"), ("x-user", "ada")], &[("HTTP_X_USER", "ada"), ("", "eve")]),
        (&[("x_user", "eve"), ("_", "1")], &[("", "1"), ("", "eve")]),
    ];
    for (lines, expected) in table {
        assert_eq!(head(lines), pairs(expected), "{lines:?}");
    }
}

#[test]
fn joining_keeps_the_order_of_values_in_two_thousand_lines() {
    let lines: Vec<(String, String)> =
        (0..2000).map(|n| (format!("x-{}", n % 7), n.to_string())).collect();
    let borrowed: Vec<(&str, &str)> = lines.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let got = head(&borrowed);
    assert_eq!(got.len(), 7);
    for (remainder, (_, value)) in got.iter().enumerate() {
        let want: Vec<String> =
            (0..2000).filter(|n| n % 7 == remainder).map(|n: usize| n.to_string()).collect();
        assert_eq!(*value, want.join(","));
    }
}

#[test]
fn the_context_of_a_trace_replaces_that_of_the_client() {
    let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let other = "00-0af7651916cd43dd8448eb211c80319c-0000000000000001-00";
    for lines in [
        &[("accept", "*"), ("x-a", "b")][..],
        &[("traceparent", header), ("accept", "*"), ("x-a", "b")],
        &[("x-a", "b"), ("traceparent", "a"), ("accept", "*"), ("traceparent", header)],
    ] {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.set_request_line(b"GET", b"/", Version::Http11);
        for line in lines {
            exchange.push_header(line.0.as_bytes(), line.1.as_bytes());
        }
        exchange.end_head(None, None, false);
        let context = TraceContext::parse(other.as_bytes()).unwrap();
        exchange.set_trace_context(&context);
        assert_eq!(exchange.trace_context(), Some(context));
        let names: Vec<_> = exchange.headers().map(|header| header.name).collect();
        assert_eq!(names, [&b"accept"[..], b"traceparent", b"x-a"]);
        exchange.remove_header(b"traceparent");
        assert_eq!((exchange.trace_context(), exchange.headers().len()), (None, 2));
    }
}

#[test]
fn the_target_is_split_at_its_first_question_mark() {
    let table = [
        ("/x", "/x", ""),
        ("/x?", "/x", "?"),
        ("/x?a?b", "/x", "?a?b"),
        ("*", "*", ""),
        ("?", "", "?"),
    ];
    for (target, path, query) in table {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.set_request_line(b"GET", target.as_bytes(), Version::Http11);
        assert_eq!((exchange.path(), exchange.query()), (path.as_bytes(), query.as_bytes()));
    }
}

#[test]
fn a_body_of_one_byte_chunks_needs_little_more_memory_than_its_bytes() {
    const COUNT: usize = if cfg!(miri) { 20_000 } else { 200_000 };
    let mut exchange = Exchange::new();
    exchange.begin(1, 1, 0);
    for n in 0..COUNT {
        exchange.push_body(&[n as u8]);
    }
    // A span is 16 bytes, and the table of them doubles.
    assert!(exchange.capacity() < 2 * COUNT, "{}", exchange.capacity());
    let whole: Vec<u8> = exchange.body().segments().flatten().copied().collect();
    assert!(whole.len() == COUNT && whole.iter().enumerate().all(|(at, byte)| *byte == at as u8));
}

#[test]
fn a_charge_is_released_by_reset() {
    let budget = Budget::new([0; Share::COUNT]);
    let mut exchange = Exchange::new();
    exchange.begin(1, 1, 0);
    exchange.push_body(&vec![0; 100_000]);
    exchange.charge(&budget, exchange.capacity());
    assert_eq!(budget.used(Share::Incoming), exchange.capacity());
    assert!(exchange.capacity() > 100_000);
    exchange.reset();
    assert_eq!(budget.used(Share::Incoming), 0);
}

#[test]
fn a_reused_exchange_is_not_disconnected() {
    let mut exchange = Exchange::new();
    exchange.begin(1, 1, 0);
    let status = exchange.shared_status();
    status.set_disconnected();
    assert!(exchange.is_client_disconnected());
    exchange.begin(2, 1, 0);
    assert!(!exchange.is_client_disconnected());
    status.set_disconnected();
    assert!(!exchange.is_client_disconnected(), "the old flag must not reach the new request");
}

#[test]
fn a_flag_that_is_set_after_the_reset_does_not_reach_the_next_request() {
    let mut exchange = Exchange::new();
    exchange.begin(1, 1, 0);
    let status = exchange.shared_status();
    exchange.reset();
    status.set_disconnected();
    exchange.begin(2, 1, 0);
    assert!(!exchange.is_client_disconnected());
}

#[test]
fn the_upstream_log_is_recorded_only_for_logged_requests_and_cleared() {
    let mut exchange = Exchange::new();
    exchange.begin(1, 1, 0);
    exchange.update_upstream_log(|upstream| upstream.attempts = 1);
    assert_eq!((exchange.upstream_log(), exchange.shared_status().upstream_log()), (None, None));
    exchange.set_logged(true);
    assert_eq!(exchange.upstream_log(), None);
    exchange.update_upstream_log(|upstream| upstream.attempts = 3);
    assert_eq!(exchange.upstream_log().map(|upstream| upstream.attempts), Some(3));
    exchange.begin(2, 1, 0);
    exchange.set_logged(true);
    assert_eq!((exchange.upstream_log(), exchange.shared_status().upstream_log()), (None, None));
}

#[test]
fn the_next_request_has_nothing_that_a_supervisor_gave_to_the_one_before() {
    let mut exchange = Exchange::new();
    exchange.begin(1, 1, 0);
    exchange.set_supervisor_ids(7, Some(b"id"));
    exchange.set_queued_at(8);
    exchange.set_started_at(9);
    exchange.begin(2, 1, 0);
    assert_eq!((exchange.ticket(), exchange.queue_and_start_times()), (0, (0, 0)));
}
