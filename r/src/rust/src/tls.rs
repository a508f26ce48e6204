//! HTTPS: `rk_tls_*`.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rookery_server::tls::{CertificatePair, DevelopmentCertificate, Hsts, Pem, Tls, TlsSettings, TlsVersion};

use crate::{Bytes, core, entry, listener, refusal};

/// What a function reports that could not do it: `rk_error` says why.
const FAILED: i32 = -1;
const DONE: i32 = 0;

/// Listeners that speak TLS. A handler of signals asks.
static LISTENERS: AtomicUsize = AtomicUsize::new(0);

/// The TLS of a listener, counted while it listens.
#[derive(Debug)]
pub(crate) struct Counted(Tls);

impl Counted {
    pub(crate) fn new(tls: Tls) -> Counted {
        LISTENERS.fetch_add(1, Ordering::Relaxed);
        Counted(tls)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        LISTENERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What C holds of it.
#[derive(Debug)]
pub(crate) struct Https {
    pub(crate) tls: Tls,
    /// The port from which requests in the clear are sent on.
    pub(crate) redirect_from: Option<u16>,
}

/// Where PEM is, as R gives it: text, or the path of a file.
///
/// # Safety
/// - The bytes are readable for the length of the call.
unsafe fn pem(bytes: Bytes) -> Pem {
    // SAFETY: the caller's duty.
    let bytes = unsafe { bytes.get() };
    match std::str::from_utf8(bytes) {
        Ok(text) => Pem::of(text),
        Err(_) => Pem::File(OsStr::from_bytes(bytes).into()),
    }
}

/// Sets TLS up with `count` pairs of a certificate and its key, and certificates for clients, if they are not empty: NULL
/// when that cannot be done. `hsts` is NULL, or seconds and whether its second and third part hold;
/// without a port `redirect_from` is 0.
///
/// # Safety
/// - `pairs` has twice `count` bytes, and all of them are readable for the length of the call.
/// - `hsts` has three numbers, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_tls_new(
    pairs: *const Bytes,
    count: usize,
    client_ca: Bytes,
    client_is_optional: i32,
    is_new_only: i32,
    only_http1: i32,
    only_http1_websockets: i32,
    hsts: *const [i32; 3],
    redirect_from: i32,
) -> *mut c_void {
    entry(std::ptr::null_mut(), || {
        // SAFETY: the caller's duty, for each of them.
        let at = |index: usize| unsafe { pem(*pairs.add(index)) };
        let settings = TlsSettings {
            pairs: (0..count)
                .map(|index| CertificatePair { certificate: at(2 * index), key: at(2 * index + 1) })
                .collect(),
            // SAFETY: the caller's duty.
            client_ca: (client_ca.len > 0).then(|| unsafe { pem(client_ca) }),
            client_is_optional: client_is_optional != 0,
            minimum: if is_new_only == 0 { TlsVersion::Tls12 } else { TlsVersion::Tls13 },
            only_http1: only_http1 != 0,
            only_http1_websockets: only_http1_websockets != 0,
            // SAFETY: the caller's duty.
            hsts: unsafe { hsts.as_ref() }.map(|[max_age, include_subdomains, preload]| Hsts {
                max_age: u32::try_from(*max_age).unwrap_or(0),
                include_subdomains: *include_subdomains != 0,
                preload: *preload != 0,
            }),
        };
        match Tls::new(settings, listener::tell) {
            Ok(tls) => {
                let redirect_from = u16::try_from(redirect_from).ok().filter(|port| *port > 0);
                Box::into_raw(Box::new(Https { tls, redirect_from })).cast()
            }
            Err(error) => {
                core::set_error(&error.to_string());
                std::ptr::null_mut()
            }
        }
    })
}

/// Frees what `rk_tls_new` gave; listeners keep theirs.
///
/// # Safety
/// - `tls` is one of `rk_tls_new` and not used after this, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_tls_free(tls: *mut c_void) {
    entry((), || {
        if !tls.is_null() {
            // SAFETY: the caller's duty.
            drop(unsafe { Box::from_raw(tls.cast::<Https>()) });
        }
    });
}

/// What a listener is given of it.
///
/// # Safety
/// - `tls` is one of `rk_tls_new` that outlives what is returned, or NULL.
pub(crate) unsafe fn of<'a>(tls: *const c_void) -> Option<&'a Https> {
    // SAFETY: the caller's duty.
    unsafe { tls.cast::<Https>().as_ref() }
}

/// Reads the certificates of a listener anew. `RK_STALE`: it has none.
#[unsafe(no_mangle)]
pub extern "C" fn rk_tls_reload(listener: u32) -> i32 {
    entry(FAILED, || {
        let Some(tls) = core::with(|core| core.tls.get(&listener).map(|counted| counted.0.clone())) else {
            return refusal::STALE;
        };
        match tls.reload() {
            Ok(()) => DONE,
            Err(error) => {
                core::set_error(&error.to_string());
                FAILED
            }
        }
    })
}

/// Whether a listener speaks TLS. May be called in a handler of signals.
#[unsafe(no_mangle)]
pub extern "C" fn rk_has_tls() -> i32 {
    i32::from(LISTENERS.load(Ordering::Relaxed) > 0)
}

/// The certificate to develop with, kept in `folder`: its file and its fingerprint, valid until the next call.
///
/// # Safety
/// - `folder` is a C string; the others can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_tls_develop(
    folder: *const c_char,
    file: *mut Bytes,
    fingerprint: *mut Bytes,
    is_new: *mut i32,
) -> i32 {
    entry(FAILED, || {
        // SAFETY: the caller's duty.
        let folder = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(folder) }.to_bytes()));
        match DevelopmentCertificate::keep(folder) {
            Ok(made) => core::with(|core| {
                let made = core.development.insert(made);
                // SAFETY: the caller's duty.
                unsafe {
                    file.write(Bytes::of(made.file.as_os_str().as_bytes()));
                    fingerprint.write(Bytes::of(made.fingerprint.as_bytes()));
                    is_new.write(i32::from(made.is_new));
                }
                DONE
            }),
            Err(error) => {
                core::set_error(&format!(
                    "no certificate to develop with can be kept in {}: {error}",
                    folder.display()
                ));
                FAILED
            }
        }
    })
}

/// The client's certificate of an exchange that R holds: 1, or 0 when it has none. Valid while R holds it.
///
/// # Safety
/// - `subject` and `fingerprint` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_client(slot: u32, id: u64, subject: *mut Bytes, fingerprint: *mut Bytes) -> i32 {
    entry(0, || {
        core::with(|core| {
            let Some(client) = core.held(slot, id).and_then(|exchange| exchange.client()) else { return 0 };
            // SAFETY: the caller's duty.
            unsafe {
                subject.write(Bytes::of(client.subject.as_bytes()));
                fingerprint.write(Bytes::of(client.fingerprint.as_bytes()));
            }
            1
        })
    })
}
