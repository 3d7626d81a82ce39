//! A volume that begins with the content of another one or of a snapshot: it goes where that is, and its leaf claim names
//! the leaf of that as its source.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use super::{Deadline, Provisioner, abandon, find, found_snapshot::was_given_out, snapshots};
use domain::{
    error::{Error, Result},
    volume::{MEMBER_KEY, Request, Source, VolumeHash, VolumeId, VolumeSpec, quantity},
};
use leaf::{MemberClient, claim::LeafSource};
use member::{Member, registry::serving};

/// What a leaf claim is to be filled with, and how large that is.
#[derive(Clone, Debug)]
pub(super) struct ContentSource {
    pub(super) source: LeafSource,
    pub(super) size: u64,
}

/// The leaf of a source, as it was found.
struct FoundSource {
    source: LeafSource,
    namespace: String,
    size: u64,
    /// The storage driver that holds it; empty where it is of none.
    driver: String,
}

/// The member of the source is the only one that will do, as if the class named it. Another name of it may have served when the source was
/// given out.
pub(super) fn beside_source<'a>(
    members: &BTreeMap<String, Arc<Member>>,
    spec: &'a VolumeSpec,
) -> Result<Cow<'a, VolumeSpec>> {
    let Some(source) = &spec.request.source else { return Ok(Cow::Borrowed(spec)) };
    let member = serving(members, &parsed(source)?.member);
    if let Some(other) = spec.parameters.member.as_ref().filter(|other| **other != member) {
        return Err(Error::NoPlace(format!(
            "{source} is in member {member} and can be copied only there, but the class names member {other}"
        )));
    }
    let named = |list: &[String]| list.contains(&member);
    let anywhere = spec.preferred.is_empty() && spec.requisite.is_empty();
    if !anywhere && !named(&spec.preferred) && !named(&spec.requisite) {
        let mut allowed: Vec<&str> = spec.preferred.iter().chain(&spec.requisite).map(String::as_str).collect();
        allowed.sort_unstable();
        allowed.dedup();
        return Err(Error::NoPlace(format!(
            "{source} is in member {member} and can be copied only there, but the requirement allows {MEMBER_KEY} to be only {}",
            allowed.join(", ")
        )));
    }
    let mut spec = spec.clone();
    spec.parameters.member = Some(member);
    Ok(Cow::Owned(spec))
}

fn parsed(source: &Source) -> Result<VolumeId> {
    VolumeId::parse(source.handle()).ok_or_else(|| missing(source))
}

fn missing(source: &Source) -> Error {
    Error::NotFound(format!("volume_content_source: there is no {source}"))
}

/// The requirement may have moved away from the source's member since a leaf was made there.
pub(super) async fn refused_beside(
    provisioner: &Provisioner,
    spec: &VolumeSpec,
    refusal: Error,
    deadline: &Deadline,
) -> Error {
    let cleared = async {
        let source = spec.request.source.as_ref().and_then(|source| VolumeId::parse(source.handle()));
        let Some(source) = source else { return Ok(true) };
        let member = provisioner.members.get(&source.member).await?;
        abandon::clear(provisioner, &member, spec, VolumeHash::new(&provisioner.host.id, &spec.name), deadline).await
    };
    match cleared.await {
        // Nothing is awaited of a member that was forgotten.
        Ok(true) | Err(Error::NotFound(_)) => refusal,
        Ok(false) => Error::InProgress(format!("volume {} is in use by the host", spec.name)),
        Err(error) => error.while_a_leaf_may_exist(),
    }
}

/// Looks the source up and holds it against the request. Nothing is made yet.
pub(super) async fn filling(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    namespace: &str,
    class: &str,
    request: &Request,
    source: &Source,
) -> Result<ContentSource> {
    let found = match source {
        Source::Snapshot(_) => found_snapshot(leaf, source).await?,
        Source::Volume(_) => found_volume(provisioner, source).await?,
    };
    let member = &leaf.member;
    if found.namespace != namespace {
        return Err(Error::Refused(format!(
            "member {member}: {source} is in namespace {} and the new leaf claim would be in {}: a member copies within \
             one namespace only. Use a class whose leafNamespace.{member} is {}",
            found.namespace, namespace, found.namespace
        )));
    }
    // A driver that knows nothing of sources would make an empty volume without a word.
    let provisioner = leaf.rows.class(class).map(|class| class.provisioner.to_string()).unwrap_or_default();
    if found.driver.is_empty() || provisioner != found.driver {
        let holder = if found.driver.is_empty() { "no CSI driver" } else { found.driver.as_str() };
        return Err(Error::Refused(format!(
            "member {member}: {source} is held by {holder}, and StorageClass {class} makes volumes by {provisioner}, which \
             cannot copy it: name a class of the same driver with leafStorageClass.{member}"
        )));
    }
    let (required, limit) = (request.required, request.limit);
    if (required > 0 && required < found.size) || (limit > 0 && limit < found.size) {
        return Err(Error::OutOfRange(format!(
            "{source} has {}, and a copy of it must be at least as large",
            quantity::print(found.size)
        )));
    }
    Ok(ContentSource { source: found.source, size: found.size })
}

async fn found_snapshot(leaf: &MemberClient, source: &Source) -> Result<FoundSource> {
    let row = snapshots::source(leaf, &parsed(source)?).await?.ok_or_else(|| missing(source))?;
    if !row.ready {
        return Err(Error::InProgress(format!("{source} cannot be used yet")));
    }
    was_given_out(leaf, &row, &source.to_string()).await?;
    Ok(FoundSource {
        source: LeafSource::Snapshot(row.place.claim.clone()),
        namespace: row.place.namespace.clone(),
        size: row.size,
        driver: row.driver.to_string(),
    })
}

async fn found_volume(provisioner: &Provisioner, source: &Source) -> Result<FoundSource> {
    let found = match find::find(provisioner, source.handle()).await {
        Err(Error::NotFound(_)) => return Err(missing(source)),
        found => found?,
    };
    let (claim, observed) = (&found.claim, found.claim.observed());
    if observed.terminating {
        return Err(missing(source));
    }
    claim.stands_still(&found.member.name)?;
    if !found.imported {
        is_there_still(&found).await?;
    }
    let driver = found.driver().await?.ok_or_else(|| {
        Error::Refused(format!(
            "member {}: leaf claim {} {}, so it cannot be copied. A leaf claim with leafBinding deferred is bound once \
             its first pod uses it",
            found.member.name,
            claim.place,
            claim.unusable().unwrap_or("does not have the volume that it names")
        ))
    })?;
    Ok(FoundSource {
        source: LeafSource::Claim(claim.place.claim.clone()),
        namespace: claim.place.namespace.clone(),
        size: observed.capacity,
        driver,
    })
}

/// The new claim names that one, and nothing else says which is meant: another may have taken the name, of which a watch that has died does
/// not tell.
async fn is_there_still(found: &find::FoundLeaf) -> Result<()> {
    let (leaf, claim) = (found.leaf()?, &found.claim);
    let there = leaf::claim::read(leaf, &claim.place).await?;
    if there.is_some_and(|there| there.metadata.uid.as_deref() == Some(&*claim.uid)) {
        return Ok(());
    }
    leaf.rows.drop_claim(found.hash, &claim.uid, u64::MAX);
    Err(Error::InProgress(format!(
        "member {}: leaf claim {} (UID {}), the source of the copy, is gone",
        leaf.member, claim.place, claim.uid
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::volume::{AccessMode, Attributes, Parameters, Request, VolumeMode};

    fn spec(source: &str, preferred: &[&str], class_member: Option<&str>) -> VolumeSpec {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        VolumeSpec {
            name: "pvc-1".to_owned(),
            request: Request {
                required: 1,
                limit: 0,
                access: vec![AccessMode::ReadWriteOnce],
                mode: VolumeMode::Filesystem,
                parameters: BTreeMap::new(),
                source: Some(Source::Snapshot(source.to_owned())),
            },
            parameters: Parameters { member: class_member.map(str::to_owned), ..Parameters::default() },
            attributes: Attributes::default(),
            claim: None,
            preferred: names(preferred),
            requisite: Vec::new(),
            nodes: Vec::new(),
        }
    }

    #[test]
    fn copy_goes_to_the_member_of_its_source_or_nowhere() {
        let source = "a/n/s/0123456789abcdef";
        let beside = |spec: &VolumeSpec| beside_source(&BTreeMap::new(), spec).map(Cow::into_owned);
        let member = |spec: &VolumeSpec| beside(spec).map(|spec| spec.parameters.member);
        for allowed in [&[][..], &["a"], &["b", "a"]] {
            assert_eq!(member(&spec(source, allowed, None)), Ok(Some("a".to_owned())), "{allowed:?}");
        }
        assert!(member(&spec(source, &["a"], Some("a"))).is_ok());
        for refused in [spec(source, &["b"], None), spec(source, &[], Some("b"))] {
            assert!(matches!(member(&refused), Err(Error::NoPlace(text)) if text.contains("member a")));
        }
    }

    #[test]
    fn source_that_is_no_handle_is_not_found() {
        let unknown = spec("non-existing", &[], None);
        assert!(matches!(beside_source(&BTreeMap::new(), &unknown), Err(Error::NotFound(_))));
    }
}
