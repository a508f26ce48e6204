//! Tests of section 5.2, steps 1 to 9, and section 5.3 of `httpuv-compat.md`: the choice between
//! static files and the application.

use super::*;

#[test]
fn a_server_without_static_paths_leaves_everything_to_the_application() {
    let site = Site::new(&[], &[]);
    for target in ["/", "/a", "/../a", "/%00", "*", ""] {
        assert_eq!(site.get(target), Answer::Application);
    }
}

#[test]
fn an_upgrade_is_never_static() {
    let site = Site::new(&["x"], &[("/", "")]);
    let ask = Ask { is_upgrade: true, ..Ask::get("/x") };
    assert_eq!(ask.of(&site.files), Answer::Application);
}

#[test]
fn targets_are_decoded_once_and_matched_by_whole_segments() {
    let names = [
        "d/a.txt",
        "d/a b",
        "d/a+b",
        "d/a%zz",
        "d/%41",
        "d/\u{e9}/\u{fc}",
        "d/..foo",
        "d/.dot/f",
        "d/foo..",
        "e/x",
    ];
    let site = Site::new(&names, &[("/s", "d"), ("/s/sub", "e"), ("/\u{fc}", "d")]);
    // Windows ignores the dots at the end of a name, so there is no such file.
    site.check(&[("/s/foo..", if cfg!(windows) { "400" } else { "d/foo.." })]);
    let is_unix = NameRules::OF_SYSTEM == NameRules::Unix;
    site.check(&[
        ("/S/a.txt", if is_unix { "app" } else { "d/a.txt" }),
        // Only Unix has names that are no text.
        ("/s/%ff", if is_unix { "404" } else { "400" }),
    ]);
    site.check(&[
        ("/s/a.txt", "d/a.txt"),
        ("/s/a.txt?query=/../", "d/a.txt"),
        ("/s/a%20b", "d/a b"),
        ("/s/a+b", "d/a+b"),
        ("/s/a%zz", "d/a%zz"),
        ("/s/%2541", "d/%41"),
        ("/%73/a.txt", "d/a.txt"),
        ("/s%2fa.txt", "d/a.txt"),
        ("/s/%C3%A9/%c3%bc", "d/\u{e9}/\u{fc}"),
        ("/%c3%bc/a.txt", "d/a.txt"),
        ("/s/..foo", "d/..foo"),
        ("/s/..nope", "404"),
        ("/s/.dot/f", "d/.dot/f"),
        ("/s/sub/x", "e/x"),
        ("/s/subx", "404"),
        ("/sa.txt", "app"),
        ("/", "app"),
        ("s/a.txt", "app"),
        ("*", "app"),
        ("", "app"),
        ("http://host/s/a.txt", "app"),
    ]);
}

#[cfg(unix)]
#[test]
fn a_path_with_a_backslash_is_for_the_application() {
    let site = Site::new(&["d/a", "d/a\\b"], &[("/s", "d"), ("/", "d")]);
    site.check(&[
        ("/s\\a", "app"),
        ("/s/a\\b", "app"),
        ("/s%5Ca", "app"),
        ("/s/a%5cb", "app"),
        ("/s/a", "d/a"),
    ]);
}

#[test]
fn slashes_at_the_end_make_no_difference() {
    let site = Site::new(&["d/a.txt", "d/sub/index.html"], &[("/s", "d"), ("/file", "d/a.txt")]);
    site.check(&[
        ("/s/a.txt/", "d/a.txt"),
        ("/s/a.txt//", "d/a.txt"),
        ("/file", "d/a.txt"),
        ("/file/", "d/a.txt"),
        ("/s/sub", "d/sub/index.html"),
        ("/s/sub/", "d/sub/index.html"),
    ]);
}

#[cfg(unix)]
#[test]
fn the_root_of_the_paths_and_of_the_disk_can_be_mapped() {
    let site = Site::new(&["index.html", "a"], &[("/", ""), ("/disk", "/")]);
    let on_disk = format!("/disk{}/a", site.dir.path().display());
    site.check(&[("/", "index.html"), ("/a", "a"), ("//a", "a"), (&on_disk, "a")]);
}

#[test]
fn exclusions_apply_to_whole_segments() {
    let site = Site::new(&["d/priv/x", "d/private", "d/open", "d/priv/again/y"], &[("/s", "d")]);
    site.exclude("/s/priv");
    site.map("/s/priv/again", "d/priv/again", Overrides::default());
    site.check(&[
        ("/s/priv", "app"),
        ("/s/priv/", "app"),
        ("/s/priv/x", "app"),
        ("/s/priv/nope", "app"),
        ("/s/private", "d/private"),
        ("/s/open", "d/open"),
        ("/s/priv/again/y", "d/priv/again/y"),
    ]);
    for method in ["POST", "HEAD"] {
        assert_eq!(Ask::new(method, "/s/priv/x").of(&site.files), Answer::Application, "{method}");
    }
}

/// Checks that a request cannot reach the files of an excluded static path by a different spelling
/// of the URL path. In httpuv this is possible, because it compares one spelling with the static
/// paths and opens another one.
#[test]
fn no_spelling_evades_an_exclusion() {
    for options in
        [StaticOptions::default(), StaticOptions { fallthrough: true, ..StaticOptions::default() }]
    {
        let miss = if options.fallthrough { "app" } else { "400" };
        let site = Site::new(&["d/a/a.txt", "d/a/b.txt"], &[("/a", "d/a"), ("/", "d")]);
        site.files.set_options(options);
        site.exclude("/a/a.txt");
        site.check(&[
            ("/a/a.txt", "app"),
            ("/a//a.txt", "app"),
            ("//a/a.txt", "app"),
            ("/a/./a.txt", "app"),
            ("/./a/a.txt", "app"),
            ("/a/%2e/a.txt", "app"),
            ("/a%2f%2fa.txt", "app"),
            ("/a/a.txt/.", "app"),
            ("/a/a.txt//", "app"),
            ("/a/%61.txt", "app"),
            ("/a/a.txt%00", miss),
            ("/a/a.txt%00.html", miss),
            ("/a/b/../a.txt", miss),
            ("/%2e%2e/a/a.txt", miss),
            ("/a//b.txt", "d/a/b.txt"),
        ]);
    }
}

#[test]
fn parent_segments_are_refused_before_any_disk_access() {
    let site = Site::new(&["d/a", "secret"], &[("/s", "d")]);
    site.map("/f", "d", fallthrough());
    for target in [
        "/../secret",
        "/..",
        "/%2e%2e/secret",
        "/%2E./secret",
        "/a/../a",
        "/a%2f..%2f..%2fsecret",
        "/a%00",
    ] {
        site.check(&[
            (&format!("/s{target}"), "400"),
            (&format!("/f{target}"), "app"),
            (&format!("/x{target}"), "app"),
        ]);
    }
    site.check(&[("/../s/a", "app"), ("/s/../s/a", "400")]);
}

#[test]
fn validation_comes_before_the_method_the_body_and_falling_through() {
    let site = Site::new(&["d/a"], &[]);
    let required = RequiredHeader::new("X-Key", b"s3cret").unwrap();
    let overrides = Overrides { validation: Some(Validation::Require(required)), ..fallthrough() };
    site.map("/v", "d", overrides);
    for (ask, expected) in [
        (Ask::get("/v/a"), "403"),
        (Ask::get("/v/nope"), "403"),
        (Ask::get("/v/../a"), "403"),
        (Ask::new("POST", "/v/a"), "403"),
        (Ask::get("/v/a").with("x-key", "S3cret"), "403"),
        (Ask::get("/v/a").with("x-key", "s3cre"), "403"),
        (Ask::get("/v/a").with("x-key", ""), "403"),
        (Ask::get("/v/a").with("x-key", "s3cret").with("x-key", "s3cret"), "403"),
        (Ask::get("/v/a").with("x-key", "s3cret"), "d/a"),
        (Ask::get("/v/nope").with("x-key", "s3cret"), "app"),
        (Ask::new("POST", "/v/a").with("x-key", "s3cret"), "app"),
    ] {
        assert_eq!(ask.of(&site.files).brief(), expected, "{:?} {:?}", ask.head, ask.headers);
    }
    assert_eq!(error_body(StatusCode::FORBIDDEN), "403 Forbidden\n");
    site.exclude("/v/a");
    site.check(&[("/v/a", "app")]);
}

#[test]
fn methods_other_than_get_and_head_are_refused_or_fall_through() {
    let site = Site::new(&["d/a"], &[("/s", "d")]);
    site.map("/f", "d", fallthrough());
    site.map("/site", "d", Overrides { site: Some(true), ..Overrides::default() });
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get", "CONNECT", ""] {
        // httpuv responds with 400 to all of these methods.
        let expected = if method == "POST" { 400 } else { 405 };
        assert_eq!(Ask::new(method, "/s/a").of(&site.files), Answer::Refused(expected), "{method}");
        assert_eq!(Ask::new(method, "/site/a").of(&site.files), Answer::Refused(405), "{method}");
        let with_body = Ask::new(method, "/f/a").body(BodyFraming::Length(5));
        assert_eq!(with_body.of(&site.files), Answer::Application, "{method}");
    }
    assert_eq!(Ask::new("HEAD", "/s/a").of(&site.files), site.get("/s/a"));
    assert_eq!(error_body(StatusCode::BAD_REQUEST), "400 Bad Request\n");
    assert_eq!(error_body(StatusCode::METHOD_NOT_ALLOWED), "405 Method Not Allowed\n");
}

/// The files of the test exist in both spellings, as on a file system that ignores case.
#[cfg(target_os = "linux")]
#[test]
fn no_spelling_evades_a_protected_path_on_a_file_system_that_ignores_case() {
    let names = ["secret-folder/key", "_server.yml", "both/key"];
    let site = Site::new(&[], &[("/s", "d")]);
    for name in names.iter().flat_map(|name| [(*name).to_owned(), name.to_uppercase()]) {
        site.write(&format!("d/{name}"), b"found");
    }
    for name in ["SECRET~1/KEY", "_SERVE~1.YML", "secret-folder. /key", "_server.yml::$DATA"] {
        site.write(&format!("d/{name}"), b"found");
    }
    site.exclude("/s/secret-folder");
    site.exclude("/s/_server.yml");
    let secret = RequiredHeader::new("x-secret", b"s").unwrap();
    let validation = Some(Validation::Require(secret));
    site.map("/s/both", "d/both", Overrides { validation, ..Overrides::default() });
    site.check(&[
        ("/s/SECRET-FOLDER/KEY", "app"),
        ("/s/secret-folder.%20/key", "app"),
        ("/s/SECRET~1/KEY", "app"),
        ("/s/_SERVER.YML", "app"),
        ("/s/_SERVE~1.YML", "app"),
        ("/s/_server.yml::$DATA", "app"),
        ("/s/BOTH/KEY", "app"),
        ("/s/both/key", "403"),
        ("/s/%62oth/KEY", "403"),
    ]);
    // A key that matches exactly comes before another spelling of a protected one.
    site.map("/s/BOTH", "d/BOTH", Overrides::default());
    site.check(&[("/s/BOTH/KEY", "found")]);
}

#[test]
fn a_request_body_is_refused_unless_it_is_empty() {
    let site = Site::new(&["d/a"], &[("/s", "d")]);
    site.map("/f", "d", fallthrough());
    for (body, expected) in [
        (BodyFraming::Absent, "d/a"),
        (BodyFraming::Length(0), "d/a"),
        (BodyFraming::Length(3), "400"),
        (BodyFraming::Chunked, "400"),
    ] {
        for target in ["/s/a", "/f/a"] {
            assert_eq!(
                Ask::get(target).body(body).of(&site.files).brief(),
                expected,
                "{body:?} {target}"
            );
        }
    }
}

#[test]
fn keys_and_targets_at_their_longest() {
    let deepest = "/a".repeat(2048);
    let site = Site::new(&[], &[("/a/a/a", "")]);
    site.exclude(&deepest);
    let past = "/a".repeat(48 << 10);
    let before = &deepest[..deepest.len() - 2];
    site.check(&[
        (&past, "app"),
        (&deepest, "app"),
        (before, "404"),
        (&past.replace('a', "%61"), "app"),
    ]);
}
