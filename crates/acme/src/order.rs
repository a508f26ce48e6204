//! Orders a certificate from a certificate authority: creates the order, responds to the
//! authority's challenges, and downloads the certificate (RFC 8555, 7.4 and 7.5).

use std::net::IpAddr;
use std::time::Duration;

use rookery_server::tls::{Challenges, IssuedCertificate, SigningKey};
use serde_json::Value;

use crate::failure::Failure;
use crate::protocol::{Account, Authority, describe_problem};
use crate::settings::{Challenge, Settings};
use crate::storage::{self, Responses, Storage};
use rookery_http_client::Response;

/// The maximum duration of each wait for the authority: until it has validated a host of an order,
/// and until it has issued the certificate.
const POLL_TIMEOUT: Duration = Duration::from_secs(180);

/// The first and shortest pause between two requests for the status of an order. Each pause is
/// twice as long as the one before, up to `MAX_POLL_INTERVAL`. A `Retry-After` of the certificate
/// authority replaces the pause, within the same bounds.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The longest pause between two requests for the status of an order.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Orders a certificate and responds to the authority's challenges. Returns PEM text with the
/// certificate, its chain and its private key.
pub(crate) async fn order(
    authority: &Authority,
    account: &Account,
    settings: &Settings,
    (challenges, storage): (&Challenges, &Storage),
    challenge: Challenge,
    replaces: Option<&IssuedCertificate>,
) -> Result<String, Failure> {
    authority.check_profile(settings.profile.as_deref())?;
    let (url, mut order) = authority.order(account, settings, replaces).await?;
    let authorizations: Vec<String> = order["authorizations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    // The server responds to the challenges until this guard is dropped, however the order ends.
    let guard = ChallengeGuard { challenges, storage };
    let (mut responses, mut urls) = (Responses::new(), Vec::new());
    for url in &authorizations {
        if let Some((url, response)) =
            challenge_of(authority, account, settings, url, challenge).await?
        {
            responses.push(response);
            urls.push(url);
        }
    }
    if !responses.is_empty() {
        let stored = storage.save_responses(&responses);
        stored.and_then(|()| storage::apply(&responses, challenges)).map_err(|error| {
            Failure::new(format!("the responses to challenges cannot be stored: {error}"))
        })?;
        // Every server that shares the folder has read them by then.
        tokio::time::sleep(settings.retry.sharing_time()).await;
    }
    for url in &urls {
        authority.post(account, url, Some("{}")).await?;
    }
    for url in &authorizations {
        wait_for_validation(authority, account, url, challenge).await?;
    }
    drop(guard);
    order = poll_until(authority, account, &url, Some(order), |order| status(order) != "pending")
        .await?;
    if status(&order) != "ready" {
        return Err(order_failure(&order, "the authority rejected the order"));
    }
    let hosts: Vec<&str> = settings.domains.iter().map(String::as_str).collect();
    let made = SigningKey::generate().and_then(|key| Ok((key.certificate_request(&hosts)?, key)));
    let (request, key) = made.map_err(|error| Failure::new(error.to_string()))?;
    let payload = serde_json::json!({ "csr": crate::jws::base64(request) }).to_string();
    let finalize = order["finalize"]
        .as_str()
        .ok_or_else(|| Failure::new("the authority's order has no `finalize` URL"))?;
    let (after, _) = authority.post(account, finalize, Some(&payload)).await?;
    order = poll_until(authority, account, &url, Some(after), |order| {
        !matches!(status(order), "processing" | "ready")
    })
    .await?;
    let Some(certificate) = order["certificate"].as_str().filter(|_| status(&order) == "valid")
    else {
        return Err(order_failure(&order, "the authority did not issue the certificate"));
    };
    let chain = authority.download(account, certificate).await?;
    let issued = IssuedCertificate::read(chain.as_bytes())
        .ok_or_else(|| Failure::new("the authority sent data that is not a certificate"))?;
    if let Some(missing) = settings.domains.iter().find(|domain| !issued.hosts.contains(domain)) {
        return Err(Failure::new(format!(
            "the authority sent a certificate that is not for {missing}"
        )));
    }
    Ok(format!("{}\n{}", chain.trim_end(), key.pem()))
}

/// A guard that, when it is dropped, removes the responses to the authority's challenges, also from
/// the other servers that share the folder.
struct ChallengeGuard<'a> {
    challenges: &'a Challenges,
    storage: &'a Storage,
}

impl Drop for ChallengeGuard<'_> {
    fn drop(&mut self) {
        self.challenges.clear();
        // A response that is left does no harm, and the next order replaces it.
        let _ = self.storage.save_responses(&Responses::new());
    }
}

fn status(object: &Value) -> &str {
    object["status"].as_str().unwrap_or_default()
}

/// Returns the URL of the challenge by which the authority validates one host of the order, and the
/// response to the challenge. Returns `None` if the authority has already validated the host.
async fn challenge_of(
    authority: &Authority,
    account: &Account,
    settings: &Settings,
    url: &str,
    challenge: Challenge,
) -> Result<Option<(String, (Challenge, String, String))>, Failure> {
    let (authorization, _) = authority.post(account, url, None).await?;
    if status(&authorization) != "pending" {
        return Ok(None);
    }
    let host = authorization["identifier"]["value"].as_str().unwrap_or_default();
    if !settings.domains.iter().any(|domain| is_same_host(domain, host)) {
        return Err(Failure::new(
            "the authority asks for proof of a host that is not in the order",
        ));
    }
    let offered = authorization["challenges"].as_array().into_iter().flatten();
    let found =
        offered.into_iter().find(|offered| offered["type"].as_str() == Some(challenge.name()));
    let (Some(url), Some(token)) =
        (found.and_then(|it| it["url"].as_str()), found.and_then(|it| it["token"].as_str()))
    else {
        return Err(Failure::new(format!(
            "the authority does not offer the challenge {} for {host}",
            challenge.name()
        )));
    };
    // Checked because the token becomes a part of the server's response (RFC 8555, 8.1).
    if !token.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        return Err(Failure::new("the authority sent an invalid challenge token"));
    }
    let key_authorization = account.key.key_authorization(token);
    let key = match challenge {
        Challenge::Http => token,
        Challenge::Tls => host,
    };
    Ok(Some((url.to_owned(), (challenge, key.to_owned(), key_authorization))))
}

/// Returns true if two texts name the same host. Different spellings of the same IP address count
/// as the same host.
fn is_same_host(one: &str, other: &str) -> bool {
    match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one.eq_ignore_ascii_case(other),
    }
}

/// Waits until the authority has validated that this server controls one host of the order.
async fn wait_for_validation(
    authority: &Authority,
    account: &Account,
    url: &str,
    challenge: Challenge,
) -> Result<(), Failure> {
    let authorization =
        poll_until(authority, account, url, None, |it| status(it) != "pending").await?;
    if status(&authorization) == "valid" {
        return Ok(());
    }
    let host = authorization["identifier"]["value"].as_str().unwrap_or_default();
    let error = authorization["challenges"]
        .as_array()
        .into_iter()
        .flatten()
        .find_map(|challenge| describe_problem(&challenge["error"]).0)
        .unwrap_or_else(|| format!("the authorization is {}", status(&authorization)));
    let (port, what) = match challenge {
        Challenge::Http => (80, "an HTTP request"),
        Challenge::Tls => (443, "a TLS handshake"),
    };
    Err(Failure {
        // This type makes the next attempt use the other challenge.
        problem: Some("unauthorized".to_owned()),
        ..Failure::new(format!(
            "the authority could not verify that {host} is this server, by {what} to port \
             {port} ({}): {error}",
            challenge.name()
        ))
    })
}

fn order_failure(order: &Value, what: &str) -> Failure {
    let (text, problem) = describe_problem(&order["error"]);
    let why = text.unwrap_or_else(|| format!("its status is {}", status(order)));
    Failure { problem, ..Failure::new(format!("{what}: {why}")) }
}

/// Requests the JSON object at `url`, such as an order, again and again until `done` returns true
/// for it, and returns the object. `known` is the object if it has already been received, and is
/// checked with `done` before any request is sent.
async fn poll_until(
    authority: &Authority,
    account: &Account,
    url: &str,
    known: Option<Value>,
    done: impl Fn(&Value) -> bool,
) -> Result<Value, Failure> {
    if let Some(known) = known.filter(&done) {
        return Ok(known);
    }
    let mut pause = MIN_POLL_INTERVAL;
    let polling = async {
        loop {
            let (state, response): (Value, Response) = authority.post(account, url, None).await?;
            if done(&state) {
                return Ok(state);
            }
            let wait = response
                .retry_after()
                .map_or(pause, |said| said.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL));
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    };
    match tokio::time::timeout(POLL_TIMEOUT, polling).await {
        Ok(state) => state,
        Err(_) => Err(Failure::new(format!(
            "the authority did not finish within {} s",
            POLL_TIMEOUT.as_secs()
        ))),
    }
}
