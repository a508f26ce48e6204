//! The command `rookery check`, which finds mistakes that would prevent the server from starting,
//! without serving. A running server checks the settings in the same way before it reloads them.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;

use rookery_settings::Source;
use rookery_status::AdminAddress;

use crate::app_detection::Target;
use crate::commands::check_app::check_app;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::process::signals::Signals;
use crate::serve::access_log::LogTarget;
use crate::serve::tls;
use crate::serve::{r_command, r_package};
use crate::settings::serve_settings::ServeSettings;
use crate::settings::server::ServerSettings;

/// Returns the output of `rookery check`: the file of the app, whether its code was run, and a note
/// for each address that is already in use. An R process parses the files of the app and also runs
/// their code if `loads` is true.
///
/// # Errors
/// Fails with the first mistake in the settings that would keep the server from starting, or if R
/// has printed mistakes of the app.
pub(crate) fn check(
    serve: &ServeSettings,
    target: &Target,
    loads: bool,
) -> Result<Vec<u8>, Failure> {
    let signals = Signals::start()?;
    let (app_file, address) = check_settings(serve, target)?;
    if !target.is_site {
        check_app(serve, target, &address, loads, &signals)?;
    }
    let what = if target.is_site { "a site" } else { &app_file };
    let mut text = format!("{} can be served: {what}.\n", target.path.display());
    if !target.is_site && !loads {
        text.push_str(
            "The app's code was parsed and not run: `rookery check --load` also runs it.\n",
        );
    }
    let redirect_from = serve.all.whole("redirect_from");
    let redirect_address = redirect_from.map(|port| address.with_port(port)).transpose()?;
    for address in std::iter::once(&address).chain(&redirect_address) {
        if let Some(in_use) = check_address(address)? {
            let _ = writeln!(text, "Note: {in_use}");
        }
    }
    if let Some(in_use) = serve.admin.as_ref().map(check_admin).transpose()?.flatten() {
        let _ = writeln!(text, "Note: {in_use}");
    }
    Ok(text.into_bytes())
}

/// Checks that the server can listen on an address. Returns a message if the address is in use.
/// Checks nothing if a service manager has already opened the server's sockets.
///
/// # Errors
/// Fails if the server cannot listen on the address for another reason.
pub(crate) fn check_address(address: &Address) -> Result<Option<String>, Failure> {
    if rookery_systemd::Activation::has_sockets() { Ok(None) } else { address.check() }
}

/// Checks that the server can listen on the admin address (for status and metrics). Returns a
/// message if the address is in use.
///
/// # Errors
/// Fails if the server cannot listen on the address for another reason.
pub(crate) fn check_admin(at: &AdminAddress) -> Result<Option<String>, Failure> {
    let (address, value_text) = match at {
        AdminAddress::Tcp(socket) => {
            (Address::Tcp { host: socket.ip().to_string(), socket: *socket }, socket.to_string())
        }
        AdminAddress::Unix(path) => (Address::Unix(path.clone()), path.display().to_string()),
    };
    match address.try_to_bind() {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Ok(Some(format!("The address of `--admin`, {value_text}, is in use.")))
        }
        Err(error) => Err(Failure::Address(format!(
            "Cannot listen on the admin address {value_text}: {error}."
        ))),
    }
}

/// Checks everything that can be checked without starting R and without listening on an address.
/// Returns the name of the app's file and the address of the server.
///
/// # Errors
/// Fails with the first mistake in the settings.
pub(crate) fn check_settings(
    serve: &ServeSettings,
    target: &Target,
) -> Result<(String, Address), Failure> {
    let (address, _) = address_and_log(serve, target)?;
    let app_file = target.app_file()?;
    if !target.is_site {
        let (_, package) = r_command::find_r_and_package(&target.folder)?;
        r_package::warn_if_versions_differ(&package);
    }
    tls::check(&serve.all)?;
    Ok((app_file, address))
}

/// Checks the server's addresses and the files that the settings name. Returns the address and the
/// destination of the access log.
///
/// # Errors
/// Fails if the address or a file cannot be used, or if a setting has no effect on a static site.
pub(crate) fn address_and_log(
    serve: &ServeSettings,
    target: &Target,
) -> Result<(Address, LogTarget), Failure> {
    check_effects(serve, target)?;
    let address = Address::parse(&serve.host, serve.port)?;
    let is_same = match (&address, &serve.admin) {
        (Address::Tcp { socket, .. }, Some(AdminAddress::Tcp(admin))) => {
            admin.port() != 0 && socket.port() == admin.port() && overlap(socket.ip(), admin.ip())
        }
        (Address::Unix(path), Some(AdminAddress::Unix(admin))) => path == admin,
        _ => false,
    };
    if is_same {
        return Err(Failure::Unavailable(
            "`admin` is the address of the server itself: choose another port or socket for it."
                .to_owned(),
        ));
    }
    ServerSettings::of(&serve.all)?;
    Ok((address, serve.log.checked()?))
}

/// Returns whether the system refuses to bind both addresses to the same port.
fn overlap(a: IpAddr, b: IpAddr) -> bool {
    a == b || (a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified()))
}

/// Checks that the settings have an effect on what is served.
///
/// # Errors
/// Fails if a setting has no effect on a static site, unless it comes from the environment.
pub(crate) fn check_effects(serve: &ServeSettings, target: &Target) -> Result<(), Failure> {
    if target.is_site {
        let mut needless = serve.all.without_effect_on_site();
        // The environment may be that of several servers, and only a warning is logged.
        if let Some(given) = needless.find(|given| given.source != Source::Environment) {
            let name = given.setting.name;
            let instead = if name == "admin" { ", and use a file as the health check" } else { "" };
            return Err(Failure::from_source(
                given.source,
                format!(
                    "{} concerns the R processes of an app, and a static site has none: leave it \
                     out{instead}.",
                    given.name()
                ),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn the_address_of_all_interfaces_overlaps_with_each_of_its_family() {
        for (a, b, expected) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("0.0.0.0", "127.0.0.1", true),
            ("10.0.0.1", "0.0.0.0", true),
            ("::", "::1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0", "::1", false),
        ] {
            assert_eq!(overlap(a.parse().unwrap(), b.parse().unwrap()), expected, "{a} {b}");
        }
    }
}
