//! What a listener serves without R, as C describes it.

use std::ffi::c_void;

use rookery_server::static_files::StaticFiles;

use crate::entry;

/// A site of `rk_site_new`.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    files: StaticFiles,
}

impl Builder {
    /// The files, shared: changing the site changes what the listener serves.
    pub(crate) fn files(&self) -> StaticFiles {
        self.files.clone()
    }
}

/// Makes a site without paths.
#[unsafe(no_mangle)]
pub extern "C" fn rk_site_new() -> *mut c_void {
    entry(std::ptr::null_mut(), || Box::into_raw(Box::<Builder>::default()).cast())
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
            drop(unsafe { Box::from_raw(site.cast::<Builder>()) });
        }
    });
}
