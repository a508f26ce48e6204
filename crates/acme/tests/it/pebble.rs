//! Tests against Pebble, Let's Encrypt's small authority for tests. tests/conformance/pebble.py
//! builds it and runs these tests, with the folder of its programs in `PEBBLE`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use rookery_acme::{Challenge, RetrySchedule, Settings};
use rookery_server::tls::IssuedCertificate;
use rookery_test_support::tls_file;
use tempfile::TempDir;

use crate::authority::{Pebble, free_port};
use crate::support::{Client, Served, logged, roots, settings, wait_for, wait_for_line};

/// Returns the root certificate of Pebble.
fn root(pebble: &Pebble) -> Vec<u8> {
    let trusted = roots(&fs::read(tls_file("ca.pem")).unwrap());
    let address = ([127, 0, 0, 1], pebble.management).into();
    let client = Client::connect(address, "localhost", Some(trusted)).unwrap();
    client.whole("/roots/0").into_bytes()
}

const BOTH: &[Challenge] = &[Challenge::Http, Challenge::Tls];

/// Returns a server whose certificates come from Pebble. The renewer is not started yet.
fn served(
    pebble: &Pebble,
    domains: &[&str],
    change: impl FnOnce(&mut Settings),
) -> (Served, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(domains, &pebble.directory(), folder.path());
    change(&mut settings);
    (Served::start(settings), folder)
}

#[test]
#[ignore = "needs Pebble: tests/conformance/pebble.py"]
fn by_http_with_refused_nonces_and_nothing_is_ordered_twice() {
    let mut pebble = Pebble::reserve();
    let names = ["one.example.org", "www.one.example.org"];
    let (mut it, folder) =
        served(&pebble, &names, |settings| settings.emails = vec!["me@example.org".to_owned()]);
    pebble.run(it.ports(), 5, 60);
    let refused = it.connect(names[0]).err().expect("there is no certificate");
    assert!(refused.contains("AccessDenied"), "{refused}");
    it.start_renewer(&[Challenge::Http]);
    let line = wait_for_line("one.example.org", "received a certificate for");
    assert!(line.contains("one.example.org, www.one.example.org, valid until "), "{line}");
    // Clients that trust the authority, and no others, are served under both names.
    let root = roots(&root(&pebble));
    for name in names {
        let address = it.secure.local_addr().unwrap();
        assert!(
            Client::connect(address, name, Some(root.clone()))
                .unwrap()
                .get()
                .starts_with("HTTP/1.1 200 ")
        );
        let foreign = roots(&fs::read(tls_file("ca.pem")).unwrap());
        assert!(Client::connect(address, name, Some(foreign)).is_err());
    }
    assert_eq!(pebble.orders(), 1);
    // After a restart the stored certificate is used at once.
    let shown = it.shown(names[0]);
    let ports = it.ports();
    drop(it);
    for _ in 0..5 {
        let settings = Settings {
            emails: vec!["other@example.org".to_owned()],
            ..settings(&names, &pebble.directory(), folder.path())
        };
        let mut again = Served::start(settings);
        again.start_renewer(BOTH);
        assert_eq!(again.shown(names[1]), shown);
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(pebble.orders(), 1, "{ports:?}");
    let kept = fs::read_dir(folder.path().join("acme")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(
        fs::metadata(kept.join("account.json")).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
#[ignore = "needs Pebble: tests/conformance/pebble.py"]
fn by_tls_for_a_name_and_an_address() {
    let mut pebble = Pebble::reserve();
    let (mut it, _folder) = served(&pebble, &["two.example.org", "127.0.0.1"], |_| ());
    // No server listens on the HTTP port.
    pebble.run((free_port(), it.ports().1), 5, 60);
    it.start_renewer(&[Challenge::Tls]);
    wait_for_line("two.example.org", "received a certificate for");
    let root = roots(&root(&pebble));
    for name in ["two.example.org", "127.0.0.1"] {
        let mut client =
            Client::connect(it.secure.local_addr().unwrap(), name, Some(root.clone())).unwrap();
        assert!(client.get().starts_with("HTTP/1.1 200 "), "{name}");
    }
}

#[test]
#[ignore = "needs Pebble: tests/conformance/pebble.py"]
fn by_another_server_that_shares_the_folder() {
    for (name, challenge) in [
        ("shared-by-http.example.org", Challenge::Http),
        ("shared-by-tls.example.org", Challenge::Tls),
    ] {
        let mut pebble = Pebble::reserve();
        let (mut orders, folder) = served(&pebble, &[name], |_| ());
        let mut shares = Served::start(settings(&[name], &pebble.directory(), folder.path()));
        // The authority reaches only the server that does not order the certificate.
        pebble.run(shares.ports(), 5, 60);
        let lock = orders.certificate_file().with_file_name("lock");
        orders.start_renewer(&[challenge]);
        wait_for("the lock", || lock.exists().then_some(()));
        shares.start_renewer(&[challenge]);
        wait_for_line(name, "received a certificate for");
        assert!(logged(name).iter().any(|line| line.contains("another server renews")));
        // Both serve the certificate.
        wait_for("the certificate", || {
            shares.tls.reload().unwrap();
            shares.shown(name).filter(|shown| orders.shown(name).as_ref() == Some(shown))
        });
    }
}

#[test]
#[ignore = "needs Pebble: tests/conformance/pebble.py"]
fn by_the_other_when_one_fails() {
    let mut pebble = Pebble::reserve();
    let (mut it, _folder) = served(&pebble, &["three.example.org"], |_| ());
    pebble.run((free_port(), it.ports().1), 5, 60);
    it.start_renewer(BOTH);
    let line = wait_for_line("three.example.org", "no certificate for three.example.org");
    assert!(
        line.contains(
            "could not verify that three.example.org is this server, by an HTTP request to port \
             80 (http-01)"
        ),
        "{line}"
    );
    assert!(
        line.contains("The next attempt is in ")
            && line.ends_with("Until then, HTTPS connections are refused"),
        "{line}"
    );
    wait_for_line("three.example.org", "received a certificate for");
    assert!(logged("three.example.org").iter().any(|line| line.ends_with("with tls-alpn-01")));
    assert_eq!(pebble.orders(), 2);
}

#[test]
#[ignore = "needs Pebble: tests/conformance/pebble.py"]
fn renewed_under_an_open_connection() {
    let mut pebble = Pebble::reserve();
    let (mut it, _folder) = served(&pebble, &["four.example.org"], |settings| {
        settings.profile = Some("brief".to_owned());
    });
    pebble.run(it.ports(), 5, 40);
    it.start_renewer(BOTH);
    let first = wait_for("the first certificate", || it.shown("four.example.org"));
    let mut open = it.connect("four.example.org").unwrap();
    open.get();
    let second =
        wait_for("the second", || it.shown("four.example.org").filter(|shown| *shown != first));
    // The renewal happens before the first certificate expires.
    let issued = |pem: &[u8]| IssuedCertificate::read(pem).unwrap();
    let renewed = issued(&fs::read(it.certificate_file()).unwrap());
    assert!(
        renewed.ends > SystemTime::now()
            && renewed.ends < SystemTime::now() + Duration::from_secs(60)
    );
    // The existing connection is not interrupted.
    assert!(open.get().starts_with("HTTP/1.1 200 "));
    assert_eq!(open.certificate(), first);
    assert_eq!(it.connect("four.example.org").unwrap().certificate(), second);
    assert!(
        logged("four.example.org").iter().any(|line| line.contains("renewing the certificate for"))
    );
    // The certificate is not renewed more often than necessary.
    wait_for("its renewal", || (pebble.orders() == 2).then_some(()));
}

#[test]
#[ignore = "needs Pebble: tests/conformance/pebble.py"]
fn an_authority_that_is_down_is_tried_again_and_what_is_kept_is_served() {
    let mut pebble = Pebble::reserve();
    let (mut it, folder) = served(&pebble, &["five.example.org"], |_| ());
    it.start_renewer(BOTH);
    let line = wait_for_line("five.example.org", "no certificate for five.example.org");
    assert!(
        line.contains("cannot connect to")
            && line.ends_with("Until then, HTTPS connections are refused"),
        "{line}"
    );
    pebble.run(it.ports(), 5, 60);
    let shown = wait_for("a certificate", || it.shown("five.example.org"));
    pebble.end();
    drop(it);
    let mut again =
        Served::start(settings(&["five.example.org"], &pebble.directory(), folder.path()));
    again.start_renewer(BOTH);
    assert_eq!(again.shown("five.example.org"), Some(shown));
    // Another process, or another thread of this process, only uses the certificate.
    let mut other =
        Served::start(settings(&["five.example.org"], &pebble.directory(), folder.path()));
    other.start_renewer(BOTH);
    wait_for_line("five.example.org", "another server renews the certificate");
    assert!(other.shown("five.example.org").is_some());
    // The other server now orders the certificate.
    again.stop_renewer();
    fs::remove_file(again.certificate_file()).unwrap();
    let before = logged("five.example.org").len();
    wait_for("that it takes over", || {
        logged("five.example.org").get(before..).filter(|lines| !lines.is_empty()).map(drop)
    });
}

#[test]
#[ignore = "needs Pebble: tests/conformance/pebble.py"]
fn a_restart_loop_orders_once() {
    let mut pebble = Pebble::reserve();
    let folder = tempfile::tempdir().unwrap();
    let directory = pebble.directory();
    let wished = || Settings {
        retry: RetrySchedule::default(),
        ..settings(&["six.example.org"], &directory, folder.path())
    };
    let mut it = Served::start(wished());
    // Pebble finds no server on either port.
    pebble.run((free_port(), free_port()), 0, 60);
    it.start_renewer(BOTH);
    wait_for_line("six.example.org", "ordering a certificate");
    wait_for("an order", || (pebble.orders() == 1).then_some(()));
    for at in 0..8 {
        // The first iterations interrupt an attempt, later ones a wait.
        drop(it);
        it = Served::start(wished());
        it.start_renewer(BOTH);
        wait_for("what it does", || {
            (logged("six.example.org")
                .iter()
                .filter(|line| line.contains("the next attempt is in "))
                .count()
                > at)
                .then_some(())
        });
    }
    assert_eq!(pebble.orders(), 1);
    let line = wait_for_line("six.example.org", "the last attempt to get a certificate");
    assert!(
        line.contains(" failed or was interrupted; the next attempt is in ")
            && line.contains("HTTPS connections are refused"),
        "{line}"
    );
}

#[test]
#[ignore = "needs Pebble: tests/conformance/pebble.py"]
fn an_authority_that_has_forgotten_the_account_is_given_another() {
    let mut pebble = Pebble::reserve();
    let (mut it, folder) = served(&pebble, &["seven.example.org"], |_| ());
    pebble.run(it.ports(), 5, 60);
    it.start_renewer(BOTH);
    wait_for("a certificate", || it.shown("seven.example.org"));
    let account = || {
        let place =
            fs::read_dir(folder.path().join("acme")).unwrap().next().unwrap().unwrap().path();
        fs::read_to_string(place.join("account.json")).unwrap()
    };
    let before = account();
    // Pebble stores nothing on disk.
    pebble.end();
    pebble.run(it.ports(), 5, 60);
    it.stop_renewer();
    let place = it.certificate_file();
    fs::remove_file(&place).unwrap();
    fs::remove_file(place.with_file_name("state.json")).unwrap();
    it.start_renewer(BOTH);
    wait_for("another certificate", || place.exists().then_some(()));
    assert_ne!(account(), before);
}

#[test]
#[ignore = "needs Pebble: tests/conformance/pebble.py"]
fn what_the_authority_refuses_is_said() {
    let mut pebble = Pebble::reserve();
    let (mut it, _folder) = served(&pebble, &["eight.example.org"], |settings| {
        settings.profile = Some("none".to_owned());
    });
    pebble.run(it.ports(), 5, 60);
    it.start_renewer(BOTH);
    let line = wait_for_line("eight.example.org", "no certificate for");
    assert!(
        line.contains("the authority does not offer the profile `none`; it offers: brief, default"),
        "{line}"
    );
    assert_eq!(pebble.orders(), 0);
    // A damaged file is set aside.
    let kept = it.certificate_file();
    drop(it);
    fs::write(&kept, "rubbish").unwrap();
    let (it, _) = served(&pebble, &["eight.example.org"], |settings| {
        settings.folder = kept.ancestors().nth(3).unwrap().to_owned();
    });
    assert!(!kept.exists() && kept.with_extension("unusable").exists());
    assert!(it.shown("eight.example.org").is_none());
}
