//! Functions for C that start and stop listeners.

pub(crate) mod access_log;
pub(crate) mod active;
mod static_paths;
pub(crate) mod tls;

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rookery_exchange::ListenerId;
use rookery_server::tls::Tls;
use rookery_server::{
    ListenError, Listener, ListenerConfig, Notice, OriginPolicy, Redirect, SpoolFolder,
    TrustedProxies, literal_address,
};

use crate::core::{self, Core};
use crate::entry;
use crate::listener::active::{ActiveListener, CountedTls};
use crate::listener::tls::Https;
use crate::text::path::path_of;

/// The return values of functions that start a listener. After `FAILED`, `rk_error` returns the
/// message.
const FAILED: i32 = -1;
const STARTED: i32 = 0;

impl Core {
    fn started(
        &mut self,
        listening: Result<ActiveListener, ListenError>,
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
                self.tls.extend(tls.map(|tls| (id, CountedTls::new(tls))));
                Some((id, port))
            }
            Err(error) => {
                core::set_error(&error.to_string());
                None
            }
        }
    }
}

/// The configuration of a listener as C passes it, without the address: `struct rk_setup`.
#[derive(Debug)]
#[repr(C)]
pub struct RawSetup {
    site: *const c_void,
    spool: *const c_char,
    tls: *const c_void,
    proxies: *const *const c_char,
    proxy_count: usize,
    calls_on_headers: i32,
    has_proxy_header: i32,
    checks_origins: i32,
    origins: *const *const c_char,
    origin_count: usize,
    sends_request_id: i32,
    inherits: i32,
    is_sticky: i32,
    sends_timing: i32,
    keeps_identity_headers: i32,
    proxy_senders: *const *const c_char,
    proxy_sender_count: usize,
}

// The layout is the same as in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () =
    assert!(size_of::<RawSetup>() == 112 && std::mem::offset_of!(RawSetup, calls_on_headers) == 40);

/// Returns the proxies that C passes. Returns `None` after setting the error message if one of them
/// is invalid.
///
/// # Safety
/// - `texts` has `count` elements, which are C strings.
unsafe fn proxies(texts: *const *const c_char, count: usize) -> Option<TrustedProxies> {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let texts = (0..count).map(|at| unsafe { CStr::from_ptr(*texts.add(at)) });
    let texts: Vec<_> = texts.map(CStr::to_string_lossy).collect();
    TrustedProxies::parse(texts.iter().map(AsRef::as_ref))
        .map_err(|error| core::set_error(&error.to_string()))
        .ok()
}

/// Returns the configuration of a listener from the values that C passes. Returns `None` after
/// setting the error message if a proxy is invalid.
///
/// # Safety
/// - `site` came from `rk_site_new` and is not freed, `tls` came from `rk_tls_new` or is NULL,
///   `spool` is a C string, and `proxies`, `proxy_senders` and `origins` have `proxy_count`,
///   `proxy_sender_count` and `origin_count` elements.
unsafe fn listener_config(setup: &RawSetup) -> Option<ListenerConfig> {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let files = unsafe { setup.site.cast::<static_paths::SiteBuilder>().as_ref() };
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let spool = unsafe { c_path(setup.spool) };
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let trusted = unsafe { proxies(setup.proxies, setup.proxy_count) }?;
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let senders = unsafe { proxies(setup.proxy_senders, setup.proxy_sender_count) }?;
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let origins =
        (0..setup.origin_count).map(|at| unsafe { CStr::from_ptr(*setup.origins.add(at)) });
    let origins: Vec<_> = origins.map(|host| host.to_string_lossy().into_owned()).collect();
    let policy =
        if origins.is_empty() { OriginPolicy::SameHost } else { OriginPolicy::Hosts(origins) };
    Some(ListenerConfig {
        files: files.map(static_paths::SiteBuilder::files).unwrap_or_default(),
        sees_heads: setup.calls_on_headers != 0,
        sends_request_id: setup.sends_request_id != 0,
        sends_timing: setup.sends_timing != 0,
        spool: Arc::new(SpoolFolder::new(&*spool, crate::write_log_line)),
        // SAFETY: guaranteed by the caller, see `# Safety`.
        tls: unsafe { tls::from_raw(setup.tls) }.map(|https| https.setup.tls.clone()),
        proxies: trusted,
        proxy_protocol: (setup.has_proxy_header != 0).then_some(senders),
        keeps_identity_headers: setup.keeps_identity_headers != 0,
        origins: (setup.checks_origins != 0).then_some(policy),
        redirect: None,
        hosts: None,
        page_script: None,
        error_pages: None,
        notice: Notice(crate::write_log_line),
    })
}

/// The value of `rk_setup.inherits` that makes a worker serve the requests of its
/// supervisor.
const SOCKET_OF_WORKER: i32 = 1;

/// Listens on an address. If plaintext HTTP is redirected to HTTPS, also listens on a second port
/// of the same host.
fn listen_with_redirect(
    address: SocketAddr,
    site: ListenerConfig,
    redirect_from: Option<u16>,
) -> Result<ActiveListener, ListenError> {
    // The redirecting listener has the same proxies.
    let also = ListenerConfig {
        proxies: site.proxies.clone(),
        proxy_protocol: site.proxy_protocol.clone(),
        notice: site.notice,
        ..ListenerConfig::default()
    };
    let tls = site.tls.clone();
    let listener = core::with(|core| {
        core.start_tracing();
        core.server().listen_tcp(address, site)
    })?;
    let (Some(from), Some(tls), Some(local)) = (redirect_from, tls, listener.local_addr()) else {
        return Ok(ActiveListener { renewer: None, listener, redirect: None });
    };
    let site =
        ListenerConfig { redirect: Some(Arc::new(Redirect { tls, port: local.port() })), ..also };
    let mut address = address;
    address.set_port(from);
    // Called outside the borrow, because a failure drops the first listener, which waits for the
    // I/O thread.
    let redirect = core::with(|core| core.server().listen_tcp(address, site))?;
    Ok(ActiveListener { renewer: None, listener, redirect: Some(redirect) })
}

/// Returns the listener with a running thread that renews its certificate, if a certificate
/// authority issues the certificate by ACME. Otherwise returns the listener unchanged.
fn with_renewer(
    mut listening: ActiveListener,
    https: Option<&Https>,
) -> Result<ActiveListener, ListenError> {
    listening.renewer = https
        .map_or(Ok(None), |https| https.setup.start_renewer(crate::write_log_line))
        .map_err(ListenError::Thread)?;
    if let Some(https) = https {
        core::with(|core| core.observe_certificates(https));
    }
    Ok(listening)
}

/// Serves the requests that arrive from the supervisor of this worker, and notifies the
/// supervisor that the worker is ready. Returns the id of the listener.
fn listen_as_worker(setup: &RawSetup, site: ListenerConfig) -> Option<ListenerId> {
    core::with(|core| {
        let started = core.server().listen_supervised().map(|listener| ActiveListener {
            renewer: None,
            listener,
            redirect: None,
        });
        let (id, _) = core.started(started, None)?;
        core.announce_ready(
            id,
            (site.files, site.origins),
            setup.calls_on_headers != 0,
            setup.is_sticky != 0,
        );
        Some(id)
    })
}

/// Returns the path that a C string contains.
///
/// # Safety
/// - `path` is a C string that outlives the returned value.
unsafe fn c_path<'a>(path: *const c_char) -> Cow<'a, Path> {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let path = unsafe { CStr::from_ptr(path) };
    path_of(path.to_bytes())
}

/// Starts a listener on a literal IPv4 or IPv6 address.
///
/// # Safety
/// - `host` is a C string, `setup` meets the requirements of [`listener_config`], and `listener`
///   and `bound_port` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_listen_tcp(
    host: *const c_char,
    port: i32,
    setup: *const RawSetup,
    listener: *mut u32,
    bound_port: *mut i32,
) -> i32 {
    entry(FAILED, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let host = unsafe { CStr::from_ptr(host) }.to_string_lossy();
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let setup = unsafe { &*setup };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let Some(site) = (unsafe { listener_config(setup) }) else { return FAILED };
        let tls = site.tls.clone();
        let Some(address) = u16::try_from(port).ok().and_then(|port| literal_address(&host, port))
        else {
            core::set_error(&format!(
                "{host} is not a valid IPv4 or IPv6 address, or its zone is not a network \
                 interface: use an address like \"127.0.0.1\" (this machine only) or \
                 \"0.0.0.0\" (all networks), and a port from 0 to 65535"
            ));
            return FAILED;
        };
        if setup.inherits == SOCKET_OF_WORKER {
            let Some(id) = listen_as_worker(setup, site) else { return FAILED };
            // SAFETY: guaranteed by the caller, see `# Safety`.
            unsafe {
                listener.write(id);
                bound_port.write(port);
            }
            return STARTED;
        }
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let https = unsafe { tls::from_raw(setup.tls) };
        let redirect_from = https.and_then(|https| https.redirect_from);
        let started = listen_with_redirect(address, site, redirect_from)
            .and_then(|it| with_renewer(it, https));
        let Some((id, bound)) = core::with(|core| core.started(started, tls)) else {
            return FAILED;
        };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        unsafe {
            listener.write(id);
            bound_port.write(bound.map_or(0, i32::from));
        }
        STARTED
    })
}

/// Starts a listener on a Unix socket. `mask` is the umask with which the socket is created. If it
/// is negative, the umask of the process applies.
///
/// # Safety
/// - `path` is a C string, `setup` meets the requirements of [`listener_config`], and `listener`
///   can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_listen_unix(
    path: *const c_char,
    mask: i32,
    setup: *const RawSetup,
    listener: *mut u32,
) -> i32 {
    entry(FAILED, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let path = unsafe { c_path(path) };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let setup = unsafe { &*setup };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let Some(site) = (unsafe { listener_config(setup) }) else { return FAILED };
        if setup.inherits == SOCKET_OF_WORKER {
            let Some(id) = listen_as_worker(setup, site) else { return FAILED };
            // SAFETY: guaranteed by the caller, see `# Safety`.
            unsafe { listener.write(id) };
            return STARTED;
        }
        let tls = site.tls.clone();
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let https = unsafe { tls::from_raw(setup.tls) };
        let started = core::with(|core| {
            core.start_tracing();
            core.server().listen_unix(&path, u32::try_from(mask).ok(), site)
        });
        let started = started.and_then(|listener| {
            with_renewer(ActiveListener { renewer: None, listener, redirect: None }, https)
        });
        let Some((id, _)) = core::with(|core| core.started(started, tls)) else {
            return FAILED;
        };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        unsafe { listener.write(id) };
        STARTED
    })
}

/// Stops a listener. Its port is free when this function returns.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stop(listener: u32) {
    entry((), || {
        // The listener is stopped outside the borrow, because that waits for the I/O thread.
        let stopped = core::with(|core| {
            core.announce_leaving(listener, false);
            core.on_listener_end(listener);
            core.tls.remove(&listener);
            core.listeners.remove(&listener)
        });
        if let Some(listening) = stopped {
            listening.stop();
        }
    });
}

/// Makes a listener stop accepting connections. Open connections end after their current responses.
#[unsafe(no_mangle)]
pub extern "C" fn rk_drain(listener: u32) {
    entry((), || {
        core::with(|core| {
            core.announce_leaving(listener, true);
            core.stop_streams_in_rings(listener);
            if let Some(listening) = core.listeners.get(&listener) {
                listening.all().for_each(Listener::drain);
            }
        });
    });
}

/// Returns the number of open connections, including WebSockets, of a listener. Returns 0 if the
/// listener does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn rk_connections(listener: u32) -> i32 {
    entry(0, || {
        core::with(|core| {
            let listening = core.listeners.get(&listener);
            let count: usize =
                listening.map_or(0, |listening| listening.all().map(Listener::connections).sum());
            let count = count + core.open_in_rings(listener);
            i32::try_from(count).unwrap_or(i32::MAX)
        })
    })
}

/// Stops all listeners, ends the connection to the supervisor, and exports the last spans. The
/// export ends early once `is_interrupted` returns a number other than 0.
#[unsafe(no_mangle)]
pub extern "C" fn rk_stop_all(is_interrupted: extern "C" fn() -> i32) {
    entry((), || {
        let all = core::with(|core| {
            core.tls.clear();
            std::mem::take(&mut core.listeners)
        });
        for (id, listening) in all {
            core::with(|core| {
                core.announce_leaving(id, false);
                core.on_listener_end(id);
            });
            listening.stop();
        }
        core::with(|core| {
            core.detach_supervisor();
            core.stop_tracing(|| is_interrupted() != 0);
        });
    });
}
