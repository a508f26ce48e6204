//! What a listener serves without R, as C describes it.

use std::ffi::{OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;

use rookery_server::Confirmation;
use rookery_server::static_files::{
    Charset, Header, Overrides, RequiredHeader, StaticFiles, StaticPath, Validation,
};

use crate::{Bytes, core, entry};

/// What a function that takes a description reports when it is none: `rk_error` says why.
const FAILED: i32 = -1;
const TAKEN: i32 = 0;
/// The supervisor has not confirmed a change in time.
const UNCONFIRMED: i32 = 1;

/// A site of `rk_site_new`: what is served, and what has been described since it was last published.
#[derive(Debug, Default)]
pub(crate) struct SiteBuilder {
    files: StaticFiles,
    added: Vec<(String, StaticPath)>,
}

/// `struct rk_static_path`.
#[derive(Debug)]
#[repr(C)]
pub struct RawPath {
    key: Bytes,
    path: Bytes,
    html_charset: Bytes,
    validation_name: Bytes,
    validation_value: Bytes,
    headers: *const Bytes,
    header_count: usize,
    is_excluded: i32,
    has_index: i32,
    falls_through: i32,
}

// As in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(
        size_of::<RawPath>() == 112
            && offset_of!(RawPath, headers) == 80
            && offset_of!(RawPath, falls_through) == 104
    );
};

impl SiteBuilder {
    /// The files, shared: changing the site changes what the listener serves.
    pub(crate) fn files(&self) -> StaticFiles {
        self.files.clone()
    }

    /// Takes a path with all its options, none of them inherited.
    ///
    /// # Safety
    /// - Every address in `raw` is readable for its length.
    unsafe fn add(&mut self, raw: &RawPath) -> Result<(), String> {
        // SAFETY: the caller's duty, here and below.
        let text = |bytes: Bytes| String::from_utf8_lossy(unsafe { bytes.get() }).into_owned();
        let key = text(raw.key);
        let refused = |what: &str, error: &dyn std::fmt::Display| {
            format!("static path \"{key}\": {what}: {error}")
        };
        let mut headers = Vec::new();
        for at in 0..raw.header_count {
            // SAFETY: `headers` has `header_count` pairs.
            let (name, value) = unsafe { (*raw.headers.add(2 * at), *raw.headers.add(2 * at + 1)) };
            // SAFETY: the caller's duty.
            let (name, value) = unsafe { (name.get(), value.get()) };
            headers.push(Header::new(name, value).map_err(|error| refused("header", &error))?);
        }
        let validation = if raw.validation_name.len == 0 {
            Validation::Off
        } else {
            let name = text(raw.validation_name);
            // SAFETY: the caller's duty.
            let value = unsafe { raw.validation_value.get() };
            Validation::Require(
                RequiredHeader::new(&name, value).map_err(|error| refused("validation", &error))?,
            )
        };
        let charset = Charset::new(&text(raw.html_charset))
            .map_err(|error| refused("html_charset", &error))?;
        let overrides = Overrides {
            index: Some(raw.has_index != 0),
            fallthrough: Some(raw.falls_through != 0),
            html_charset: Some(charset),
            headers: Some(headers),
            validation: Some(validation),
            exclude: Some(raw.is_excluded != 0),
        };
        // SAFETY: the caller's duty.
        let path = OsStr::from_bytes(unsafe { raw.path.get() }).into();
        self.added.push((key, StaticPath { path, overrides }));
        Ok(())
    }

    /// Serves the paths that have been added, here and in the supervisor of this process, which is
    /// waited for. Returns whether it has answered in time.
    fn publish(&mut self) -> Result<bool, String> {
        let added = std::mem::take(&mut self.added);
        self.files.replace(added).map_err(|error| error.to_string())?;
        let supervision = core::with(|core| core.announce_paths(&self.files));
        let confirmation = supervision.map(|supervision| supervision.wait_until_applied());
        Ok(confirmation != Some(Confirmation::TimedOut))
    }
}

/// Makes a site without paths.
#[unsafe(no_mangle)]
pub extern "C" fn rk_site_new() -> *mut c_void {
    entry(std::ptr::null_mut(), || Box::into_raw(Box::<SiteBuilder>::default()).cast())
}

/// Frees a site; a listener that serves it goes on.
///
/// # Safety
/// - `site` is one of `rk_site_new`, and not used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_site_free(site: *mut c_void) {
    entry((), || {
        if !site.is_null() {
            // SAFETY: the caller's duty.
            drop(unsafe { Box::from_raw(site.cast::<SiteBuilder>()) });
        }
    });
}

/// Describes a path of the site, in force when it is published.
///
/// # Safety
/// - `site` is one of `rk_site_new`, and every address in `path` is readable for its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_site_add(site: *mut c_void, path: *const RawPath) -> i32 {
    // SAFETY: the caller's duty.
    report(|| unsafe {
        with_site(site, |site| {
            let added = site.add(&*path);
            if added.is_err() {
                // What was described before it is not to be served with what is described added.
                site.added.clear();
            }
            added.map(|()| true)
        })
    })
}

/// Makes the paths described since the last time those that are served. Returns 1 when they are,
/// but the supervisor of this process may still serve those before, because it does not answer.
///
/// # Safety
/// - `site` is one of `rk_site_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_site_publish(site: *mut c_void) -> i32 {
    // SAFETY: the caller's duty.
    report(|| unsafe { with_site(site, SiteBuilder::publish) })
}

/// # Safety
/// - `site` is one of `rk_site_new`, or NULL.
unsafe fn with_site(
    site: *mut c_void,
    body: impl FnOnce(&mut SiteBuilder) -> Result<bool, String>,
) -> Result<bool, String> {
    // SAFETY: the caller's duty; C calls on one thread, so nobody else has it.
    let site = unsafe { site.cast::<SiteBuilder>().as_mut() };
    site.map_or_else(|| Err("the site has been freed".to_owned()), body)
}

fn report(body: impl FnOnce() -> Result<bool, String>) -> i32 {
    entry(FAILED, || match body() {
        Ok(true) => TAKEN,
        Ok(false) => UNCONFIRMED,
        Err(error) => {
            core::set_error(&error);
            FAILED
        }
    })
}
