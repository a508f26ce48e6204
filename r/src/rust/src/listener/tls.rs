//! The TLS configurations of listeners. The C code uses them with the functions `rk_tls_*`.

use std::ffi::{CStr, c_char, c_void};

use rookery_cli::embedded::{self, TlsSetup};
use rookery_server::tls::DevelopmentCertificate;

use crate::text::lend;
use crate::text::path::{path_bytes, path_of};
use crate::{Bytes, core, entry, result};

/// The return values of the functions `rk_tls_*`. After `FAILED`, `rk_error` returns the message.
const FAILED: i32 = -1;
const DONE: i32 = 0;

/// The HTTPS configuration of a listener, which C refers to by a pointer.
#[derive(Debug)]
pub(crate) struct Https {
    pub(crate) setup: TlsSetup,
    /// The port from which plaintext HTTP requests are redirected to HTTPS, if there is one.
    pub(crate) redirect_from: Option<u16>,
}

/// Creates the TLS configuration of a listener from lines `setting=value`. Returns NULL after
/// setting the error message if a value is invalid or a file cannot be read.
///
/// # Safety
/// - `lines` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_tls_new(lines: Bytes) -> *mut c_void {
    entry(std::ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        match embedded::set_up_tls(&unsafe { lines.text() }, crate::write_log_line) {
            Ok((setup, redirect_from)) => {
                Box::into_raw(Box::new(Https { setup, redirect_from })).cast()
            }
            Err(error) => {
                core::set_error(&error);
                std::ptr::null_mut()
            }
        }
    })
}

/// Frees the TLS configuration that `tls` points to. Listeners that use the configuration keep a
/// copy.
///
/// # Safety
/// - `tls` came from `rk_tls_new` and is not used after this, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_tls_free(tls: *mut c_void) {
    entry((), || {
        if !tls.is_null() {
            // SAFETY: guaranteed by the caller, see `# Safety`.
            drop(unsafe { Box::from_raw(tls.cast::<Https>()) });
        }
    });
}

/// Returns the HTTPS configuration that a pointer from C points to.
///
/// # Safety
/// - `tls` came from `rk_tls_new` and outlives the returned reference, or is NULL.
pub(crate) unsafe fn from_raw<'a>(tls: *const c_void) -> Option<&'a Https> {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    unsafe { tls.cast::<Https>().as_ref() }
}

/// Reads the certificates of a listener again from their files. Returns `RK_STALE` if the listener
/// has no certificates.
#[unsafe(no_mangle)]
pub extern "C" fn rk_tls_reload(listener: u32) -> i32 {
    entry(FAILED, || {
        let Some(tls) = core::with(|core| core.tls.get(&listener).map(|counted| counted.0.clone()))
        else {
            return result::STALE;
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

/// Creates the development certificate in `folder`, or reads the existing one. Writes the path of
/// its file and its fingerprint to `file` and `fingerprint`, in this order. Each text is valid
/// until `rk_text_free`.
///
/// # Safety
/// - `folder` is a C string; the other arguments can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_tls_development_certificate(
    folder: *const c_char,
    file: *mut Bytes,
    fingerprint: *mut Bytes,
    is_new: *mut i32,
) -> i32 {
    entry(FAILED, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let folder = path_of(unsafe { CStr::from_ptr(folder) }.to_bytes());
        match DevelopmentCertificate::load_or_create(&folder) {
            Ok(made) => {
                // SAFETY: guaranteed by the caller, see `# Safety`.
                unsafe {
                    file.write(lend(path_bytes(&made.file).to_vec()));
                    fingerprint.write(lend(made.fingerprint.into_bytes()));
                    is_new.write(i32::from(made.is_new));
                }
                DONE
            }
            Err(error) => {
                core::set_error(&format!(
                    "the development certificate cannot be stored in {}: {error}",
                    folder.display()
                ));
                FAILED
            }
        }
    })
}

/// Writes the subject and the fingerprint of the client's TLS certificate. Returns 0 if the client
/// has sent no certificate. The texts are valid while R holds the request.
///
/// # Safety
/// - `subject` and `fingerprint` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_client_certificate(
    slot: u32,
    id: u64,
    subject: *mut Bytes,
    fingerprint: *mut Bytes,
) -> i32 {
    entry(0, || {
        core::with(|core| {
            let Some(client) = core.held(slot, id).and_then(|exchange| exchange.client()) else {
                return 0;
            };
            // SAFETY: guaranteed by the caller, see `# Safety`.
            unsafe {
                subject.write(Bytes::of(client.subject.as_bytes()));
                fingerprint.write(Bytes::of(client.fingerprint.as_bytes()));
            }
            1
        })
    })
}
