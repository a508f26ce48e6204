//! Waits until no orphaned worker uses the server's address. A worker is orphaned if its supervisor
//! was killed. It still finishes its requests, and keeps listening on the address until then. A new
//! server must not accept connections on the address before that worker has exited.

use std::time::{Duration, Instant};

use rookery_supervisor::Timeouts;

use crate::listen::address::Address;
use crate::process::signals::Signals;
use crate::stderr::log_line;

/// The extra time to wait for an orphaned worker, in addition to the time after which it should
/// exit by itself.
const GRACE: Duration = Duration::from_secs(2);

/// The interval at which the program checks whether an orphaned worker has exited.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until none of the addresses is used by a worker without a supervisor. The wait has a time
/// limit. A signal to stop terminates the process during the wait.
pub(crate) fn wait_for_orphaned_workers<'a>(
    addresses: impl IntoIterator<Item = &'a Address>,
    signals: &Signals,
) {
    let timeout = Timeouts::default().stop + GRACE;
    let deadline = Instant::now() + timeout;
    let mut is_logged = false;
    for address in addresses {
        while let Some(orphan) = address.orphaned_worker() {
            if Instant::now() >= deadline {
                return;
            }
            if !std::mem::replace(&mut is_logged, true) {
                log_line(&format!(
                    "waiting for at most {} s until a worker whose supervisor was killed has \
                     finished its requests: {orphan}",
                    timeout.as_secs()
                ));
            }
            if let Some(signal) =
                signals.recv_timeout(CHECK_INTERVAL).filter(|signal| signal.is_stop())
            {
                signal.terminate_process();
            }
        }
    }
}
