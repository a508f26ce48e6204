//! Systems other than Linux have no supervisor: the program becomes the R process that serves, whose
//! process id, signals and exit status are then the app's own.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;

use rookery_acme::Challenge;
use rookery_server::output;
use rookery_status::AdminAt;

use crate::address::Address;
use crate::command_line::Serve;
use crate::failure::Failure;
use crate::log::LogTo;
use crate::path::settle;
use crate::r::{Fields, command, hand_over_log, hand_over_tls};
use crate::settings::{AskedAcme, AskedTls};
use crate::target::Target;
use crate::worker_options::Workers;
use crate::{signals, tls};

/// Serves with one R process. Returns only when that has failed.
///
/// # Errors
/// When the address or a certificate is not available, or there is no R.
pub(crate) fn serve(
    serve: &Serve,
    target: &Target,
    address: &Address,
    beside: Option<&Address>,
    log: &LogTo,
) -> Result<(), Failure> {
    if serve.workers != Workers::of(&rookery_settings::Settings::default(), false)? {
        return Err(Failure::Serving(
            "Options about workers, such as `--workers`, need Linux: leave them out, and one R process serves."
                .to_owned(),
        ));
    }
    tls::check(serve.tls.as_ref())?;
    address.probe()?;
    beside.map_or(Ok(()), Address::probe)?;
    Err(become_r(serve, target, address, log))
}

/// Replaces this process by R. Returns only when that failed, with the reason.
fn become_r(serve: &Serve, target: &Target, address: &Address, log: &LogTo) -> Failure {
    let mut command = match command(target, handed_over(serve, target, address, log)) {
        Ok(command) => command,
        Err(failure) => return failure,
    };
    if signals::is_ignored(libc::SIGINT) {
        // R handles it all the same: blocked, it does not come.
        signals::block(&[libc::SIGINT]);
    }
    output::flush();
    let error = command.exec();
    let program = command.get_program().to_string_lossy();
    Failure::Serving(format!("R could not be started ({program}): {error}."))
}

fn hand_over_acme(acme: &AskedAcme, field: &mut impl FnMut(&str, &[u8])) {
    for domain in &acme.domains {
        field("acme_domain", domain.as_bytes());
    }
    for email in &acme.emails {
        field("acme_email", email.as_bytes());
    }
    // It has been looked at.
    field("acme_agree_tos", if acme.agrees { b"TRUE" } else { b"FALSE" });
    let challenge = acme.challenge.map(Challenge::name);
    for (name, text) in [
        ("acme_directory", acme.directory.as_deref()),
        ("acme_profile", acme.profile.as_deref()),
        ("acme_challenge", challenge),
    ] {
        if let Some(text) = text {
            field(name, text.as_bytes());
        }
    }
    for (name, path) in [("acme_ca", &acme.ca), ("acme_dir", &acme.folder)] {
        if let Some(path) = path {
            field(name, settle(path).as_os_str().as_bytes());
        }
    }
}

fn handed_over(serve: &Serve, target: &Target, address: &Address, log: &LogTo) -> OsString {
    let mut text = Fields::default();
    text.field("target", target.path.as_os_str().as_bytes());
    text.address(address);
    let mut field = |name: &str, value: &[u8]| text.field(name, value);
    match &serve.tls {
        Some(AskedTls::Development) => field("tls", b"dev"),
        Some(AskedTls::Files(files)) => {
            hand_over_tls(files, &mut field);
            if let Some(acme) = &files.acme {
                hand_over_acme(acme, &mut field);
            }
            if let Some(port) = files.redirect_from {
                field("tls_redirect_from", port.to_string().as_bytes());
            }
        }
        None => {}
    }
    serve.settings.hand_over(&mut field);
    hand_over_log(serve, log, &mut field);
    match &serve.admin {
        Some(AdminAt::Tcp(address)) => field("admin", address.to_string().as_bytes()),
        Some(AdminAt::Unix(path)) => field("admin", &[b"unix:", path.as_os_str().as_bytes()].concat()),
        None => {}
    }
    if serve.opens_browser {
        field("open", b"TRUE");
    }
    if signals::is_ignored(libc::SIGINT) {
        field("interrupt", b"ignored");
    }
    OsString::from_vec(text.0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::command_line::{self, Asked};
    use crate::failure::said;

    fn asked(words: &[&str]) -> Serve {
        let words = ["rookery", "serve", "."].iter().chain(words);
        match command_line::read(words.map(OsString::from)) {
            Ok(Asked::Serve(command)) => {
                Serve::of(rookery_settings::Settings::combine(command.options.given), false).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    /// What R is told, from the folder of these tests.
    fn told(words: &[&str]) -> String {
        let asked = asked(words);
        let target = Target { path: "/app".into(), folder: "/app".into(), is_site: false };
        let address = Address::of(&asked.host, asked.port).unwrap();
        let log = asked.log.settled().unwrap();
        handed_over(&asked, &target, &address, &log).into_string().unwrap()
    }

    #[test]
    fn address_log_and_settings_are_handed_over() {
        let here = std::env::current_dir().unwrap().display().to_string();
        let text = told(&["--port", "0", "--log", "access.log", "--admin", "unix:look"]);
        let wanted = format!(
            "target=/app\nhost=127.0.0.1\nport=0\nlog=file\nlog_file={here}/access.log\nlog_format=common\nadmin=unix:{here}/look\n"
        );
        assert!(text.starts_with(&wanted), "{text}");
        let text = told(&["--host", "unix:s", "--no-log", "--log-format=json", "--proxy-protocol"]);
        let wanted =
            format!("target=/app\nsocket={here}/s\nproxy_protocol=TRUE\nlog=nothing\nlog_format=json\n");
        assert!(text.starts_with(&wanted), "{text}");
        let text = told(&[
            "--trusted-proxies=10.0.0.0/8,unix",
            "--limit=body_bytes=10 MB",
            "--ws-compression=level=6",
            "--request-id-header=off",
        ]);
        let wanted = "trusted_proxies=10.0.0.0/8\ntrusted_proxies=unix\nlimit=body_bytes=10000000\nws_compression=6 512 FALSE\n\
                      request_id_header=FALSE\n";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn how_tls_is_to_be_spoken_is_handed_over() {
        let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/tls");
        let [cert, key] =
            ["pem", "key"].map(|kind| tls.join(format!("localhost.{kind}")).display().to_string());
        let files = ["--tls-cert", &cert, "--tls-key", &key, "--no-http2-websockets"];
        let text = told(&[&files[..], &["--hsts=31536000,subdomains", "--redirect-from=8080"]].concat());
        let wanted = "\ntls_min_version=1.2\ntls_http2_websockets=FALSE\ntls_hsts=31536000 TRUE FALSE\ntls_redirect_from=8080\n";
        assert!(text.contains(wanted), "{text}");
        let ca = tls.join("ca.pem").display().to_string();
        let acme =
            ["--domain=b.example.org", "--agree-tos", "--email=me@example.org", "--acme-profile=shortlived"];
        let text = told(&[&acme[..], &["--acme-challenge=tls-alpn-01", "--acme-ca", &ca]].concat());
        let wanted = "\nacme_domain=b.example.org\nacme_email=me@example.org\nacme_agree_tos=TRUE\nacme_profile=shortlived\n\
                      acme_challenge=tls-alpn-01\nacme_ca=";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn options_about_workers_need_linux() {
        let target = Target { path: "/app".into(), folder: "/app".into(), is_site: false };
        let address = Address::of("127.0.0.1", 0).unwrap();
        for words in [&["--workers", "2"][..], &["--drain", "5s"]] {
            let refused = serve(&asked(words), &target, &address, None, &LogTo::Nothing);
            assert!(said(refused).starts_with("Options about workers"), "{words:?}");
        }
    }
}
