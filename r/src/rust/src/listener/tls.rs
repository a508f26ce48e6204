//! The TLS configurations of listeners. The C code uses them with the functions `rk_tls_*`.

use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rookery_acme::{Acme, BadSettings, Challenge, Renewer, Settings};
use rookery_server::tls::{
    CertificatePair, DevelopmentCertificate, Hsts, Pem, Tls, TlsSettings, TlsVersion,
};
use rookery_websocket_client::Roots;

use crate::text::lend;
use crate::text::path::{path_bytes, path_of};
use crate::{Bytes, core, entry, result};

/// The return values of the functions `rk_tls_*`. After `FAILED`, `rk_error` returns the message.
const FAILED: i32 = -1;
const DONE: i32 = 0;

/// The HTTPS configuration of a listener, which C refers to by a pointer.
#[derive(Debug)]
pub(crate) struct Https {
    pub(crate) tls: Tls,
    /// The port from which plaintext HTTP requests are redirected to HTTPS, if there is one.
    pub(crate) redirect_from: Option<u16>,
    /// The certificate that a certificate authority issues by ACME, with the challenges that the
    /// server can respond to. `None` if the certificate comes from a file.
    acme: Option<(Acme, Vec<Challenge>)>,
}

impl Https {
    /// Returns the number of failed attempts to get a certificate, which the renewer keeps up to
    /// date. Returns `None` if the certificate comes from a file.
    pub(crate) fn acme_failures(&self) -> Option<Arc<AtomicU64>> {
        self.acme.as_ref().map(|(acme, _)| acme.failures())
    }

    /// Starts the thread that renews the certificate by ACME. Returns `None` if the certificate
    /// comes from a file. The server must already be listening.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(crate) fn start_renewer(&self) -> io::Result<Option<Renewer>> {
        let Some((acme, challenges)) = &self.acme else { return Ok(None) };
        acme.start_renewer(self.tls.clone(), challenges.clone(), crate::write_log_line).map(Some)
    }
}

/// Returns the ACME settings for the `count` arguments of R's `acme()`, which C passes as
/// alternating names and values. Returns `None` if there are no arguments.
///
/// # Safety
/// - `options` has twice `count` elements, readable for the length of the call.
unsafe fn acme_settings(options: *const Bytes, count: usize) -> Option<Settings> {
    if count == 0 {
        return None;
    }
    let text = |index: usize| {
        // SAFETY: guaranteed by the caller for each element.
        let bytes = unsafe { (*options.add(index)).get() };
        String::from_utf8_lossy(bytes).into_owned()
    };
    let mut settings = Settings::new(Vec::new(), PathBuf::new());
    for index in 0..count {
        let value = text(2 * index + 1);
        match text(2 * index).as_str() {
            "domain" => settings.domains.push(value),
            "email" => settings.emails.push(value),
            "agree_tos" => settings.agrees_to_terms = value == "TRUE",
            "directory" => settings.directory = value,
            "profile" => settings.profile = Some(value),
            "ca" => settings.roots = Roots::Custom(value),
            "dir" => settings.folder = value.into(),
            // R passes no other names.
            _ => {}
        }
    }
    Some(settings)
}

/// Checks the arguments of R's `acme()` without contacting the certificate authority. Returns
/// `RK_BAD_VALUE` after setting the error message if they are wrong.
///
/// # Safety
/// - `options` has twice `count` elements, readable for the length of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_acme_check(options: *const Bytes, count: usize) -> i32 {
    entry(result::BAD_VALUE, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        match unsafe { acme_settings(options, count) }.map(Settings::validate) {
            Some(Err(error)) => {
                core::set_error(&error.to_string());
                result::BAD_VALUE
            }
            _ => result::OK,
        }
    })
}

/// Returns the source of PEM text. The bytes are either the text itself or the path of a file that
/// contains it.
///
/// # Safety
/// - The bytes are readable for the length of the call.
unsafe fn pem(bytes: Bytes) -> Pem {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let bytes = unsafe { bytes.get() };
    match std::str::from_utf8(bytes) {
        Ok(text) => Pem::from_text_or_path(text),
        Err(_) => Pem::File(path_of(bytes).into_owned()),
    }
}

/// Creates the TLS configuration of a listener. Returns NULL after setting the error message if an
/// argument is invalid or a file cannot be read. The main arguments are:
/// - `pairs`: `count` pairs of a certificate and its key
/// - `client_ca`: the CA certificates against which client certificates are verified, or empty
/// - `hsts`: the `max-age` in seconds, and the flags for subdomains and preload lists; or NULL
/// - `redirect_from`: the port from which HTTP is redirected to HTTPS, or 0
/// - `acme`: the names and values of `acme_count` arguments of R's `acme()`
///
/// # Safety
/// - `pairs` has twice `count` elements, `acme` twice `acme_count`, and all of them are readable
///   for the length of the call.
/// - `hsts` has three numbers, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_tls_new(
    pairs: *const Bytes,
    count: usize,
    client_ca: Bytes,
    client_is_optional: i32,
    is_new_only: i32,
    only_http1: i32,
    hsts: *const [i32; 3],
    redirect_from: i32,
    acme: *const Bytes,
    acme_count: usize,
) -> *mut c_void {
    entry(std::ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller for each element.
        let at = |index: usize| unsafe { pem(*pairs.add(index)) };
        let mut settings = TlsSettings {
            pairs: (0..count)
                .map(|index| CertificatePair { certificate: at(2 * index), key: at(2 * index + 1) })
                .collect(),
            // SAFETY: guaranteed by the caller, see `# Safety`.
            client_ca: (client_ca.len > 0).then(|| unsafe { pem(client_ca) }),
            client_is_optional: client_is_optional != 0,
            minimum: if is_new_only == 0 { TlsVersion::Tls12 } else { TlsVersion::Tls13 },
            only_http1: only_http1 != 0,
            // SAFETY: guaranteed by the caller, see `# Safety`.
            hsts: unsafe { hsts.as_ref() }.map(|[max_age, include_subdomains, preload]| Hsts {
                max_age: u32::try_from(*max_age).unwrap_or(0),
                include_subdomains: *include_subdomains != 0,
                preload: *preload != 0,
            }),
            challenges: None,
        };
        let over_tls = settings.client_ca.is_none() || settings.client_is_optional;
        let redirect_from = u16::try_from(redirect_from).ok().filter(|port| *port > 0);
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let acme_settings = unsafe { acme_settings(acme, acme_count) };
        let prepared = acme_settings.map(|acme_settings| {
            let acme = Acme::prepare(acme_settings)?;
            let challenges = acme.usable_challenges(redirect_from.is_some(), over_tls)?;
            Ok((acme, challenges))
        });
        let made =
            prepared.transpose().map_err(|error: BadSettings| error.to_string()).and_then(|acme| {
                if let Some((acme, _)) = &acme {
                    settings.pairs = acme.pairs();
                    settings.challenges = Some(acme.challenges());
                }
                let tls =
                    Tls::new(settings, crate::write_log_line).map_err(|error| error.to_string())?;
                Ok(Https { tls, redirect_from, acme })
            });
        match made {
            Ok(https) => Box::into_raw(Box::new(https)).cast(),
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
