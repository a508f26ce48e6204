//! The names of parameters and headers whose values are secrets. The access log, messages, spans,
//! the live page and R's error pages all use this list, which joins those of Django, Rails and the
//! conventions of OpenTelemetry.

/// The number of letters at the end of a name that are examined.
pub(crate) const MAX_NAME_LEN: usize = 48;

/// The parts of a name that mark its value as a secret wherever they occur. Only the letters of a
/// name are examined, so `apikey` also stands for `API-Key`.
const PARTS: [&[u8]; 23] = [
    b"accesskey",
    b"accountkey",
    b"apikey",
    b"assertion",
    b"authcode",
    b"authent",
    b"authkey",
    b"authoriz",
    b"certificate",
    b"cookie",
    b"credential",
    b"crypt",
    b"licensekey",
    b"passcode",
    b"passkey",
    b"passphrase",
    b"passw",
    b"privatekey",
    b"secret",
    b"sessionid",
    b"sessionkey",
    b"signature",
    b"subscriptionkey",
];

/// The endings that mark a name as that of a secret, such as `idToken` or `userPwd`.
const ENDS: [&[u8]; 8] =
    [b"auth", b"jwt", b"otp", b"pass", b"pwd", b"sessid", b"session", b"token"];

/// The words that mark a name as that of a secret at any place, such as `X-Auth-User` or
/// `tokenValue`.
const WORDS: [&[u8]; 10] =
    [b"api", b"auth", b"oauth", b"pass", b"private", b"pwd", b"salt", b"session", b"ssn", b"token"];

/// The words that mark a name as that of a secret at its end, such as `x-functions-key` or
/// `hostKey`.
const LAST_WORDS: [&[u8]; 2] = [b"key", b"sig"];

/// The complete names of secrets, which do not mark a name that contains them.
const NAMES: [&[u8]; 6] = [b"code", b"pin", b"pw", b"samlresponse", b"sid", b"ticket"];

/// Returns true if the name of a parameter or header, in upper or lower case, says that its value
/// is a secret. The name may be that of a field in a form, such as `user[pass]`.
pub fn is_secret_name(name: &[u8]) -> bool {
    let mut letters = [0; MAX_NAME_LEN];
    let mut free = MAX_NAME_LEN;
    for byte in name.iter().rev().filter(|byte| byte.is_ascii_alphabetic()).take(MAX_NAME_LEN) {
        free -= 1;
        letters[free] = byte.to_ascii_lowercase();
    }
    let letters = &letters[free..];
    // No entry of the lists is that short. The target `=` has a parameter with an empty name.
    if letters.len() < 2 {
        return false;
    }
    let is_one_of =
        |word: &[u8], words: &[&[u8]]| words.iter().any(|own| own.eq_ignore_ascii_case(word));
    is_one_of(letters, &NAMES)
        || ENDS.iter().any(|end| letters.ends_with(end))
        || (0..letters.len()).any(|at| PARTS.iter().any(|part| letters[at..].starts_with(part)))
        || words(name).any(|word| is_one_of(word, &WORDS))
        || words(name).last().is_some_and(|word| is_one_of(word, &LAST_WORDS))
}

/// Returns the words of a name. A word consists of letters, and ends where an upper-case letter
/// follows a lower-case one.
fn words(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_same_word = |a: &u8, b: &u8| {
        a.is_ascii_alphabetic()
            && b.is_ascii_alphabetic()
            && !(a.is_ascii_lowercase() && b.is_ascii_uppercase())
    };
    name.chunk_by(is_same_word).filter(|word| word[0].is_ascii_alphabetic())
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
        for name in [
            "Authentication",
            "X-Authentication",
            "authentication",
            "passcode",
            "X-Passcode",
            "passkey",
            "authKey",
            "authkey",
            "authCode",
            "authcode",
            "sessionKey",
            "sessionkey",
            "licenseKey",
            "X-LicenseKey",
            "accountKey",
            "subscriptionKey",
            "Ocp-Apim-Subscription-Key",
            "tokenValue",
            "tokenHash",
            "private",
            "isPrivate",
            "pwd_hash",
            "oauth2",
            "OAuth2",
            "token2",
            "user[pass]",
            "user[token]",
            "s[auth]",
            "token[]",
            "user[key][0]",
            "token ",
            " token",
            "token:",
        ] {
            assert!(is_secret_name(name.as_bytes()), "{name}");
        }
        let long = format!("{}_token", "x".repeat(300));
        assert!(is_secret_name(long.as_bytes()));
    }

    /// Checks the names in the former lists of the access log, spans and R's error pages, and other
    /// names with the same words.
    #[test]
    fn names_of_the_joined_lists_are_recognized() {
        // The former lists found these anywhere in a name. Now they count only as whole words.
        let words = [
            "api",
            "apikey",
            "api_key",
            "assertion",
            "auth",
            "certificate",
            "cookie",
            "credential",
            "crypt",
            "pass",
            "passphrase",
            "passw",
            "private",
            "pwd",
            "salt",
            "secret",
            "session",
            "signature",
            "ssn",
            "token",
        ];
        for word in words {
            let upper = word.to_ascii_uppercase();
            let title = format!("{}{}", &upper[..1], &word[1..]);
            for name in [
                word.to_owned(),
                format!("x-{word}"),
                format!("x_{word}_y"),
                format!("X-{upper}-Y"),
                format!("user{title}"),
                format!("{word}Value"),
                format!("user[{word}]"),
                format!("{word}[]"),
                format!("{word}[0][a]"),
                format!("{word} "),
                format!("{word}1"),
            ] {
                assert!(is_secret_name(name.as_bytes()), "{name}");
            }
        }
        let ends = [
            "accesskey",
            "authorization",
            "credentials",
            "jwt",
            "otp",
            "passwd",
            "password",
            "privatekey",
            "secretkey",
        ];
        for end in ends {
            for name in
                [end.to_owned(), format!("x-{end}"), format!("my{end}"), format!("a[{end}]")]
            {
                assert!(is_secret_name(name.as_bytes()), "{name}");
            }
        }
        for name in [
            "awsaccesskeyid",
            "code",
            "key",
            "pin",
            "proxy-authorization",
            "samlresponse",
            "sessionid",
            "sid",
            "sig",
            "ticket",
            "x-goog-signature",
            "x-key",
            "x_key",
        ] {
            assert!(is_secret_name(name.as_bytes()), "{name}");
        }
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
            "coauthor",
            "compass[north]",
            "author[name]",
            "maxTokens",
            "keyName",
            "encoding",
            "[]",
            "1",
        ] {
            assert!(!is_secret_name(name.as_bytes()), "{name}");
        }
    }
}
