use super::*;
use domain::volume::HostId;

const HOUR: i64 = 3600;

fn hash(name: &str) -> VolumeHash {
    VolumeHash::new(&HostId("h".to_owned()), name)
}

fn place(claim: &str) -> LeafPlace {
    LeafPlace { namespace: "shop".to_owned(), claim: claim.to_owned() }
}

fn leaf(claim: &str, name: &str) -> Leaf {
    Leaf {
        place: place(claim),
        uid: format!("leaf-{claim}"),
        hash: hash(name),
        age: 2 * HOUR,
        lost: false,
        terminating: false,
        capacity: 1 << 30,
        had_volume: false,
        moving: false,
        claim_uid: format!("uid-{name}"),
    }
}

fn kept(name: &str, of: &str) -> LeafVolume {
    let claim_uid = format!("leaf-{of}");
    LeafVolume { name: name.to_owned(), uid: name.to_owned(), hash: hash(of), age: 2 * HOUR, moving: false, claim_uid }
}

fn volume(claim: &str, name: &str) -> HostVolume {
    HostVolume {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        handle: VolumeId::new("m", "shop", claim, hash(name)).to_string(),
        capacity: 1 << 30,
        leaving: false,
    }
}

fn host(volumes: Vec<HostVolume>) -> HostSide {
    HostSide { volumes, ..HostSide::default() }
}

fn member(leaves: Vec<Leaf>, volumes: Vec<LeafVolume>) -> MemberSide {
    MemberSide { member: "m".to_owned(), leaves, volumes, ..MemberSide::default() }
}

fn names(host: &HostSide, member: MemberSide) -> Vec<String> {
    compare(host, &[member], HOUR).findings.into_iter().map(|finding| finding.name).collect()
}

#[test]
fn pair_of_volume_and_leaf_is_well() {
    let well = member(vec![leaf("db", "pvc-1")], vec![kept("pv-1", "db")]);
    assert_eq!(names(&host(vec![volume("db", "pvc-1")]), well.clone()), [""; 0]);
    let larger = Leaf { capacity: 2 << 30, ..leaf("db", "pvc-1") };
    assert_eq!(names(&host(vec![volume("db", "pvc-1")]), member(vec![larger], vec![])), [""; 0]);
}

#[test]
fn leaf_without_volume_is_an_orphan_unless_something_explains_it() {
    let orphan = || member(vec![leaf("db", "pvc-1")], vec![]);
    assert_eq!(names(&host(vec![]), orphan()), ["leaf:m/shop/db"]);
    let waiting = HostSide { claims: BTreeSet::from(["uid-pvc-1".to_owned()]), ..host(vec![]) };
    assert_eq!(names(&waiting, orphan()), [""; 0], "its volume is being made");
    let leaving = HostVolume { leaving: true, ..volume("db", "pvc-1") };
    assert_eq!(names(&host(vec![leaving]), orphan()), [""; 0], "it is being removed");
    let elsewhere = HostVolume { handle: "x/shop/db/0123456789abcdef".to_owned(), ..volume("db", "pvc-1") };
    assert_eq!(names(&host(vec![elsewhere]), orphan()), ["leaf:m/shop/db"], "that one is in another member");
    let young = Leaf { age: HOUR - 1, ..leaf("db", "pvc-1") };
    let compared = compare(&host(vec![]), &[member(vec![young], vec![])], HOUR);
    assert_eq!(compared, Compared { findings: vec![], young: 1 });
}

/// Its move keeps the host's volume, in either member, or the claim that waits for it.
#[test]
fn leaf_or_volume_of_a_move_is_told_only_where_the_host_has_neither_volume_nor_claim() {
    let moving = || member(vec![Leaf { moving: true, ..leaf("db", "pvc-1") }], vec![]);
    let elsewhere =
        || HostVolume { handle: VolumeId::new("x", "shop", "db", hash("pvc-1")).to_string(), ..volume("db", "pvc-1") };
    assert_eq!(names(&host(vec![elsewhere()]), moving()), [""; 0]);
    let waiting = HostSide { claims: BTreeSet::from(["uid-pvc-1".to_owned()]), ..host(vec![]) };
    assert_eq!(names(&waiting, moving()), [""; 0], "between two volumes");
    assert_eq!(names(&host(vec![]), moving()), ["moving:m/shop/db"]);
    let claimless = || member(vec![], vec![LeafVolume { moving: true, hash: hash("pvc-1"), ..kept("pv-1", "gone") }]);
    assert_eq!(names(&host(vec![elsewhere()]), claimless()), [""; 0]);
    assert_eq!(names(&host(vec![]), claimless()), ["kept:m/pv-1"]);
}

/// A leaf whose data may be wanted is removed with that word alone.
#[test]
fn orphan_names_what_removes_it_and_what_that_does_to_its_data() {
    for (had_volume, said) in [
        (false, "`kosmos-csi doctor remove leaf:m/shop/db` removes it and keeps its data"),
        (true, "`kosmos-csi doctor remove leaf:m/shop/db --data-will-be-lost`"),
    ] {
        let orphan = member(vec![Leaf { had_volume, ..leaf("db", "pvc-1") }], vec![]);
        let found = compare(&host(vec![]), &[orphan], HOUR).findings;
        let [Finding { message, .. }] = found.as_slice() else { panic!("{found:?}") };
        assert!(message.contains(said) && message.contains("keeps its data") != had_volume, "{message}");
    }
}

#[test]
fn volume_whose_handle_says_a_second_name_has_its_leaf_in_the_member_that_serves() {
    let handle = VolumeId::new("second", "shop", "db", hash("pvc-1")).to_string();
    let volumes = || host(vec![HostVolume { handle: handle.clone(), ..volume("db", "pvc-1") }]);
    let alias = HostSide { aliases: BTreeMap::from([("second".to_owned(), "m".to_owned())]), ..volumes() };
    assert_eq!(names(&alias, member(vec![leaf("db", "pvc-1")], vec![])), [""; 0]);
    assert_eq!(names(&alias, member(vec![], vec![])), ["volume:pvc-1"]);
    let silent = HostSide { unknown: BTreeSet::from(["second".to_owned()]), ..volumes() };
    assert_eq!(names(&silent, member(vec![leaf("db", "pvc-1")], vec![kept("pv-1", "pvc-1")])), [""; 0]);
    assert_eq!(names(&silent, member(vec![leaf("db", "pvc-2")], vec![])), ["leaf:m/shop/db"]);
    assert_eq!(names(&volumes(), member(vec![leaf("db", "pvc-1")], vec![])), ["leaf:m/shop/db"], "another member");
}

#[test]
fn copy_is_an_orphan_and_a_leaf_under_a_new_name_is_not() {
    let copy = member(vec![leaf("copy", "pvc-1"), leaf("db", "pvc-1")], vec![]);
    assert_eq!(names(&host(vec![volume("db", "pvc-1")]), copy), ["leaf:m/shop/copy"]);
    let renamed = member(vec![leaf("new", "pvc-1")], vec![]);
    assert_eq!(names(&host(vec![volume("db", "pvc-1")]), renamed), [""; 0]);
}

#[test]
fn volume_without_leaf_is_told_unless_its_data_or_a_consent_is_there() {
    let alone = || host(vec![volume("db", "pvc-1")]);
    assert_eq!(names(&alone(), member(vec![], vec![])), ["volume:pvc-1"]);
    assert_eq!(
        names(&alone(), member(vec![], vec![LeafVolume { hash: hash("pvc-1"), ..kept("pv-1", "db") }])),
        [""; 0]
    );
    let imported = BTreeSet::from([("shop".to_owned(), "db".to_owned())]);
    assert_eq!(names(&alone(), MemberSide { imported, ..member(vec![], vec![]) }), [""; 0]);
    assert_eq!(compare(&alone(), &[], HOUR), Compared::default(), "a member that was not listed is not judged");
    let strange = HostVolume { handle: "nonsense".to_owned(), ..volume("db", "pvc-1") };
    assert_eq!(names(&host(vec![strange]), member(vec![], vec![])), ["volume:pvc-1"]);
}

#[test]
fn loss_and_want_of_size_are_told_of_pairs() {
    let one = || host(vec![volume("db", "pvc-1")]);
    let lost = Leaf { lost: true, ..leaf("db", "pvc-1") };
    assert_eq!(names(&one(), member(vec![lost], vec![])), ["lost:m/shop/db"]);
    let small = Leaf { capacity: 1 << 29, ..leaf("db", "pvc-1") };
    assert_eq!(names(&one(), member(vec![small], vec![])), ["size:m/shop/db"]);
    let unbound = Leaf { capacity: 0, ..leaf("db", "pvc-1") };
    assert_eq!(names(&one(), member(vec![unbound], vec![])), [""; 0]);
}

#[test]
fn retained_volume_that_nobody_knows_is_told() {
    let nobodys = || vec![LeafVolume { hash: hash("pvc-9"), ..kept("pv-9", "gone") }];
    assert_eq!(names(&host(vec![]), member(vec![], nobodys())), ["kept:m/pv-9"]);
    let released =
        HostVolume { handle: VolumeId::new("m", "shop", "gone", hash("pvc-9")).to_string(), ..volume("x", "x") };
    assert_eq!(names(&host(vec![released]), member(vec![], nobodys())), [""; 0]);
}

#[test]
fn retained_volume_whose_data_a_claim_of_the_host_waits_for_is_not_told_as_nobodys() {
    let retained = |of: &str| member(vec![], vec![LeafVolume { hash: hash(of), ..kept("pv-9", "gone") }]);
    let waiting = || HostSide { awaited: BTreeSet::from([hash("pvc-9")]), ..host(vec![]) };
    assert_eq!(names(&waiting(), retained("pvc-9")), [""; 0]);
    assert_eq!(names(&waiting(), retained("pvc-8")), ["kept:m/pv-9"], "another one's");
}

#[test]
fn only_what_both_looks_have_found_of_one_object_counts() {
    let finding =
        |name: &str, uid: &str| Finding { name: name.to_owned(), uid: uid.to_owned(), message: String::new() };
    let first = [finding("a", "1"), finding("b", "1")];
    assert_eq!(twice(&first, vec![finding("a", "2"), finding("b", "1"), finding("c", "1")]), [finding("b", "1")]);
}

#[test]
fn name_of_an_orphan_says_where_it_is() {
    let name = leaf_name("m", &place("db"));
    assert_eq!(parse_leaf_name(&name), Some(("m".to_owned(), place("db"))));
    for other in ["leaf:m/shop", "volume:m/shop/db", "leaf:m/shop/db/x"] {
        assert_eq!(parse_leaf_name(other), None, "{other}");
    }
}
