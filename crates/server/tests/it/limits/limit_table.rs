//! The table of all limits, with the test that exceeds each of them over a socket.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rookery_server::Limits;

/// A limit: the beginning of its row in docs/SECURITY-MODEL.md (empty if it does not limit
/// clients), the fields of the configuration that set it, the file of the test, and the name of the
/// test.
type Row = (&'static str, &'static [&'static str], &'static str, &'static str);

const IT: &str = "crates/server/tests/it/";

const TABLE: &[Row] = &[
    ("size of a request head", &["max_header_size"], "limits/each_limit.rs", "head_bytes"),
    ("header lines", &["max_headers"], "limits/each_limit.rs", "header_lines"),
    (
        "size of a request head over HTTP/2",
        &["http2_max_header_list_size"],
        "http2/attacks.rs",
        "heads_that_are_too_large",
    ),
    (
        "concurrent requests of an HTTP/2 connection",
        &["http2_max_concurrent_streams"],
        "http2/attacks.rs",
        "streams_past_the_limit_are_refused",
    ),
    (
        "concurrent requests of an HTTP/2 connection",
        &[],
        "http2/attacks.rs",
        "requests_that_are_reset_when_the_application_has_them",
    ),
    (
        "useless requests of an HTTP/2 connection",
        &[],
        "http2/attacks.rs",
        "a_peer_that_resets_all_it_asks_for_is_sent_off",
    ),
    (
        "empty CONTINUATION frames in one HTTP/2 head",
        &[],
        "http/edge_cases.rs",
        "continuation_without_end_is_refused_whatever_its_frames_carry",
    ),
    ("HTTP/2 frames that carry nothing", &[], "http2/attacks.rs", "frames_that_carry_nothing"),
    (
        "unread bytes of HTTP/2 bodies",
        &[],
        "http2/attacks.rs",
        "bodies_that_are_not_read_are_held_within_their_window",
    ),
    (
        "size of a request body",
        &["max_body_size"],
        "transports/requests.rs",
        "a_body_past_the_limit_gets_413",
    ),
    (
        "request body in memory",
        &["body_buffer_size"],
        "transports/requests.rs",
        "a_body_of_any_size_comes_back",
    ),
    (
        "free space that a spooled body",
        &["disk_reserve", "disk_share"],
        "limits/each_limit.rs",
        "disk_reserve",
    ),
    (
        "space of all spooled bodies",
        &[],
        "http/spooled_bodies.rs",
        "a_small_tmpfs_takes_bodies_up_to_a_quota_that_leaves_room_for_small_ones",
    ),
    (
        "spooled bodies in a folder that is in memory",
        &[],
        "http/spooled_bodies.rs",
        "a_body_in_a_folder_in_memory_is_charged_until_its_response",
    ),
    (
        "time for a TLS handshake",
        &["tls_handshake_timeout"],
        "tls/misbehaving_clients.rs",
        "a_handshake_has_a_time",
    ),
    (
        "processor time of the I/O thread in a round",
        &[],
        "limits/fair_turns.rs",
        "a_client_is_answered_beside_a_network_with_many_busy_connections",
    ),
    (
        "time for a request head",
        &["header_timeout"],
        "limits/minimum_rates.rs",
        "the_deadline_of_a_head_starts_when_the_connection_is_accepted",
    ),
    ("time for a request head", &[], "limits/each_limit.rs", "head_time"),
    (
        "rate of a request head",
        &["min_header_rate", "header_grace"],
        "limits/minimum_rates.rs",
        "a_head_has_a_rate",
    ),
    ("rate of a request body", &["min_body_rate"], "limits/minimum_rates.rs", "a_body_has_a_rate"),
    (
        "rate at which a response is read",
        &["min_response_rate"],
        "limits/minimum_rates.rs",
        "reading_has_a_rate",
    ),
    ("idle time", &["idle_timeout"], "limits/each_limit.rs", "idle_time"),
    ("idle time", &[], "limits/each_limit.rs", "a_client_that_does_not_read_is_given_up"),
    (
        "time in which the app must respond",
        &["request_timeout"],
        "limits/each_limit.rs",
        "the_application_has_a_time",
    ),
    (
        "connections",
        &["max_connections", "evicts_at_once"],
        "limits/eviction.rs",
        "a_newcomer_is_told_503_when_all_are_being_served",
    ),
    ("connections", &[], "limits/eviction.rs", "a_newcomer_gets_the_seat_of_the_slowest"),
    (
        "connections",
        &[],
        "limits/largest_network.rs",
        "uploads_and_downloads_of_an_address_make_place_for_another_address",
    ),
    (
        "connections of one address",
        &["max_connections_per_ip"],
        "limits/eviction.rs",
        "connections_of_one_address",
    ),
    (
        "WebSockets of one client",
        &[],
        "limits/eviction.rs",
        "websockets_of_one_client_behind_a_proxy",
    ),
    (
        "WebSockets of one client",
        &[],
        "limits/eviction.rs",
        "handshakes_that_wait_for_the_application_count_as_websockets",
    ),
    (
        "sessions at a worker",
        &[],
        "crates/supervisor/tests/it/pool/session_affinity.rs",
        "the_session_limit_applies_to_new_sessions_only",
    ),
    (
        "requests that wait for the app",
        &["max_queued_requests"],
        "limits/each_limit.rs",
        "the_queue_of_requests",
    ),
    (
        "WebSocket messages that wait for the app",
        &["ws_max_receive_queue_messages"],
        "websocket/messages.rs",
        "reading_pauses_while_the_application_does_not_take_messages",
    ),
    (
        "size of a WebSocket message",
        &["ws_max_message_size"],
        "transports/websockets.rs",
        "a_breach_of_the_protocol_is_closed_with_its_code",
    ),
    (
        "size of a WebSocket message",
        &[],
        "websocket/compression.rs",
        "a_bomb_is_stopped_at_the_limit_of_a_message",
    ),
    (
        "WebSockets with context takeover",
        &["kept_windows"],
        "websocket/compression.rs",
        "few_windows_are_kept_and_they_are_charged",
    ),
    (
        "memory of incomplete WebSocket messages",
        &[],
        "websocket/compression.rs",
        "what_has_been_inflated_of_messages_is_charged",
    ),
    ("frames of a WebSocket message", &[], "limits/each_limit.rs", "frames_of_a_message"),
    (
        "rate within a WebSocket message",
        &["ws_min_rate"],
        "limits/minimum_rates.rs",
        "a_message_has_a_rate_and_a_websocket_between_two_has_all_the_time",
    ),
    (
        "rate within a WebSocket message",
        &["ws_stall_timeout"],
        "limits/minimum_rates.rs",
        "a_websocket_that_reads_nothing_has_its_own_time",
    ),
    (
        "bytes that wait to be sent to one WebSocket",
        &["ws_max_send_queue_size"],
        "websocket/send_queue.rs",
        "a_peer_that_never_reads_is_dropped_and_the_application_told",
    ),
    (
        "bytes queued for one WebSocket whose client keeps sending",
        &[],
        "crates/server/tests/unread_memory.rs",
        "a_websocket_whose_peer_never_reads_is_counted_and_read_no_further",
    ),
    (
        "time that an unread WebSocket is kept after its client has closed its sending side",
        &[],
        "limits/deadlines.rs",
        "what_came_before_the_end_of_a_paused_websocket_is_delivered_for_as_long_as_it_may_stall",
    ),
    (
        "unread bytes of a streamed request body",
        &[],
        "http/streamed_request_bodies.rs",
        "no_more_is_read_ahead_than_256_kib",
    ),
    (
        "unread bytes of a streamed request body",
        &[],
        "http/streamed_request_bodies.rs",
        "pieces_of_a_byte_count_as_what_they_cost",
    ),
    (
        "bytes of a streamed response that wait to be written",
        &["max_stream_queue_size"],
        "response_stream/back_pressure.rs",
        "who_takes_less_than_is_made_is_cut",
    ),
    (
        "streams that are compressed at a time",
        &[],
        "response_stream/compression.rs",
        "no_more_than_32_streams_are_compressed_at_a_time",
    ),
    (
        "memory of all clients",
        &["max_client_memory"],
        "limits/memory_budget.rs",
        "half_sent_bodies",
    ),
    ("memory of connections, 32 KiB each", &[], "limits/memory_budget.rs", "long_heads"),
    (
        "memory of connections, 32 KiB each",
        &[],
        "limits/memory_budget.rs",
        "connections_that_are_all_being_served",
    ),
    (
        "memory of connections, 32 KiB each",
        &[],
        "tls/misbehaving_clients.rs",
        "many_handshakes_that_never_end_hold_what_they_are_charged",
    ),
    ("memory of requests larger than 8 KiB", &[], "limits/memory_budget.rs", "half_sent_bodies"),
    (
        "memory of requests larger than 8 KiB",
        &[],
        "http/queued_requests.rs",
        "a_waiting_request_is_evicted_for_the_memory_of_another_client_and_its_connection_is_kept",
    ),
    (
        "memory of incomplete WebSocket messages",
        &[],
        "limits/memory_budget.rs",
        "half_sent_messages",
    ),
    (
        "memory of WebSocket messages that wait for the app",
        &["ws_max_receive_queue_size"],
        "limits/memory_budget.rs",
        "messages_that_wait_for_the_application",
    ),
    (
        "memory of what waits to be sent to WebSockets",
        &[],
        "limits/memory_budget.rs",
        "queues_of_peers_that_do_not_read",
    ),
    (
        "memory of what waits to be sent to WebSockets",
        &[],
        "response_stream/back_pressure.rs",
        "what_waits_is_charged_and_the_largest_goes_when_there_is_no_room",
    ),
    (
        "memory of responses larger than 8 KiB",
        &[],
        "limits/memory_budget.rs",
        "replies_that_are_not_read",
    ),
    ("memory of compressors", &[], "limits/memory_budget.rs", "compressors"),
    (
        "open files",
        &[],
        "limits/file_descriptors.rs",
        "unread_files_of_an_address_leave_descriptors_for_another_address",
    ),
    (
        "open files",
        &[],
        "limits/file_descriptors.rs",
        "spooled_bodies_of_an_address_make_place_for_one_of_another_address",
    ),
    (
        "open files",
        &[],
        "limits/file_descriptors.rs",
        "files_of_a_client_behind_a_proxy_make_place_for_those_of_another_client",
    ),
    (
        "exchanges kept for reuse",
        &["pool_bytes"],
        "crates/server/src/application/exchange_pool.rs",
        "the_pool_holds_no_more_than_its_limit",
    ),
    (
        "R processes of a worker's slot",
        &[],
        "crates/supervisor/src/supervise/pool/tests.rs",
        "a_slot_has_one_former_worker_however_often_its_limit_is_exceeded_while_sessions_stay_open",
    ),
    (
        "time in which a client must answer a close frame",
        &["ws_close_timeout"],
        "websocket/messages.rs",
        "a_peer_that_never_answers_a_close_is_dropped",
    ),
    ("what is read after a refusal", &[], "limits/each_limit.rs", "what_is_read_after_a_refusal"),
    (
        "header names that become R symbols",
        &[],
        "r/tests/testthat/test-r-process.R",
        "a million header names make R grow by less than 8 MB",
    ),
    ("errors kept for the app", &[], "limits/each_limit.rs", "errors_kept_for_the_application"),
    (
        "bytes of an access log",
        &[],
        "crates/server/tests/access_log.rs",
        "a_log_that_nobody_reads_costs_lines_and_holds_nobody_up",
    ),
    (
        "silence of a WebSocket's client",
        &["ws_ping_timeout"],
        "websocket/messages.rs",
        "a_peer_that_answers_no_ping_is_dropped_and_any_byte_is_an_answer",
    ),
    // The following settings do not limit clients.
    (
        "",
        &["evicts_at_once"],
        "limits/eviction.rs",
        "a_newcomer_gets_the_seat_of_a_new_connection_at_once_if_configured",
    ),
    ("", &["ws_ping_interval"], "websocket/messages.rs", "a_silent_connection_is_pinged"),
    (
        "",
        &["stop_timeout"],
        "lifecycle/listeners.rs",
        "a_reply_on_its_way_is_finished_before_the_end",
    ),
];

/// Returns the field names of a struct from its `Debug` text.
fn fields(debug: &str) -> Vec<String> {
    let own = debug.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
    own.filter_map(|line| Some(line.trim().split_once(": ")?.0.to_owned())).collect()
}

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let place = if root.join(path).exists() { root.join(path) } else { root.join(IT).join(path) };
    fs::read_to_string(&place).unwrap_or_else(|error| panic!("{}: {error}", place.display()))
}

#[test]
fn every_field_of_the_limits_has_a_test() {
    let mut wanted = fields(&format!("{:#?}", Limits::default()));
    wanted.extend(fields(&format!("{:#?}", rookery_exchange::QueueLimits::default())));
    assert!(wanted.len() > 30, "{wanted:?}");
    are_the_same(wanted.iter().map(String::as_str), TABLE.iter().flat_map(|row| row.1).copied());
}

/// Asserts that all limits have a row in the table, and that the table has no other rows.
fn are_the_same<'a>(limited: impl Iterator<Item = &'a str>, tested: impl Iterator<Item = &'a str>) {
    let (limited, tested): (BTreeSet<&str>, BTreeSet<&str>) = (limited.collect(), tested.collect());
    let without: Vec<_> = limited.difference(&tested).collect();
    assert!(
        without.is_empty(),
        "no row of the table for {without:?}: write tests that exceed them"
    );
    let stale: Vec<_> = tested.difference(&limited).collect();
    assert!(stale.is_empty(), "limited no more, or not in docs/SECURITY-MODEL.md: {stale:?}");
}

#[test]
fn every_limit_of_the_security_model_has_a_test() {
    let model = read("docs/SECURITY-MODEL.md");
    let table = model
        .split("| limit | default |")
        .nth(1)
        .expect("the table of limits")
        .split("\n\n")
        .next();
    let rows: Vec<&str> = table
        .unwrap()
        .lines()
        .skip(2)
        .map(|row| row.trim_start_matches("| ").split(" | ").next().unwrap())
        .collect();
    assert!(rows.len() > 25, "{rows:?}");
    // Several entries may match the beginning of a row. The longest one is meant.
    let named = || TABLE.iter().map(|it| it.0).filter(|name| !name.is_empty());
    let meant =
        rows.iter().map(|row| named().filter(|name| row.starts_with(name)).max().unwrap_or(row));
    are_the_same(meant, named());
}

#[test]
fn every_test_of_the_table_is_there() {
    for (_, _, file, test) in TABLE {
        let text = read(file);
        let is_there = text.contains(&format!("#[test]\nfn {test}()"))
            || text.contains(&format!("#[test]\n    fn {test}()"))
            || text.contains(&format!("fn {test}(on: Transport)"))
            || text.contains(&format!("test_that(\"{test}\""));
        assert!(is_there, "{test} is not in {file}");
    }
}
