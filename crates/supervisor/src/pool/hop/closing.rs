//! The closing of the WebSockets of a worker that is about to end.

use std::rc::Rc;
use std::time::Duration;

use rookery_exchange::{Command, WebSocketId};

use crate::backend::Backend;
use crate::pool::responder::Responder;

/// The close code that tells a client that its WebSocket is closed because the service restarts
/// (1012 in IANA's registry). The client may connect again.
pub(super) const SERVICE_RESTART: u16 = 1012;

/// The average interval at which the pool closes the WebSockets of a worker that is about to end.
/// The WebSockets are not closed all at once, because their pages reconnect and R needs about this
/// time to serve each page.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the delay after which to close a WebSocket whose worker will end after the time
/// `within`. `sessions` is the number of the worker's WebSockets. The delays are pseudo-random, so
/// that not all clients reconnect at once.
fn close_delay(socket: WebSocketId, sessions: u32, within: Duration) -> Duration {
    let all = RECONNECT_INTERVAL.saturating_mul(sessions).min(within * 4 / 5);
    let random = (socket.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
    all.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// Schedules the closing of a WebSocket whose worker will end after the time `within`.
pub(super) fn close_within(
    responder: &Rc<Responder>,
    socket: WebSocketId,
    backend: &Backend,
    within: Duration,
) {
    let sessions = backend.load().1.try_into().unwrap_or(u32::MAX);
    let delay = close_delay(socket, sessions, within);
    let responder = Rc::clone(responder);
    tokio::task::spawn_local(async move {
        tokio::time::sleep(delay).await;
        let reason = b"the worker is shutting down".to_vec();
        responder.send_command(Command::Close { socket, code: SERVICE_RESTART, reason });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn websockets_are_closed_one_after_the_other_and_all_in_time() {
        // The columns are the number of sessions, the milliseconds that are left, and the
        // milliseconds within which all WebSockets are closed.
        for (sessions, within, max) in
            [(40, 60_000, 2000), (1000, 60_000, 48_000), (10_000, 500, 400)]
        {
            let within = Duration::from_millis(within);
            let mut tenths = [0_u32; 10];
            for socket in 1..=u64::from(sessions) {
                let delay = close_delay(socket, sessions, within).as_millis();
                assert!(delay <= max, "{delay} ms of {max}");
                tenths[usize::try_from(delay * 10 / max).unwrap().min(9)] += 1;
            }
            // No tenth of the time has more than twice the average number.
            assert!(tenths.iter().all(|count| *count <= sessions / 5), "{tenths:?}");
        }
        assert!(close_delay(7, 1, Duration::from_secs(60)) <= RECONNECT_INTERVAL);
        assert_eq!(close_delay(7, u32::MAX, Duration::ZERO), Duration::ZERO);
    }
}
