use super::*;
use crate::error::Error;

fn request() -> Request {
    Request {
        required: 1 << 30,
        limit: 0,
        access: vec![AccessMode::ReadWriteOnce],
        mode: VolumeMode::Filesystem,
        parameters: BTreeMap::new(),
        source: None,
    }
}

fn spec(claim: Option<(&str, &str)>, parameters: &[(&str, &str)]) -> VolumeSpec {
    let raw = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    VolumeSpec {
        name: "pvc-1".to_owned(),
        request: request(),
        parameters: Parameters::parse(&raw).unwrap(),
        attributes: Attributes::default(),
        claim: claim.map(|(namespace, name)| Claim { namespace: namespace.to_owned(), name: name.to_owned() }),
        preferred: Vec::new(),
        requisite: Vec::new(),
        nodes: Vec::new(),
    }
}

fn place(spec: &VolumeSpec) -> Result<(String, String)> {
    let place = spec.place("cluster38", &HostId("h-1".to_owned()), "kosmos-csi")?;
    Ok((place.namespace, place.claim))
}

#[test]
fn leaf_claim_has_the_host_claims_name_and_namespace() {
    assert_eq!(place(&spec(Some(("shop", "db")), &[])).unwrap(), ("shop".to_owned(), "db".to_owned()));
}

#[test]
fn without_a_host_claim_the_leaf_is_named_by_hash() {
    let (namespace, claim) = place(&spec(None, &[])).unwrap();
    assert_eq!(namespace, "kosmos-csi");
    assert_eq!(claim, format!("v-{}", VolumeHash::new(&HostId("h-1".to_owned()), "pvc-1")));
}

#[test]
fn templates_are_filled_per_member() {
    let parameters =
        [("leafNamespace.cluster38", "${host}-${pvc.metadata.namespace}"), ("leafClaimName", "x-${pvc.metadata.name}")];
    let got = place(&spec(Some(("shop", "db")), &parameters)).unwrap();
    assert_eq!(got, ("h-1-shop".to_owned(), "x-db".to_owned()));
}

#[test]
fn claim_of_a_disk_is_in_the_namespace_of_the_machines_under_a_name_of_its_own() {
    let disk = |more: &[(&str, &str)]| {
        let parameters = [&[("attachMode.cluster38", "virtual-machine")], more].concat();
        place(&spec(Some(("shop", "db")), &parameters))
    };
    let claim = format!("v-{}", VolumeHash::new(&HostId("h-1".to_owned()), "pvc-1"));
    assert_eq!(disk(&[("leafNamespace", "machines")]).unwrap(), ("machines".to_owned(), claim));
    for more in [
        &[][..],
        &[("leafNamespace", "${pvc.metadata.namespace}")],
        &[("leafNamespace", "machines"), ("leafClaimName", "x")],
    ] {
        let error = disk(more).unwrap_err();
        let both = |message: &str| message.contains("attachMode") && message.contains("leafNamespace");
        assert!(matches!(&error, Error::Invalid(message) if both(message)), "{error}");
    }
}

#[test]
fn template_that_cannot_be_filled_or_gives_no_name_is_refused_by_its_key() {
    for (claim, key, template) in [
        (Some(("shop", "db")), "leafNamespace", "${pvc.metadata.labels}"),
        (None, "leafClaimName", "${pvc.metadata.name}"),
        (Some(("shop", "db")), "leafNamespace", "a/b"),
        (Some(("shop", "db")), "leafClaimName", "../x"),
    ] {
        let error = place(&spec(claim, &[(key, template)])).unwrap_err();
        assert!(matches!(&error, Error::Invalid(message) if message.contains(key)), "{error}");
    }
}

#[test]
fn a_replay_differs_in_whatever_was_asked_differently() {
    let mut other = request();
    assert_eq!(request().difference(&other), None);
    other.required = 2 << 30;
    assert_eq!(other.difference(&request()).unwrap(), "required size was 1Gi at first and is 2Gi now");
    for change in [
        |request: &mut Request| request.limit = 1,
        |request: &mut Request| request.access = vec![AccessMode::ReadWriteMany],
        |request: &mut Request| request.mode = VolumeMode::Block,
        |request: &mut Request| drop(request.parameters.insert("member".to_owned(), "a".to_owned())),
        |request: &mut Request| request.source = Some(Source::Volume("a/b/c/0123456789abcdef".to_owned())),
    ] {
        let mut other = request();
        change(&mut other);
        assert!(request().difference(&other).is_some());
        assert_ne!(request().fingerprint(), other.fingerprint());
    }
}

#[test]
fn no_two_requests_have_one_fingerprint_because_their_texts_run_together() {
    let with = |parameters: &[(&str, &str)], source: Option<Source>| {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Request { parameters, source, ..request() }.fingerprint()
    };
    let handle = || "x".to_owned();
    let all = [
        with(&[], None),
        with(&[("", "")], None),
        with(&[("a", "bc")], None),
        with(&[("ab", "c")], None),
        with(&[("a", "b"), ("c", "d")], None),
        with(&[("a", "bcd")], None),
        with(&[], Some(Source::Snapshot(handle()))),
        with(&[], Some(Source::Volume(handle()))),
        with(&[("x", "")], None),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(all[at + 1..].iter().all(|other| other != one), "{at}");
    }
    assert_eq!(request().fingerprint(), request().fingerprint());
}

#[test]
fn of_many_parameters_the_one_that_differs_is_named() {
    let of = |fast: &str| {
        let members = (0..100).map(|member| (format!("leafStorageClass.cluster{member}"), "slow".to_owned()));
        let fast = ("leafStorageClass.cluster7".to_owned(), fast.to_owned());
        Request { parameters: members.chain([fast]).collect(), ..request() }
    };
    let told = of("faster").difference(&of("fast")).unwrap();
    assert_eq!(told, "parameter leafStorageClass.cluster7 was \"fast\" at first and is \"faster\" now");
    let told = request().difference(&of("fast")).unwrap();
    assert_eq!(told, "parameter leafStorageClass.cluster0 was \"slow\" at first and is none now");
}
