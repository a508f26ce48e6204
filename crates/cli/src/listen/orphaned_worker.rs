//! The last worker of a server whose supervisor was killed. It finishes what it has in hand, and keeps
//! the address until then: no successor serves beside it.

use std::time::{Duration, Instant};

use rookery_supervisor::Timeouts;

use crate::failure::tell;
use crate::listen::address::Address;
use crate::process::signals::Signals;

/// How long such a worker is waited for beyond the time within which it ends.
const GRACE: Duration = Duration::from_secs(2);

/// How often it is looked whether it has ended.
const LOOK_TIME: Duration = Duration::from_millis(100);

/// Waits for a limited time until no worker without a supervisor has one of the addresses. A signal
/// to end ends the process meanwhile.
pub(crate) fn wait<'a>(addresses: impl IntoIterator<Item = &'a Address>, signals: &Signals) {
    if rookery_systemd::Activation::has_sockets() {
        return;
    }
    let within = Timeouts::default().stop + GRACE;
    let until = Instant::now() + within;
    let mut is_told = false;
    for address in addresses {
        while let Some(orphan) = address.orphan() {
            if Instant::now() >= until {
                return;
            }
            if !std::mem::replace(&mut is_told, true) {
                tell(&format!(
                    "waiting for at most {} s until a worker whose supervisor was killed has finished: {orphan}",
                    within.as_secs()
                ));
            }
            if let Some(caught) = signals.next_within(LOOK_TIME).filter(|caught| caught.ends()) {
                caught.die();
            }
        }
    }
}
