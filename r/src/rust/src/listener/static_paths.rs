//! The static paths of a listener (files that it serves without R), as C describes them. The C code
//! builds them with the functions `rk_site_*`.

use std::ffi::c_void;

use rookery_server::Confirmation;
use rookery_server::static_files::{
    Charset, Header, Overrides, RequiredHeader, StaticFiles, StaticPath, Validation,
};

use crate::text::path::path_of;
use crate::{Bytes, core, entry};

/// The return values of the functions `rk_site_*`. After `FAILED`, `rk_error` returns the message.
const FAILED: i32 = -1;
const TAKEN: i32 = 0;
/// The return value for a change of static paths that this process has applied, but that its
/// supervisor has not confirmed in time.
const UNCONFIRMED: i32 = 1;

/// A set of static paths that C builds. It contains the paths that are served, and which of them
/// were added since the last publication to the supervisor.
#[derive(Debug, Default)]
pub(crate) struct SiteBuilder {
    files: StaticFiles,
    added: Vec<(String, StaticPath)>,
}

/// A static path as C passes it: `struct rk_static_path`.
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
    is_site: i32,
}

// The layout is the same as in rookery.h.
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
    /// Returns a shared reference to the static files. A listener that has it also serves the paths
    /// that are published later.
    pub(crate) fn files(&self) -> StaticFiles {
        self.files.clone()
    }

    /// Adds a static path with its options. The caller has already replaced missing options by
    /// their defaults.
    ///
    /// # Safety
    /// - Every address in `raw` is readable for its length.
    unsafe fn add(&mut self, raw: &RawPath) -> Result<(), String> {
        // SAFETY: guaranteed by the caller, here and below.
        let text = |bytes: Bytes| String::from_utf8_lossy(unsafe { bytes.get() }).into_owned();
        let key = text(raw.key);
        let refused = |what: &str, error: &dyn std::fmt::Display| {
            format!("static path \"{key}\": {what}: {error}")
        };
        let mut headers = Vec::new();
        for at in 0..raw.header_count {
            // SAFETY: `headers` has `header_count` pairs.
            let (name, value) = unsafe { (*raw.headers.add(2 * at), *raw.headers.add(2 * at + 1)) };
            // SAFETY: guaranteed by the caller, see `# Safety`.
            let (name, value) = unsafe { (name.get(), value.get()) };
            headers.push(Header::new(name, value).map_err(|error| refused("header", &error))?);
        }
        let validation = if raw.validation_name.len == 0 {
            Validation::Off
        } else {
            let name = text(raw.validation_name);
            // SAFETY: guaranteed by the caller, see `# Safety`.
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
            site: Some(raw.is_site != 0),
        };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let path = path_of(unsafe { raw.path.get() }).into_owned();
        self.added.push((key, StaticPath { path, overrides }));
        Ok(())
    }

    /// Publishes the added static paths, so that this process and its supervisor serve them.
    /// Returns false if the supervisor has not confirmed the change in time.
    fn publish(&mut self) -> Result<bool, String> {
        let added = std::mem::take(&mut self.added);
        self.files.replace(added).map_err(|error| error.to_string())?;
        let supervision = core::with(|core| core.announce_paths(&self.files));
        let confirmation = supervision.map(|supervision| supervision.wait_until_applied());
        Ok(confirmation != Some(Confirmation::TimedOut))
    }
}

/// Creates an empty set of static paths for a listener.
#[unsafe(no_mangle)]
pub extern "C" fn rk_site_new() -> *mut c_void {
    entry(std::ptr::null_mut(), || Box::into_raw(Box::<SiteBuilder>::default()).cast())
}

/// Frees a set of static paths. A listener that uses the set continues to serve its files.
///
/// # Safety
/// - `site` came from `rk_site_new`, and is not used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_site_free(site: *mut c_void) {
    entry((), || {
        if !site.is_null() {
            // SAFETY: guaranteed by the caller, see `# Safety`.
            drop(unsafe { Box::from_raw(site.cast::<SiteBuilder>()) });
        }
    });
}

/// Adds a static path to a set. The path is served after `rk_site_publish`.
///
/// # Safety
/// - `site` came from `rk_site_new`, and every address in `path` is readable for its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_site_add(site: *mut c_void, path: *const RawPath) -> i32 {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    report(|| unsafe {
        with_site(site, |site| {
            let added = site.add(&*path);
            if added.is_err() {
                // After an error, the paths added so far are dropped.
                site.added.clear();
            }
            added.map(|()| true)
        })
    })
}

/// Publishes the static paths that were added to the set, so that they are served. Returns 1 if the
/// supervisor of this process has not confirmed the change in time, and may still serve the
/// previous paths.
///
/// # Safety
/// - `site` came from `rk_site_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_site_publish(site: *mut c_void) -> i32 {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    report(|| unsafe { with_site(site, SiteBuilder::publish) })
}

/// Runs `body` with a set of static paths that C refers to.
///
/// # Safety
/// - `site` came from `rk_site_new`, or is NULL.
unsafe fn with_site(
    site: *mut c_void,
    body: impl FnOnce(&mut SiteBuilder) -> Result<bool, String>,
) -> Result<bool, String> {
    // SAFETY: guaranteed by the caller; C calls on one thread, so there is no other reference.
    let site = unsafe { site.cast::<SiteBuilder>().as_mut() };
    site.map_or_else(|| Err("the static paths have been freed".to_owned()), body)
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
