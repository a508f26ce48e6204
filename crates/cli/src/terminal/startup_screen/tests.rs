use super::*;

fn certificate() -> DevelopmentCertificate {
    DevelopmentCertificate {
        file: "/home/ada/rookery/localhost.pem".into(),
        fingerprint: "00ab9f".to_owned(),
        is_new: false,
    }
}

fn screen(address: &str) -> StartupScreen {
    StartupScreen {
        app_file: "app.R".to_owned(),
        folder: "/srv/app".to_owned(),
        workers: Some(1),
        address: address.to_owned(),
        network: Vec::new(),
        development: None,
        admin: None,
        live_page: None,
        reloads: false,
        errors: None,
        has_shortcuts: false,
    }
}

/// Compares the start-up screen with a snapshot, in which `VERSION` stands for the version and `^`
/// for an escape character.
#[track_caller]
fn assert_shows(screen: &StartupScreen, is_coloured: bool, snapshot: &str) {
    assert_eq!(screen.text(Some("Shiny app (app.R)"), is_coloured), snapshot_of(snapshot));
}

fn snapshot_of(snapshot: &str) -> String {
    let text = snapshot.replace("VERSION", env!("CARGO_PKG_VERSION")).replace('^', "\x1b");
    text.trim_start_matches('\n').trim_end().to_owned()
}

#[test]
fn one_worker_needs_two_lines() {
    let snapshot = "
rookery VERSION: Shiny app (app.R) in /srv/app with 1 worker
Serving on http://127.0.0.1:8000 (Ctrl-C stops)
";
    assert_shows(&screen("http://127.0.0.1:8000"), false, snapshot);
    let coloured = "
^[1mrookery^[0m VERSION: Shiny app (app.R) in /srv/app with 1 worker
Serving on ^[1;36mhttp://127.0.0.1:8000^[0m ^[2m(Ctrl-C stops)^[0m
";
    assert_shows(&screen("http://127.0.0.1:8000"), true, coloured);
}

#[test]
fn several_workers_on_all_interfaces_show_network_and_admin_addresses() {
    let at = AdminAddress::Tcp("127.0.0.1:9100".parse().unwrap());
    let four = StartupScreen {
        workers: Some(4),
        network: vec!["http://192.168.1.7:8000".to_owned()],
        admin: Some(at.clone()),
        live_page: Some("http://127.0.0.1:9100/?token=5f3a".to_owned()),
        ..screen("http://127.0.0.1:8000")
    };
    let snapshot = "
rookery VERSION: Shiny app (app.R) in /srv/app with 4 workers
Serving on http://127.0.0.1:8000 (Ctrl-C stops)
  Network:     http://192.168.1.7:8000
  Admin:       http://127.0.0.1:9100
  Live page:   http://127.0.0.1:9100/?token=5f3a
";
    assert_shows(&four, false, snapshot);
    let coloured = "
^[1mrookery^[0m VERSION: Shiny app (app.R) in /srv/app with 4 workers
Serving on ^[1;36mhttp://127.0.0.1:8000^[0m ^[2m(Ctrl-C stops)^[0m
  ^[2mNetwork:    ^[0m ^[1;36mhttp://192.168.1.7:8000^[0m
  ^[2mAdmin:      ^[0m ^[1;36mhttp://127.0.0.1:9100^[0m
  ^[2mLive page:  ^[0m ^[1;36mhttp://127.0.0.1:9100/?token=5f3a^[0m
";
    assert_shows(&four, true, coloured);
}

#[test]
fn a_log_does_not_get_the_token_of_the_live_page() {
    let url = || "http://127.0.0.1:9100/live/?token=5f3a".to_owned();
    assert_eq!(live_page(url(), true), url());
    let logged = live_page(url(), false);
    assert_eq!(logged, format!("`rookery live {}` opens it", std::process::id()));
}

#[test]
fn development_shows_the_address_with_the_token() {
    let dev = StartupScreen {
        reloads: true,
        errors: Some("http://127.0.0.1:8000/?token=abc".to_owned()),
        ..screen("http://127.0.0.1:8000")
    };
    let snapshot = "
rookery VERSION: Shiny app (app.R) in /srv/app with 1 worker
Serving on http://127.0.0.1:8000 (Ctrl-C stops)
  Reload:      when a file of the app changes
  Errors:      are shown with source code at http://127.0.0.1:8000/?token=abc
";
    assert_shows(&dev, false, snapshot);
}

#[cfg(target_os = "linux")]
#[test]
fn development_https_shows_how_to_trust_the_certificate() {
    let (certificate, at) = (certificate(), AdminAddress::Unix("/run/admin".into()));
    let dev = StartupScreen {
        development: Some(certificate),
        admin: Some(at.clone()),
        reloads: true,
        ..screen("https://127.0.0.1:8000")
    };
    let snapshot = "
rookery VERSION: Shiny app (app.R) in /srv/app with 1 worker
Serving on https://127.0.0.1:8000 (Ctrl-C stops)
  HTTPS:       The certificate for localhost: /home/ada/rookery/localhost.pem
               SHA-256 fingerprint, as the browser shows it: 00:AB:9F
               A browser warns once: compare the fingerprint and accept, or trust the certificate:
               certutil -A -a -d sql:$HOME/.pki/nssdb -t P,, -n rookery -i /home/ada/rookery/localhost.pem
               curl --cacert /home/ada/rookery/localhost.pem https://localhost:...
  Admin:       unix:/run/admin
  Reload:      when a file of the app changes
";
    assert_shows(&dev, false, snapshot);
    assert!(dev.text(None, true).contains("\x1b[2mHTTPS:      \x1b[0m The certificate"));
}

#[test]
fn a_static_site_shows_no_workers() {
    let site = StartupScreen {
        app_file: "site".to_owned(),
        folder: "/srv/www".to_owned(),
        workers: None,
        ..screen("https://example.org")
    };
    let snapshot = "
rookery VERSION: site in /srv/www
Serving on https://example.org (Ctrl-C stops)
";
    assert_eq!(site.text(None, false), snapshot_of(snapshot));
}

#[test]
fn quotes_paths_for_a_shell() {
    assert_eq!(shell_word("/a/b-c_d.pem"), "/a/b-c_d.pem");
    assert_eq!(shell_word("/a b/c'd"), "'/a b/c'\\''d'");
    assert_eq!(with_colons("00ab9f"), "00:AB:9F");
}
