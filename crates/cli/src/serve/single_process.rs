//! Serves an app on operating systems other than Linux. There is no supervisor: the program
//! replaces itself by R, which keeps the program's process id.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;

use rookery_server::output;
use rookery_settings::key_value_lines::Lines;
use rookery_status::AdminAddress;

use crate::app_detection::Target;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::process::signals;
use crate::serve::access_log::LogTarget;
use crate::serve::r_command::{add_log, find_r_and_package, r_command, target_lines};
use crate::serve::r_package;
use crate::serve::tls;
use crate::settings::serve_settings::ServeSettings;
use crate::settings::workers::Workers;

/// Serves an app with one R process, which replaces this process. Returns only if that fails.
///
/// # Errors
/// Fails if the address or a certificate is not available, or if R is not found.
pub(crate) fn serve(
    serve: &ServeSettings,
    target: &Target,
    address: &Address,
    redirect_address: Option<&Address>,
    log: &LogTarget,
) -> Result<(), Failure> {
    if serve.is_dev {
        return Err(Failure::Unavailable(
            "`rookery dev` needs Linux, except for static sites: use `rookery serve`.".to_owned(),
        ));
    }
    if serve.workers != Workers::of(&rookery_settings::Settings::default())? {
        return Err(Failure::Unavailable(
            "Options for workers, such as `--workers`, need Linux: without them, one R process \
             serves the app."
                .to_owned(),
        ));
    }
    tls::check(&serve.settings)?;
    let (_, package) = find_r_and_package(&target.folder)?;
    r_package::warn_if_versions_differ(&package);
    address.check_free()?;
    redirect_address.map_or(Ok(()), Address::check_free)?;
    Err(exec_r(serve, target, address, log))
}

/// Replaces this process by the R process. If that fails, returns the reason.
fn exec_r(serve: &ServeSettings, target: &Target, address: &Address, log: &LogTarget) -> Failure {
    let mut command = match r_command(target, settings_for_r(serve, target, address, log)) {
        Ok(command) => command,
        Err(failure) => return failure,
    };
    if signals::is_ignored(libc::SIGINT) {
        // R installs a handler for SIGINT even if the signal is ignored, so the signal is blocked.
        signals::block(&[libc::SIGINT]);
    }
    output::flush();
    let error = command.exec();
    let program = command.get_program().to_string_lossy();
    Failure::Unavailable(format!("R could not be started ({program}): {error}."))
}

fn settings_for_r(
    serve: &ServeSettings,
    target: &Target,
    address: &Address,
    log: &LogTarget,
) -> Lines {
    let mut lines = target_lines(target, address);
    serve.settings.pass_https(&mut lines, |_| true);
    serve.settings.pass_to_r(&mut lines);
    add_log(serve, log, &mut lines);
    match &serve.admin {
        Some(AdminAddress::Tcp(address)) => lines.line("admin", address.to_string().as_bytes()),
        Some(AdminAddress::Unix(path)) => {
            lines.line("admin", &[b"unix:", path.as_os_str().as_bytes()].concat());
        }
        None => {}
    }
    if serve.opens_browser {
        lines.line("open", b"TRUE");
    }
    if signals::is_ignored(libc::SIGINT) {
        lines.line("interrupt", b"ignored");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::tests::served;
    use crate::failure::message_of;

    fn settings(args: &[&str]) -> ServeSettings {
        served(&[&["serve", "."], args].concat())
    }

    /// Returns the settings that an R process gets for these command-line arguments, for a test.
    fn lines_for_r(args: &[&str]) -> String {
        let serve = settings(args);
        let target = Target { path: "/app".into(), folder: "/app".into(), is_site: false };
        let address = Address::parse(&serve.host, serve.port).unwrap();
        let log = serve.log.checked().unwrap();
        String::from_utf8(settings_for_r(&serve, &target, &address, &log).into_bytes()).unwrap()
    }

    #[test]
    fn passes_address_log_and_settings_to_r() {
        let here = std::env::current_dir().unwrap().display().to_string();
        let text = lines_for_r(&["--port", "0", "--log", "access.log", "--admin", "unix:look"]);
        let wanted = format!(
            "target=/app\nhost=127.0.0.1\nport=0\nlog=file\nlog_file={here}/access.log\n\
             log_format=common\nadmin=unix:{here}/look\n"
        );
        assert!(text.starts_with(&wanted), "{text}");
        let text =
            lines_for_r(&["--host", "unix:s", "--no-log", "--log-format=json", "--proxy-protocol"]);
        let wanted = format!(
            "target=/app\nsocket={here}/s\ncli:flag:proxy_protocol=TRUE\nlog=nothing\n\
             log_format=json\n"
        );
        assert!(text.starts_with(&wanted), "{text}");
        let text = lines_for_r(&[
            "--trusted-proxies=10.0.0.0/8,unix",
            "--limit=body_bytes=10 MB",
            "--ws-compression=level=6",
            "--request-id-header=off",
        ]);
        let wanted = "cli:text:trusted_proxies=10.0.0.0/8\ncli:text:trusted_proxies=unix\n\
                      cli:number:max_body_size=10000000\ncli:number:ws_compression.level=6\n\
                      cli:number:ws_compression.threshold=512\n\
                      cli:flag:ws_compression.takeover=FALSE\ncli:flag:request_id_header=FALSE\n";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn passes_https_settings_to_r() {
        let [cert, key] = ["localhost.pem", "localhost.key"]
            .map(|name| rookery_test_support::tls_file(name).display().to_string());
        let files = ["--tls-cert", &cert, "--tls-key", &key, "--no-http2-websockets"];
        let text = lines_for_r(
            &[&files[..], &["--hsts=31536000,subdomains", "--redirect-from=8080"]].concat(),
        );
        let wanted = "\ntls:text:tls_min_version=1.2\ntls:flag:http2=TRUE\n\
                      tls:flag:http2_websockets=FALSE\n\
                      tls:number:hsts.max_age=31536000\ntls:flag:hsts.include_subdomains=TRUE\n\
                      tls:flag:hsts.preload=FALSE\ntls:number:redirect_from=8080\n";
        assert!(text.contains(wanted), "{text}");
        let ca = rookery_test_support::tls_file("ca.pem").display().to_string();
        let acme = [
            "--domain=b.example.org",
            "--agree-tos",
            "--email=me@example.org",
            "--acme-profile=shortlived",
        ];
        let text =
            lines_for_r(&[&acme[..], &["--acme-challenge=tls-alpn-01", "--acme-ca", &ca]].concat());
        let wanted = "\ntls:text:domain=b.example.org\ntls:text:email=me@example.org\n\
                      tls:flag:agree_tos=TRUE\n\
                      tls:flag:acme_staging=FALSE\ntls:text:acme_profile=shortlived\n\
                      tls:text:acme_challenge=tls-alpn-01\ntls:text:acme_ca=/";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn development_needs_linux() {
        let target = Target { path: "/app".into(), folder: "/app".into(), is_site: false };
        let address = Address::parse("127.0.0.1", 0).unwrap();
        let refused = serve(&served(&["dev", "."]), &target, &address, None, &LogTarget::Nothing);
        assert!(message_of(refused).starts_with("`rookery dev` needs Linux, except"));
    }

    #[test]
    fn options_for_workers_need_linux() {
        let target = Target { path: "/app".into(), folder: "/app".into(), is_site: false };
        let address = Address::parse("127.0.0.1", 0).unwrap();
        for args in [&["--workers", "2"][..], &["--drain", "5s"]] {
            let refused = serve(&settings(args), &target, &address, None, &LogTarget::Nothing);
            assert!(message_of(refused).starts_with("Options for workers"), "{args:?}");
        }
    }
}
