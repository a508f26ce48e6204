//! The listening sockets that a service manager has opened, and the listener of the server to which
//! each of them belongs.
//!
//! A socket belongs to the listener that its name says (`FileDescriptorName=` in a systemd unit),
//! or else to the listener whose port or path it has. Other sockets serve the app, unless that
//! would be a guess between several listeners.

#![cfg_attr(
    any(not(target_os = "linux"), feature = "portable"),
    allow(dead_code, reason = "only Linux has service managers that open sockets, and workers")
)]

use std::net::SocketAddr;
#[cfg(unix)]
use std::path::Path;

use rookery_server::{InheritedAddress, InheritedSockets};
use rookery_status::AdminAddress;
#[cfg(unix)]
use rookery_systemd::{ActivatedSocket, Activation};

#[cfg(unix)]
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::settings::serve_settings::ServeSettings;

/// The names of sockets that say to which listener a socket belongs.
const NAMES: [(&str, Role); 3] =
    [("app", Role::App), ("redirect", Role::Redirect), ("admin", Role::Admin)];

/// The listener to which a socket belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The listener that serves the app or the site.
    App,
    /// The listener that redirects plaintext HTTP requests to HTTPS, and responds to ACME
    /// challenges.
    Redirect,
    /// The admin listener.
    Admin,
}

/// The addresses of the listeners that the settings request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestedListeners<'a> {
    pub(crate) address: &'a Address,
    pub(crate) redirect: Option<&'a Address>,
    pub(crate) admin: Option<&'a AdminAddress>,
    /// Whether the server has an admin listener, which a static site has not.
    pub(crate) may_have_admin: bool,
}

impl<'a> RequestedListeners<'a> {
    /// Returns the addresses of the listeners of an app or, if `is_site` is set, of a static site.
    pub(crate) fn of(
        serve: &'a ServeSettings,
        address: &'a Address,
        redirect: Option<&'a Address>,
        is_site: bool,
    ) -> RequestedListeners<'a> {
        let admin = serve.admin.as_ref();
        RequestedListeners { address, redirect, admin, may_have_admin: !is_site }
    }
}

/// The sockets of the service manager, by the listener to which they belong. A listener without
/// such sockets opens its own.
#[derive(Debug, Default)]
pub(crate) struct ServiceSockets {
    pub(crate) app: InheritedSockets,
    pub(crate) redirect: InheritedSockets,
    pub(crate) admin: InheritedSockets,
}

impl ServiceSockets {
    /// Takes the listening sockets that the service manager has opened, if there are any, and
    /// assigns them to the server's listeners.
    ///
    /// # Errors
    /// Fails if a socket cannot be used or belongs to none of the requested listeners.
    ///
    /// # Safety
    /// The requirements are those of [`Activation::take`].
    #[cfg(unix)]
    pub(crate) unsafe fn take(requested: RequestedListeners<'_>) -> Result<Self, Failure> {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let activation = unsafe { Activation::take() };
        let sockets = activation.map_err(|error| Failure::Address(format!("{error}.")))?.sockets;
        let described = sockets
            .iter()
            .map(|(name, socket)| Ok((name.as_str(), address_of(socket)?)))
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(|error| {
                Failure::Address(format!(
                    "The sockets of the service manager cannot be used: {error}."
                ))
            })?;
        let roles = assign(&described, requested).map_err(Failure::Address)?;
        for ((_, address), role) in described.iter().zip(&roles) {
            if let (InheritedAddress::Unix(Some(path)), Role::Admin) = (address, role) {
                check_admin_socket(path)?;
            }
        }
        let mut all = ServiceSockets::default();
        for ((_, socket), role) in sockets.into_iter().zip(roles) {
            let to = match role {
                Role::App => &mut all.app,
                Role::Redirect => &mut all.redirect,
                Role::Admin => &mut all.admin,
            };
            match socket {
                ActivatedSocket::Tcp(socket) => to.push_tcp(socket),
                ActivatedSocket::Unix(socket) => to.push_unix(socket),
            }
        }
        Ok(all)
    }

    /// Returns the addresses of the inherited sockets that serve the app, as text for people.
    pub(crate) fn shown_app(&self) -> String {
        self.app.addresses().iter().map(shown_address).collect::<Vec<_>>().join(" and ")
    }

    /// Returns the address of the admin listener to show: the address of the inherited socket, or
    /// else the requested address.
    #[cfg(unix)]
    pub(crate) fn shown_admin(&self, requested: RequestedListeners<'_>) -> Option<AdminAddress> {
        match self.admin.addresses().into_iter().next() {
            Some(InheritedAddress::Tcp(address)) => Some(AdminAddress::Tcp(address)),
            Some(InheritedAddress::Unix(path)) => path.map(AdminAddress::Unix),
            None => requested.admin.cloned(),
        }
    }
}

#[cfg(unix)]
fn address_of(socket: &ActivatedSocket) -> std::io::Result<InheritedAddress> {
    Ok(match socket {
        ActivatedSocket::Tcp(socket) => InheritedAddress::Tcp(socket.local_addr()?),
        ActivatedSocket::Unix(socket) => {
            InheritedAddress::Unix(socket.local_addr()?.as_pathname().map(Path::to_owned))
        }
    })
}

/// Checks that not every user of this machine can connect to an inherited Unix socket of the admin
/// listener, because the live page needs no token there.
///
/// # Errors
/// Fails if the file of the socket is writable for all users, as systemd creates it by default.
#[cfg(unix)]
fn check_admin_socket(path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    const WRITABLE_FOR_ALL: u32 = 0o002;
    let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode());
    if mode & WRITABLE_FOR_ALL == 0 {
        return Ok(());
    }
    Err(Failure::Address(format!(
        "Every user of this machine can connect to the service manager's socket `{}`, which is for \
         the admin listener: add `SocketMode=0600` and `SocketUser=` to its unit.",
        path.display()
    )))
}

/// Returns the listener to which each socket belongs. Each socket has a name and an address.
///
/// # Errors
/// Fails with a message if a socket cannot be assigned, or if the server does not have the listener
/// that the name of a socket says.
fn assign(
    sockets: &[(&str, InheritedAddress)],
    requested: RequestedListeners<'_>,
) -> Result<Vec<Role>, String> {
    let role_of = |(name, address): &(&str, InheritedAddress)| {
        let named = NAMES.iter().find(|(known, _)| known == name).map(|(_, role)| *role);
        named.or_else(|| role_of_address(address, requested))
    };
    let known: Vec<Option<Role>> = sockets.iter().map(role_of).collect();
    for (socket, role) in sockets.iter().zip(&known) {
        let missing = match role {
            Some(Role::Redirect) if requested.redirect.is_none() => {
                "the server redirects no requests to HTTPS: add `--redirect-from` with the port of \
                 this socket, or remove the socket"
            }
            Some(Role::Admin) if !requested.may_have_admin => {
                "a static site has no admin listener: remove the socket"
            }
            _ => continue,
        };
        return Err(format!("{} cannot be used, because {missing}.", shown(socket)));
    }
    let port = |(_, address): &(&str, InheritedAddress)| match address {
        InheritedAddress::Tcp(address) => Some(address.port()),
        InheritedAddress::Unix(_) => None,
    };
    let has_other_ports =
        requested.redirect.is_some() || matches!(requested.admin, Some(AdminAddress::Tcp(_)));
    // The ports that serve the app for certain, and then those that may do so.
    let mut app_port = sockets.iter().zip(&known).find_map(|(socket, role)| match role {
        Some(Role::App) => port(socket),
        _ => None,
    });
    let assign_rest = |(socket, role): (&(&str, InheritedAddress), Option<Role>)| {
        let (Some(port), None, true) = (port(socket), role, has_other_ports) else {
            return Ok(role.unwrap_or(Role::App));
        };
        if *app_port.get_or_insert(port) == port {
            return Ok(Role::App);
        }
        Err(format!(
            "{} cannot be assigned to a listener of the server: name it `app`, `redirect` or \
             `admin` with `FileDescriptorName=` in its unit, or give its port with `--port`, \
             `--redirect-from` or `--admin`.",
            shown(socket)
        ))
    };
    sockets.iter().zip(known).map(assign_rest).collect()
}

fn role_of_address(address: &InheritedAddress, requested: RequestedListeners<'_>) -> Option<Role> {
    let is_at = |own: &Address| match (own, address) {
        (Address::Tcp { socket, .. }, InheritedAddress::Tcp(given)) => {
            is_same_port(*socket, *given)
        }
        (Address::Unix(own), InheritedAddress::Unix(Some(given))) => own == given,
        _ => false,
    };
    let is_admin = match (requested.admin, address) {
        (Some(AdminAddress::Tcp(own)), InheritedAddress::Tcp(given)) => is_same_port(*own, *given),
        (Some(AdminAddress::Unix(own)), InheritedAddress::Unix(Some(given))) => own == given,
        _ => false,
    };
    if requested.redirect.is_some_and(is_at) {
        Some(Role::Redirect)
    } else if is_admin {
        Some(Role::Admin)
    } else {
        is_at(requested.address).then_some(Role::App)
    }
}

fn is_same_port(own: SocketAddr, given: SocketAddr) -> bool {
    own.port() == given.port()
}

fn shown((name, address): &(&str, InheritedAddress)) -> String {
    format!("The service manager's socket `{name}` at {}", shown_address(address))
}

fn shown_address(address: &InheritedAddress) -> String {
    match address {
        InheritedAddress::Tcp(address) => address.to_string(),
        InheritedAddress::Unix(Some(path)) => path.display().to_string(),
        InheritedAddress::Unix(None) => "an abstract name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::Role::{Admin, App, Redirect};
    use super::*;

    fn tcp(port: u16) -> InheritedAddress {
        InheritedAddress::Tcp(SocketAddr::from(([0, 0, 0, 0], port)))
    }

    fn unix(path: &str) -> InheritedAddress {
        InheritedAddress::Unix(Some(path.into()))
    }

    fn assigned(
        sockets: &[(&str, InheritedAddress)],
        redirect: Option<u16>,
        admin: Option<&str>,
    ) -> Result<Vec<Role>, String> {
        let address = Address::parse("127.0.0.1", 443).unwrap();
        let redirect = redirect.map(|port| address.with_port(port).unwrap());
        let admin = admin.map(|at| AdminAddress::parse(at).unwrap());
        let requested = RequestedListeners {
            address: &address,
            redirect: redirect.as_ref(),
            admin: admin.as_ref(),
            may_have_admin: true,
        };
        assign(sockets, requested)
    }

    #[test]
    fn sockets_belong_to_the_listener_of_their_name_or_else_of_their_port() {
        let admin = Some("127.0.0.1:9100");
        for (sockets, expected) in [
            // The name of a unit means nothing.
            (
                &[("rookery.socket", tcp(80)), ("rookery.socket", tcp(443))][..],
                &[Redirect, App][..],
            ),
            (
                &[("app", tcp(80)), ("redirect", tcp(443)), ("admin", tcp(1))],
                &[App, Redirect, Admin],
            ),
            (&[("", tcp(9100)), ("", tcp(80)), ("", tcp(443))], &[Admin, Redirect, App]),
            // A service manager may map the app's port to another one, on several addresses.
            (&[("", tcp(8443)), ("", tcp(80)), ("", tcp(8443))], &[App, Redirect, App]),
            (&[("", tcp(443)), ("", unix("/run/web"))], &[App, App]),
        ] {
            assert_eq!(assigned(sockets, Some(80), admin).as_deref(), Ok(expected), "{sockets:?}");
        }
        let sockets = [("", unix("/run/admin")), ("", unix("/run/web"))];
        assert_eq!(assigned(&sockets, None, Some("unix:/run/admin")), Ok(vec![Admin, App]));
        // Without other listeners, every socket serves the app.
        assert_eq!(assigned(&[("a", tcp(1)), ("b", tcp(2))], None, None), Ok(vec![App, App]));
        assert_eq!(assigned(&[("admin", tcp(1))], None, None), Ok(vec![Admin]));
    }

    #[test]
    fn a_socket_that_cannot_be_assigned_is_reported() {
        let message = assigned(&[("a", tcp(443)), ("b", tcp(8080))], Some(80), None).unwrap_err();
        assert!(
            message
                .starts_with("The service manager's socket `b` at 0.0.0.0:8080 cannot be assigned")
                && message.contains("FileDescriptorName="),
            "{message}"
        );
        assert!(assigned(&[("", tcp(1)), ("", tcp(2))], None, Some("127.0.0.1:9100")).is_err());
        let message = assigned(&[("redirect", tcp(80))], None, None).unwrap_err();
        assert!(message.contains("add `--redirect-from`"), "{message}");
    }
}
