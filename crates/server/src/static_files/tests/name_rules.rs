//! Tests of requests under the rules by which Windows and macOS interpret file names.

use super::*;

/// Creates a test directory whose static paths follow the rules of another system.
fn site(rules: NameRules) -> Site {
    let site = Site { dir: tempfile::tempdir().unwrap(), files: StaticFiles::with_rules(rules) };
    for name in ["d/a.txt", "d/private/key", "d/longer name.txt"] {
        site.write(name, name.as_bytes());
    }
    site.map("/s", "d", Overrides::default());
    site.exclude("/s/private");
    site
}

#[test]
fn windows_names_of_devices_streams_and_other_files_are_refused() {
    let site = site(NameRules::Windows);
    site.check(&[("/s/a.txt", "d/a.txt"), ("/s/longer%20name.txt", "d/longer name.txt")]);
    for target in [
        "/s/CON",
        "/s/con.txt",
        "/s/nul",
        "/s/x/NUL",
        "/s/COM1",
        "/s/com1.txt",
        "/s/lpt9.log",
        "/s/AUX.css",
        "/s/CONIN$",
        "/s/CON%20.txt",
        "/s/com%c2%b9",
        "/s/a.txt::$DATA",
        "/s/a.txt%3a%3a$data",
        "/s/a.txt:x",
        "/s/private::$INDEX_ALLOCATION/key",
        "/s/private:$I30:$INDEX_ALLOCATION/key",
        "/s/C:",
        "/s/c:/windows/win.ini",
        "/s/C%3Aa.txt",
        "/s/a.txt.",
        "/s/a.txt...",
        "/s/a.txt%20",
        "/s/a.txt%20.",
        "/s/private./key",
        "/s/private%20/key",
        "/s/private%2e/key",
        "/s/...",
        "/s/%20",
        "/s/LONGER~1.TXT",
        "/s/longer~1.txt",
        "/s/PRIVAT~1/key",
        "/s/A~1",
        "/s/*",
        "/s/a%3f",
        "/s/a%3Ctxt",
        "/s/a%22",
        "/s/a%7c",
        "/s/a%01",
        "/s/a%0a",
        "/s/%ff",
    ] {
        assert_eq!(site.get(target), Answer::Refused(400), "{target}");
    }
    site.map("/f", "d", fallthrough());
    site.check(&[("/f/CON", "app"), ("/f/a.txt.", "app"), ("/f/a.txt", "d/a.txt")]);
}

#[test]
fn windows_separators_device_paths_and_shares_lead_nowhere() {
    let site = site(NameRules::Windows);
    for target in [
        "/s\\a.txt",
        "/s/..\\..\\x",
        "/s/..%5c..%5Cx",
        "/s%5ca.txt",
        "\\\\server\\share\\a",
        "/s/\\\\?\\C:\\a",
        "/s/%5c%5c.%5cCOM1",
        "/%5c%5cserver%5cshare",
        "//server/share/a",
        "/C:/windows/win.ini",
        "/nul",
        "/%5c%5c%3f%5cC:",
    ] {
        assert_eq!(site.get(target), Answer::Application, "{target}");
    }
    // The segments of an extended path or of a share are names like any others.
    site.check(&[("/s//server/share/a.txt", "404"), ("/s//a.txt", "d/a.txt")]);
    for target in ["/s//./%3f/C:/a", "/s/../s/a.txt", "/s/%2e%2e/a", "/s//?/C:/a"] {
        let answer = site.get(target);
        assert!(matches!(answer, Answer::Refused(400) | Answer::Status(404, _)), "{target}");
    }
}

#[test]
fn an_exclusion_covers_every_case_where_the_system_ignores_case() {
    for rules in [NameRules::IgnoringCase, NameRules::Windows] {
        let site = site(rules);
        for target in [
            "/s/private/key",
            "/s/PRIVATE/key",
            "/s/Private/KEY",
            "/S/private/key",
            "/S/PRIVATE",
            "/s/%50rivate/key",
            "/s//PRIVATE//key",
        ] {
            assert_eq!(site.get(target), Answer::Application, "{rules:?}: {target}");
        }
        // The rest of the path is as the client has sent it, whatever the case of the key.
        let Route::Open(lookup) = Ask::get("/S/Sub/\u{c9}.TXT").decide(&site.files) else {
            panic!("the key matches")
        };
        assert_eq!(lookup.path(), site.path("d").join("Sub").join("\u{c9}.TXT"), "{rules:?}");
        site.map("/stra\u{df}e", "d", Overrides::default());
        let Route::Open(lookup) = Ask::get("/STRASSE/a.txt").decide(&site.files) else {
            panic!("the key matches")
        };
        assert_eq!(lookup.path(), site.path("d").join("a.txt"), "{rules:?}");
    }
    let unix = site(NameRules::Unix);
    assert_eq!(unix.get("/S/private/key"), Answer::Application, "there is no such static path");
    assert_eq!(unix.get("/s/PRIVATE/key"), Answer::Application, "the file system may ignore case");
    assert!(matches!(Ask::get("/s/PRIVATES/key").decide(&unix.files), Route::Open(_)));
}

#[test]
fn an_exclusion_covers_every_normal_form_where_the_system_ignores_case() {
    // `ṩ` is composed of `s` and two marks, in either order, and `각` of three letters.
    let spellings = [
        "%e1%b9%a9-%ea%b0%81",
        "%e1%b9%a3%cc%87-%ea%b0%80%e1%86%a8",
        "s%cc%a3%cc%87-%e1%84%80%e1%85%a1%e1%86%a8",
        "S%cc%87%cc%a3-%EA%B0%81",
        "%E1%B9%A8-%ea%b0%81",
    ];
    for rules in [NameRules::IgnoringCase, NameRules::Windows] {
        for key in ["/s/\u{1e69}-\u{ac01}", "/s/s\u{323}\u{307}-\u{1100}\u{1161}\u{11a8}"] {
            let site = site(rules);
            site.exclude(key);
            for spelling in spellings {
                for rest in ["", "/key"] {
                    let target = format!("/s/{spelling}{rest}");
                    assert_eq!(site.get(&target), Answer::Application, "{rules:?}: {target}");
                }
            }
            site.check(&[("/s/%e1%b9%a9", "404"), ("/s/s", "404")]);
        }
    }
}

#[test]
fn an_exclusion_is_not_lost_to_a_static_path_whose_key_differs_in_case() {
    for rules in [NameRules::IgnoringCase, NameRules::Windows, NameRules::Unix] {
        let site = site(rules);
        // One key precedes that of the exclusion in the order of bytes, and one follows it.
        site.map("/S/private", "d", Overrides::default());
        site.map("/s/privatE", "d", Overrides::default());
        site.exclude("/s/privates");
        site.map("/s/PRIVATES", "d", Overrides::default());
        site.map("/t/private", "d", Overrides::default());
        site.exclude("/t/PRIVATE");
        for target in ["/s/private/a.txt", "/s/privates/a.txt"] {
            assert_eq!(site.get(target), Answer::Application, "{rules:?}: {target}");
        }
        if rules == NameRules::Unix {
            site.check(&[("/s/PRIVATES/a.txt", "d/a.txt"), ("/t/private/a.txt", "d/a.txt")]);
        } else {
            for target in ["/S/PRIVATE/a.txt", "/s/PRIVATES/a.txt", "/t/private/a.txt"] {
                assert_eq!(site.get(target), Answer::Application, "{rules:?}: {target}");
            }
        }
    }
}

#[test]
fn characters_that_hfs_ignores_and_bytes_that_are_no_text_do_not_evade_an_exclusion() {
    for rules in [NameRules::IgnoringCase, NameRules::Windows] {
        let site = site(rules);
        for target in [
            "/s/pri%e2%80%8cvate/key",
            "/s/private%e2%80%8d/key",
            "/s/%ef%bb%bfprivate/key",
            "/s/private/%e2%80%aekey",
            "/s/%e2%81%aaprivate/key",
            "/s/private%ff/key",
        ] {
            let answer = site.get(target);
            let is_safe = matches!(answer, Answer::Refused(400) | Answer::Application);
            assert!(is_safe, "{rules:?}: {target}: {answer:?}");
        }
        site.check(&[("/s/a.txt", "d/a.txt"), ("/s/%c3%a9", "404")]);
    }
}

/// Checks on the system itself that no other spelling leads to the file of an excluded static path,
/// or to a file that the request does not name.
#[test]
fn on_this_system_no_other_name_leads_to_an_excluded_file() {
    let site = site(NameRules::OF_SYSTEM);
    for target in [
        "/s/PRIVATE/key",
        "/s/private./key",
        "/s/private%20/key",
        "/s/private.%20./key",
        "/s/PRIVAT~1/key",
        "/s/private::$INDEX_ALLOCATION/key",
        "/s/./private/key",
        "/s/private%2fkey",
        "/s/private%5ckey",
        "/s/x/../private/key",
        "/s/%2e/private/key",
    ] {
        let answer = site.get(target);
        assert!(!matches!(answer, Answer::File { .. }), "{target}: {answer:?}");
    }
}
