//! This process as a service, which a manager such as systemd has started by `rookery serve`: what it is told, and the sockets that it has
//! opened for the first server with an app. `rk_manager_*`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;

use rookery_server::{GivenPlace, GivenSockets, ListenError, Listener, Pulse, Site};
use rookery_service::{Activated, Activation, Manager, NAMES};

use crate::core::{self, Core};
use crate::entry;
use crate::listener::{self, Listening};

/// What a manager has given this process, and what it hears.
#[derive(Debug, Default)]
pub(crate) struct Service {
    manager: Option<Arc<Manager>>,
    sockets: GivenSockets,
    /// The listener that has them.
    listening: Option<u32>,
    is_watched: bool,
}

/// What a function that asks for the sockets reports.
const NO_SOCKETS: i32 = 0;
const SOCKETS_ARE_FREE: i32 = 1;
const SOCKETS_ARE_TAKEN: i32 = 2;

/// What a manager is told, as `rk_manager_tell` is asked.
const READY: i32 = 0;
const RELOADING: i32 = 1;
const STOPPING: i32 = 2;

impl Core {
    /// Listens on the sockets. While a listener has them, and without any, that is an error of the caller's.
    pub(crate) fn listen_given(&self, site: Site) -> Result<Listener, ListenError> {
        self.server().listen_given(&self.service.sockets, site)
    }

    /// A listener has started on them: no other may have them now.
    pub(crate) fn takes_given(&mut self, listener: u32) {
        self.service.listening = Some(listener);
    }

    /// That listener has ended: another may have the sockets.
    pub(crate) fn gives_back(&mut self, listener: u32) {
        let listening = &mut self.service.listening;
        *listening = listening.filter(|it| *it != listener);
    }

    /// Has the manager hear, as often as it wants to, that the I/O thread turns.
    fn be_watched(&mut self) {
        let Some(pulse) = self.listeners.values().next().map(Listening::pulse) else { return };
        let Some(manager) = self.service.manager.clone().filter(|it| it.watches_every().is_some()) else {
            return;
        };
        if std::mem::replace(&mut self.service.is_watched, true) {
            return;
        }
        // It takes no signals, as the threads of the server.
        let watched = rookery_server::with_signals_blocked(|| {
            std::thread::Builder::new().name("rookery-alive".to_owned()).spawn(move || beat(&manager, &pulse))
        });
        if let Err(error) = watched {
            listener::tell(&format!("nobody tells the service manager that this process lives: {error}"));
        }
    }
}

/// For as long as the process lives. R may be busy, with one handler for hours: that is no failure.
fn beat(manager: &Manager, pulse: &Pulse) {
    while let Some(time) = manager.watches_every() {
        pulse.wait();
        manager.is_alive();
        std::thread::sleep(time / 2);
    }
}

fn sockets_of(activation: Activation) -> GivenSockets {
    let mut sockets = GivenSockets::default();
    for (_, socket) in activation.sockets {
        match socket {
            Activated::Tcp(socket) => sockets.push_tcp(socket),
            Activated::Unix(socket) => sockets.push_unix(socket),
        }
    }
    sockets
}

/// Takes what a service manager has given this process, which `rookery serve` has become; 0, or 1 with the error set. To be called once.
#[unsafe(no_mangle)]
pub extern "C" fn rk_manager_join() -> i32 {
    entry(1, || {
        let manager = Manager::of_environment();
        // SAFETY: called once, and nobody uses descriptors that the environment says are somebody's.
        let taken = unsafe { Activation::take() };
        for name in NAMES {
            // What R starts is not the service.
            // SAFETY: R's main thread, which alone changes R's environment.
            unsafe { std::env::remove_var(name) };
        }
        core::with(|core| {
            core.service.manager = Some(Arc::new(manager));
            match taken {
                Ok(activation) => {
                    core.service.sockets = sockets_of(activation);
                    0
                }
                Err(error) => {
                    core::set_error(&format!("{error}."));
                    1
                }
            }
        })
    })
}

/// Whether there are sockets of a service manager: 1 when nothing listens on them, 2 when something does.
#[unsafe(no_mangle)]
pub extern "C" fn rk_manager_sockets() -> i32 {
    entry(NO_SOCKETS, || {
        core::with(|core| match &core.service {
            service if service.sockets.is_empty() => NO_SOCKETS,
            Service { listening: None, .. } => SOCKETS_ARE_FREE,
            _ => SOCKETS_ARE_TAKEN,
        })
    })
}

thread_local! {
    static PLACES: RefCell<CString> = RefCell::default();
}

/// Where these sockets are, a line for each: `tcp <host> <port>` or `unix <path>`. Valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn rk_manager_places() -> *const c_char {
    let lines = entry(String::new(), || {
        let places = core::with(|core| core.service.sockets.places());
        let line = |place: GivenPlace| match place {
            GivenPlace::Tcp(address) => format!("tcp {} {}", address.ip(), address.port()),
            GivenPlace::Unix(path) => {
                format!(
                    "unix {}",
                    path.map_or_else(|| "a Unix socket".to_owned(), |it| it.display().to_string())
                )
            }
        };
        places.into_iter().map(line).collect::<Vec<_>>().join("\n")
    });
    PLACES.set(CString::new(lines).unwrap_or_default());
    PLACES.with_borrow(|text| text.as_ptr())
}

/// Tells the service manager, if there is one, where the service is: 0 it serves, 1 it reads anew, 2 it ends.
///
/// # Safety
/// - `status` is a C string: a line for people.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_manager_tell(what: i32, status: *const c_char) {
    entry((), || {
        // SAFETY: the caller's duty.
        let status = unsafe { CStr::from_ptr(status) }.to_string_lossy();
        core::with(|core| {
            let Some(manager) = &core.service.manager else { return };
            match what {
                READY => manager.ready(&status),
                RELOADING => manager.reloading(&status),
                STOPPING => manager.stopping(&status),
                _ => {}
            }
            if what == READY {
                core.be_watched();
            }
        });
    });
}

/// Tells it why the service has failed, and the exit status.
///
/// # Safety
/// - As for [`rk_manager_tell`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_manager_failed(status: *const c_char, code: i32) {
    entry((), || {
        // SAFETY: the caller's duty.
        let status = unsafe { CStr::from_ptr(status) }.to_string_lossy();
        core::with(|core| {
            if let Some(manager) = &core.service.manager {
                manager.failed(&status, u8::try_from(code).unwrap_or(1));
            }
        });
    });
}
