//! Tests of clients in several groups, whose events are taken by several event loops.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use rookery_test_support::TEST_TIMEOUT;
use rookery_websocket_client::{Address, Clients, Event, Roots, Settings};

use crate::support::Peer;

/// Waits for the next event of a group.
fn next(clients: &mut Clients, group: u32) -> Event {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(event) = clients.next_event(group) {
            return event;
        }
        assert!(Instant::now() < deadline, "an event in time");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn events_and_wake_ups_are_separated_by_group() {
    let woken = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&woken);
    let mut clients = Clients::new(Box::new(move |group| told.lock().unwrap().push(group)));
    let peers = [(); 2].map(|()| Peer::upgraded(drop));
    let ids = [3, 8].map(|group| {
        let peer = &peers[usize::from(group == 8)];
        let settings = Settings { group, ..Settings::default() };
        clients.open(Address::parse(&peer.url()).unwrap(), settings, &Roots::System).unwrap()
    });
    for (group, id) in [8, 3].into_iter().zip([ids[1], ids[0]]) {
        assert_eq!(next(&mut clients, group), Event::Opened { client: id, protocol: None });
        let ended = next(&mut clients, group);
        assert!(matches!(ended, Event::Closed { client, .. } if client == id), "{ended:?}");
        assert!(!clients.has_events(group));
        assert_eq!(clients.next_event(group), None);
    }
    assert!(clients.has_no_events());
    assert_eq!(clients.next_event(0), None);
    let mut woken = woken.lock().unwrap().clone();
    woken.sort_unstable();
    woken.dedup();
    assert_eq!(woken, [3, 8]);
}
