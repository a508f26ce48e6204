//! The parts of the ACME protocol (RFC 8555, 6 and 7.1) that all requests to a certificate
//! authority need: the directory of the authority's URLs, the nonces, and the error messages.

use std::cell::RefCell;
use std::fmt::Write as _;

use http::{Method, StatusCode};
use rookery_http_client::Response;
use rookery_server::tls::IssuedCertificate;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::http::HttpClient;
use crate::jws::{AccountKey, Signer, base64};
use crate::schedule::{Window, parse_rfc3339, window_lifetime};
use crate::settings::Settings;

/// The maximum number of times that one request is sent, each time with a new nonce (a value from
/// the certificate authority that can be used once). An authority may reject many nonces if it
/// consists of several servers that do not share them.
const NONCE_ATTEMPTS: usize = 12;

/// The maximum length in bytes of an authority's error message in the log. Longer messages are
/// truncated.
const MAX_MESSAGE_LENGTH: usize = 500;

/// An account at an ACME authority.
#[derive(Debug)]
pub(crate) struct Account {
    /// The URL that identifies the account at the authority.
    pub(crate) id: String,
    pub(crate) key: AccountKey,
    pub(crate) emails: Vec<String>,
}

/// A client of one ACME authority, with the URLs from the authority's directory and the nonce for
/// the next request.
#[derive(Debug)]
pub(crate) struct Authority {
    http: HttpClient,
    directory: Value,
    /// The nonce that the authority's last response contained, to be used in the next request.
    nonce: RefCell<Option<String>>,
}

impl Authority {
    /// Requests the directory of an ACME authority, which lists the URLs of its API.
    pub(crate) async fn connect(
        http: HttpClient,
        settings: &Settings,
    ) -> Result<Authority, Failure> {
        let response = http.request(Method::GET, &settings.directory, None).await?;
        let directory = json_or_problem(&response)?;
        Ok(Authority { http, directory, nonce: RefCell::new(None) })
    }

    /// Returns the URL that the authority's directory lists under `name`, such as `newOrder`.
    fn endpoint_url(&self, name: &str) -> Result<&str, Failure> {
        self.directory[name]
            .as_str()
            .ok_or_else(|| Failure::new(format!("the authority's directory has no `{name}`")))
    }

    /// Checks that the authority offers certificates with this profile (a kind of certificate that
    /// the authority defines).
    pub(crate) fn check_profile(&self, profile: Option<&str>) -> Result<(), Failure> {
        let Some(wanted) = profile else { return Ok(()) };
        let offered = self.directory["meta"]["profiles"].as_object();
        if offered.is_some_and(|offered| offered.contains_key(wanted)) {
            return Ok(());
        }
        let names: Vec<&str> =
            offered.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(Failure::new(format!(
            "the authority does not offer the profile `{wanted}`; it offers: {has}"
        )))
    }

    /// Creates an account for this key at the authority, or finds the account that the key already
    /// has there.
    pub(crate) async fn register(
        &self,
        key: AccountKey,
        emails: &[String],
    ) -> Result<Account, Failure> {
        if self.directory["meta"]["externalAccountRequired"].as_bool() == Some(true) {
            return Err(Failure::new(
                "the authority requires external account binding, which is not supported: \
                 choose another authority",
            ));
        }
        let payload = json!({ "termsOfServiceAgreed": true, "contact": contact(emails) });
        let response = self
            .post_signed(&key, Signer::Key, self.endpoint_url("newAccount")?, &payload.to_string())
            .await?;
        json_or_problem(&response)?;
        let id = response
            .header("location")
            .ok_or_else(|| Failure::new("the authority sent an account without a URL"))?;
        Ok(Account { id: id.to_owned(), emails: emails.to_vec(), key })
    }

    /// Changes the e-mail addresses of an account at the authority.
    pub(crate) async fn set_emails(
        &self,
        account: &Account,
        emails: &[String],
    ) -> Result<(), Failure> {
        let payload = json!({ "contact": contact(emails) }).to_string();
        self.post(account, &account.id, Some(&payload)).await.map(drop)
    }

    /// Creates an order for a certificate at the authority. Returns the URL of the order and its
    /// JSON object.
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
        // Renewals that name the replaced certificate are exempt from most rate limits (RFC 9773,
        // 5).
        if let Some(id) =
            replaces.filter(|_| self.directory["renewalInfo"].is_string()).and_then(renewal_id)
        {
            payload["replaces"] = Value::from(id);
        }
        let url = self.endpoint_url("newOrder")?;
        let signer = Signer::Account(&account.id);
        let mut response =
            self.post_signed(&account.key, signer, url, &payload.to_string()).await?;
        let is_refused = |problem: &Failure| {
            problem.is("alreadyReplaced") || problem.is("malformed") || problem.is("conflict")
        };
        if payload.get("replaces").is_some()
            && json_or_problem(&response).is_err_and(|problem| is_refused(&problem))
        {
            payload.as_object_mut().expect("it is one").remove("replaces");
            response = self.post_signed(&account.key, signer, url, &payload.to_string()).await?;
        }
        let order = json_or_problem(&response)?;
        let url = response
            .header("location")
            .ok_or_else(|| Failure::new("the authority sent an order without a URL"))?;
        Ok((url.to_owned(), order))
    }

    /// Sends a signed request to `url`, and returns the response with its JSON object. Without a
    /// payload, the request only fetches the object at `url` (POST-as-GET).
    pub(crate) async fn post(
        &self,
        account: &Account,
        url: &str,
        payload: Option<&str>,
    ) -> Result<(Value, Response), Failure> {
        let response = self
            .post_signed(&account.key, Signer::Account(&account.id), url, payload.unwrap_or(""))
            .await?;
        Ok((json_or_problem(&response)?, response))
    }

    /// Downloads an issued certificate with its chain, as PEM text.
    pub(crate) async fn download(&self, account: &Account, url: &str) -> Result<String, Failure> {
        let response =
            self.post_signed(&account.key, Signer::Account(&account.id), url, "").await?;
        if !response.status.is_success() {
            return Err(problem_of(&response));
        }
        String::from_utf8(response.body)
            .map_err(|_| Failure::new("the authority sent a certificate that is not text"))
    }

    /// Requests the time window in which the certificate authority wants the certificate to be
    /// renewed (RFC 9773, 4). Returns the window and the time for which this information stays
    /// valid. Returns `None` if the authority offers no such information.
    pub(crate) async fn renewal_info(
        &self,
        issued: &IssuedCertificate,
    ) -> Result<Option<(Window, std::time::Duration)>, Failure> {
        let (Some(place), Some(id)) = (self.directory["renewalInfo"].as_str(), renewal_id(issued))
        else {
            return Ok(None);
        };
        let url = format!("{}/{id}", place.trim_end_matches('/'));
        let response = self.http.request(Method::GET, &url, None).await?;
        let body = json_or_problem(&response)?;
        let at = |name: &str| body["suggestedWindow"][name].as_str().and_then(parse_rfc3339);
        match (at("start"), at("end")) {
            (Some(start), Some(end)) => {
                Ok(Some((Window { start, end }, window_lifetime(response.retry_after()))))
            }
            _ => Err(Failure::new("the authority's renewal information has no valid window")),
        }
    }

    async fn post_signed(
        &self,
        key: &AccountKey,
        signer: Signer<'_>,
        url: &str,
        payload: &str,
    ) -> Result<Response, Failure> {
        for _ in 0..NONCE_ATTEMPTS {
            let nonce = self.nonce().await?;
            let body = key.sign(signer, &nonce, url, payload)?;
            let response = self.http.request(Method::POST, url, Some(body)).await?;
            self.store_nonce(&response);
            if response.status != StatusCode::BAD_REQUEST || !problem_of(&response).is("badNonce") {
                return Ok(response);
            }
        }
        Err(Failure::new(format!(
            "the authority rejected {NONCE_ATTEMPTS} of its own nonces in a row"
        )))
    }

    async fn nonce(&self) -> Result<String, Failure> {
        if let Some(nonce) = self.nonce.take() {
            return Ok(nonce);
        }
        let response =
            self.http.request(Method::HEAD, self.endpoint_url("newNonce")?, None).await?;
        if !response.status.is_success() {
            return Err(problem_of(&response));
        }
        self.store_nonce(&response);
        self.nonce.take().ok_or_else(|| Failure::new("the authority sent no nonce"))
    }

    fn store_nonce(&self, response: &Response) {
        self.nonce.replace(response.header("replay-nonce").map(str::to_owned));
    }
}

fn contact(emails: &[String]) -> Vec<String> {
    emails.iter().map(|email| format!("mailto:{email}")).collect()
}

/// Returns the identifier by which the client requests the renewal information of a certificate
/// (RFC 9773, 4.1). Returns `None` if the certificate contains no key identifier of its authority.
pub(crate) fn renewal_id(issued: &IssuedCertificate) -> Option<String> {
    Some(format!("{}.{}", base64(issued.authority_key.as_ref()?), base64(&issued.serial)))
}

/// Returns the JSON object of a successful response. If the request failed, returns the error that
/// the response describes.
fn json_or_problem(response: &Response) -> Result<Value, Failure> {
    if !response.status.is_success() {
        return Err(problem_of(response));
    }
    serde_json::from_slice(&response.body)
        .map_err(|_| Failure::new("the authority's response is not valid JSON"))
}

/// Returns the error that a failed response of the authority describes.
fn problem_of(response: &Response) -> Failure {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let (text, problem) = describe_problem(&body);
    let text = text.unwrap_or_else(|| {
        format!("the authority responded with status {}", response.status.as_u16())
    });
    Failure { text, problem, retry_after: response.retry_after() }
}

/// Returns the message of a problem document (RFC 9457) as one line, and its kind: the last part of
/// its type, such as `rateLimited`.
pub(crate) fn describe_problem(problem: &Value) -> (Option<String>, Option<String>) {
    let kind = problem["type"].as_str().and_then(|kind| kind.rsplit(':').next()).map(printable);
    let mut text = problem["detail"].as_str().map(str::to_owned);
    for part in problem["subproblems"].as_array().into_iter().flatten() {
        if let (Some(text), Some(detail)) = (&mut text, part["detail"].as_str()) {
            let whose = part["identifier"]["value"].as_str().unwrap_or_default();
            // Writing to a string cannot fail.
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

/// Makes a message of the authority safe for the log: replaces control characters by spaces, and
/// truncates the text to [`MAX_MESSAGE_LENGTH`].
pub(crate) fn printable(text: &str) -> String {
    let clean = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let mut out = String::new();
    for char in clean {
        if out.len() + char.len_utf8() > MAX_MESSAGE_LENGTH {
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
    fn a_problem_document_becomes_one_line() {
        let body = json!({
            "type": "urn:ietf:params:acme:error:rejectedIdentifier", "detail": "no\nway",
            "subproblems": [
                { "detail": "forbidden", "identifier": { "type": "dns", "value": "a.b" } },
                7,
            ],
        });
        let (text, kind) = describe_problem(&body);
        assert_eq!(text.as_deref(), Some("no way; a.b: forbidden (rejectedIdentifier)"));
        assert_eq!(kind.as_deref(), Some("rejectedIdentifier"));
        assert_eq!(describe_problem(&json!(["detail"])), (None, None));
        assert_eq!(describe_problem(&Value::Null), (None, None));
        let long = describe_problem(&json!({ "detail": "\u{e4}".repeat(9999) })).0.unwrap();
        assert!(long.len() <= MAX_MESSAGE_LENGTH + 3 && long.ends_with("..."), "{}", long.len());
    }

    #[test]
    fn the_renewal_id_is_that_of_rfc_9773() {
        // The example in RFC 9773, 4.1.
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
