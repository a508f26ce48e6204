use super::*;

#[test]
fn what_is_written_is_read() {
    let scoreboard = Scoreboard::new();
    assert!(scoreboard.has_valid_signature());
    let first = scoreboard.read();
    assert_eq!(
        (first.r_state, first.since, first.pid, first.is_stopping),
        (RState::Starting, 0, 0, false)
    );
    scoreboard.set_process(12, 13);
    for _ in 0..3 {
        scoreboard.count_handed();
    }
    scoreboard.uncount_handed();
    scoreboard.open_session();
    scoreboard.open_session();
    scoreboard.close_session();
    scoreboard.set_r_state(RState::Busy, 1_000_000);
    scoreboard.count_taken();
    scoreboard.stop();
    let read = scoreboard.read();
    assert_eq!(
        (read.r_state, read.since, read.pid, read.r_thread),
        (RState::Busy, 1_000_000, 12, 13)
    );
    assert_eq!((read.handed, read.taken, read.done, read.sessions), (2, 1, 0, 1));
    assert_eq!((read.queued(), read.pending()), (1, 1));
    assert!(read.is_stopping);
    assert_eq!(read.elapsed(1_000_500), Duration::from_nanos(500));
    scoreboard.count_done(1_000_700);
    assert_eq!(scoreboard.read().pending(), 0);
}

#[test]
fn the_time_of_a_message_lasts_until_the_next_activity() {
    let scoreboard = Scoreboard::new();
    let ms = |ms: u64| ms * 1_000_000;
    scoreboard.set_r_state(RState::Messages, ms(10));
    scoreboard.set_r_state(RState::Messages, ms(30));
    scoreboard.set_r_state(RState::Idle, ms(90));
    scoreboard.set_r_state(RState::Busy, ms(95));
    scoreboard.set_r_state(RState::Idle, ms(99));
    let (buckets, count, seconds) = scoreboard.messages().read();
    assert_eq!((count, buckets[2], buckets[4]), (2, 1, 2));
    assert!((seconds - 0.08).abs() < 1e-9, "{seconds}");
}

#[test]
fn a_task_ends_with_its_request() {
    let scoreboard = Scoreboard::new();
    let begin = |now| {
        scoreboard.set_r_state(RState::Busy, now);
        scoreboard.set_task([&b"GET "[..], b"/a"]);
        assert_eq!(scoreboard.task().as_deref(), Some("GET /a"));
    };
    begin(1_000);
    scoreboard.count_done(2_000);
    assert_eq!(scoreboard.task(), None);
    for next in [RState::Idle, RState::Messages, RState::Busy] {
        begin(3_000);
        scoreboard.set_r_state(next, 4_000);
        assert_eq!(scoreboard.task(), None);
    }
}

#[test]
fn what_r_was_busy_with_is_summed() {
    let ms = |ms: u64| ms * 1_000_000;
    let sums = |scoreboard: &Scoreboard, now| {
        let read = scoreboard.read();
        [read.busy_time(ms(now)).as_millis(), read.busy_with_requests.as_millis()]
    };
    let scoreboard = Scoreboard::new();
    scoreboard.set_r_state(RState::Starting, ms(5));
    // What it took to start is none of it.
    scoreboard.set_r_state(RState::Busy, ms(1_000));
    assert_eq!(sums(&scoreboard, 1_000), [0, 0]);
    assert_eq!(sums(&scoreboard, 1_004), [4, 0]);
    // A request of 7 ms, behind it something of 2, a wait of 100, messages of 30 in two, and
    // another request of 1.
    scoreboard.set_r_state(RState::Busy, ms(1_010));
    scoreboard.count_done(ms(1_017));
    assert_eq!(sums(&scoreboard, 1_017), [17, 17]);
    scoreboard.set_r_state(RState::Idle, ms(1_019));
    assert_eq!(sums(&scoreboard, 1_119), [19, 19]);
    scoreboard.set_r_state(RState::Messages, ms(1_119));
    assert_eq!(sums(&scoreboard, 1_129), [29, 19]);
    scoreboard.set_r_state(RState::Messages, ms(1_129));
    scoreboard.set_r_state(RState::Busy, ms(1_149));
    scoreboard.count_done(ms(1_150));
    scoreboard.set_r_state(RState::Idle, ms(1_150));
    assert_eq!(sums(&scoreboard, 1_400), [50, 20]);
    // Answered by a promise, in a wait that is none of R's being busy.
    scoreboard.count_done(ms(1_200));
    assert_eq!((sums(&scoreboard, 1_250), scoreboard.read().since), ([50, 20], ms(1_150)));
    // A wait that has not been renewed is a callback, and for no request.
    assert_eq!(sums(&scoreboard, 1_450), [50, 20]);
    assert_eq!(sums(&scoreboard, 1_451), [351, 20]);
    scoreboard.set_r_state(RState::Busy, ms(1_550));
    assert_eq!(sums(&scoreboard, 1_550), [450, 20]);
    // A clock that goes back takes nothing away.
    scoreboard.set_r_state(RState::Idle, ms(1_540));
    assert_eq!(sums(&scoreboard, 1_540), [450, 20]);
}

#[test]
fn idle_is_idle_while_it_is_renewed() {
    let scoreboard = Scoreboard::new();
    scoreboard.set_r_state(RState::Idle, 1_000_000_000);
    let read = scoreboard.read();
    assert!(read.is_idle(1_000_000_000) && read.is_idle(1_300_000_000));
    assert!(!read.is_idle(1_300_000_001));
    // A time that has not come, of a worker that lies: no panic, and idle for no time.
    assert!(read.is_idle(5) && read.elapsed(5).is_zero());
    scoreboard.set_r_state(RState::Busy, 1_000_000_000);
    assert!(!scoreboard.read().is_idle(1_000_000_000));
}

#[test]
fn of_a_place_the_latest_request_that_was_begun_counts() {
    let scoreboard = Scoreboard::new();
    let ticket = |sequence| Ticket::new(sequence, 7).unwrap();
    assert!(!scoreboard.has_begun(ticket(1)));
    assert!(scoreboard.begin(ticket(5)) && scoreboard.begin(ticket(5)));
    assert!(scoreboard.has_begun(ticket(5)) && !scoreboard.has_begun(ticket(6)));
    assert!(!scoreboard.has_begun(Ticket::new(5, 8).unwrap()));
    assert!(scoreboard.begin(ticket(6)));
    // An abandoned one, late: nobody waits for it, and what was begun stays begun.
    assert!(!scoreboard.begin(ticket(5)));
    assert!(scoreboard.has_begun(ticket(6)) && !scoreboard.has_begun(ticket(7)));
}

#[test]
fn a_request_is_begun_or_withdrawn_and_never_both() {
    let scoreboard = Scoreboard::new();
    let ticket = |sequence| Ticket::new(sequence, 7).unwrap();
    assert!(
        scoreboard.withdraw(ticket(1))
            && scoreboard.withdraw(ticket(1))
            && !scoreboard.has_begun(ticket(1))
    );
    assert!(!scoreboard.begin(ticket(1)));
    assert!(
        scoreboard.begin(ticket(2))
            && !scoreboard.withdraw(ticket(2))
            && scoreboard.has_begun(ticket(2))
    );
    // A withdrawal of an earlier request changes nothing.
    assert!(!scoreboard.withdraw(ticket(1)) && scoreboard.has_begun(ticket(2)));
    let last = if cfg!(miri) { 13 } else { 20_000 };
    for sequence in 3..last {
        let ticket = ticket(sequence);
        let (is_begun, is_withdrawn) = std::thread::scope(|scope| {
            let begins = scope.spawn(|| scoreboard.begin(ticket));
            (scoreboard.withdraw(ticket), begins.join().unwrap())
        });
        assert_ne!(is_begun, is_withdrawn, "{sequence}");
    }
}

#[test]
fn every_word_that_somebody_may_write_means_something() {
    let scoreboard = Scoreboard::new();
    for word in [0, 1, 2, 3, u64::MAX, u64::MAX - 1, 1 << 63, 0x5555_5555_5555_5555] {
        scoreboard.r.0.state.store(word, Relaxed);
        let rs = &scoreboard.r.0;
        let numbers = [
            &rs.taken,
            &rs.done,
            &rs.busy,
            &rs.busy_with_requests,
            &scoreboard.io.0.handed,
            &scoreboard.io.0.sessions,
        ];
        for number in numbers {
            number.store(word, Relaxed);
        }
        scoreboard.r.0.taken.store(word.wrapping_add(1), Relaxed);
        scoreboard.begun[3].store(word, Relaxed);
        let read = scoreboard.read();
        let _ = (
            read.queued(),
            read.pending(),
            read.elapsed(0),
            read.elapsed(u64::MAX),
            read.is_idle(17),
        );
        let _ = (read.busy_time(0), read.busy_time(u64::MAX));
        let _ = scoreboard.has_begun(Ticket::new(u64::MAX >> 10, 3).unwrap());
        let _ = scoreboard.begin(Ticket::new(1, 3).unwrap());
        let _ = scoreboard.withdraw(Ticket::new(1, 3).unwrap());
        scoreboard.close_session();
        scoreboard.count_handed();
        scoreboard.set_r_state(RState::Idle, 5);
        scoreboard.count_done(u64::MAX);
        let _ = scoreboard.read().busy_time(u64::MAX);
    }
    scoreboard.version.store(VERSION + 1, Relaxed);
    assert!(!scoreboard.has_valid_signature());
}

#[test]
fn a_reader_finds_no_more_taken_than_handed_and_no_more_done_than_taken() {
    let scoreboard = Scoreboard::new();
    let rounds = if cfg!(miri) { 10 } else { 200_000 };
    std::thread::scope(|scope| {
        let (handed, taker) = std::sync::mpsc::sync_channel(4);
        let scoreboard = &scoreboard;
        scope.spawn(move || {
            for sequence in 1..=rounds {
                scoreboard.count_handed();
                handed.send(Ticket::new(sequence, (sequence % 8) as usize).unwrap()).unwrap();
            }
        });
        scope.spawn(move || {
            for ticket in taker {
                scoreboard.set_r_state(RState::Busy, 2 * ticket.sequence() - 1);
                scoreboard.count_taken();
                assert!(scoreboard.begin(ticket));
                scoreboard.count_done(2 * ticket.sequence());
            }
        });
        loop {
            let read = scoreboard.read();
            assert!(read.done <= read.taken && read.taken <= read.handed, "{read:?}");
            // Each takes a nanosecond, and R is busy in between as well.
            assert!(read.busy_with_requests >= Duration::from_nanos(read.done), "{read:?}");
            let most = Duration::from_nanos(2 * rounds);
            assert!(read.busy <= most && read.busy_with_requests <= most, "{read:?}");
            if read.done == rounds {
                break;
            }
            std::thread::yield_now();
        }
    });
    assert!(scoreboard.has_begun(Ticket::new(rounds, (rounds % 8) as usize).unwrap()));
}

#[test]
fn begun_requests_are_those_that_r_had_begun_at_that_moment() {
    let scoreboard = Scoreboard::new();
    let ticket = |sequence| Ticket::new(sequence, 7).unwrap();
    assert!(!scoreboard.begun_requests().contains(ticket(1)));
    assert!(scoreboard.begin(ticket(1)) && scoreboard.withdraw(Ticket::new(2, 8).unwrap()));
    let begun = scoreboard.begun_requests();
    assert!(scoreboard.begin(ticket(3)));
    assert!(begun.contains(ticket(1)) && !begun.contains(ticket(3)));
    assert!(!begun.contains(Ticket::new(2, 8).unwrap()));
}
