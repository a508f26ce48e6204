//! Waiting for the worker of a previous server whose supervisor was killed. That worker keeps the
//! address until its requests are finished, and a new server must not accept connections beside it.

use std::time::{Duration, Instant};

use rookery_supervisor::Timeouts;

use crate::listen::address::Address;
use crate::process::signals::Signals;
use crate::stderr::log_line;

/// How long the wait continues after the time within which such a worker exits by itself.
const GRACE: Duration = Duration::from_secs(2);

/// The interval of checks whether the worker has exited.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for a limited time until no worker without a supervisor uses one of the addresses. A
/// signal to stop terminates the process meanwhile.
pub(crate) fn wait_for_orphaned_workers<'a>(
    addresses: impl IntoIterator<Item = &'a Address>,
    signals: &Signals,
) {
    if rookery_systemd::Activation::has_sockets() {
        return;
    }
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
