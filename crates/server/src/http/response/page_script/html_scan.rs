//! A scan of an HTML page for the places that the insertion of a script needs. It does not parse
//! HTML, but knows which parts of a page are text.

/// The elements whose content is text, in which tags have no meaning.
const TEXT_ELEMENTS: [&[u8]; 6] =
    [b"script", b"style", b"title", b"textarea", b"noscript", b"template"];

/// The places in an HTML page at which a script can be inserted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HtmlScan<'a> {
    /// The position of `</head>`.
    pub(crate) end_of_head: Option<usize>,
    /// The position of the last `</body>`. Known only for a page without `</head>`.
    pub(crate) end_of_body: Option<usize>,
    /// The value of the attribute `nonce` of the first script that has one.
    pub(crate) nonce: Option<&'a [u8]>,
    /// Whether the page has a `<base>` element before the end of its head.
    pub(crate) has_base: bool,
}

/// Scans an HTML page up to the end of its head, or to its end if the head has no end tag. The time
/// is linear in the length of the page.
pub(crate) fn scan(page: &[u8]) -> HtmlScan<'_> {
    let mut found = HtmlScan::default();
    let mut at = 0;
    while let Some(next) = page[at..].iter().position(|byte| *byte == b'<') {
        at += next;
        let rest = &page[at..];
        if let Some(comment) = rest.strip_prefix(b"<!--") {
            let Some(end) = find(comment, b"-->") else { break };
            at += b"<!--".len() + end;
        } else if is_tag(rest, b"</head") {
            found.end_of_head = Some(at);
            break;
        } else if is_tag(rest, b"</body") {
            found.end_of_body = Some(at);
        } else if is_tag(rest, b"<base") {
            found.has_base = true;
        } else if let Some(name) = TEXT_ELEMENTS.iter().find(|name| is_start_of(rest, name)) {
            let Some(end) = end_of_text(rest, name) else { break };
            if *name == b"script" && found.nonce.is_none() {
                found.nonce = nonce(&rest[..end]);
            }
            at += end;
        }
        at += 1;
    }
    found
}

/// Returns true if `rest` begins with a tag. `tag` is the beginning of the tag up to its name, in
/// lower case.
fn is_tag(rest: &[u8], tag: &[u8]) -> bool {
    let follows = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'/');
    rest.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag))
        && rest.get(tag.len()).is_some_and(follows)
}

fn is_start_of(rest: &[u8], name: &[u8]) -> bool {
    is_tag(&rest[1..], name)
}

/// Returns the position of the end tag of the element that `rest` begins with, or `None` if the
/// element has no end tag.
fn end_of_text(rest: &[u8], name: &[u8]) -> Option<usize> {
    let mut at = name.len();
    loop {
        at += find(&rest[at..], b"</")?;
        if is_start_of(&rest[at + 1..], name) {
            return Some(at);
        }
        at += 2;
    }
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

/// Returns the value of the attribute `nonce` of the tag that `element` begins with. Returns `None`
/// for a value that is not base64, so that the value can be copied as it is.
fn nonce(element: &[u8]) -> Option<&[u8]> {
    let end = element.iter().position(|byte| *byte == b'>')?;
    let tag = &element[..end];
    let mut at = tag.windows(6).position(|name| {
        name[0].is_ascii_whitespace() && name[1..].eq_ignore_ascii_case(b"nonce")
    })? + 6;
    let skip = |at: usize| at + tag[at..].iter().take_while(|it| it.is_ascii_whitespace()).count();
    at = skip(at);
    if tag.get(at) != Some(&b'=') {
        return None;
    }
    at = skip(at + 1);
    if matches!(tag.get(at), Some(b'"' | b'\'')) {
        at += 1;
    }
    let is_base64 = |it: &&u8| it.is_ascii_alphanumeric() || b"+/=-_".contains(it);
    let len = tag[at..].iter().take_while(is_base64).count();
    (len > 0).then(|| &tag[at..at + len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_nonce_of_the_first_script_that_has_one() {
        for (page, nonce) in [
            ("<script src=a></script><script nonce=x>1</script>", Some("x")),
            ("<SCRIPT type='a' NONCE = \"a+b/c=\">", None),
            ("<SCRIPT type='a' NONCE = \"a+b/c=\"></SCRIPT>", Some("a+b/c=")),
            ("<script data-nonce='a'></script>", None),
            ("<script nonce></script>", None),
            ("<script nonce='\"><b'></script>", None),
            ("<link nonce=a>", None),
        ] {
            assert_eq!(scan(page.as_bytes()).nonce, nonce.map(str::as_bytes), "{page}");
        }
    }

    #[test]
    fn every_part_of_a_page_can_be_scanned() {
        let page = "<head><base><!-- - --><script nonce=a></script><template></head></template>\
                    <style></style></head></body>";
        for start in 0..page.len() {
            for end in start..page.len() {
                scan(&page.as_bytes()[start..end]);
            }
        }
        let found = scan(page.as_bytes());
        assert_eq!(found.end_of_head, Some(page.len() - "</head></body>".len()));
        assert!(found.has_base);
    }
}
