//! The authority: its directory, its nonces, and its problems (RFC 8555, 6 and 7.1).

use std::cell::RefCell;
use std::fmt::Write as _;

use http::{Method, StatusCode};
use rookery_server::tls::IssuedCertificate;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::http::{Http, Reply};
use crate::jws::{AccountKey, Signer, base64};
use crate::schedule::{Window, moment, window_stands};
use crate::settings::Settings;

/// How often a request is sent anew because its nonce is refused: an authority whose servers do not know one another's refuses half.
const NONCE_TRIES: usize = 12;

/// Bytes of an authority's words that are passed on.
const WORDS: usize = 500;

/// An account there.
#[derive(Debug)]
pub(crate) struct Account {
    /// The URL by which the authority knows it.
    pub(crate) id: String,
    pub(crate) key: AccountKey,
    pub(crate) emails: Vec<String>,
}

/// An authority, as long as it is talked to.
#[derive(Debug)]
pub(crate) struct Authority {
    http: Http,
    directory: Value,
    /// What the last reply brought.
    nonce: RefCell<Option<String>>,
}

impl Authority {
    /// Asks for its directory.
    pub(crate) async fn open(http: Http, settings: &Settings) -> Result<Authority, Failure> {
        let reply = http.request(Method::GET, &settings.directory, None).await?;
        let directory = checked(&reply)?;
        Ok(Authority { http, directory, nonce: RefCell::new(None) })
    }

    /// A URL of the directory.
    fn place(&self, name: &str) -> Result<&str, Failure> {
        self.directory[name]
            .as_str()
            .ok_or_else(|| Failure::new(format!("the authority's directory has no {name}")))
    }

    /// Whether it offers such certificates.
    pub(crate) fn check_profile(&self, profile: Option<&str>) -> Result<(), Failure> {
        let Some(wanted) = profile else { return Ok(()) };
        let offered = self.directory["meta"]["profiles"].as_object();
        if offered.is_some_and(|offered| offered.contains_key(wanted)) {
            return Ok(());
        }
        let names: Vec<&str> =
            offered.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let has = if names.is_empty() { "none at all".to_owned() } else { names.join(", ") };
        Err(Failure::new(format!("the authority has no profile {wanted}, but {has}")))
    }

    /// Makes an account, or finds that of the key.
    pub(crate) async fn register(
        &self,
        key: AccountKey,
        emails: &[String],
    ) -> Result<Account, Failure> {
        if self.directory["meta"]["externalAccountRequired"].as_bool() == Some(true) {
            return Err(Failure::new(
                "the authority wants an account that was made elsewhere (external account binding), which is not to be had here",
            ));
        }
        let payload = json!({ "termsOfServiceAgreed": true, "contact": contact(emails) });
        let reply =
            self.post(&key, Signer::Key, self.place("newAccount")?, &payload.to_string()).await?;
        checked(&reply)?;
        let id = reply
            .text("location")
            .ok_or_else(|| Failure::new("the authority gave an account without its URL"))?;
        Ok(Account { id: id.to_owned(), emails: emails.to_vec(), key })
    }

    /// Tells it of other addresses of mail.
    pub(crate) async fn set_emails(
        &self,
        account: &Account,
        emails: &[String],
    ) -> Result<(), Failure> {
        let payload = json!({ "contact": contact(emails) }).to_string();
        self.ask(account, &account.id, Some(&payload)).await.map(drop)
    }

    /// Orders a certificate: the order's URL, and what it is.
    pub(crate) async fn order(
        &self,
        account: &Account,
        settings: &Settings,
        replaces: Option<&IssuedCertificate>,
    ) -> Result<(String, Value), Failure> {
        let identifiers: Vec<Value> = settings
            .domains
            .iter()
            .map(|domain| {
                let is_address = domain.parse::<std::net::IpAddr>().is_ok();
                json!({ "type": if is_address { "ip" } else { "dns" }, "value": domain })
            })
            .collect();
        let mut payload = json!({ "identifiers": identifiers });
        if let Some(profile) = &settings.profile {
            payload["profile"] = Value::from(profile.as_str());
        }
        // Renewals that say so are outside most limits (RFC 9773, 5).
        if let Some(id) =
            replaces.filter(|_| self.directory["renewalInfo"].is_string()).and_then(renewal_id)
        {
            payload["replaces"] = Value::from(id);
        }
        let url = self.place("newOrder")?;
        let signer = Signer::Account(&account.id);
        let mut reply = self.post(&account.key, signer, url, &payload.to_string()).await?;
        let is_refused = |problem: &Failure| {
            problem.is("alreadyReplaced") || problem.is("malformed") || problem.is("conflict")
        };
        if payload.get("replaces").is_some()
            && checked(&reply).is_err_and(|problem| is_refused(&problem))
        {
            payload.as_object_mut().expect("it is one").remove("replaces");
            reply = self.post(&account.key, signer, url, &payload.to_string()).await?;
        }
        let order = checked(&reply)?;
        let place = reply
            .text("location")
            .ok_or_else(|| Failure::new("the authority gave an order without its URL"))?;
        Ok((place.to_owned(), order))
    }

    /// Asks for what is at a URL; with a payload, has something done there.
    pub(crate) async fn ask(
        &self,
        account: &Account,
        url: &str,
        payload: Option<&str>,
    ) -> Result<(Value, Reply), Failure> {
        let reply = self
            .post(&account.key, Signer::Account(&account.id), url, payload.unwrap_or(""))
            .await?;
        Ok((checked(&reply)?, reply))
    }

    /// The certificate with its chain, in PEM.
    pub(crate) async fn download(&self, account: &Account, url: &str) -> Result<String, Failure> {
        let reply = self.post(&account.key, Signer::Account(&account.id), url, "").await?;
        if !reply.status.is_success() {
            return Err(problem(&reply));
        }
        String::from_utf8(reply.body)
            .map_err(|_| Failure::new("the authority gave a certificate that is no text"))
    }

    /// When it wants a certificate renewed, and how long to take its word (RFC 9773, 4).
    pub(crate) async fn window(
        &self,
        issued: &IssuedCertificate,
    ) -> Result<Option<(Window, std::time::Duration)>, Failure> {
        let (Some(place), Some(id)) = (self.directory["renewalInfo"].as_str(), renewal_id(issued))
        else {
            return Ok(None);
        };
        let url = format!("{}/{id}", place.trim_end_matches('/'));
        let reply = self.http.request(Method::GET, &url, None).await?;
        let said = checked(&reply)?;
        let at = |name: &str| said["suggestedWindow"][name].as_str().and_then(moment);
        match (at("start"), at("end")) {
            (Some(start), Some(end)) => {
                Ok(Some((Window { start, end }, window_stands(reply.retry_after()))))
            }
            _ => Err(Failure::new("the authority names no time to renew at")),
        }
    }

    async fn post(
        &self,
        key: &AccountKey,
        signer: Signer<'_>,
        url: &str,
        payload: &str,
    ) -> Result<Reply, Failure> {
        for _ in 0..NONCE_TRIES {
            let nonce = self.nonce().await?;
            let body = key.sign(signer, &nonce, url, payload)?;
            let reply = self.http.request(Method::POST, url, Some(body)).await?;
            self.keep_nonce(&reply);
            if reply.status != StatusCode::BAD_REQUEST || !problem(&reply).is("badNonce") {
                return Ok(reply);
            }
        }
        Err(Failure::new(format!(
            "the authority refuses its own nonces, {NONCE_TRIES} of them in a row"
        )))
    }

    async fn nonce(&self) -> Result<String, Failure> {
        if let Some(nonce) = self.nonce.take() {
            return Ok(nonce);
        }
        let reply = self.http.request(Method::HEAD, self.place("newNonce")?, None).await?;
        if !reply.status.is_success() {
            return Err(problem(&reply));
        }
        self.keep_nonce(&reply);
        self.nonce.take().ok_or_else(|| Failure::new("the authority gave no nonce"))
    }

    fn keep_nonce(&self, reply: &Reply) {
        self.nonce.replace(reply.text("replay-nonce").map(str::to_owned));
    }
}

fn contact(emails: &[String]) -> Vec<String> {
    emails.iter().map(|email| format!("mailto:{email}")).collect()
}

/// How an authority knows a certificate (RFC 9773, 4.1).
pub(crate) fn renewal_id(issued: &IssuedCertificate) -> Option<String> {
    Some(format!("{}.{}", base64(issued.authority_key.as_ref()?), base64(&issued.serial)))
}

/// What a reply says, unless it is a problem.
fn checked(reply: &Reply) -> Result<Value, Failure> {
    if !reply.status.is_success() {
        return Err(problem(reply));
    }
    serde_json::from_slice(&reply.body)
        .map_err(|_| Failure::new("the authority answered with what is no JSON"))
}

/// What is wrong, as a reply says it.
fn problem(reply: &Reply) -> Failure {
    let said: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let (text, problem) = told(&said);
    let text = text
        .unwrap_or_else(|| format!("the authority answered with status {}", reply.status.as_u16()));
    Failure { text, problem, retry_after: reply.retry_after() }
}

/// A problem document (RFC 9457) as a line, and the last part of its type.
pub(crate) fn told(problem: &Value) -> (Option<String>, Option<String>) {
    let kind = problem["type"].as_str().and_then(|kind| kind.rsplit(':').next()).map(printable);
    let mut text = problem["detail"].as_str().map(str::to_owned);
    for part in problem["subproblems"].as_array().into_iter().flatten() {
        if let (Some(text), Some(detail)) = (&mut text, part["detail"].as_str()) {
            let whose = part["identifier"]["value"].as_str().unwrap_or_default();
            // A string takes all that is written to it.
            let _ = write!(text, "; {whose}: {detail}");
        }
    }
    let text = match (text, &kind) {
        (Some(text), Some(kind)) => Some(format!("{} ({kind})", printable(&text))),
        (Some(text), None) => Some(printable(&text)),
        (None, kind) => kind.clone(),
    };
    (text, kind)
}

/// One line of no great length, whatever it was.
pub(crate) fn printable(text: &str) -> String {
    let clean = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let mut out = String::new();
    for char in clean {
        if out.len() + char.len_utf8() > WORDS {
            out.push_str("...");
            break;
        }
        out.push(char);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_a_line() {
        let said = json!({
            "type": "urn:ietf:params:acme:error:rejectedIdentifier", "detail": "no\nway",
            "subproblems": [{ "detail": "forbidden", "identifier": { "type": "dns", "value": "a.b" } }, 7],
        });
        let (text, kind) = told(&said);
        assert_eq!(text.as_deref(), Some("no way; a.b: forbidden (rejectedIdentifier)"));
        assert_eq!(kind.as_deref(), Some("rejectedIdentifier"));
        assert_eq!(told(&json!(["detail"])), (None, None));
        assert_eq!(told(&Value::Null), (None, None));
        let long = told(&json!({ "detail": "\u{e4}".repeat(9999) })).0.unwrap();
        assert!(long.len() <= WORDS + 3 && long.ends_with("..."), "{}", long.len());
    }

    #[test]
    fn a_certificate_is_known_by_its_authority_and_number() {
        // The example of RFC 9773, 4.1.
        let issued = IssuedCertificate {
            begins: std::time::SystemTime::UNIX_EPOCH,
            ends: std::time::SystemTime::UNIX_EPOCH,
            hosts: Vec::new(),
            serial: vec![0x00, 0x87, 0x65, 0x43, 0x21],
            authority_key: Some(vec![
                0x69, 0x88, 0x5B, 0x6B, 0x87, 0x46, 0x40, 0x41, 0xE1, 0xB3, 0x7B, 0x84, 0x7B, 0xA0,
                0xAE, 0x2C, 0xDE, 0x01, 0xC8, 0xD4,
            ]),
            sha256: [0; 32],
        };
        assert_eq!(renewal_id(&issued).as_deref(), Some("aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE"));
        assert_eq!(renewal_id(&IssuedCertificate { authority_key: None, ..issued }), None);
    }
}
