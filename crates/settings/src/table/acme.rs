//! The settings for certificates from a certificate authority that uses ACME, as rows of the table
//! of settings.

use crate::kind::Kind;
use crate::setting::{Default, Group, Places, Section, Setting, Stability};
use crate::text_forms;

const ACME: Setting = Setting {
    r_function: "acme",
    group: Group::Https,
    section: Section::Acme,
    places: Places::PROGRAM,
    stability: Stability::Experimental,
    ..Setting::EMPTY
};

/// A deployment sets these once, so they have no command-line option.
const WITHOUT_OPTION: Places = Places::PROGRAM.without(Places::COMMAND_LINE);

pub(super) static ROWS: [Setting; 7] = [
    Setting {
        name: "domain",
        is_common: true,
        kind: Kind::List(&text_forms::DOMAINS),
        help: "Get a certificate for this host name by ACME; may be repeated",
        paragraph: "Turns HTTPS on. While the server runs, it orders the certificate and renews it \
                    before it expires. The certificate comes from Let's Encrypt, unless \
                    `acme_directory` in `_server.yml` or R names another certificate authority. \
                    The authority must be able to reach this server under the host name, and you \
                    must agree to its terms with `agree_tos`. Wildcard names are not supported.",
        stability: Stability::Stable,
        ..ACME
    },
    Setting {
        name: "email",
        is_common: true,
        kind: Kind::List(&text_forms::EMAILS),
        help: "Contact address for the certificate authority; may be repeated",
        paragraph: "The authority may write to this address if there is a problem with a \
                    certificate.",
        stability: Stability::Stable,
        needs: &["domain"],
        ..ACME
    },
    Setting {
        name: "agree_tos",
        is_common: true,
        kind: Kind::Flag,
        help: "Agree to the certificate authority's terms of service",
        paragraph: "`domain` requires this agreement. The terms of Let's Encrypt are at \
                    <https://letsencrypt.org/repository/>.",
        stability: Stability::Stable,
        needs: &["domain"],
        ..ACME
    },
    Setting {
        name: "acme_directory",
        kind: Kind::Text(&text_forms::URL),
        default: Default::Derived("Let's Encrypt"),
        places: WITHOUT_OPTION,
        help: "ACME directory URL of another certificate authority",
        paragraph: "Certificates are then ordered from this authority instead of Let's Encrypt. \
                    The directory is the URL at which an authority lists its ACME endpoints (RFC \
                    8555, 7.1.1). The \
                    staging environment of Let's Encrypt, for tests, is at \
                    <https://acme-staging-v02.api.letsencrypt.org/directory>; browsers do not \
                    trust its certificates.",
        needs: &["domain"],
        ..ACME
    },
    Setting {
        name: "acme_profile",
        kind: Kind::Text(&text_forms::WORD),
        default: Default::Derived("the authority's default"),
        places: WITHOUT_OPTION,
        help: "Certificate profile to request, such as shortlived",
        paragraph: "Each authority defines its own profiles. Let's Encrypt offers `tlsserver` and \
                    `shortlived`; certificates for IP addresses need `shortlived`.",
        needs: &["domain"],
        ..ACME
    },
    Setting {
        name: "acme_ca",
        kind: Kind::Path,
        default: Default::Derived("the CA certificates of the system"),
        places: WITHOUT_OPTION,
        help: "PEM file with the CA certificates that verify the ACME server",
        paragraph: "Set this for a private certificate authority whose ACME server has an HTTPS \
                    certificate that the system does not trust.",
        needs: &["domain"],
        ..ACME
    },
    Setting {
        name: "acme_dir",
        kind: Kind::Path,
        default: Default::Derived("`acme` in R's user data folder"),
        places: WITHOUT_OPTION,
        help: "Folder for the ACME account and the certificates",
        paragraph: "Only the user who runs the server can read the folder. If several servers \
                    share the folder, also on several machines, only one of them orders the \
                    certificates. All of them use these certificates and respond to the challenges \
                    of the authority, which may connect to any of them.",
        needs: &["domain"],
        ..ACME
    },
];
