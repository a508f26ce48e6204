//! Tests of WebSockets through the pool.

use rookery_test_support::wait_until;
use std::sync::atomic::Ordering;

use crate::support::frontend::Frontend;

#[test]
fn forwards_messages_in_both_directions() {
    let front = Frontend::new(2);
    let mut client = front.connect();
    let reply = client.upgrade("/ws");
    assert_eq!(reply.status, 101, "{}", reply.head);
    assert!(reply.header("x-slot").is_some());
    for len in [0, 1, 125, 126, 70_000, 3 << 20] {
        let payload = vec![b'a'; len];
        client.message(1, &payload);
        assert!(client.frame_after_pings() == (1, payload), "{len}");
    }
    client.message(2, &[0, 255]);
    assert_eq!(client.frame_after_pings(), (2, vec![0, 255]));
}

#[test]
fn forwards_a_refused_handshake() {
    let front = Frontend::new(1);
    let mut client = front.connect();
    let reply = client.upgrade("/refuse");
    assert_eq!((reply.status, reply.text()), (403, "no".to_owned()));
    assert_eq!(client.get("/slot").text(), "0");
}

#[test]
fn forwards_a_close_from_either_side() {
    let front = Frontend::new(1);
    let worker = &front.workers[0];
    let mut client = front.connect();
    client.upgrade("/ws");
    wait_until("it counts", || worker.backend.load() == (0, 1));
    client.message(1, b"close");
    let (opcode, payload) = client.frame_after_pings();
    assert_eq!((opcode, &payload[..]), (8, &b"\x0F\xA0bye"[..]));
    client.message(8, b"\x0F\xA0");
    wait_until("it has gone", || worker.backend.load() == (0, 0));
    for (frame, code) in [(&b"\x0F\xA1"[..], 4001), (b"", 1005)] {
        let mut client = front.connect();
        client.upgrade("/ws");
        client.message(8, frame);
        assert_eq!(client.frame_after_pings(), (8, frame.to_vec()));
        wait_until("the app hears of it", || worker.gate.begun.load(Ordering::Relaxed) == code);
        wait_until("it has gone", || worker.backend.load() == (0, 0));
    }
    let mut client = front.connect();
    client.upgrade("/ws");
    wait_until("it counts", || worker.backend.load() == (0, 1));
    drop(client);
    wait_until("the app hears of it", || worker.gate.begun.load(Ordering::Relaxed) == 1006);
    wait_until("it has gone", || worker.backend.load() == (0, 0));
}

#[test]
fn the_end_of_a_worker_closes_websockets_with_1012() {
    let mut front = Frontend::new(1);
    let mut client = front.connect();
    client.upgrade("/ws");
    client.message(1, b"there");
    client.frame_after_pings();
    front.kill(0);
    let (opcode, payload) = client.frame_after_pings();
    assert_eq!((opcode, u16::from_be_bytes([payload[0], payload[1]])), (8, 1012));
}

#[test]
fn applies_back_pressure_to_the_client() {
    let front = Frontend::new(1);
    let mut client = front.connect();
    client.upgrade("/ws");
    let held = front.ask("/hold");
    wait_until("R is busy", || front.workers[0].backend.load().0 == 1);
    let writer = std::thread::spawn(move || {
        // The messages exceed the capacity of all buffers and queues on the way, but not that of
        // the worker.
        for at in 0..100 {
            client.message(1, &[&b"count"[..], &vec![b'x'; (1 << 20) + at]].concat());
        }
        client
    });
    std::thread::sleep(std::time::Duration::from_millis(500));
    front.workers[0].gate.open();
    held.join().unwrap();
    let mut client = writer.join().unwrap();
    for at in 0..100 {
        assert_eq!(client.frame_after_pings(), (1, (5 + (1 << 20) + at).to_string().into_bytes()));
    }
}

/// Checks that the front end serves its worker after its last connection has ended. In an earlier
/// version, its thread ended, and R waited for the ends of WebSockets until its time was up.
#[test]
fn a_worker_learns_of_the_end_of_the_last_websocket_of_a_server_that_drains() {
    let front = Frontend::new(1);
    let mut client = front.connect();
    client.upgrade("/ws");
    client.message(1, b"hold");
    // The end waits in the front end behind these messages, of which some do not fit into the ring.
    (0..200).for_each(|_| client.message(1, b"message"));
    drop(client);
    let listener = front.listener.as_ref().unwrap();
    listener.drain();
    wait_until("the WebSocket has ended", || listener.connections() == 0);
    let gate = &front.workers[0].gate;
    gate.open();
    // The close code of a connection that was lost.
    wait_until("R learns of it", || gate.begun.load(Ordering::Relaxed) == 1006);
}
