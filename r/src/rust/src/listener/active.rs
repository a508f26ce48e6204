//! The listeners that are open, and their TLS configurations.

use std::sync::atomic::{AtomicUsize, Ordering};

use rookery_acme::Renewer;
use rookery_server::tls::Tls;
use rookery_server::{Listener, LivenessProbe};

/// An open listener. Includes the listener that redirects plaintext HTTP requests to it, if there
/// is one.
#[derive(Debug)]
pub(crate) struct ActiveListener {
    /// The thread that renews the listener's certificate, if a certificate authority issues the
    /// certificate by ACME.
    pub(crate) renewer: Option<Renewer>,
    pub(crate) listener: Listener,
    pub(crate) redirect: Option<Listener>,
}

impl ActiveListener {
    /// Returns probes with which another thread can check that the listener is alive. Includes a
    /// probe of the listener that redirects to it, if there is one.
    pub(crate) fn pulses(&self) -> Vec<LivenessProbe> {
        self.all().map(Listener::liveness_probe).collect()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Listener> {
        self.redirect.iter().chain([&self.listener])
    }

    /// Stops the listener, and the listener that redirects to it, if there is one. Their ports are
    /// free when this function returns.
    pub(crate) fn stop(self) {
        drop(self.renewer);
        if let Some(redirect) = self.redirect {
            redirect.stop();
        }
        self.listener.stop();
    }
}

/// The number of open listeners with TLS. It is atomic, because a signal handler reads it.
static LISTENERS: AtomicUsize = AtomicUsize::new(0);

/// The TLS configuration of a listener, counted while it listens.
#[derive(Debug)]
pub(crate) struct CountedTls(pub(crate) Tls);

impl CountedTls {
    pub(crate) fn new(tls: Tls) -> CountedTls {
        LISTENERS.fetch_add(1, Ordering::Relaxed);
        CountedTls(tls)
    }
}

impl Drop for CountedTls {
    fn drop(&mut self) {
        LISTENERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns 1 if any open listener uses TLS, otherwise 0. May be called in a signal handler.
#[unsafe(no_mangle)]
pub extern "C" fn rk_has_tls() -> i32 {
    i32::from(LISTENERS.load(Ordering::Relaxed) > 0)
}
