//! The options of HTTPS, and of certificates that an authority issues.

use std::path::Path;

use clap::{Arg, ArgAction};
use rookery_acme::{Challenge, LETS_ENCRYPT_STAGING};
use rookery_server::tls::TlsVersion;

use super::given::{Given, flag, path, text, wrong};
use crate::failure::Failure;
use crate::settings::{self, AskedAcme, AskedTls, ClientAuth, TlsFiles};

/// Where what is in the clear is looked for.
const HTTP: u16 = 80;

/// Them, in the order of the help.
pub(super) fn options() -> Vec<Arg> {
    vec![
        path(
            "tls-cert",
            "file",
            "speaks HTTPS with this certificate, in PEM with its chain; once for each name",
        )
        .action(ArgAction::Append),
        path("tls-key", "file", "its private key; not needed when it is in the same file")
            .action(ArgAction::Append),
        text("tls", "dev", "dev: speaks HTTPS with a certificate for localhost, made once and kept"),
        text(
            "domain",
            "name",
            "speaks HTTPS with a certificate for this name, of Let's Encrypt; once for each",
        )
        .action(ArgAction::Append),
        flag("agree-tos", "agrees to the authority's terms of service, which --domain asks for"),
        text("email", "address", "where the authority reaches you").action(ArgAction::Append),
        flag("acme-staging", "takes certificates that nobody trusts, to try --domain with"),
        text("acme-directory", "URL", "the directory of another authority than Let's Encrypt"),
        path("acme-ca", "file", "who signs that authority's own certificate; else whom the system trusts"),
        text("acme-profile", "name", "the kind of certificate: shortlived, for one"),
        text("acme-challenge", "which", "http-01 or tls-alpn-01; else whichever works"),
        path("acme-dir", "folder", "where account and certificates are kept, instead of R's folder for data"),
        path("tls-client-ca", "file", "asks clients for certificates, which one of these has signed"),
        text("tls-client-auth", "how", "whether they have to have one: required (the default) or optional"),
        text("tls-min-version", "version", "the oldest TLS that is spoken: 1.2 (the default) or 1.3"),
        flag("no-http2", "offers HTTP/1.1 alone"),
        flag("no-http2-websockets", "does not tell clients that WebSockets may be opened over HTTP/2"),
        text(
            "hsts",
            "seconds",
            "tells browsers to come by HTTPS alone for as long: 31536000,subdomains,preload",
        ),
        text(
            "redirect-from",
            "port",
            "sends requests in the clear on to HTTPS from this port, or none; with --domain 80",
        ),
    ]
}

/// Returns whether an argument such as `--tls=dev` is one of the HTTPS options.
pub(crate) fn is_of_https(word: &[u8]) -> bool {
    let Some(option) = word.strip_prefix(b"--") else { return false };
    let name = option.split(|byte| *byte == b'=').next().unwrap_or_default();
    options().iter().any(|option| option.get_id().as_str().as_bytes() == name)
}

/// What HTTPS is to be spoken with.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(given: &Given<'_>) -> Result<Option<AskedTls>, Failure> {
    let certificates = given.paths("tls-cert")?;
    match given.text("tls") {
        Some(other) if other != "dev" => {
            return wrong(format!(
                "`--tls` must be dev, not `{other}`: for a certificate of your own there is `--tls-cert`."
            ));
        }
        Some(_) if !certificates.is_empty() => {
            return wrong("`--tls dev` and `--tls-cert` exclude one another.");
        }
        _ => {}
    }
    let keys = given.paths("tls-key")?;
    let client_ca = given.path("tls-client-ca")?;
    let client_auth = given.choice(
        "tls-client-auth",
        [("required", ClientAuth::Required), ("optional", ClientAuth::Optional)],
    )?;
    let minimum =
        given.choice("tls-min-version", [("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)])?;
    let acme = acme(given)?;
    if acme.is_some() && (!certificates.is_empty() || given.text("tls").is_some()) {
        let other = if certificates.is_empty() { "--tls dev" } else { "--tls-cert" };
        return wrong(format!("`--domain` and `{other}` exclude one another."));
    }
    if certificates.is_empty() && !keys.is_empty() {
        return wrong("`--tls-key` needs `--tls-cert`.");
    }
    if certificates.is_empty() && acme.is_none() {
        for (is_given, name) in [
            (client_ca.is_some(), "tls-client-ca"),
            (client_auth.is_some(), "tls-client-auth"),
            (minimum.is_some(), "tls-min-version"),
            (given.flag("no-http2"), "no-http2"),
            (given.flag("no-http2-websockets"), "no-http2-websockets"),
            (given.text("hsts").is_some(), "hsts"),
            (given.text("redirect-from").is_some(), "redirect-from"),
        ] {
            if is_given {
                return wrong(format!("`--{name}` needs `--tls-cert` or `--domain`."));
            }
        }
        return Ok(given.text("tls").map(|_| AskedTls::Development));
    }
    if client_auth.is_some() && client_ca.is_none() {
        return wrong("`--tls-client-auth` needs `--tls-client-ca`.");
    }
    // Where everybody looks, and unless the server is somewhere else.
    let is_usual = acme.is_some() && !given.is_given("port") && !is_socket(given);
    let redirect_from = match given.text("redirect-from") {
        None => is_usual.then_some(HTTP),
        Some("none") => None,
        Some(text) => Some(port_of(text)?),
    };
    Ok(Some(AskedTls::Files(Box::new(TlsFiles {
        pairs: settings::pairs(&certificates, &keys)?,
        client_ca: client_ca.map(Path::to_path_buf),
        client_auth: client_auth.unwrap_or_default(),
        minimum: minimum.unwrap_or_default(),
        only_http1: given.flag("no-http2"),
        only_http1_websockets: given.flag("no-http2-websockets"),
        hsts: given.text("hsts").map(settings::hsts).transpose()?,
        redirect_from,
        acme,
    }))))
}

fn is_socket(given: &Given<'_>) -> bool {
    given.text("host").is_some_and(|host| host.starts_with("unix:"))
}

/// What an authority is asked for.
fn acme(given: &Given<'_>) -> Result<Option<AskedAcme>, Failure> {
    let domains: Vec<String> = given.texts("domain").cloned().collect();
    let emails: Vec<String> = given.texts("email").cloned().collect();
    let directory = given.text("acme-directory").map(str::to_owned);
    let ca = given.path("acme-ca")?.map(Path::to_path_buf);
    let profile = given.text("acme-profile").map(str::to_owned);
    let challenge =
        given.choice("acme-challenge", [Challenge::Http, Challenge::Tls].map(|it| (it.name(), it)))?;
    let folder = given.path("acme-dir")?.map(Path::to_path_buf);
    let is_staging = given.flag("acme-staging");
    if domains.is_empty() {
        for (is_given, name) in [
            (!emails.is_empty(), "email"),
            (given.flag("agree-tos"), "agree-tos"),
            (is_staging, "acme-staging"),
            (directory.is_some(), "acme-directory"),
            (ca.is_some(), "acme-ca"),
            (profile.is_some(), "acme-profile"),
            (challenge.is_some(), "acme-challenge"),
            (folder.is_some(), "acme-dir"),
        ] {
            if is_given {
                return wrong(format!("`--{name}` needs `--domain`."));
            }
        }
        return Ok(None);
    }
    if is_staging && directory.is_some() {
        return wrong("`--acme-staging` and `--acme-directory` exclude one another.");
    }
    let directory = directory.or_else(|| is_staging.then(|| LETS_ENCRYPT_STAGING.to_owned()));
    let agrees = given.flag("agree-tos");
    Ok(Some(AskedAcme { domains, emails, agrees, directory, ca, profile, challenge, folder }))
}

fn port_of(text: &str) -> Result<u16, Failure> {
    match settings::number(text).and_then(|port| u16::try_from(port).ok()) {
        Some(port @ 1..) => Ok(port),
        _ => wrong(format!("`--redirect-from` must be a port from 1 to 65535, or none, not `{text}`.")),
    }
}

#[cfg(test)]
mod tests {
    use rookery_server::tls::Hsts;

    use super::*;
    use crate::command_line::tests::{assert_is_told, served};

    #[test]
    fn certificates_and_what_browsers_are_told_are_understood() {
        let files = |words: &[&str]| match served(words).tls {
            Some(AskedTls::Files(files)) => *files,
            other => panic!("{other:?}"),
        };
        let one = files(&["serve", "a", "--tls-cert", "c"]);
        assert_eq!(one.pairs, [("c".into(), "c".into())]);
        assert_eq!((one.client_auth, one.minimum), (ClientAuth::Required, TlsVersion::Tls12));
        let two = files(&[
            "serve",
            "a",
            "--tls-cert",
            "c",
            "--tls-key",
            "k",
            "--tls-cert=d",
            "--tls-key=l",
            "--tls-client-ca",
            "r",
            "--tls-client-auth",
            "optional",
            "--tls-min-version",
            "1.3",
        ]);
        assert_eq!(two.pairs, [("c".into(), "k".into()), ("d".into(), "l".into())]);
        assert_eq!((two.client_auth, two.minimum), (ClientAuth::Optional, TlsVersion::Tls13));
        assert_eq!(two.client_ca.as_deref(), Some(Path::new("r")));
        assert!(!two.only_http1 && files(&["serve", "a", "--tls-cert", "c", "--no-http2"]).only_http1);
        assert_eq!((one.only_http1_websockets, one.hsts, one.redirect_from), (false, None, None));
        let own = files(&[
            "serve",
            "a",
            "--tls-cert=c",
            "--no-http2-websockets",
            "--hsts=60,subdomains",
            "--redirect-from",
            "80",
        ]);
        assert_eq!((own.only_http1_websockets, own.redirect_from), (true, Some(80)));
        assert_eq!(own.hsts, Some(Hsts { max_age: 60, include_subdomains: true, preload: false }));
    }
    #[test]
    fn a_name_is_served_where_everybody_looks() {
        let asked = |words: &[&str]| {
            let it = served(&[&["serve", "a", "--domain", "b.org"], words].concat());
            let Some(AskedTls::Files(files)) = it.tls else { panic!("{:?}", it.tls) };
            (it.host, it.port, files.redirect_from, files.acme.unwrap())
        };
        let (host, port, redirect_from, acme) = asked(&[]);
        assert!(host == "::" || host == "0.0.0.0", "{host}");
        assert_eq!((port, redirect_from, acme.domains), (443, Some(80), vec!["b.org".to_owned()]));
        assert!(!acme.agrees && acme.directory.is_none() && acme.emails.is_empty());
        let elsewhere = |words: &[&str]| {
            let (host, port, redirect_from, _) = asked(words);
            (host, port, redirect_from)
        };
        let here = "127.0.0.1".to_owned();
        assert_eq!(elsewhere(&["--host", "127.0.0.1"]), (here.clone(), 443, Some(80)));
        assert_eq!(elsewhere(&["--host=127.0.0.1", "--port=8443"]), (here.clone(), 8443, None));
        assert_eq!(
            elsewhere(&["--host=127.0.0.1", "--port=0", "--redirect-from=81"]),
            (here.clone(), 0, Some(81))
        );
        assert_eq!(elsewhere(&["--host=127.0.0.1", "--redirect-from=none"]), (here, 443, None));
        assert_eq!(elsewhere(&["--host=unix:/s"]).2, None);
        let all = [
            "--domain=c.org",
            "--agree-tos",
            "--email=me@b.org",
            "--acme-staging",
            "--acme-profile=shortlived",
            "--acme-challenge=tls-alpn-01",
            "--acme-dir=d",
            "--acme-ca=f",
        ];
        let (_, _, _, acme) = asked(&all);
        assert_eq!((acme.domains.len(), acme.emails.len(), acme.agrees), (2, 1, true));
        assert_eq!(
            (acme.directory.as_deref(), acme.profile.as_deref()),
            (Some(LETS_ENCRYPT_STAGING), Some("shortlived"))
        );
        assert_eq!(
            (acme.challenge, acme.folder, acme.ca),
            (Some(Challenge::Tls), Some("d".into()), Some("f".into()))
        );
        let (_, _, _, acme) = asked(&["--acme-directory", "https://ca/"]);
        assert_eq!(acme.directory.as_deref(), Some("https://ca/"));
    }

    #[test]
    fn what_is_wrong_with_https_is_told() {
        for (words, says) in [
            (
                &["serve", "a", "--tls", "yes"][..],
                "`--tls` must be dev, not `yes`: for a certificate of your own there is `--tls-cert`.",
            ),
            (
                &["serve", "a", "--tls", "dev", "--tls-cert", "b"],
                "`--tls dev` and `--tls-cert` exclude one another.",
            ),
            (&["serve", "a", "--tls-key", "b"], "`--tls-key` needs `--tls-cert`."),
            (
                &["serve", "a", "--tls", "dev", "--tls-client-ca", "b"],
                "`--tls-client-ca` needs `--tls-cert` or `--domain`.",
            ),
            (
                &["serve", "a", "--tls-cert", "b", "--tls-client-auth", "optional"],
                "`--tls-client-auth` needs `--tls-client-ca`.",
            ),
            (
                &["serve", "a", "--tls-cert", "b", "--tls-min-version", "1.1"],
                "`--tls-min-version` must be 1.2 or 1.3, not `1.1`.",
            ),
            (&["serve", "a", "--tls-cert", ""], "`--tls-cert` needs a value."),
            (&["serve", "a", "--no-http2"], "`--no-http2` needs `--tls-cert` or `--domain`."),
            (&["serve", "a", "--agree-tos"], "`--agree-tos` needs `--domain`."),
            (&["serve", "a", "--acme-ca=b"], "`--acme-ca` needs `--domain`."),
            (
                &["serve", "a", "--domain=b.org", "--tls-cert=b"],
                "`--domain` and `--tls-cert` exclude one another.",
            ),
            (
                &["serve", "a", "--domain=b.org", "--tls=dev"],
                "`--domain` and `--tls dev` exclude one another.",
            ),
            (&["serve", "a", "--domain=b.org", "--tls-key=k"], "`--tls-key` needs `--tls-cert`."),
            (
                &["serve", "a", "--domain=b.org", "--acme-staging", "--acme-directory=https://ca/"],
                "`--acme-staging` and `--acme-directory` exclude one another.",
            ),
            (
                &["serve", "a", "--domain=b.org", "--acme-challenge=dns-01"],
                "`--acme-challenge` must be http-01 or tls-alpn-01, not `dns-01`.",
            ),
            (
                &["serve", "a", "--domain=b.org", "--port=x"],
                "`--port` must be a number from 0 to 65535, not `x`.",
            ),
            (&["serve", "a", "--hsts", "60"], "`--hsts` needs `--tls-cert` or `--domain`."),
            (
                &["serve", "a", "--tls=dev", "--redirect-from=80"],
                "`--redirect-from` needs `--tls-cert` or `--domain`.",
            ),
            (
                &["serve", "a", "--no-http2-websockets"],
                "`--no-http2-websockets` needs `--tls-cert` or `--domain`.",
            ),
            (
                &["serve", "a", "--tls-cert=b", "--redirect-from", "0"],
                "`--redirect-from` must be a port from 1 to 65535, or none, not `0`.",
            ),
            (
                &["serve", "a", "--tls-cert=b", "--hsts=year"],
                "`--hsts` must be seconds, and perhaps subdomains and preload, with commas between them, not `year`.",
            ),
        ] {
            assert_is_told(words, says);
        }
    }
}
