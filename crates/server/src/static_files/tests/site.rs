//! Tests of static paths that are sites.

use super::*;

fn site(names: &[&str]) -> Site {
    let site = Site::new(names, &[]);
    site.map("/", "", Overrides { site: Some(true), ..Overrides::default() });
    site
}

#[test]
fn a_page_is_found_without_its_extension() {
    let site = site(&["index.html", "a.html", "a b.html", "d/index.html", "d.html", "e/x.html"]);
    fs::create_dir(site.path("a.html.html")).unwrap();
    site.write("e.html", b"e.html");
    site.check(&[
        ("/a", "a.html"),
        ("/a?b=/", "a.html"),
        ("/a.html", "a.html"),
        ("/a%20b", "a b.html"),
        ("/e/x", "e/x.html"),
        // A folder with an index precedes a page, and other folders do not.
        ("/d", "folder"),
        ("/e", "e.html"),
        // Relative links in the page would be wrong.
        ("/a/", "404"),
        ("/e/", "404"),
        ("/A", if cfg!(any(windows, target_vendor = "apple")) { "a.html" } else { "404" }),
    ]);
    assert_eq!(site.get("/a").header("Content-Type"), Some("text/html; charset=utf-8"));
    site.map("/plain", "", Overrides::default());
    site.check(&[("/plain/a", "404")]);
}

#[test]
fn no_page_outside_of_the_site_is_found() {
    let outer = Site::new(&["site/x", "site.html"], &[]);
    outer.map("/", "site", Overrides { site: Some(true), ..Overrides::default() });
    outer.check(&[("/", "404"), ("/.", "404"), ("//", "404"), ("/%2e", "404")]);
}

#[test]
fn the_page_for_missing_files_has_status_404() {
    let site = site(&["index.html", "404.html", "d/x"]);
    for target in ["/none", "/d/none/", "/d", "/index.Rmd", "/d/x/y"] {
        for ask in [
            Ask::get(target),
            Ask::get(target).with("if-none-match", "*"),
            Ask::get(target).with("if-match", "\"x\""),
            Ask::get(target).with("range", "bytes=0-1"),
        ] {
            let answer = ask.of(&site.files);
            let Answer::File { status, headers, body } = answer else { panic!("{answer:?}") };
            assert_eq!((status, &body[..]), (404, &b"404.html"[..]), "{target}");
            assert_eq!(headers, ["Content-Type: text/html; charset=utf-8"], "{target}");
        }
    }
    // The page itself is a file as any other one.
    assert!(matches!(site.get("/404"), Answer::File { status: 200, .. }));
    site.map("/s", "", Overrides { site: Some(true), ..fallthrough() });
    site.map("/plain", "", Overrides::default());
    site.check(&[("/s/none", "app"), ("/plain/none", "404")]);
}

#[test]
fn settings_and_source_code_are_never_served() {
    let names = ["index.Rmd", "d/_server.yml", "d/a.qmd", "d/b.R", "d/b.R.html"];
    let site = site(&names);
    site.check(&[
        ("/index.Rmd", "404"),
        ("/index.rmd", "404"),
        ("/index%2eRmd", "404"),
        ("/d/_server.yml", "404"),
        ("/d/a.qmd", "404"),
        ("/d/b.R", "404"),
        ("/d/b.R.html", "d/b.R.html"),
    ]);
    site.map("/plain", "", Overrides::default());
    site.check(&[("/plain/index.Rmd", "index.Rmd")]);
}
