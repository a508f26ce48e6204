//! Certificates that an authority issues.

use crate::kind::Kind;
use crate::setting::{Default, Former, Group, Places, Section, Setting, Shown, Stability};
use crate::{derived, forms, rules};

const ACME: Setting = Setting {
    group: Group::Https,
    section: Section::Acme,
    is_program_variable: true,
    places: Places::PROGRAM,
    stability: Stability::Experimental,
    ..Setting::EMPTY
};

pub(super) static ROWS: [Setting; 9] = [
    Setting {
        name: "domain",
        key: "domain",
        shown: Shown::Always,
        kind: Kind::List(&forms::DOMAINS),
        placeholder: "name",
        is_program_variable: true,
        r_argument: "acme(domain)",
        help: "Get a certificate for this name by ACME; may be repeated",
        paragraph: "The certificate is ordered and renewed while the server runs, from Let's Encrypt \
                    unless `acme_directory` names another authority. Wildcard names are not supported.",
        stability: Stability::Stable,
        rule: Some(rules::clients_need_another_port),
        former: &[Former {
            places: Places::FILE.and(Places::R),
            ..Former::everywhere("domains", Section::Acme)
        }],
        ..ACME
    },
    Setting {
        name: "email",
        key: "email",
        shown: Shown::Always,
        kind: Kind::List(&forms::EMAILS),
        placeholder: "address",
        is_program_variable: true,
        r_argument: "acme(email)",
        help: "Contact address for the certificate authority",
        paragraph: "Several may be given. The authority may write there when something is wrong with a \
                    certificate.",
        stability: Stability::Stable,
        needs: &["domain"],
        ..ACME
    },
    Setting {
        name: "agree_tos",
        key: "agree_tos",
        shown: Shown::Always,
        kind: Kind::Flag,
        default: Default::Is("off"),
        is_program_variable: true,
        r_argument: "acme(agree_tos)",
        help: "Agree to the certificate authority's terms of service",
        paragraph: "`domain` needs it. The terms of Let's Encrypt are at \
                    <https://letsencrypt.org/repository/>.",
        stability: Stability::Stable,
        needs: &["domain"],
        ..ACME
    },
    Setting {
        name: "acme_staging",
        key: "staging",
        kind: Kind::Flag,
        default: Default::Is("off"),
        places: Places::FILE.and(Places::R),
        r_argument: "acme(staging)",
        help: "Use Let's Encrypt's staging environment, for trials",
        paragraph: "Its certificates are trusted by no browser, and its limits are wide: use it to try \
                    out a name and a firewall.",
        needs: &["domain"],
        excludes: &["acme_directory"],
        former: &[Former::option("acme_staging", "it is set once for a deployment")],
        ..ACME
    },
    Setting {
        name: "acme_directory",
        key: "directory",
        kind: Kind::Text(&forms::URL),
        default: Default::Derived { text: "Let's Encrypt", value: derived::found_at_start },
        places: Places::FILE.and(Places::R),
        r_argument: "acme(directory)",
        help: "ACME directory of another certificate authority",
        paragraph: "The URL of the directory that RFC 8555 describes. It excludes `acme_staging`.",
        needs: &["domain"],
        former: &[Former::option("acme_directory", "it is set once for a deployment")],
        ..ACME
    },
    Setting {
        name: "acme_profile",
        key: "profile",
        kind: Kind::Text(&forms::WORD),
        default: Default::Derived {
            text: "the authority's default",
            value: derived::found_at_start,
        },
        places: Places::FILE.and(Places::R),
        r_argument: "acme(profile)",
        help: "Certificate profile to ask for, such as shortlived",
        paragraph: "Let's Encrypt has `tlsserver` and `shortlived`; addresses instead of names need the \
                    latter.",
        needs: &["domain"],
        former: &[Former::option("acme_profile", "it is set once for a deployment")],
        ..ACME
    },
    Setting {
        name: "acme_challenge",
        key: "challenge",
        kind: Kind::Choice(&["http-01", "tls-alpn-01"]),
        default: Default::Derived { text: "both, in turn", value: derived::found_at_start },
        places: Places::FILE.and(Places::R),
        r_argument: "acme(challenge)",
        help: "Only ACME challenge to use: http-01 or tls-alpn-01",
        paragraph: "The server answers `http-01` on the port of `redirect_from`, and `tls-alpn-01` on its \
                    own port. If this is not set and one challenge fails, the other one is tried.",
        needs: &["domain"],
        former: &[Former::option("acme_challenge", "it is set once for a deployment")],
        ..ACME
    },
    Setting {
        name: "acme_ca",
        key: "ca",
        kind: Kind::Path,
        default: Default::Derived {
            text: "the authorities that the system trusts",
            value: derived::found_at_start,
        },
        places: Places::FILE.and(Places::R),
        r_argument: "acme(ca)",
        help: "Authority that signs the ACME server's own certificate",
        paragraph: "PEM. It is needed for an authority of your own whose certificate the system does not \
                    trust.",
        needs: &["domain"],
        former: &[Former::option("acme_ca", "it is set once for a deployment")],
        ..ACME
    },
    Setting {
        name: "acme_dir",
        key: "dir",
        kind: Kind::Path,
        default: Default::Derived {
            text: "`acme/` in R's folder for data",
            value: derived::found_at_start,
        },
        places: Places::FILE.and(Places::R),
        r_argument: "acme(dir)",
        help: "Folder that keeps the ACME account and certificates",
        paragraph: "Only the user who runs the server may read it. If several servers share the folder, \
                    one of them orders certificates, and all of them use these.",
        needs: &["domain"],
        former: &[Former::option("acme_dir", "it is set once for a deployment")],
        ..ACME
    },
];
