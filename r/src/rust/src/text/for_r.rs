//! The texts that R gets by a name: settings, similar names, addresses, messages and the start-up
//! screen. The program shows the same.

use rookery_cli::embedded::{self, EmbeddedServer};
use rookery_exchange::masked;
use rookery_settings::{names_within, similar_names};
use rookery_status::{AdminAddress, AdminListener};

use crate::text::lend;
use crate::text::path::path_of;
use crate::{Bytes, core, entry, settings};

/// Returns the text with the name `what`, made from `inputs`. Flags are `TRUE` or `FALSE`, and
/// paths are in the encoding of the system, as is then the result.
fn text_for_r(what: &str, inputs: &[&[u8]]) -> Option<Vec<u8>> {
    let bytes = |at: usize| inputs.get(at).copied().unwrap_or_default();
    let text = |at| String::from_utf8_lossy(bytes(at));
    let is = |at| bytes(at) == b"TRUE";
    let port = |at| text(at).parse().unwrap_or_default();
    Some(match what {
        "setting table" => settings::table_text().into_bytes(),
        "settings" => {
            settings::resolve(&text(0), &text(1), |name| std::env::var_os(name)).into_bytes()
        }
        "unknown settings" => settings::unknown_names(&text(0), is(1)).into_bytes(),
        "_server.yml" => settings::read_file(&path_of(bytes(0)), is(1)).into_bytes(),
        "similar names" => near_names(&text(0), &text(1), &text(2)).into_bytes(),
        "address" => match embedded::check_address(&text(0), port(1)) {
            Ok(port) => port.to_string(),
            Err(error) => format!("{}\n{}\n{}", error.class, error.reason, error.message),
        }
        .into_bytes(),
        "missing path" => embedded::missing_path(&path_of(bytes(0))).into_bytes(),
        "url" => {
            let domain = text(3);
            let domain = Some(&*domain).filter(|domain| !domain.is_empty());
            embedded::server_url(&text(0), port(1), &text(2), domain).into_bytes()
        }
        "start screen" => {
            let texts = [0, 1, 2, 3, 5].map(text);
            start_screen(texts.each_ref().map(|text| &**text), port(4), is(6), is(7)).into_bytes()
        }
        "problem of an order" => {
            embedded::check_acme(&text(0)).err().unwrap_or_default().into_bytes()
        }
        "masked target" => masked(bytes(0)).flatten().copied().collect(),
        _ => return None,
    })
}

/// Returns those of the `candidates`, one a line, that are similar to `name`. `most` is the maximum
/// number of letters that differ. If it is empty, the number depends on the length of the name.
fn near_names(name: &str, most: &str, candidates: &str) -> String {
    let names = candidates.lines();
    match most.parse() {
        Ok(most) => names_within(name, names, most, false),
        Err(_) => similar_names(name, names),
    }
    .join("\n")
}

/// Returns the text of the start-up screen. `host` is empty if no address for other machines is
/// shown, and `admin` if there is no admin listener. `is_terminal` says whether standard error is a
/// terminal, and `is_seen` whether a person reads the screen.
fn start_screen(
    [app, folder, url, host, admin]: [&str; 5],
    port: u16,
    is_terminal: bool,
    is_seen: bool,
) -> String {
    let (page, local) = core::with(|core| {
        let listener = core.admin.as_ref().map(|own| &own.admin);
        (listener.and_then(AdminListener::page_url), listener.and_then(AdminListener::local_addr))
    });
    let admin = match (AdminAddress::parse(admin), local) {
        // With the port that the system has chosen.
        (Some(AdminAddress::Tcp(_)), Some(local)) => Some(AdminAddress::Tcp(local)),
        (admin, _) => admin,
    };
    let listens = (!host.is_empty()).then_some((host, port));
    EmbeddedServer { app, folder, url, listens, admin, live_page: page }
        .start_screen(is_terminal, is_seen)
}

/// Returns the text with the name `what`, made from `inputs`. It is valid until `rk_text_free`.
///
/// # Safety
/// - `what` and the `count` inputs are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_text(what: Bytes, inputs: *const Bytes, count: usize) -> Bytes {
    entry(Bytes::EMPTY, || {
        let inputs = match count {
            0 => &[],
            // SAFETY: guaranteed by the caller, see `# Safety`.
            _ => unsafe { std::slice::from_raw_parts(inputs, count) },
        };
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let (what, inputs): (_, Vec<&[u8]>) =
            unsafe { (what.text(), inputs.iter().map(|input| input.get()).collect()) };
        lend(text_for_r(&what, &inputs).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_lines() {
        let near = |most: &[u8]| {
            String::from_utf8(text_for_r("similar names", &[b"prot", most, b"port\nhost"]).unwrap())
        };
        assert_eq!(near(b"").unwrap(), "port");
        assert_eq!(near(b"0").unwrap(), "");
    }

    #[test]
    fn an_unknown_name_has_no_text() {
        assert_eq!(text_for_r("nothing", &[]), None);
    }
}
