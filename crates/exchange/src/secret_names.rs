//! The names of parameters and headers whose values are secrets. The access log, messages, spans,
//! the live page and R's error pages all use this list, which joins those of Django, Rails and the
//! conventions of OpenTelemetry.

/// The maximum length of the end of a name that is examined.
pub(crate) const MAX_NAME_LEN: usize = 48;

/// The parts of a name that mark its value as a secret wherever they occur. A name has no
/// separators then, so `apikey` also stands for `API-Key`.
const PARTS: [&[u8]; 14] = [
    b"accesskey",
    b"apikey",
    b"assertion",
    b"authoriz",
    b"certificate",
    b"cookie",
    b"credential",
    b"crypt",
    b"passphrase",
    b"passw",
    b"privatekey",
    b"secret",
    b"sessionid",
    b"signature",
];

/// The ends of names, such as `idToken` or `userPwd`.
const ENDS: [&[u8]; 8] =
    [b"auth", b"jwt", b"otp", b"pass", b"pwd", b"sessid", b"session", b"token"];

/// The words in a name that has separators, such as `X-Auth-User` or `token_value`.
const WORDS: [&[u8]; 8] =
    [b"api", b"auth", b"oauth", b"pass", b"salt", b"session", b"ssn", b"token"];

/// The last words of names that have separators, such as `x-functions-key`.
const LAST_WORDS: [&[u8]; 2] = [b"key", b"sig"];

/// The names that mark secrets only as a whole.
const NAMES: [&[u8]; 6] = [b"code", b"pin", b"pw", b"samlresponse", b"sid", b"ticket"];

/// Returns true if the name of a parameter or header, in upper or lower case, says that its value
/// is a secret.
pub fn is_secret_name(name: &[u8]) -> bool {
    let is_separator = |byte: &u8| matches!(byte, b'_' | b'-' | b'.');
    let mut letters = [0; MAX_NAME_LEN];
    let mut free = MAX_NAME_LEN;
    for byte in name.iter().rev().filter(|byte| !is_separator(byte)).take(MAX_NAME_LEN) {
        free -= 1;
        letters[free] = byte.to_ascii_lowercase();
    }
    let letters = &letters[free..];
    // Shorter than any word of the list, as in a target that consists of `=`.
    if letters.len() < 2 {
        return false;
    }
    let is_one_of =
        |word: &[u8], words: &[&[u8]]| words.iter().any(|own| own.eq_ignore_ascii_case(word));
    is_one_of(letters, &NAMES)
        || ENDS.iter().any(|end| letters.ends_with(end))
        || (0..letters.len()).any(|at| PARTS.iter().any(|part| letters[at..].starts_with(part)))
        || name.split(is_separator).any(|word| is_one_of(word, &WORDS))
        || name.rsplit(is_separator).next().is_some_and(|word| is_one_of(word, &LAST_WORDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_recognized_in_all_spellings() {
        for name in [
            "token",
            "access_token",
            "idToken",
            "X-CSRF-Token",
            "token_value",
            "secret",
            "client.secret",
            "Password",
            "passwd",
            "user-pwd",
            "passphrase",
            "pass",
            "api_key",
            "API-KEY",
            "apikey",
            "X-Api-User",
            "X-Functions-Key",
            "key",
            "private_key",
            "sig",
            "X-Amz-Signature",
            "AWSAccessKeyId",
            "X-Goog-Signature",
            "authorization",
            "Proxy-Authorization",
            "X-Auth-User",
            "oauth_verifier",
            "jwt",
            "otp",
            "totp",
            "session",
            "session_id",
            "JSESSIONID",
            "PHPSESSID",
            "sid",
            "cookie",
            "Set-Cookie",
            "salt",
            "ssn",
            "encrypted",
            "X-Client-Certificate",
            "code",
            "pin",
            "ticket",
            "SAMLResponse",
            "client_assertion",
            "credentials",
        ] {
            assert!(is_secret_name(name.as_bytes()), "{name}");
        }
        let long = format!("{}_token", "x".repeat(300));
        assert!(is_secret_name(long.as_bytes()));
    }

    #[test]
    fn other_names_are_not() {
        for name in [
            "",
            "_",
            "page",
            "tokens",
            "max_tokens",
            "keyword",
            "monkey",
            "author",
            "zipcode",
            "spine",
            "keyed",
            "sort.keys",
            "passenger",
            "compare",
            "accept",
            "sidebar",
            "design",
        ] {
            assert!(!is_secret_name(name.as_bytes()), "{name}");
        }
    }
}
