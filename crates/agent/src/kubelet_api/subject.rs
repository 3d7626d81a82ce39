//! Who a client certificate speaks for: Kubernetes takes the user from the common name and the groups from the
//! organizations. Read only from a certificate whose signature has been checked. Pure.

use host::access::Caller;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
/// UTF8String, PrintableString, IA5String.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
const VERSION: u8 = 0xa0;
const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
const ORGANIZATION: [u8; 3] = [0x55, 4, 10];

/// Nobody, where there is no common name, more than one, or a text that cannot be read.
pub(super) fn caller(certificate: &[u8]) -> Option<Caller> {
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    let mut names = subject(certificate)?;
    while !names.is_empty() {
        let (mut pairs, rest) = inside(SET, names)?;
        names = rest;
        while !pairs.is_empty() {
            let (pair, rest) = inside(SEQUENCE, pairs)?;
            pairs = rest;
            let (kind, value) = inside(OID, pair)?;
            if kind == COMMON_NAME {
                users.push(text(value)?);
            } else if kind == ORGANIZATION {
                groups.push(text(value)?);
            }
        }
    }
    let [user] = <[String; 1]>::try_from(users).ok()?;
    (!user.is_empty()).then_some(Caller { user, groups })
}

/// What is inside of a certificate's subject.
fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let (signed, _) = inside(SEQUENCE, certificate)?;
    let (mut fields, _) = inside(SEQUENCE, signed)?;
    let (first, _, rest) = element(fields)?;
    if first == VERSION {
        fields = rest;
    }
    // serial number, algorithm, issuer, validity
    for _ in 0..4 {
        fields = element(fields)?.2;
    }
    Some(inside(SEQUENCE, fields)?.0)
}

fn text(value: &[u8]) -> Option<String> {
    let (tag, bytes, _) = element(value)?;
    TEXTS.contains(&tag).then(|| String::from_utf8(bytes.to_vec()).ok())?
}

/// The content of the first element, which has this tag, and what comes after it.
fn inside(wanted: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    (tag == wanted).then_some((content, rest))
}

/// The first element: its tag, its content, and what comes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn user_and_groups_are_the_common_name_and_the_organizations() {
        let long = "o".repeat(200);
        let names = [
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, long.as_str()),
            (DnType::CommonName, "kube-apiserver-kubelet-client"),
        ];
        let caller = caller(&certificate(&names)).unwrap();
        assert_eq!((caller.user.as_str(), caller.groups), ("kube-apiserver-kubelet-client", vec![long]));
    }

    #[test]
    fn certificate_without_a_common_name_is_nobodys() {
        for names in [&[][..], &[(DnType::OrganizationName, "system:masters")], &[(DnType::CommonName, "")]] {
            assert_eq!(caller(&certificate(names)), None);
        }
    }

    #[test]
    fn certificate_that_is_cut_off_is_nobodys() {
        let whole = certificate(&[(DnType::CommonName, "a")]);
        for end in 0..whole.len() {
            assert_eq!(caller(&whole[..end]), None, "{end}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_are_nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            caller(&bytes);
        }
    }
}
