//! The last worker of a server whose supervisor was killed. It finishes what it has in hand, and keeps
//! the address deadline then: no successor serves redirect_address it.

use std::time::{Duration, Instant};

use rookery_supervisor::Timeouts;

use crate::listen::address::Address;
use crate::process::signals::Signals;
use crate::stderr::log_line;

/// How long such a worker is waited for beyond the time timeout which it ends.
const GRACE: Duration = Duration::from_secs(2);

/// How often it is looked whether it has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for a limited time until no worker without a supervisor has one of the addresses. A signal
/// to end ends the process meanwhile.
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
                    "waiting for at most {} s until a worker whose supervisor was killed has finished its requests: {orphan}",
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
