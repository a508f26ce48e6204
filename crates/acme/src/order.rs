//! Orders a certificate from a certificate authority: creates the order, responds to the
//! authority's challenges, and downloads the certificate (RFC 8555, 7.4 and 7.5).

use std::net::IpAddr;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, Error, Identifier, NewOrder, Order,
    OrderStatus, RetryPolicy,
};
use rookery_server::tls::Challenges;

use crate::failure::Failure;
use crate::settings::{Challenge, Settings};
use crate::storage::{self, Responses, Storage};

/// The pauses between two requests for the status of an order, and the maximum duration of each
/// wait for the authority: until it has validated the hosts of an order, and until it has issued
/// the certificate. A `Retry-After` of the authority replaces a pause.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(180));

/// Orders a certificate and responds to the authority's challenges. Returns PEM text with the
/// certificate, its chain and its private key.
pub(crate) async fn order(
    account: &Account,
    settings: &Settings,
    (challenges, storage): (&Challenges, &Storage),
    challenge: Challenge,
    replaces: Option<CertificateIdentifier<'static>>,
) -> Result<String, Failure> {
    check_profile(account, settings.profile.as_deref())?;
    let mut order = create(account, settings, replaces).await?;
    // The server responds to the challenges until this guard is dropped, however the order ends.
    let guard = ChallengeGuard { challenges, storage };
    let mut responses = Responses::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status != AuthorizationStatus::Pending {
            continue;
        }
        let host = authorization.identifier().to_string();
        if !settings.domains.contains(&host.to_ascii_lowercase()) {
            return Err(Failure::new(
                "the authority asks for proof of a host that is not in the order",
            ));
        }
        let Some(offered) = authorization.challenge(challenge.kind()) else {
            return Err(Failure::new(format!(
                "the authority does not offer the challenge {} for {host}",
                challenge.name()
            )));
        };
        // Checked because the token becomes a part of the server's response (RFC 8555, 8.1).
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if offered.token.is_empty() || !offered.token.bytes().all(is_allowed) {
            return Err(Failure::new("the authority sent an invalid challenge token"));
        }
        let key = match challenge {
            Challenge::Http => offered.token.clone(),
            Challenge::Tls => host,
        };
        responses.push((challenge, key, offered.key_authorization().as_str().to_owned()));
    }
    if !responses.is_empty() {
        let stored = storage.save_responses(&responses);
        stored.and_then(|()| storage::apply(&responses, challenges)).map_err(|error| {
            Failure::new(format!("the responses to challenges cannot be stored: {error}"))
        })?;
        // Every server that shares the folder has read them by then.
        tokio::time::sleep(settings.retry.sharing_time()).await;
    }
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Pending {
            if let Some(mut offered) = authorization.challenge(challenge.kind()) {
                offered.set_ready().await?;
            }
        }
    }
    let polled = order.poll_ready(&POLLING).await;
    drop(guard);
    if !matches!(polled, Ok(OrderStatus::Ready)) {
        return Err(rejection(&mut order, challenge, polled).await);
    }
    let key = order.finalize().await?;
    let chain = order.poll_certificate(&POLLING).await?;
    Ok(format!("{}\n{key}", chain.trim_end()))
}

/// Checks that the authority offers certificates with this profile (a kind of certificate that the
/// authority defines).
fn check_profile(account: &Account, profile: Option<&str>) -> Result<(), Failure> {
    let mut offered: Vec<&str> = account.profiles().map(|profile| profile.name).collect();
    match profile {
        Some(wanted) if !offered.contains(&wanted) => {
            offered.sort_unstable();
            let has = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
            Err(Failure::new(format!(
                "the authority does not offer the profile `{wanted}`; it offers: {has}"
            )))
        }
        _ => Ok(()),
    }
}

/// Creates the order. Renewals that name the replaced certificate are exempt from most rate limits
/// (RFC 9773, 5). If the authority refuses the name, the order is created without it.
async fn create(
    account: &Account,
    settings: &Settings,
    replaces: Option<CertificateIdentifier<'static>>,
) -> Result<Order, Failure> {
    let identifiers: Vec<Identifier> = settings
        .domains
        .iter()
        .map(|domain| match domain.parse::<IpAddr>() {
            Ok(address) => Identifier::Ip(address),
            Err(_) => Identifier::Dns(domain.clone()),
        })
        .collect();
    let new = || match &settings.profile {
        Some(profile) => NewOrder::new(&identifiers).profile(profile),
        None => NewOrder::new(&identifiers),
    };
    if let Some(replaces) = replaces {
        let is_refusal = |failure: &Failure| {
            ["alreadyReplaced", "malformed", "conflict"].iter().any(|kind| failure.is(kind))
        };
        match account.new_order(&new().replaces(replaces)).await {
            Err(Error::Other(error)) if error.downcast_ref().is_some_and(|it| !is_refusal(it)) => {
                return Err(Error::Other(error).into());
            }
            // The authority has refused the name or ignored it, or offers no renewal information.
            Err(_) => {}
            Ok(order) => return Ok(order),
        }
    }
    Ok(account.new_order(&new()).await?)
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

/// Returns the reason why an order is not ready: what the authority says about the first host that
/// it could not validate, or else about the order.
async fn rejection(
    order: &mut Order,
    challenge: Challenge,
    polled: Result<OrderStatus, Error>,
) -> Failure {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { break };
        if matches!(state.status, AuthorizationStatus::Pending | AuthorizationStatus::Valid) {
            continue;
        }
        let host = state.identifier();
        let error = match state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
            Some(problem) => Failure::from(problem).text,
            None => format!("the authorization is {:?}", state.status).to_lowercase(),
        };
        let (port, what) = match challenge {
            Challenge::Http => (80, "an HTTP request"),
            Challenge::Tls => (443, "a TLS handshake"),
        };
        return Failure::new(format!(
            "the authority could not verify that {host} is this server, by {what} to port \
             {port} ({}): {error}",
            challenge.name()
        ));
    }
    match polled {
        Err(error) => error.into(),
        Ok(status) => Failure::new(format!("the authority's order is {status:?}").to_lowercase()),
    }
}
