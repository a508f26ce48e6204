//! The functions `rk_stack_*` and `rk_profile_*`, by which C publishes the functions on R's stack
//! and takes requests for profiles.

use std::ffi::c_char;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::AtomicU64;

use rookery_status::RunFolder;
use rookery_worker_protocol::{MAX_STACK_LEN, OTHER_ROUTE, ProfileProgress, ProfileRequest, now};

use super::profiling::frame_name;
use crate::core::{self, Core};
use crate::{Bytes, entry};

impl Core {
    /// Returns the path of the file of a profile, or `None` if this process has no folder for it.
    fn profile_path(&self, number: u32) -> Option<PathBuf> {
        let admin = self.admin.as_ref().and_then(|admin| admin.folder.as_ref());
        let folder = self.profiling.folder.as_deref().or(admin.map(RunFolder::path))?;
        Some(folder.join(rookery_status::profile_file(number)))
    }
}

/// Publishes the names of the functions on R's stack, and the place of the innermost call.
///
/// # Safety
/// - `names` and `place` describe valid memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_stack_sampled(names: Bytes, place: Bytes) {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let (names, place) = unsafe { (names.get(), place.get()) };
    entry((), || {
        core::with(|core| {
            let mut text = names[..names.len().min(MAX_STACK_LEN - place.len())].to_vec();
            text.extend_from_slice(place);
            if let Some(scoreboard) = core.scoreboard() {
                scoreboard.set_stack(now(), &text);
            }
            core.tracing.on_sample(&text);
        });
    });
}

/// Returns the word on the scoreboard by which profiles are requested, or NULL if there is no
/// scoreboard. It is valid until the admin listener is stopped.
#[unsafe(no_mangle)]
pub extern "C" fn rk_profile_word() -> *const AtomicU64 {
    entry(ptr::null(), || {
        core::with(|core| core.scoreboard().map_or(ptr::null(), |it| it.profile_word()))
    })
}

/// A request for a profile: `struct rk_profile_request`.
#[derive(Debug)]
#[repr(C)]
pub struct RequestedProfile {
    number: u32,
    interval_us: u32,
}

/// Returns 1 if a value of the word of [`rk_profile_word`] requests a profile, and then writes the
/// request and, as a C string, the path of the profile's file. Otherwise returns 0.
///
/// # Safety
/// - `request` can be written, and `path` has space for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_profile_request(
    word: u64,
    request: *mut RequestedProfile,
    path: *mut c_char,
    len: usize,
) -> i32 {
    entry(0, || {
        let Some(found) = ProfileRequest::of_word(word) else { return 0 };
        let file = core::with(|core| core.profile_path(found.number));
        let file = file.filter(|file| file.as_os_str().len() < len);
        let Some(file) = file else {
            set_progress(found.number, ProfileProgress::Failed);
            return 0;
        };
        // It has at most 26 bits.
        let (number, interval_us) = (found.number, found.interval_us() as u32);
        let bytes = file.as_os_str().as_encoded_bytes();
        // SAFETY: guaranteed by the caller, because the path and its end have at most `len` bytes.
        unsafe {
            request.write(RequestedProfile { number, interval_us });
            path.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
            path.add(bytes.len()).write(0);
        }
        1
    })
}

/// Reports the progress of a profile. `progress` is an `enum rk_profile_progress`.
#[unsafe(no_mangle)]
pub extern "C" fn rk_profile_set_progress(number: u32, progress: i32) {
    entry((), || {
        let progress = u8::try_from(progress).unwrap_or(u8::MAX);
        set_progress(number, ProfileProgress::of_number(progress));
    });
}

fn set_progress(number: u32, progress: ProfileProgress) {
    core::with(|core| {
        core.profiling.is_running = progress == ProfileProgress::Running;
        if let Some(scoreboard) = core.scoreboard() {
            scoreboard.set_profile_progress(number, progress);
        }
    });
}

/// Writes, as a C string, the name by which the handler of a request is called during a profile.
///
/// # Safety
/// - `out` has space for `len` bytes, at least 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_profile_route(slot: u32, id: u64, out: *mut c_char, len: usize) {
    entry((), || {
        let mut name = core::with(|core| {
            // The routes are taken for a moment, because the exchange borrows the core.
            let mut routes = std::mem::take(&mut core.profiling.routes);
            let name = core.held(slot, id).map_or_else(
                || frame_name(b"", OTHER_ROUTE.as_bytes()),
                |exchange| frame_name(exchange.method(), routes.of_path(exchange.path())),
            );
            core.profiling.routes = routes;
            name
        });
        name.truncate(len - 1);
        // SAFETY: guaranteed by the caller, because the name and its end have at most `len` bytes.
        unsafe {
            out.copy_from_nonoverlapping(name.as_ptr().cast(), name.len());
            out.add(name.len()).write(0);
        }
    });
}
