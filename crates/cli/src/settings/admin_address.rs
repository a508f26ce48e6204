//! The address of the admin listener, which serves status and metrics.

use std::path::Path;

use rookery_status::AdminAddress;

use crate::failure::Failure;
use crate::user_paths::absolute;

/// Parses the value of `--admin`, the address for status and metrics. A relative path of a Unix
/// socket becomes absolute.
///
/// # Errors
/// Fails if the text is not an address.
pub(crate) fn parse(text: &str) -> Result<AdminAddress, Failure> {
    match AdminAddress::parse(text) {
        Some(AdminAddress::Unix(_)) if cfg!(windows) => Err(Failure::CommandLine(format!(
            "`--admin` must be an address with a port, such as 127.0.0.1:9100, not `{text}`: \
             Windows has no Unix sockets."
        ))),
        Some(AdminAddress::Unix(path)) => Ok(AdminAddress::Unix(absolute(Path::new(&path)))),
        Some(tcp @ AdminAddress::Tcp(_)) => Ok(tcp),
        None => Err(Failure::CommandLine(format!(
            "`--admin` must be an address with a port, such as 127.0.0.1:9100, or \
             unix:/path/of/a/socket, not `{text}`."
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::message_of;

    #[test]
    fn parses_addresses_and_makes_socket_paths_absolute() {
        assert_eq!(parse("[::1]:9100").unwrap(), AdminAddress::Tcp("[::1]:9100".parse().unwrap()));
        assert_eq!(parse("unix:/run/r/admin").unwrap(), AdminAddress::Unix("/run/r/admin".into()));
        assert!(matches!(parse("unix:a").unwrap(), AdminAddress::Unix(path) if path.is_absolute()));
        assert!(message_of(parse("9100")).ends_with("not `9100`."));
    }
}
