//! A scan of an HTML page for the places that the insertion of a script needs. It does not parse
//! HTML, but knows which parts of a page are text.

/// The elements whose content is text, in which tags have no meaning.
const TEXT_ELEMENTS: [&[u8]; 9] = [
    b"script",
    b"style",
    b"title",
    b"textarea",
    b"noscript",
    b"iframe",
    b"noembed",
    b"noframes",
    b"xmp",
];

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

/// Scans an HTML page up to the end of its head, or to its end if the head has no end tag. Stops
/// where it could take text for markup: at a tag, a comment or a text element that has no end, and
/// at rare constructs that a browser reads depending on their context. The time is linear in the
/// length of the page.
pub(crate) fn scan(page: &[u8]) -> HtmlScan<'_> {
    let mut found = HtmlScan::default();
    let (mut templates, mut has_foreign) = (0_usize, false);
    let mut at = 0;
    while let Some(next) = page[at..].iter().position(|byte| *byte == b'<') {
        at += next;
        let rest = &page[at..];
        let Some(end) = end_of_markup(rest) else { break };
        if is_tag(rest, b"<template") {
            templates += 1;
        } else if is_tag(rest, b"</template") {
            templates = templates.saturating_sub(1);
        } else if is_tag(rest, b"</head") && templates == 0 {
            found.end_of_head = Some(at);
            break;
        } else if is_tag(rest, b"</body") && templates == 0 {
            found.end_of_body = Some(at);
        } else if is_tag(rest, b"<base") {
            found.has_base = true;
        } else if is_tag(rest, b"<svg") || is_tag(rest, b"<math") {
            has_foreign = true;
        } else if is_tag(rest, b"<plaintext") {
            break;
        } else if let Some(name) = TEXT_ELEMENTS.iter().find(|name| is_start_of(rest, name)) {
            if *name == b"script" && found.nonce.is_none() {
                found.nonce = nonce(&rest[..end]);
            }
            let Some(len) = length_of_text(&rest[end..], name) else { break };
            let text = &rest[end..end + len];
            // In SVG and MathML, the content of these elements is markup.
            if (has_foreign && text.contains(&b'<')) || (*name == b"script" && is_escaped(text)) {
                break;
            }
            at += len;
        }
        at += end;
    }
    found
}

/// Returns true if an end tag may not end the script with this text: after `<!--` and `<script`, a
/// browser takes the next end tag for that of the inner script.
fn is_escaped(text: &[u8]) -> bool {
    find(text, b"<!--").is_some_and(|at| {
        text[at..].windows(7).any(|window| window.eq_ignore_ascii_case(b"<script"))
    })
}

/// Returns the length of the tag or comment that `rest` begins with; 1 if the `<` is text. Returns
/// `None` if a tag or a comment has no end.
fn end_of_markup(rest: &[u8]) -> Option<usize> {
    if let Some(comment) = rest.strip_prefix(b"<!--") {
        // `<!-->` and `<!--->` are complete comments, and `--!>` ends a comment as well.
        if let Some(len) = [&b">"[..], b"->"].iter().find(|end| comment.starts_with(end)) {
            return Some(4 + len.len());
        }
        let mut at = 0;
        loop {
            at += find(&comment[at..], b"--")? + 2;
            let after = &comment[at..];
            if after.starts_with(b">") {
                return Some(4 + at + 1);
            } else if after.starts_with(b"!>") {
                return Some(4 + at + 2);
            }
            // The second hyphen may be the first of `-->`.
            at -= 1;
        }
    }
    let name = rest.get(1..)?;
    let name = name.strip_prefix(b"/").unwrap_or(name);
    match name.first() {
        Some(first) if first.is_ascii_alphabetic() => end_of_tag(rest),
        // In SVG and MathML, it ends at `]]>`.
        _ if rest.starts_with(b"<![CDATA[") => None,
        // `<!doctype>`, `<?xml>` and `</ >` end at the first `>`, whatever precedes it.
        Some(b'!' | b'?') => Some(find(rest, b">")? + 1),
        Some(_) if rest.starts_with(b"</") => Some(find(rest, b">")? + 1),
        _ => Some(1),
    }
}

/// Returns the length of the tag that `rest` begins with, or `None` if the tag has no end. A `>` in
/// a quoted value does not end a tag. A quote begins a quoted value only after `=`, as in the
/// tokenizer of the HTML standard.
fn end_of_tag(rest: &[u8]) -> Option<usize> {
    #[derive(Clone, Copy)]
    enum State {
        /// In the name of the tag, where `=` has no meaning.
        TagName,
        /// Before the name of an attribute, where `=` begins a name.
        BeforeName,
        Name,
        BeforeValue,
        Unquoted,
        Quoted(u8),
    }
    let mut state = State::TagName;
    for (at, byte) in rest.iter().copied().enumerate().skip(1) {
        let is_space = byte.is_ascii_whitespace();
        state = match (state, byte) {
            (State::Quoted(quote), _) if byte == quote => State::BeforeName,
            (State::Quoted(_), _) => state,
            (_, b'>') => return Some(at + 1),
            // The slash of an end tag.
            (State::TagName, b'/') if at == 1 => state,
            (State::TagName | State::BeforeName | State::Name, b'/') => State::BeforeName,
            (State::TagName | State::Unquoted, _) if is_space => State::BeforeName,
            (State::TagName | State::Unquoted, _) => state,
            // Spaces may precede and follow the `=`.
            (State::Name, b'=') => State::BeforeValue,
            (State::BeforeName | State::BeforeValue, _) if is_space => state,
            (State::BeforeName | State::Name, _) => State::Name,
            (State::BeforeValue, b'"' | b'\'') => State::Quoted(byte),
            (State::BeforeValue, _) => State::Unquoted,
        };
    }
    None
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

/// Returns the length of the text of an element with this name, which ends before its end tag.
/// Returns `None` if the element has no end tag.
fn length_of_text(text: &[u8], name: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += find(&text[at..], b"</")?;
        if is_start_of(&text[at + 1..], name) {
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
            ("<SCRIPT type='a' NONCE = \"a+b/c=\"", None),
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
