//! Which data is where: the host's volumes of this driver, and its claims that wait for one.

use serde_json::json;

use super::{
    kubeconfig::span,
    listing::{Item, Listing},
};
use domain::volume::VolumeId;

/// What [`ListedVolume::state`] may say.
pub const STATES: [&str; 7] = ["Pending", "Bound", "Moving", "Released", "Terminating", "Available", "Failed"];

/// What the host says of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedVolume {
    /// `NAMESPACE/NAME` of the claim; none where no claim ever had it.
    pub claim: Option<(String, String)>,
    /// None while the claim waits.
    pub volume: Option<Provisioned>,
    /// Where its claim says that it is to be, until there is a volume.
    pub chosen_member: Option<String>,
    pub size: String,
    pub class: String,
    pub access_modes: Vec<String>,
    /// Seconds.
    pub age: i64,
    pub is_leaving: bool,
    /// To which member, and how far that is.
    pub moves: Option<(String, String)>,
    /// Those that have not ended.
    pub pods: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provisioned {
    pub name: String,
    pub handle: String,
    /// As Kubernetes has it: `Available`, `Bound`, `Released`, `Failed`.
    pub phase: String,
    pub reclaim_policy: String,
}

/// Which are wanted; none: all.
#[derive(Clone, Debug, Default)]
pub struct VolumeFilter<'a> {
    pub namespace: Option<&'a str>,
    pub member: Option<&'a str>,
    pub state: Option<&'a str>,
}

impl VolumeFilter<'_> {
    fn has(&self, volume: &ListedVolume) -> bool {
        let is_in = |wanted: &str| volume.claim.as_ref().is_some_and(|(namespace, _)| namespace == wanted);
        self.namespace.is_none_or(is_in)
            && self.member.is_none_or(|member| volume.member() == member)
            && self.state.is_none_or(|state| volume.state().eq_ignore_ascii_case(state))
    }
}

impl ListedVolume {
    pub fn claim_in_words(&self) -> String {
        self.claim.as_ref().map(|(namespace, name)| format!("{namespace}/{name}")).unwrap_or_default()
    }

    fn id(&self) -> Option<VolumeId> {
        VolumeId::parse(&self.volume.as_ref()?.handle)
    }

    fn member(&self) -> String {
        self.id().map(|id| id.member).or_else(|| self.chosen_member.clone()).unwrap_or_default()
    }

    /// What is most worth knowing of it, as one word.
    pub fn state(&self) -> &str {
        match (&self.volume, &self.moves) {
            _ if self.is_leaving => "Terminating",
            (None, _) => "Pending",
            (Some(_), Some(_)) => "Moving",
            (Some(volume), None) => &volume.phase,
        }
    }

    fn item(&self) -> Item {
        let (claim, member) = (self.claim_in_words(), self.member());
        let state = match &self.moves {
            Some((to, phase)) if self.state() == "Moving" => format!("Moving to {to}: {phase}"),
            _ => self.state().to_owned(),
        };
        let volume = self.volume.clone().unwrap_or_default();
        let leaf = self.id().and_then(|id| id.place());
        let leaf_claim = leaf.map(|place| format!("{}/{}", place.namespace, place.claim)).unwrap_or_default();
        let name = match &self.volume {
            Some(volume) => format!("persistentvolume/{}", volume.name),
            None => format!("persistentvolumeclaim/{}", self.claim.as_ref().map_or("", |(_, name)| name)),
        };
        let object = json!({
            "claim": self.claim.as_ref().map(|(namespace, name)| json!({"namespace": namespace, "name": name})),
            "member": member, "size": self.size, "state": self.state(), "ageSeconds": self.age, "pods": self.pods,
            "volume": volume.name, "volumeHandle": volume.handle, "leafClaim": leaf_claim, "storageClass": self.class,
            "accessModes": self.access_modes, "reclaimPolicy": volume.reclaim_policy,
            "move": self.moves.as_ref().map(|(to, phase)| json!({"to": to, "phase": phase})),
        });
        Item {
            name,
            cells: vec![claim, member, self.size.clone(), state, self.pods.join(","), span(self.age)],
            wide: vec![volume.name, self.class.clone(), self.access_modes.join(","), volume.reclaim_policy, leaf_claim],
            object,
        }
    }
}

/// In the order of their claims.
pub fn listing(mut volumes: Vec<ListedVolume>, filter: &VolumeFilter<'_>) -> Listing {
    let head = ["CLAIM", "MEMBER", "SIZE", "STATE", "PODS", "AGE"];
    let mut listing = Listing::new("Volume", &head, &["VOLUME", "CLASS", "ACCESS", "POLICY", "LEAF CLAIM"]);
    volumes.retain(|volume| filter.has(volume));
    volumes.sort_by_cached_key(|volume| (volume.claim.clone(), volume.volume.as_ref().map(|one| one.name.clone())));
    for volume in &volumes {
        listing.add(volume.item());
    }
    listing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::Form;

    fn volume(claim: &str, member: &str, phase: &str) -> ListedVolume {
        let provisioned = Provisioned {
            name: format!("pvc-{claim}"),
            handle: format!("{member}/shop/{claim}/0123456789abcdef"),
            phase: phase.to_owned(),
            reclaim_policy: "Delete".to_owned(),
        };
        ListedVolume {
            claim: Some(("shop".to_owned(), claim.to_owned())),
            volume: Some(provisioned),
            size: "1Gi".to_owned(),
            age: 90,
            ..ListedVolume::default()
        }
    }

    fn waiting() -> ListedVolume {
        ListedVolume { volume: None, chosen_member: Some("m2".to_owned()), ..volume("new", "", "") }
    }

    #[test]
    fn state_is_what_is_most_worth_knowing() {
        let bound = volume("db", "m0", "Bound");
        let moving = ListedVolume { moves: Some(("m1".to_owned(), "Copying".to_owned())), ..bound.clone() };
        for (volume, state) in [
            (bound.clone(), "Bound"),
            (volume("db", "m0", "Released"), "Released"),
            (waiting(), "Pending"),
            (moving.clone(), "Moving"),
            (ListedVolume { is_leaving: true, ..moving.clone() }, "Terminating"),
        ] {
            assert_eq!(volume.state(), state);
        }
        assert!(moving.item().cells.contains(&"Moving to m1: Copying".to_owned()));
    }

    #[test]
    fn volumes_are_listed_by_claim_and_only_those_that_are_wanted() {
        let all = || vec![waiting(), volume("db", "m0", "Bound"), volume("a", "m1", "Released")];
        let names = |filter: &VolumeFilter<'_>| listing(all(), filter).print(Form::Name);
        let (a, db, new) = ("persistentvolume/pvc-a\n", "persistentvolume/pvc-db\n", "persistentvolumeclaim/new\n");
        assert_eq!(names(&VolumeFilter::default()), [a, db, new].concat());
        assert_eq!(names(&VolumeFilter { member: Some("m0"), ..VolumeFilter::default() }), db);
        assert_eq!(names(&VolumeFilter { member: Some("m2"), ..VolumeFilter::default() }), new);
        assert_eq!(names(&VolumeFilter { state: Some("released"), ..VolumeFilter::default() }), a);
        assert_eq!(
            names(&VolumeFilter { namespace: Some("shop"), state: Some("Pending"), ..VolumeFilter::default() }),
            new
        );
        assert_eq!(names(&VolumeFilter { namespace: Some("elsewhere"), ..VolumeFilter::default() }), "");
    }

    #[test]
    fn table_says_where_the_data_is_and_who_has_it() {
        let used = ListedVolume { pods: vec!["db-0".to_owned(), "db-1".to_owned()], ..volume("db", "m0", "Bound") };
        let told = listing(vec![used], &VolumeFilter::default()).print(Form::Wide);
        let row: Vec<&str> = told.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["shop/db", "m0", "1Gi", "Bound", "db-0,db-1", "90s", "pvc-db", "-", "-", "Delete", "shop/db"]);
    }
}
