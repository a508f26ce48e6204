use super::*;

#[test]
fn reads_what_was_written() {
    let scoreboard = Scoreboard::new();
    assert!(scoreboard.is_signed());
    let first = scoreboard.read();
    assert_eq!(
        (first.r, first.since, first.pid, first.is_stopping),
        (RState::Starting, 0, 0, false)
    );
    scoreboard.introduce(12, 13);
    for _ in 0..3 {
        scoreboard.hand();
    }
    scoreboard.take_back();
    scoreboard.open_session();
    scoreboard.open_session();
    scoreboard.close_session();
    scoreboard.open_connection();
    scoreboard.open_connection();
    scoreboard.close_connection();
    scoreboard.r_is(RState::Busy, 1_000_000);
    scoreboard.take();
    scoreboard.stop();
    let read = scoreboard.read();
    assert_eq!((read.r, read.since, read.pid, read.r_thread), (RState::Busy, 1_000_000, 12, 13));
    assert_eq!((read.handed, read.taken, read.done, read.sessions), (2, 1, 0, 1));
    assert_eq!(read.connections, 1);
    assert_eq!((read.queued(), read.pending()), (1, 1));
    assert!(read.is_stopping);
    assert_eq!(read.lasts(1_000_500), Duration::from_nanos(500));
    scoreboard.done(1_000_700);
    assert_eq!(scoreboard.read().pending(), 0);
}

#[test]
fn sums_busy_time_by_activity() {
    let ms = |ms: u64| ms * 1_000_000;
    let sums = |scoreboard: &Scoreboard, now| {
        let read = scoreboard.read();
        [read.busy_by(ms(now)).as_millis(), read.answering.as_millis()]
    };
    let scoreboard = Scoreboard::new();
    scoreboard.r_is(RState::Starting, ms(5));
    // The time that R took to start does not count.
    scoreboard.r_is(RState::Busy, ms(1_000));
    assert_eq!(sums(&scoreboard, 1_000), [0, 0]);
    assert_eq!(sums(&scoreboard, 1_004), [4, 0]);
    // A request of 7 ms, other work of 2 ms, a wait of 100 ms, two messages of 30 ms in total,
    // and another request of 1 ms.
    scoreboard.r_is(RState::Busy, ms(1_010));
    scoreboard.done(ms(1_017));
    assert_eq!(sums(&scoreboard, 1_017), [17, 17]);
    scoreboard.r_is(RState::Idle, ms(1_019));
    assert_eq!(sums(&scoreboard, 1_119), [19, 19]);
    scoreboard.r_is(RState::Messages, ms(1_119));
    assert_eq!(sums(&scoreboard, 1_129), [29, 19]);
    scoreboard.r_is(RState::Messages, ms(1_129));
    scoreboard.r_is(RState::Busy, ms(1_149));
    scoreboard.done(ms(1_150));
    scoreboard.r_is(RState::Idle, ms(1_150));
    assert_eq!(sums(&scoreboard, 1_400), [50, 20]);
    // A promise responds during a wait, which does not count as busy.
    scoreboard.done(ms(1_200));
    assert_eq!((sums(&scoreboard, 1_250), scoreboard.read().since), ([50, 20], ms(1_150)));
    // An idle state that has not been renewed is a callback, and does not count for requests.
    assert_eq!(sums(&scoreboard, 1_450), [50, 20]);
    assert_eq!(sums(&scoreboard, 1_451), [351, 20]);
    scoreboard.r_is(RState::Busy, ms(1_550));
    assert_eq!(sums(&scoreboard, 1_550), [450, 20]);
    // A clock that is set back does not reduce the sums.
    scoreboard.r_is(RState::Idle, ms(1_540));
    assert_eq!(sums(&scoreboard, 1_540), [450, 20]);
}

#[test]
fn idle_expires_unless_renewed() {
    let scoreboard = Scoreboard::new();
    scoreboard.r_is(RState::Idle, 1_000_000_000);
    let read = scoreboard.read();
    assert!(read.is_idle(1_000_000_000) && read.is_idle(1_300_000_000));
    assert!(!read.is_idle(1_300_000_001));
    // A start time in the future, from a hostile worker, neither panics nor gives a duration.
    assert!(read.is_idle(5) && read.lasts(5).is_zero());
    scoreboard.r_is(RState::Busy, 1_000_000_000);
    assert!(!scoreboard.read().is_idle(1_000_000_000));
}

#[test]
fn has_begun_considers_the_latest_request_of_a_place() {
    let scoreboard = Scoreboard::new();
    let ticket = |sequence| Ticket::new(sequence, 7).unwrap();
    assert!(!scoreboard.has_begun(ticket(1)));
    assert!(scoreboard.begin(ticket(5)) && scoreboard.begin(ticket(5)));
    assert!(scoreboard.has_begun(ticket(5)) && !scoreboard.has_begun(ticket(6)));
    assert!(!scoreboard.has_begun(Ticket::new(5, 8).unwrap()));
    assert!(scoreboard.begin(ticket(6)));
    // A late attempt to begin an abandoned request fails, and the later request stays begun.
    assert!(!scoreboard.begin(ticket(5)));
    assert!(scoreboard.has_begun(ticket(6)) && !scoreboard.has_begun(ticket(7)));
}

#[test]
fn a_request_is_either_begun_or_withdrawn() {
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
    // Withdrawing an earlier request changes nothing.
    assert!(!scoreboard.withdraw(ticket(1)) && scoreboard.has_begun(ticket(2)));
    let last = if cfg!(miri) { 100 } else { 20_000 };
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
fn handles_arbitrary_values_in_memory() {
    let scoreboard = Scoreboard::new();
    for word in [0, 1, 2, 3, u64::MAX, u64::MAX - 1, 1 << 63, 0x5555_5555_5555_5555] {
        scoreboard.r.0.state.store(word, Relaxed);
        let rs = &scoreboard.r.0;
        let numbers = [
            &rs.taken,
            &rs.done,
            &rs.busy,
            &rs.answering,
            &scoreboard.io.0.handed,
            &scoreboard.io.0.sessions,
        ];
        for number in numbers {
            number.store(word, Relaxed);
        }
        scoreboard.r.0.taken.store(word.wrapping_add(1), Relaxed);
        scoreboard.begun[3].store(word, Relaxed);
        let read = scoreboard.read();
        let _ =
            (read.queued(), read.pending(), read.lasts(0), read.lasts(u64::MAX), read.is_idle(17));
        let _ = (read.busy_by(0), read.busy_by(u64::MAX));
        let _ = scoreboard.has_begun(Ticket::new(u64::MAX >> 10, 3).unwrap());
        let _ = scoreboard.begin(Ticket::new(1, 3).unwrap());
        let _ = scoreboard.withdraw(Ticket::new(1, 3).unwrap());
        scoreboard.close_session();
        scoreboard.hand();
        scoreboard.r_is(RState::Idle, 5);
        scoreboard.done(u64::MAX);
        let _ = scoreboard.read().busy_by(u64::MAX);
    }
    scoreboard.version.store(VERSION + 1, Relaxed);
    assert!(!scoreboard.is_signed());
}

#[test]
fn readers_never_see_more_taken_than_handed_or_more_done_than_taken() {
    let scoreboard = Scoreboard::new();
    let rounds = if cfg!(miri) { 200 } else { 200_000 };
    std::thread::scope(|scope| {
        let (handed, taker) = std::sync::mpsc::sync_channel(4);
        let scoreboard = &scoreboard;
        scope.spawn(move || {
            for sequence in 1..=rounds {
                scoreboard.hand();
                handed.send(Ticket::new(sequence, (sequence % 8) as usize).unwrap()).unwrap();
            }
        });
        scope.spawn(move || {
            for ticket in taker {
                scoreboard.r_is(RState::Busy, 2 * ticket.sequence() - 1);
                scoreboard.take();
                assert!(scoreboard.begin(ticket));
                scoreboard.done(2 * ticket.sequence());
            }
        });
        loop {
            let read = scoreboard.read();
            assert!(read.done <= read.taken && read.taken <= read.handed, "{read:?}");
            // Each request takes a nanosecond, and R is also busy between requests.
            assert!(read.answering >= Duration::from_nanos(read.done), "{read:?}");
            let most = Duration::from_nanos(2 * rounds);
            assert!(read.busy <= most && read.answering <= most, "{read:?}");
            if read.done == rounds {
                break;
            }
            std::thread::yield_now();
        }
    });
    assert!(scoreboard.has_begun(Ticket::new(rounds, (rounds % 8) as usize).unwrap()));
}
