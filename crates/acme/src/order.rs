//! One order, from its beginning to a certificate (RFC 8555, 7.4 and 7.5).

use std::net::IpAddr;
use std::time::Duration;

use rookery_server::tls::{Challenges, IssuedCertificate, SigningKey};
use serde_json::Value;

use crate::failure::Failure;
use crate::http::Reply;
use crate::protocol::{Account, Authority, told};
use crate::settings::{Challenge, Settings};

/// How long an authority may take to look, and again to issue.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long to wait before it is asked again whether it is done, where it does not say so: growing from the first to the last. What it
/// says is kept to as well, up to the last.
const ASK_AGAIN: Duration = Duration::from_millis(250);
const ASK_AGAIN_MOST: Duration = Duration::from_secs(10);

/// Orders a certificate and proves whose the hosts are: the certificate with its chain and its key, in PEM.
pub(crate) async fn order(
    authority: &Authority,
    account: &Account,
    settings: &Settings,
    challenges: &Challenges,
    challenge: Challenge,
    replaces: Option<&IssuedCertificate>,
) -> Result<String, Failure> {
    authority.check_profile(settings.profile.as_deref())?;
    let (place, mut order) = authority.order(account, settings, replaces).await?;
    let places: Vec<String> = order["authorizations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    // Answered as long as it lasts, however it ends.
    let answering = Answering(challenges);
    for place in &places {
        begin(authority, account, settings, place, &answering, challenge).await?;
    }
    for place in &places {
        proven(authority, account, place, challenge).await?;
    }
    drop(answering);
    order =
        until(authority, account, &place, Some(order), |order| status(order) != "pending").await?;
    if status(&order) != "ready" {
        return Err(failed(&order, "the authority refuses the order"));
    }
    let hosts: Vec<&str> = settings.domains.iter().map(String::as_str).collect();
    let made = SigningKey::generate().and_then(|key| Ok((key.request(&hosts)?, key)));
    let (request, key) = made.map_err(|error| Failure::new(error.to_string()))?;
    let payload = serde_json::json!({ "csr": crate::jws::base64(request) }).to_string();
    let finalize = order["finalize"]
        .as_str()
        .ok_or_else(|| Failure::new("the authority's order has no finalize"))?;
    let (after, _) = authority.ask(account, finalize, Some(&payload)).await?;
    order = until(authority, account, &place, Some(after), |order| {
        !matches!(status(order), "processing" | "ready")
    })
    .await?;
    let Some(certificate) = order["certificate"].as_str().filter(|_| status(&order) == "valid")
    else {
        return Err(failed(&order, "the authority issues no certificate"));
    };
    let chain = authority.download(account, certificate).await?;
    let issued = IssuedCertificate::read(chain.as_bytes())
        .ok_or_else(|| Failure::new("the authority gave what is no certificate"))?;
    if let Some(missing) = settings.domains.iter().find(|domain| !issued.hosts.contains(domain)) {
        return Err(Failure::new(format!("the authority gave a certificate without {missing}")));
    }
    Ok(format!("{}\n{}", chain.trim_end(), key.pem()))
}

/// Nothing is answered any more when it is dropped.
struct Answering<'a>(&'a Challenges);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

fn status(object: &Value) -> &str {
    object["status"].as_str().unwrap_or_default()
}

/// Has the authority look whose one host is, unless it knows from before.
async fn begin(
    authority: &Authority,
    account: &Account,
    settings: &Settings,
    place: &str,
    answering: &Answering<'_>,
    challenge: Challenge,
) -> Result<(), Failure> {
    let (authorization, _) = authority.ask(account, place, None).await?;
    if status(&authorization) != "pending" {
        return Ok(());
    }
    let host = authorization["identifier"]["value"].as_str().unwrap_or_default();
    if !settings.domains.iter().any(|domain| is_same_host(domain, host)) {
        return Err(Failure::new(
            "the authority asks for a host that no certificate was ordered for",
        ));
    }
    let offered = authorization["challenges"].as_array().into_iter().flatten();
    let found =
        offered.into_iter().find(|offered| offered["type"].as_str() == Some(challenge.name()));
    let (Some(url), Some(token)) =
        (found.and_then(|it| it["url"].as_str()), found.and_then(|it| it["token"].as_str()))
    else {
        return Err(Failure::new(format!(
            "the authority does not look at {host} by {}",
            challenge.name()
        )));
    };
    // It becomes a part of what this server says (RFC 8555, 8.1).
    if !token.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        return Err(Failure::new("the authority gave a token that is none"));
    }
    let told = account.key.authorization(token);
    match challenge {
        Challenge::Http => answering.0.answer_http(token, &told),
        Challenge::Tls => {
            answering.0.answer_tls(host, &told).map_err(|error| Failure::new(error.to_string()))?;
        }
    }
    authority.ask(account, url, Some("{}")).await.map(drop)
}

/// An address may be written in several ways.
fn is_same_host(one: &str, other: &str) -> bool {
    match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one.eq_ignore_ascii_case(other),
    }
}

/// Waits until the authority has seen whose one host is.
async fn proven(
    authority: &Authority,
    account: &Account,
    place: &str,
    challenge: Challenge,
) -> Result<(), Failure> {
    let authorization =
        until(authority, account, place, None, |it| status(it) != "pending").await?;
    if status(&authorization) == "valid" {
        return Ok(());
    }
    let host = authorization["identifier"]["value"].as_str().unwrap_or_default();
    let error = authorization["challenges"]
        .as_array()
        .into_iter()
        .flatten()
        .find_map(|challenge| told(&challenge["error"]).0)
        .unwrap_or_else(|| format!("its authorization is {}", status(&authorization)));
    let (port, what) = match challenge {
        Challenge::Http => (80, "a request"),
        Challenge::Tls => (443, "TLS"),
    };
    Err(Failure {
        // So that the other challenge is tried.
        problem: Some("unauthorized".to_owned()),
        ..Failure::new(format!(
            "the authority did not see that {host} is this server, by {what} to port {port} ({}): {error}",
            challenge.name()
        ))
    })
}

fn failed(order: &Value, what: &str) -> Failure {
    let (text, problem) = told(&order["error"]);
    let why = text.unwrap_or_else(|| format!("its status is {}", status(order)));
    Failure { problem, ..Failure::new(format!("{what}: {why}")) }
}

/// Asks for what is at `place` until it is `done`.
async fn until(
    authority: &Authority,
    account: &Account,
    place: &str,
    known: Option<Value>,
    done: impl Fn(&Value) -> bool,
) -> Result<Value, Failure> {
    if let Some(known) = known.filter(&done) {
        return Ok(known);
    }
    let mut pause = ASK_AGAIN;
    let asking = async {
        loop {
            let (state, reply): (Value, Reply) = authority.ask(account, place, None).await?;
            if done(&state) {
                return Ok(state);
            }
            let wait =
                reply.retry_after().map_or(pause, |said| said.clamp(ASK_AGAIN, ASK_AGAIN_MOST));
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(ASK_AGAIN_MOST);
        }
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(state) => state,
        Err(_) => {
            Err(Failure::new(format!("the authority was not done within {} s", PATIENCE.as_secs())))
        }
    }
}
