//! What R shows to people: similar names, addresses, and the start-up screen. The program shows the
//! same.

use rookery_cli::embedded::{self, EmbeddedServer};
use rookery_settings::{names_within, similar_names};
use rookery_status::{AdminAddress, AdminListener};

use crate::text::lend;
use crate::text::path::path_of;
use crate::{Bytes, core, entry};

/// The maximum number of similar names.
const MAX_SIMILAR: usize = 3;

/// Writes the indices of the candidates that are similar to `name` to `found`, and returns their
/// number. `most` is the maximum number of letters that differ; with -1, it depends on the length
/// of the name.
///
/// # Safety
/// - `name` and the `count` candidates are readable, and `found` has space for three numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_similar_names(
    name: Bytes,
    candidates: *const Bytes,
    count: usize,
    most: i32,
    found: *mut usize,
) -> usize {
    entry(0, || {
        let candidates = match count {
            0 => &[],
            // SAFETY: guaranteed by the caller, see `# Safety`.
            _ => unsafe { std::slice::from_raw_parts(candidates, count) },
        };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let texts: Vec<_> = candidates.iter().map(|it| unsafe { it.text() }).collect();
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let name = unsafe { name.text() };
        let names = texts.iter().map(|text| &**text);
        let near = match usize::try_from(most) {
            Ok(most) => names_within(&name, names, most, false),
            Err(_) => similar_names(&name, names),
        };
        let indices = near.iter().filter_map(|it| texts.iter().position(|text| *it == &**text));
        let mut written = 0;
        for index in indices.take(MAX_SIMILAR) {
            // SAFETY: guaranteed by the caller, see `# Safety`.
            unsafe { found.add(written).write(index) };
            written += 1;
        }
        written
    })
}

/// Checks that a server can listen on an address. Returns the port, or three texts that are
/// separated by line breaks: `in use` or `not available`, the error of the system, and the message.
///
/// # Safety
/// - `host` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_check_address(host: Bytes, port: u16) -> Bytes {
    entry(Bytes::EMPTY, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let host = unsafe { host.text() };
        let text = match embedded::check_address(&host, port) {
            Ok(port) => port.to_string(),
            Err(error) => {
                let kind = if error.is_in_use { "in use" } else { "not available" };
                format!("{kind}\n{}\n{}", error.reason, error.message)
            }
        };
        lend(text.into_bytes())
    })
}

/// Returns the message about a path that does not exist, which suggests similar names.
///
/// # Safety
/// - `path` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_missing_path(path: Bytes) -> Bytes {
    entry(Bytes::EMPTY, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let path = path_of(unsafe { path.get() });
        lend(embedded::missing_path(&path).into_bytes())
    })
}

/// Returns the URL of a server, or the path of its Unix socket. `domain` is empty if the host has
/// no public name.
///
/// # Safety
/// - `host`, `scheme` and `domain` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_server_url(
    host: Bytes,
    port: u16,
    scheme: Bytes,
    domain: Bytes,
) -> Bytes {
    entry(Bytes::EMPTY, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let [host, scheme, domain] = [host, scheme, domain].map(|it| unsafe { it.text() });
        let domain = Some(&*domain).filter(|domain| !domain.is_empty());
        lend(embedded::server_url(&host, port, &scheme, domain).into_bytes())
    })
}

/// Returns the text of the start-up screen. `host` is empty if no address for other machines is
/// shown, and `admin` if there is no admin listener. `is_terminal` says whether standard error is a
/// terminal, and `is_seen` whether a person reads the screen.
///
/// # Safety
/// - The texts are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_start_screen(
    app: Bytes,
    folder: Bytes,
    url: Bytes,
    host: Bytes,
    port: u16,
    admin: Bytes,
    is_terminal: i32,
    is_seen: i32,
) -> Bytes {
    entry(Bytes::EMPTY, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let texts = [app, folder, url, host, admin].map(|text| unsafe { text.text() });
        let [app, folder, url, host, admin] = texts.each_ref().map(|text| &**text);
        let (page, local) = core::with(|core| {
            let listener = core.admin.as_ref().map(|own| &own.admin);
            (
                listener.and_then(AdminListener::page_url),
                listener.and_then(AdminListener::local_addr),
            )
        });
        let admin = match (AdminAddress::parse(admin), local) {
            // With the port that the system has chosen.
            (Some(AdminAddress::Tcp(_)), Some(local)) => Some(AdminAddress::Tcp(local)),
            (admin, _) => admin,
        };
        let server = EmbeddedServer {
            app,
            folder,
            url,
            listens: (!host.is_empty()).then_some((host, port)),
            admin,
            live_page: page,
        };
        lend(server.start_screen(is_terminal != 0, is_seen != 0).into_bytes())
    })
}
