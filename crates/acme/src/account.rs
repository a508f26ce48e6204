//! The account at an ACME authority, and what the authority says about renewals.

use std::io;
use std::time::{Duration, SystemTime};

use instant_acme::{Account, AccountBuilder, CertificateIdentifier, NewAccount};
use rookery_server::tls::IssuedCertificate;
use rustls::pki_types::Der;

use crate::acme::Acme;
use crate::failure::Failure;
use crate::schedule::{Window, window_lifetime};

impl Acme {
    /// Requests the authority's directory. Returns the stored account, or registers a new one.
    pub(crate) async fn account(&self) -> Result<Account, Failure> {
        let Acme { settings, storage, http, .. } = self;
        let storage_error =
            |error: io::Error| Failure::new(format!("the account cannot be stored: {error}"));
        let client = || -> AccountBuilder { Account::builder_with_http(Box::new(http.clone())) };
        let contact: Vec<String> =
            settings.emails.iter().map(|email| format!("mailto:{email}")).collect();
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        if let Some((credentials, emails)) = storage.account() {
            let account = client().from_credentials(credentials).await?;
            if emails != settings.emails {
                match account.update_contacts(&contact).await.map_err(Failure::from) {
                    // The order will fail with the same problem, which then creates a new account.
                    Err(failure) if failure.is("accountDoesNotExist") => return Ok(account),
                    updated => updated?,
                }
                if let Some((credentials, _)) = storage.account() {
                    storage.save_account(&credentials, &settings.emails).map_err(storage_error)?;
                }
            }
            return Ok(account);
        }
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let (account, credentials) =
            client().create(&new, settings.directory.clone(), None).await?;
        storage.save_account(&credentials, &settings.emails).map_err(storage_error)?;
        Ok(account)
    }

    /// Requests the time window in which the certificate authority wants the certificate to be
    /// renewed (RFC 9773, 4). Returns the window and the time for which this information stays
    /// valid. Returns `None` if the authority offers no such information, or an invalid one.
    pub(crate) async fn renewal_info(
        &self,
        id: &CertificateIdentifier<'_>,
    ) -> Result<Option<(Window, Duration)>, Failure> {
        let (info, retry_after) = match self.account().await?.renewal_info(id).await {
            Err(instant_acme::Error::Unsupported(_)) => return Ok(None),
            requested => requested?,
        };
        let window = info.suggested_window;
        let [start, end] = [window.start, window.end].map(|time| {
            let since_1970 = u64::try_from(time.unix_timestamp()).ok()?;
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since_1970))
        });
        let window = start.zip(end).map(|(start, end)| Window { start, end });
        Ok(window.map(|window| (window, window_lifetime(Some(retry_after)))))
    }
}

/// Returns the identifier by which the client requests the renewal information of a certificate
/// (RFC 9773, 4.1). Returns `None` if the certificate contains no key identifier of its authority.
pub(crate) fn renewal_id(issued: &IssuedCertificate) -> Option<CertificateIdentifier<'static>> {
    let key = Der::from_slice(issued.authority_key.as_ref()?);
    Some(CertificateIdentifier::new(key, Der::from_slice(&issued.serial)).into_owned())
}
