//! Names of volumes, snapshots and groups: the hash every leaf object carries, and the handle the host keeps.

use std::{fmt, ops::RangeInclusive};

use sha2::{Digest, Sha256};

/// The longest id the interface allows, in bytes.
const LONGEST_ID: usize = 128;
/// Digits of a hash that a readable handle carries.
const PREFIX: usize = 16;
/// The longest name of a member.
const LONGEST_MEMBER: usize = 40;

/// The UID of the host's `kube-system` namespace: whose volumes these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostId(pub String);

impl fmt::Display for HostId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// 128 bits over (host id, CSI volume name), printed as 32 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeHash(u128);

impl VolumeHash {
    pub fn new(host: &HostId, name: &str) -> Self {
        Self::over(&[&host.0, "\n", name])
    }

    /// No name holds a NUL, so no volume, snapshot or group has a hash of another kind.
    pub fn of_snapshot(host: &HostId, name: &str) -> Self {
        Self::over(&[&host.0, "\0snapshot\n", name])
    }

    pub fn of_group(host: &HostId, name: &str) -> Self {
        Self::over(&[&host.0, "\0group\n", name])
    }

    /// The snapshot of one volume in a group.
    pub fn of_part(host: &HostId, group: &str, volume: Self) -> Self {
        Self::over(&[&host.0, "\0part\n", group, "\0", &volume.to_string()])
    }

    fn over(parts: &[&str]) -> Self {
        let digest = parts.iter().fold(Sha256::new(), Digest::chain_update).finalize();
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        Self(u128::from_be_bytes(first))
    }

    /// Stands for a claim that was there before: the digits of its handle, then some of its place.
    pub fn imported(host: &HostId, id: &VolumeId) -> Self {
        let place = Self::new(host, &id.to_string());
        Self((id.hashes().start().0 & !u128::from(u64::MAX)) | (place.0 >> 64))
    }

    /// Exactly 32 lower-case hex digits, as in a label.
    pub fn parse(text: &str) -> Option<Self> {
        hex(text, 32).map(Self)
    }

    /// All that begin with these sixteen digits.
    pub fn beginning_with(prefix: &str) -> Option<RangeInclusive<Self>> {
        hex(prefix, PREFIX).map(Self::beginning)
    }

    fn beginning(half: u128) -> RangeInclusive<Self> {
        let first = half << 64;
        Self(first)..=Self(first | u128::from(u64::MAX))
    }

    /// A number to spread volumes by.
    pub fn seed(self) -> u64 {
        u64::try_from(self.0 >> 64).unwrap_or_default()
    }

    /// The half that a readable handle carries.
    pub fn prefix(self) -> String {
        format!("{:016x}", self.seed())
    }
}

impl fmt::Display for VolumeHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

/// The handle: which member, and which leaf claim there. Snapshots and groups have handles of the same form, with the
/// name of the leaf snapshot or group where a volume's has that of the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeId {
    pub member: String,
    pub leaf: LeafName,
}

/// How a handle names its leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeafName {
    /// `<member>/<namespace>/<claim>/<16 hex>`: readable.
    Readable { namespace: String, claim: String, prefix: String },
    /// `<member>///<32 hex>`: where the readable form would be too long; the leaf is found by its label.
    Hashed(VolumeHash),
}

impl VolumeId {
    pub fn new(member: &str, namespace: &str, claim: &str, hash: VolumeHash) -> Self {
        // With three slashes between.
        let length = member.len() + namespace.len() + claim.len() + PREFIX + 3;
        let leaf = if length <= LONGEST_ID {
            let (namespace, claim) = (namespace.to_owned(), claim.to_owned());
            LeafName::Readable { namespace, claim, prefix: hash.prefix() }
        } else {
            LeafName::Hashed(hash)
        };
        Self { member: member.to_owned(), leaf }
    }

    /// Nothing is an error here: what is not one of our handles is simply not one of our volumes.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST_ID {
            return None;
        }
        let mut parts = text.split('/');
        let (member, namespace, claim, hash) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let leaf = match (namespace, claim) {
            ("", "") => LeafName::Hashed(VolumeHash::parse(hash)?),
            _ if is_label(namespace, 63) && is_subdomain(claim) => LeafName::Readable {
                namespace: namespace.to_owned(),
                claim: claim.to_owned(),
                prefix: hex(hash, PREFIX).map(|_| hash.to_owned())?,
            },
            _ => return None,
        };
        is_member_name(member).then(|| Self { member: member.to_owned(), leaf })
    }

    /// Where the leaf is, if the handle says so.
    pub fn place(&self) -> Option<LeafPlace> {
        match &self.leaf {
            LeafName::Readable { namespace, claim, .. } => {
                Some(LeafPlace { namespace: namespace.clone(), claim: claim.clone() })
            }
            LeafName::Hashed(_) => None,
        }
    }

    /// Whether a leaf at this place would have this handle.
    pub fn is_of(&self, place: &LeafPlace) -> bool {
        match &self.leaf {
            LeafName::Readable { namespace, claim, .. } => *namespace == place.namespace && *claim == place.claim,
            LeafName::Hashed(hash) => Self::new(&self.member, &place.namespace, &place.claim, *hash) == *self,
        }
    }

    /// The hashes this handle can stand for: one, or all that begin with its sixteen digits.
    pub fn hashes(&self) -> RangeInclusive<VolumeHash> {
        match &self.leaf {
            LeafName::Hashed(hash) => *hash..=*hash,
            LeafName::Readable { prefix, .. } => VolumeHash::beginning(hex(prefix, PREFIX).unwrap_or_default()),
        }
    }

    /// Whether the handle was made for the volume with this hash.
    pub fn names(&self, hash: VolumeHash) -> bool {
        match &self.leaf {
            LeafName::Readable { prefix, .. } => *prefix == hash.prefix(),
            LeafName::Hashed(own) => *own == hash,
        }
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.leaf {
            LeafName::Readable { namespace, claim, prefix } => {
                write!(out, "{}/{namespace}/{claim}/{prefix}", self.member)
            }
            LeafName::Hashed(hash) => write!(out, "{}///{hash}", self.member),
        }
    }
}

/// A DNS label of at most 40 characters.
pub fn is_member_name(text: &str) -> bool {
    is_label(text, LONGEST_MEMBER)
}

/// A DNS label: the form of a namespace's name.
pub fn is_label(text: &str, longest: usize) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    matches!(bytes, [first, .., last] if inner(*first) && inner(*last)) | matches!(bytes, [only] if inner(*only))
        && bytes.len() <= longest
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
}

/// A DNS subdomain: the form of a claim's name.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| is_label(label, 253))
}

/// The form of what Kubernetes gives an object as its UID.
pub fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn hex(text: &str, digits: usize) -> Option<u128> {
    let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (text.len() == digits && text.bytes().all(lower_hex)).then(|| u128::from_str_radix(text, 16).ok())?
}

/// Where a leaf claim lives inside its member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafPlace {
    pub namespace: String,
    pub claim: String,
}

impl fmt::Display for LeafPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.claim)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(name: &str) -> VolumeHash {
        VolumeHash::new(&HostId("4f3c".to_owned()), name)
    }

    #[test]
    fn hash_is_the_first_half_of_sha256_over_host_newline_name() {
        // printf '4f3c\npvc-1' | sha256sum
        assert_eq!(hash("pvc-1").to_string(), "9b7bc785f3839dc52490df193e1bca30");
    }

    #[test]
    fn kinds_never_share_a_hash() {
        let host = HostId("4f3c".to_owned());
        let all = [
            VolumeHash::new(&host, "x"),
            VolumeHash::of_snapshot(&host, "x"),
            VolumeHash::of_group(&host, "x"),
            VolumeHash::of_part(&host, "x", hash("y")),
            VolumeHash::of_part(&host, "x", hash("z")),
        ];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn handle_is_readable_where_it_fits() {
        let id = VolumeId::new("cluster38", "test-new", "nginx-pvc", hash("pvc-1"));
        assert_eq!(id.to_string(), format!("cluster38/test-new/nginx-pvc/{}", hash("pvc-1").prefix()));
        assert!(id.names(hash("pvc-1")) && !id.names(hash("pvc-2")));
    }

    #[test]
    fn handle_that_would_be_too_long_carries_the_whole_hash_instead() {
        let id = VolumeId::new("cluster38", "n", &"c".repeat(120), hash("pvc-1"));
        assert_eq!(id.to_string(), format!("cluster38///{}", hash("pvc-1")));
        let [longest, longer] =
            [99, 100].map(|length| VolumeId::new("cluster38", "n", &"c".repeat(length), hash("pvc-1")));
        assert_eq!((longest.to_string().len(), longer.to_string().len()), (LONGEST_ID, 44));
    }

    #[test]
    fn handle_is_that_of_a_leaf_where_one_is_made_for_it() {
        let place = |claim: &str| LeafPlace { namespace: "n".to_owned(), claim: claim.to_owned() };
        let (short, long) = (place("c"), place(&"c".repeat(120)));
        let [readable, hashed] =
            [&short, &long].map(|place| VolumeId::new("m", &place.namespace, &place.claim, hash("pvc-1")));
        assert!(readable.is_of(&short) && !readable.is_of(&place("d")) && !readable.is_of(&long));
        assert!(hashed.is_of(&long) && hashed.is_of(&place(&"d".repeat(120))) && !hashed.is_of(&short));
    }

    #[test]
    fn what_is_no_handle_is_no_volume() {
        let good = hash("x").prefix();
        for text in [
            "",
            "fake-vol-id",
            "a/b/c",
            "a/b/c/d",
            "a/b/../0123456789abcdef",
            "a/../c/0123456789abcdef",
            "A/b/c/0123456789abcdef",
            "a//c/0123456789abcdef",
            "a/b//0123456789abcdef",
            "a/b/c/0123456789ABCDEF",
            "a/b/c/0123456789abcde",
            "a/b/c/0123456789abcdef/e",
            "a///0123456789abcdef",
            "/b/c/0123456789abcdef",
        ] {
            assert_eq!(VolumeId::parse(text), None, "{text}");
        }
        assert!(VolumeId::parse(&format!("{}/b/c/{good}", "m".repeat(40))).is_some());
        assert!(VolumeId::parse(&format!("{}/b/c/{good}", "m".repeat(41))).is_none());
    }

    #[test]
    fn hash_of_an_imported_claim_is_named_by_its_handle_and_differs_by_place() {
        let host = HostId("4f3c".to_owned());
        let [one, other] = ["a", "b"].map(|claim| VolumeId::parse(&format!("m/n/{claim}/{}", "0".repeat(16))).unwrap());
        let hashes = [&one, &other].map(|id| VolumeHash::imported(&host, id));
        assert!(one.names(hashes[0]) && one.hashes().contains(&hashes[0]));
        assert_ne!(hashes[0], hashes[1]);
    }

    proptest! {
        #[test]
        fn every_handle_is_parsed_back(
            member in "[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?",
            namespace in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
            claim in "[a-z0-9]([-a-z0-9]{0,80}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,80}[a-z0-9])?){0,2}",
            name in ".{0,128}",
        ) {
            let id = VolumeId::new(&member, &namespace, &claim, hash(&name));
            prop_assert!(id.to_string().len() <= 128);
            prop_assert!(id.names(hash(&name)) && id.hashes().contains(&hash(&name)));
            prop_assert_eq!(VolumeId::parse(&id.to_string()), Some(id));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,200}") {
            if let Some(id) = VolumeId::parse(&text) {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }

    #[test]
    fn name_that_no_object_can_have_is_no_subdomain() {
        for name in ["data", "data-0", "0", "a.b-c.d", &"a".repeat(253)] {
            assert!(is_subdomain(name), "{name:?}");
        }
        let none = [
            "", ".", "..", "../x", "other/x", "x/status", "x?y", "x#y", "x%2fy", "X", "-x", "x-", "a..b", "a.-b",
            "x\n", "ä",
        ];
        for name in none.into_iter().chain([&*"a".repeat(254)]) {
            assert!(!is_subdomain(name), "{name:?}");
        }
    }
}
