//! Frames by which an HTTP/2 client makes the server reset streams (CVE-2025-8671), and frames that
//! cost the client next to nothing.

use std::time::Duration;

use rookery_server::{Limits, Rejection};

use crate::http2::attacks::{beside, keeping};
use crate::support::http2::{
    END_HEADERS, END_STREAM, GET, Heard, Peer, block, code, frame, get, kind, post,
};
use crate::support::tls::app;
use crate::support::{TEST_TIMEOUT, hello, in_own_process, wait_until};

const MOST: u32 = (1 << 31) - 1;

// The following frames make the server end the connection, or a stream that waits for its response.

fn window_past_its_end(stream: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &MOST.to_be_bytes()).repeat(2)
}

/// A function that makes a frame for a stream.
type Frame = fn(u32) -> Vec<u8>;

fn window_update_of_nothing(stream: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &0u32.to_be_bytes())
}

fn stream_that_depends_on_itself(stream: u32) -> Vec<u8> {
    frame(kind::PRIORITY, 0, stream, &[&stream.to_be_bytes()[..], &[0]].concat())
}

fn data_behind_the_end(stream: u32) -> Vec<u8> {
    frame(kind::DATA, 0, stream, b"more")
}

#[test]
fn what_the_server_resets_counts_while_the_application_has_it() {
    let frames: [(Frame, _, _); 4] = [
        (window_past_its_end, "a window past its end", false),
        (stream_that_depends_on_itself, "a stream that depends on itself", false),
        // h2 ends the connection for these frames, which RFC 9113 (5.4.2) allows.
        (window_update_of_nothing, "a window update of nothing", true),
        (data_behind_the_end, "data behind the end", true),
    ];
    for (wrong, what, ends_all) in frames {
        let (app, answer, comes) =
            keeping(Limits { http2_max_concurrent_streams: 20, ..Limits::default() });
        let mut peer = Peer::new(&app);
        for at in 0..60 {
            let stream = 2 * at + 1;
            if !peer.try_send(frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block(GET))) {
                break;
            }
            // The last request may not be served any more.
            let comes_surely = at < if ends_all { 1 } else { 20 };
            if comes
                .recv_timeout(if comes_surely { TEST_TIMEOUT } else { Duration::from_secs(1) })
                .is_err()
            {
                break;
            }
            if !peer.try_send(wrong(stream)) {
                break;
            }
        }
        assert_eq!(app.requests(), if ends_all { 1 } else { 20 }, "{what}");
        // Another connection is not limited by this one.
        let mut other = Peer::new(&app);
        other.ask(1, &get("/plain"));
        assert_eq!(other.outcome(1), Heard::Status(200), "{what}");
        drop(answer);
    }
}

#[test]
fn windows_past_their_end_without_end() {
    if !in_own_process!() {
        return;
    }
    let app = app(Limits::default(), hello);
    let goodbye = beside(&app, |mut peer| {
        for at in 0..400 {
            let stream = 2 * at + 1;
            let head = frame(kind::HEADERS, END_HEADERS, stream, &block(&post("/")));
            if !peer.try_send([head, window_past_its_end(stream)].concat()) {
                break;
            }
        }
        peer.goodbye()
    });
    assert_eq!(goodbye, Some(code::ENHANCE_YOUR_CALM));
    assert_eq!(app.server.reports().count(Rejection::Http2), 1);
    wait_until("it has gone", || app.listener().connections() <= 1);
}

#[test]
fn streams_that_the_server_is_made_to_reset() {
    if !in_own_process!() {
        return;
    }
    let app = app(Limits::default(), hello);
    for what in ["a window update of nothing", "a stream that depends on itself"] {
        let goodbye = beside(&app, move |mut peer| {
            for at in 0..400u32 {
                let stream = 2 * at + 1;
                let frames = if what.starts_with("a window") {
                    let head = frame(kind::HEADERS, END_HEADERS, stream, &block(&post("/")));
                    [head, window_update_of_nothing(stream)].concat()
                } else {
                    stream_that_depends_on_itself(stream)
                };
                if !peer.try_send(frames) {
                    break;
                }
            }
            peer.goodbye()
        });
        assert!(
            matches!(goodbye, Some(code::ENHANCE_YOUR_CALM | code::PROTOCOL_ERROR)),
            "{what}: {goodbye:?}"
        );
    }
}

#[test]
fn small_frames_that_carry_nothing() {
    if !in_own_process!() {
        return;
    }
    // A client that is not told the reason may be closed soon.
    let limits = Limits { ws_close_timeout: Duration::from_millis(400), ..Limits::default() };
    let app = app(limits, hello);
    let update = frame(kind::WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes());
    let priority = frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 1, 7]);
    for (at, (small, what)) in
        [(update, "window updates"), (priority, "priorities")].into_iter().enumerate()
    {
        let (sent, goodbye) = beside(&app, move |mut peer| {
            let many = small.repeat(1000);
            let mut sent = 0;
            while sent < 64 << 20 && peer.try_send(&many) {
                sent += many.len();
            }
            (sent, peer.goodbye())
        });
        // A client that keeps sending may not receive the reason.
        assert!(matches!(goodbye, None | Some(code::ENHANCE_YOUR_CALM)), "{what}: {goodbye:?}");
        assert!((8 << 20..48 << 20).contains(&sent), "{what}: {sent}");
        wait_until("it is reported", || {
            app.server.reports().count(Rejection::Http2) == at as u64 + 1
        });
    }
}
