//! The private key of an ACME account, which signs the account's requests to the certificate
//! authority (JWS, RFC 7515). The signatures use ECDSA over P-256 with SHA-256 (RFC 7518, 3.4).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Encodes bytes as base64url without padding, as JSON Web Signatures require (RFC 7515, 2).
pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The private key of an ACME account, which signs its requests.
pub(crate) struct AccountKey {
    pkcs8: Vec<u8>,
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

/// The way in which a signed request identifies the ACME account: by the account's URL, or by its
/// public key if the authority does not know the account yet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signer<'a> {
    Account(&'a str),
    Key,
}

impl AccountKey {
    pub(crate) fn generate() -> Result<AccountKey, Failure> {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .map_err(|_| Failure::new("the system provides no random numbers"))?;
        AccountKey::from_pkcs8(pkcs8.as_ref())
    }

    /// Decodes a private key from the text that [`to_text`](Self::to_text) returned. Returns `None`
    /// if the text is not a valid key.
    pub(crate) fn from_text(text: &str) -> Option<AccountKey> {
        AccountKey::from_pkcs8(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Result<AccountKey, Failure> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random)
            .map_err(|rejected| {
                Failure::new(format!("the key of the account cannot be used: {rejected}"))
            })?;
        Ok(AccountKey { pkcs8: pkcs8.to_vec(), pair, random })
    }

    /// Encodes the private key as text, for storage in a file.
    pub(crate) fn to_text(&self) -> String {
        base64(&self.pkcs8)
    }

    /// Returns the public key as a JSON Web Key (JWK, RFC 7517). The fields are in alphabetical
    /// order, as RFC 7638 requires for computing the key's thumbprint, a hash of this text.
    fn public_jwk(&self) -> String {
        // The first byte states that the point is uncompressed; the two coordinates follow.
        let point = self.pair.public_key().as_ref();
        let (x, y) = (base64(&point[1..33]), base64(&point[33..65]));
        format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#)
    }

    /// Returns the key authorization for the token of an ACME challenge. The certificate authority
    /// expects this text in the server's response to the challenge, because it proves that the
    /// response comes from this account (RFC 8555, 8.1).
    pub(crate) fn key_authorization(&self, token: &str) -> String {
        format!("{token}.{}", base64(digest(&SHA256, self.public_jwk().as_bytes())))
    }

    /// Signs the body of one request to `url`. The signed body can be used only once, because it
    /// contains a nonce.
    pub(crate) fn sign(
        &self,
        signer: Signer<'_>,
        nonce: &str,
        url: &str,
        payload: &str,
    ) -> Result<String, Failure> {
        let mut protected = json!({ "alg": "ES256", "nonce": nonce, "url": url });
        match signer {
            Signer::Account(id) => protected["kid"] = Value::from(id),
            Signer::Key => {
                protected["jwk"] =
                    serde_json::from_str(&self.public_jwk()).expect("it was written just now");
            }
        }
        let (protected, payload) = (base64(protected.to_string()), base64(payload));
        let signature = self
            .pair
            .sign(&self.random, format!("{protected}.{payload}").as_bytes())
            .map_err(|_| Failure::new("the system provides no random numbers"))?;
        Ok(json!({ "protected": protected, "payload": payload, "signature": base64(signature) })
            .to_string())
    }
}

/// Formats the key for debugging without revealing the private key.
impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    #[test]
    fn signatures_can_be_verified() {
        let key = AccountKey::generate().unwrap();
        let again = AccountKey::from_text(&key.to_text()).unwrap();
        assert_eq!(again.public_jwk(), key.public_jwk());
        for (signer, field) in [(Signer::Account("https://ca/a/1"), "kid"), (Signer::Key, "jwk")] {
            let signed: Value =
                serde_json::from_str(&key.sign(signer, "n", "https://ca/o", "{}").unwrap())
                    .unwrap();
            let text = |name: &str| signed[name].as_str().unwrap().to_owned();
            let decoded = |name: &str| URL_SAFE_NO_PAD.decode(text(name)).unwrap();
            let message = format!("{}.{}", text("protected"), text("payload"));
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.pair.public_key().as_ref())
                .verify(message.as_bytes(), &decoded("signature"))
                .unwrap();
            let protected: Value = serde_json::from_slice(&decoded("protected")).unwrap();
            assert_eq!(
                (&protected["alg"], &protected["nonce"], &protected["url"]),
                (&json!("ES256"), &json!("n"), &json!("https://ca/o"))
            );
            assert!(protected.get(field).is_some() && protected.as_object().unwrap().len() == 4);
            assert_eq!(decoded("payload"), b"{}");
        }
        let (token, print) = (key.key_authorization("tok"), key.public_jwk());
        assert_eq!(token, format!("tok.{}", base64(digest(&SHA256, print.as_bytes()))));
        // The fields must be in lexicographic order and without spaces (RFC 7638, 3).
        let places: Vec<usize> = ["\"crv\"", "\"kty\"", "\"x\"", "\"y\""]
            .map(|field| print.find(field).unwrap())
            .to_vec();
        assert!(places.is_sorted() && !print.contains(' '), "{print}");
    }

    #[test]
    fn rejects_text_that_is_not_a_key() {
        for wrong in ["", "!", "AAAA"] {
            assert!(AccountKey::from_text(wrong).is_none(), "{wrong}");
        }
    }
}
