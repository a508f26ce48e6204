//! What a Content Security Policy (CSP, level 3) allows a script of the page's own server to do.

/// Whether a policy allows a script of the page's own server, and its WebSocket to that server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    Granted,
    /// The script needs the attribute `nonce`.
    WithNonce,
    Denied,
}

/// Returns what the policies of a page allow together. `headers` are the values of its
/// `Content-Security-Policy` headers, each of which may contain several policies.
pub(crate) fn permission<'a>(headers: impl Iterator<Item = &'a [u8]>) -> Permission {
    let policies = headers.flat_map(|header| header.split(|byte| *byte == b','));
    policies.fold(Permission::Granted, |sum, policy| match (sum, of_policy(policy)) {
        (Permission::Denied, _) | (_, Permission::Denied) => Permission::Denied,
        (Permission::WithNonce, _) | (_, Permission::WithNonce) => Permission::WithNonce,
        (Permission::Granted, Permission::Granted) => Permission::Granted,
    })
}

fn of_policy(policy: &[u8]) -> Permission {
    let directive = |name: &[u8]| {
        let mut directives = policy.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        directives.find_map(|directive| {
            let end = directive.iter().position(u8::is_ascii_whitespace).unwrap_or(directive.len());
            let (own, sources) = directive.split_at(end);
            own.eq_ignore_ascii_case(name).then_some(sources)
        })
    };
    let first = |names: [&[u8]; 3]| names.into_iter().find_map(directive);
    if directive(b"sandbox").is_some_and(|allowed| !has(allowed, b"allow-scripts")) {
        return Permission::Denied;
    }
    if first([b"connect-src", b"default-src", b"default-src"]).is_some_and(|it| !has_self(it)) {
        return Permission::Denied;
    }
    let Some(scripts) = first([b"script-src-elem", b"script-src", b"default-src"]) else {
        return Permission::Granted;
    };
    let has_nonce = words(scripts)
        .any(|word| word.get(..7).is_some_and(|start| start.eq_ignore_ascii_case(b"'nonce-")));
    if has_nonce {
        Permission::WithNonce
    } else if has_self(scripts) && !has(scripts, b"'strict-dynamic'") {
        Permission::Granted
    } else {
        Permission::Denied
    }
}

/// Returns true if a list of sources contains the page's own server. Lists that name this server by
/// its host are not recognized.
fn has_self(sources: &[u8]) -> bool {
    has(sources, b"'self'") || has(sources, b"*")
}

fn has(sources: &[u8], source: &[u8]) -> bool {
    words(sources).any(|word| word.eq_ignore_ascii_case(source))
}

fn words(sources: &[u8]) -> impl Iterator<Item = &[u8]> {
    sources.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_grants_or_denies_a_script_of_the_same_server() {
        for (policies, expected) in [
            (&[][..], Permission::Granted),
            (&[""], Permission::Granted),
            (&["img-src 'none'"], Permission::Granted),
            (&["default-src 'self'"], Permission::Granted),
            (&["Script-Src 'SELF'"], Permission::Granted),
            (&["script-src *"], Permission::Granted),
            (&["default-src 'none'; script-src 'self'; connect-src 'self'"], Permission::Granted),
            (&["script-src 'self' 'nonce-abc'"], Permission::WithNonce),
            (&["script-src 'self', script-src 'nonce-abc'"], Permission::WithNonce),
            (&["script-src 'none'; script-src-elem 'self'"], Permission::Granted),
            (&["default-src 'none'"], Permission::Denied),
            (&["script-src 'none'"], Permission::Denied),
            (&["script-src"], Permission::Denied),
            (&["script-src https://cdn.example"], Permission::Denied),
            (&["script-src 'self' 'strict-dynamic' 'sha256-x'"], Permission::Denied),
            (&["script-src 'self'; connect-src 'none'"], Permission::Denied),
            (&["script-src 'self'", "script-src 'none'"], Permission::Denied),
            (&["sandbox"], Permission::Denied),
            (&["sandbox allow-scripts"], Permission::Granted),
        ] {
            let headers = policies.iter().map(|policy| policy.as_bytes());
            assert_eq!(permission(headers), expected, "{policies:?}");
        }
    }
}
