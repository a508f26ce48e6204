//! Work that takes long is done on other threads than the I/O thread.

use std::io::Read as _;

use rookery_server::Limits;

use crate::support::{App, in_own_process};

/// Returns the processor time of this process's threads with a name, in clock ticks.
fn ticks(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let stats =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).ok());
    stats
        .filter_map(|stat| {
            // The line has the form `pid (name) state ...`. The user time and the system time are
            // the 12th and 13th field after the name.
            let (before, after) = stat.rsplit_once(") ")?;
            let fields: Vec<&str> = after.split(' ').collect();
            let time = |at: usize| fields[at].parse::<u64>().unwrap();
            before.ends_with(&format!("({name}")).then(|| time(11) + time(12))
        })
        .sum()
}

#[test]
fn pages_are_compressed_on_another_thread_and_keep_their_length() {
    if !in_own_process!() {
        return;
    }
    // Text that is slow to compress, because its words are random.
    let mut state = 1u32;
    let page: String = (0..12_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ["rook ", "crow ", "raven ", "jay ", "magpie ", "chough "][(state >> 24) as usize % 6]
        })
        .collect();
    let page = page[..60_000].to_owned();
    let sent = page.clone();
    let app = App::new(Limits::default(), move |exchange| {
        exchange.begin_response(200);
        exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
        exchange.set_response_body(sent.as_bytes());
    });
    let mut client = app.connect();
    for _ in 0..200 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
        let reply = client.response().unwrap();
        assert_eq!(reply.header("content-encoding"), Some("gzip"));
        assert_eq!(reply.header("content-length"), Some(&*reply.body.len().to_string()));
        let mut plain = String::new();
        flate2::read::GzDecoder::new(&reply.body[..]).read_to_string(&mut plain).unwrap();
        assert!(plain == page);
    }
    let (io, disk) = (ticks("rookery-io"), ticks("rookery-disk"));
    // The I/O thread is not optimised, and the compressor is. Threads that did not compress would
    // have used no time.
    assert!(2 * disk > io, "{io} ticks on the I/O thread, {disk} on those that may block");
}
