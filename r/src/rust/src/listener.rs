//! Starting and stopping listeners.

pub(crate) mod access_log;
mod static_paths;
pub(crate) mod tls;

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rookery_acme::Renewer;
use rookery_exchange::ListenerId;
use rookery_server::tls::Tls;
use rookery_server::{
    Downstream, ListenError, Listener, ListenerConfig, LivenessProbe, Notice, OriginPolicy,
    Redirect, SpoolFolder, TrustedProxies, literal_address,
};

use crate::core::{self, Core};
use crate::entry;
use crate::listener::tls::{Counted, Https};

/// What a function that starts a listener reports when it could not: `rk_error` says why.
const FAILED: i32 = -1;
const STARTED: i32 = 0;

/// A listener, and the one in the clear from which requests are sent on to it.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Who has its certificate ordered.
    renewer: Option<Renewer>,
    listener: Listener,
    redirect: Option<Listener>,
}

impl Listening {
    /// Those of all that listen.
    pub(crate) fn pulses(&self) -> Vec<LivenessProbe> {
        self.all().map(Listener::liveness_probe).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Listener> {
        self.redirect.iter().chain([&self.listener])
    }

    /// Their ports are free when this returns.
    fn stop(self) {
        drop(self.renewer);
        if let Some(redirect) = self.redirect {
            redirect.stop();
        }
        self.listener.stop();
    }
}

impl Core {
    fn started(
        &mut self,
        listening: Result<Listening, ListenError>,
        tls: Option<Tls>,
    ) -> Option<(ListenerId, Option<u16>)> {
        match listening {
            Ok(listening) => {
                let listener = &listening.listener;
                let (id, port) =
                    (listener.id(), listener.local_addr().map(|address| address.port()));
                if let Some(admin) = &self.admin {
                    admin.one.listens(id, listening.pulses());
                }
                self.listeners.insert(id, listening);
                self.tls.extend(tls.map(|tls| (id, Counted::new(tls))));
                Some((id, port))
            }
            Err(error) => {
                core::set_error(&error.to_string());
                None
            }
        }
    }
}

/// `struct rk_setup`: how a listener is set up besides where.
#[derive(Debug)]
#[repr(C)]
pub struct RawSetup {
    site: *const c_void,
    spool: *const c_char,
    tls: *const c_void,
    proxies: *const *const c_char,
    proxy_count: usize,
    sees_heads: i32,
    has_proxy_header: i32,
    checks_origins: i32,
    origins: *const *const c_char,
    origin_count: usize,
    tells_request_id: i32,
    inherits: i32,
    is_sticky: i32,
}

// As in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () =
    assert!(size_of::<RawSetup>() == 88 && std::mem::offset_of!(RawSetup, sees_heads) == 40);

/// What is to be served; `None`, with the error set, when a proxy is none.
///
/// # Safety
/// - `site` is one of `rk_site_new` and not freed yet, `tls` one of `rk_tls_new` or NULL, `spool` a C string, and `proxies`
///   has `proxy_count` of them, `origins` `origin_count`.
unsafe fn site_of(setup: &RawSetup) -> Option<ListenerConfig> {
    // SAFETY: the caller's duty.
    let files = unsafe { setup.site.cast::<static_paths::Builder>().as_ref() };
    // SAFETY: the caller's duty.
    let spool = unsafe { path_of(setup.spool) };
    // SAFETY: the caller's duty.
    let proxies =
        (0..setup.proxy_count).map(|at| unsafe { CStr::from_ptr(*setup.proxies.add(at)) });
    let proxies: Vec<_> = proxies.map(CStr::to_string_lossy).collect();
    let proxies = TrustedProxies::parse(proxies.iter().map(AsRef::as_ref))
        .map_err(|error| core::set_error(&error.to_string()))
        .ok()?;
    // SAFETY: the caller's duty.
    let origins =
        (0..setup.origin_count).map(|at| unsafe { CStr::from_ptr(*setup.origins.add(at)) });
    let origins: Vec<_> = origins.map(|host| host.to_string_lossy().into_owned()).collect();
    let policy =
        if origins.is_empty() { OriginPolicy::SameHost } else { OriginPolicy::Hosts(origins) };
    Some(ListenerConfig {
        files: files.map(static_paths::Builder::files).unwrap_or_default(),
        sees_heads: setup.sees_heads != 0,
        sends_request_id: setup.tells_request_id != 0,
        spool: Arc::new(SpoolFolder::new(spool, crate::write_log_line)),
        // SAFETY: the caller's duty.
        tls: unsafe { tls::of(setup.tls) }.map(|https| https.tls.clone()),
        proxies,
        proxy_protocol: setup.has_proxy_header != 0,
        origins: (setup.checks_origins != 0).then_some(policy),
        redirect: None,
        session_cookie: None,
        downstream: Downstream::Clients,
        notice: Notice(crate::write_log_line),
    })
}

/// Where a listener listens, by `rk_setup.inherits`.
const SOCKET_OF_WORKER: i32 = 1;

/// Listens on an address, and on another port beside it from which requests are sent on.
fn listen_beside(
    address: SocketAddr,
    site: ListenerConfig,
    redirect_from: Option<u16>,
) -> Result<Listening, ListenError> {
    // What is between a client and one port is between it and the other.
    let also = ListenerConfig {
        proxies: site.proxies.clone(),
        proxy_protocol: site.proxy_protocol,
        notice: site.notice,
        ..ListenerConfig::default()
    };
    let tls = site.tls.clone();
    let listener = core::with(|core| core.server().listen_tcp(address, site))?;
    let (Some(from), Some(tls), Some(local)) = (redirect_from, tls, listener.local_addr()) else {
        return Ok(Listening { renewer: None, listener, redirect: None });
    };
    let site =
        ListenerConfig { redirect: Some(Arc::new(Redirect { tls, port: local.port() })), ..also };
    let mut address = address;
    address.set_port(from);
    // Failing, it drops the listener, which waits for the I/O thread: so outside the borrow.
    let redirect = core::with(|core| core.server().listen_tcp(address, site))?;
    Ok(Listening { renewer: None, listener, redirect: Some(redirect) })
}

/// Has the certificate of a listener ordered and renewed, where an authority issues it.
fn kept(mut listening: Listening, https: Option<&Https>) -> Result<Listening, ListenError> {
    listening.renewer =
        https.map_or(Ok(None), Https::start_renewer).map_err(ListenError::Thread)?;
    Ok(listening)
}

/// Listens where the supervisor of this process has it listen, and tells it so; the listener's id.
fn listen_as_worker(setup: &RawSetup, site: ListenerConfig) -> Option<ListenerId> {
    core::with(|core| {
        let (files, tls) = (site.files.clone(), site.tls.clone());
        let session_cookie = core.session_cookie().filter(|_| setup.is_sticky != 0).map(Arc::new);
        let site = ListenerConfig { session_cookie, ..site };
        let started = core.listen_inherited(site).map(|listener| Listening {
            renewer: None,
            listener,
            redirect: None,
        });
        let (id, _) = core.started(started, tls)?;
        core.announce_ready(id, files, setup.sees_heads != 0, setup.is_sticky != 0);
        Some(id)
    })
}

/// # Safety
/// - `path` is a C string that outlives what is returned.
unsafe fn path_of<'a>(path: *const c_char) -> &'a Path {
    // SAFETY: the caller's duty.
    let path = unsafe { CStr::from_ptr(path) };
    Path::new(OsStr::from_bytes(path.to_bytes()))
}

/// Listens on a literal IPv4 or IPv6 address.
///
/// # Safety
/// - `host` is a C string, `setup` as [`site_of`] wants it, and `listener` and `bound_port` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_listen_tcp(
    host: *const c_char,
    port: i32,
    setup: *const RawSetup,
    listener: *mut u32,
    bound_port: *mut i32,
) -> i32 {
    entry(FAILED, || {
        // SAFETY: the caller's duty.
        let host = unsafe { CStr::from_ptr(host) }.to_string_lossy();
        // SAFETY: the caller's duty.
        let setup = unsafe { &*setup };
        // SAFETY: the caller's duty.
        let Some(site) = (unsafe { site_of(setup) }) else { return FAILED };
        let tls = site.tls.clone();
        let Some(address) = u16::try_from(port).ok().and_then(|port| literal_address(&host, port))
        else {
            core::set_error(&format!(
                "{host} is not a valid IPv4 or IPv6 address, or its zone no interface: use an address like \
                 \"127.0.0.1\" (this machine only) or \"0.0.0.0\" (all networks), and a port from 0 to 65535"
            ));
            return FAILED;
        };
        if setup.inherits == SOCKET_OF_WORKER {
            let Some(id) = listen_as_worker(setup, site) else { return FAILED };
            // SAFETY: the caller's duty.
            unsafe {
                listener.write(id);
                bound_port.write(port);
            }
            return STARTED;
        }
        // SAFETY: the caller's duty.
        let https = unsafe { tls::of(setup.tls) };
        let redirect_from = https.and_then(|https| https.redirect_from);
        let started = listen_beside(address, site, redirect_from).and_then(|it| kept(it, https));
        let Some((id, bound)) = core::with(|core| core.started(started, tls)) else {
            return FAILED;
        };
        // SAFETY: the caller's duty.
        unsafe {
            listener.write(id);
            bound_port.write(bound.map_or(0, i32::from));
        }
        STARTED
    })
}

/// Listens on a Unix socket; a negative `mask` leaves the process's.
///
/// # Safety
/// - `path` is a C string, `setup` as [`site_of`] wants it, and `listener` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_listen_unix(
    path: *const c_char,
    mask: i32,
    setup: *const RawSetup,
    listener: *mut u32,
) -> i32 {
    entry(FAILED, || {
        // SAFETY: the caller's duty.
        let path = unsafe { path_of(path) };
        // SAFETY: the caller's duty.
        let setup = unsafe { &*setup };
        // SAFETY: the caller's duty.
        let Some(site) = (unsafe { site_of(setup) }) else { return FAILED };
        if setup.inherits == SOCKET_OF_WORKER {
            let Some(id) = listen_as_worker(setup, site) else { return FAILED };
            // SAFETY: the caller's duty.
            unsafe { listener.write(id) };
            return STARTED;
        }
        let tls = site.tls.clone();
        // SAFETY: the caller's duty.
        let https = unsafe { tls::of(setup.tls) };
        let started =
            core::with(|core| core.server().listen_unix(path, u32::try_from(mask).ok(), site));
        let started = started.and_then(|listener| {
            kept(Listening { renewer: None, listener, redirect: None }, https)
        });
        let Some((id, _)) = core::with(|core| core.started(started, tls)) else {
            return FAILED;
        };
        // SAFETY: the caller's duty.
        unsafe { listener.write(id) };
        STARTED
    })
}

/// Stops a listener; its port is free when this returns.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stop(listener: u32) {
    entry((), || {
        // Outside the borrow: stopping waits for the I/O thread.
        let stopped = core::with(|core| {
            core.leaves(listener, false);
            core.is_over(listener);
            core.tls.remove(&listener);
            core.listeners.remove(&listener)
        });
        if let Some(listening) = stopped {
            listening.stop();
        }
    });
}

/// Stops accepting, and ends the connections of a listener as their replies are done.
#[unsafe(no_mangle)]
pub extern "C" fn rk_drain(listener: u32) {
    entry((), || {
        core::with(|core| {
            core.leaves(listener, true);
            if let Some(listening) = core.listeners.get(&listener) {
                listening.all().for_each(Listener::drain);
            }
        });
    });
}

/// How many connections and WebSockets a listener has; 0 when there is no such listener.
#[unsafe(no_mangle)]
pub extern "C" fn rk_connections(listener: u32) -> i32 {
    entry(0, || {
        core::with(|core| {
            let listening = core.listeners.get(&listener);
            let count =
                listening.map_or(0, |listening| listening.all().map(Listener::connections).sum());
            i32::try_from(count).unwrap_or(i32::MAX)
        })
    })
}

/// Stops all listeners, and hears no supervisor any more.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stop_all() {
    entry((), || {
        let all = core::with(|core| {
            core.tls.clear();
            std::mem::take(&mut core.listeners)
        });
        for (id, listening) in all {
            core::with(|core| {
                core.leaves(id, false);
                core.is_over(id);
            });
            listening.stop();
        }
        core::with(|core| core.unattend());
    });
}
