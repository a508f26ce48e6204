//! The forms that the text values of settings must have, such as addresses, host names, origins and
//! URL paths.

use std::net::{IpAddr, SocketAddr};

use crate::kind::Form;

/// The prefix of the address of a Unix socket, before its path.
pub const UNIX: &str = "unix:";

pub(crate) static HOST: Form = Form {
    wanted: "localhost, an IP address of this machine (0.0.0.0 or :: for all), or \
             unix:/path/of/a/socket",
    accepts: |text| match text.strip_prefix(UNIX) {
        Some(path) => !path.is_empty(),
        None => is_plain(text),
    },
};

pub(crate) static ADMIN: Form = Form {
    wanted: "an address with a port, such as 127.0.0.1:9100, or unix:/path/of/a/socket",
    accepts: |text| match text.strip_prefix(UNIX) {
        Some(path) => !path.is_empty(),
        None => text.parse::<SocketAddr>().is_ok(),
    },
};

pub(crate) static PROXIES: Form = Form {
    wanted: "addresses such as 192.0.2.1, networks such as 10.0.0.0/8, or unix",
    accepts: is_proxy,
};

pub(crate) static ORIGINS: Form = Form {
    wanted: "same, or hosts such as example.org, *.example.org or localhost:8000 without https://",
    accepts: is_origin,
};

pub(crate) static PATHS_OF_REQUESTS: Form = Form {
    wanted: "paths that begin with / and contain no spaces, separated by commas",
    // Characters that would end the request line or begin a fragment are rejected.
    accepts: |text| {
        text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
    },
};

/// The form of the names in a certificate. The crate `acme` checks them in more detail.
pub(crate) static DOMAINS: Form =
    Form { wanted: "host names, such as app.example.org", accepts: is_plain };

pub(crate) static DEV_HOSTS: Form = Form {
    wanted: "host names, such as app.example.org or *.example.org, without https:// and without a \
             port",
    accepts: |text| is_host_name(text.strip_prefix("*.").unwrap_or(text)),
};

pub(crate) static PATTERNS: Form = Form {
    wanted: "names or paths of files and folders, such as output or plots/*.png",
    accepts: |text| !text.is_empty() && !text.chars().any(char::is_control),
};

pub(crate) static EMAILS: Form =
    Form { wanted: "e-mail addresses, such as ops@example.org", accepts: is_plain };

/// The form of the directory of an ACME authority. The crate `acme` checks the URL.
pub(crate) static URL: Form = Form { wanted: "a URL that begins with https://", accepts: is_plain };

/// The editors that links can open, with the form of their URLs.
pub const EDITORS: [(&str, &str); 7] = [
    ("vscode", "vscode://file{file}:{line}"),
    ("positron", "positron://file{file}:{line}"),
    ("cursor", "cursor://file{file}:{line}"),
    ("windsurf", "windsurf://file{file}:{line}"),
    ("zed", "zed://file{file}:{line}"),
    ("idea", "idea://open?file={file}&line={line}"),
    ("sublime", "subl://open?url=file://{file}&line={line}"),
];

pub(crate) static EDITOR: Form = Form {
    wanted: "vscode, positron, cursor, windsurf, zed, idea, sublime, none, or a URL with {file}",
    accepts: |text| {
        let is_url = text.contains("{file}") && text.contains(':') && is_plain(text);
        text == "none" || is_url || EDITORS.iter().any(|(name, _)| *name == text)
    },
};

pub(crate) static WORD: Form = Form { wanted: "a word", accepts: is_plain };

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| !letter.is_whitespace() && !letter.is_control())
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_proxy(text: &str) -> bool {
    if text == "unix" {
        return true;
    }
    let (address, bits) =
        text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let most = if address.is_ipv4() { 32 } else { 128 };
    bits.is_none_or(|bits| is_digits(bits) && bits.parse::<u8>().is_ok_and(|bits| bits <= most))
}

/// Returns true if a text is a valid value of the setting for the allowed origins of WebSockets:
/// `same`, a host name or an IP address. A host name may begin with `*.`. A port may follow the
/// host name or IP address.
fn is_origin(text: &str) -> bool {
    if let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let is_rest = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_digits);
        let is_of_addresses = |byte: u8| byte.is_ascii_hexdigit() || b":.".contains(&byte);
        return is_rest && !address.is_empty() && address.bytes().all(is_of_addresses);
    }
    let (name, is_rest) = match text.split_once(':') {
        Some((name, port)) => (name, is_digits(port)),
        None => (text, true),
    };
    is_rest && is_host_name(name.strip_prefix("*.").unwrap_or(name))
}

fn is_host_name(text: &str) -> bool {
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.bytes().all(is_of_names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(form: &Form, accepted: &[&str], refused: &[&str]) {
        for text in accepted {
            assert!((form.accepts)(text), "{text}");
        }
        for text in refused {
            assert!(!(form.accepts)(text), "{text}");
        }
    }

    #[test]
    fn checks_the_forms_of_texts() {
        check(&HOST, &["127.0.0.1", "::", "localhost", "unix:/a b"], &["unix:", "a b", ""]);
        check(
            &ADMIN,
            &["127.0.0.1:9100", "[::1]:9100", "unix:a"],
            &["9100", "127.0.0.1", "unix:", "localhost:1"],
        );
        check(
            &PROXIES,
            &["192.0.2.1", "10.0.0.0/8", "unix", "::1", "fd00::/8", "::/128"],
            &["10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "proxy", "unix:", "::/129"],
        );
        check(
            &ORIGINS,
            &["same", "example.org", "*.example.org", "localhost:8000", "[::1]", "[::1]:80"],
            &["https://a.org", "a.org:", "a.org:x", "[]", "*.", "a b", "[::1]x"],
        );
        check(
            &DEV_HOSTS,
            &["app.example.org", "*.example.org", "my_host"],
            &["http://x/", "https://x", "x/", "x:80", "a b", "*", "*.", "a.*.b", ""],
        );
        check(&PATHS_OF_REQUESTS, &["/", "/predict?x=1"], &["a", "/a b", "/a#b", "/\u{e9}"]);
        check(&URL, &["https://acme.test/dir"], &["", "https://a b"]);
    }
}
