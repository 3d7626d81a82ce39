//! The objects that a member needs, as `deploy/` has them, and what is to be done about each: what somebody else has made
//! differently is never overwritten.

use serde_json::{Value, json};

use super::reader;
use leaf::ownership::HOST;

/// Under this name our objects are applied, and by this annotation they are known: who else writes a field takes its place
/// in the record of writers.
pub const MANAGER: &str = "kosmos-csi";
const MADE_BY: &str = "kosmos.csi.io/made-by";
const ADDING: &str = "member-add";
/// By which program it was made, or last changed.
const VERSION: &str = "app.kubernetes.io/version";
const PROGRAM: &str = env!("CARGO_PKG_VERSION");
/// By this the Secret of the tokens says which cluster has them.
const OF_CLUSTER: &str = "kosmos.csi.io/cluster";
pub const NAMESPACE: &str = "kosmos-csi";
/// The account of the driver in a member, for a host that is not named.
pub const ACCOUNT: &str = "kosmos-csi";
/// That of the agent, which runs the host's pods there.
pub const PODS_ACCOUNT: &str = "kosmos-csi-virtual-node";
/// That of the reader: its pod's alone, no kubeconfig of it is made.
pub const STATS_ACCOUNT: &str = leaf::stats::NAME;
/// Of the driver, for volumes on real nodes of the host, and for moves.
pub const ATTACH_ROLE: &str = "kosmos-csi-attach";
pub const MOVES_ROLE: &str = "kosmos-csi-movers";
/// Roles that the member's administrator binds where machines, and Secrets for nodes, are.
pub const BY_HAND: [&str; 2] = ["kosmos-csi-machines", "kosmos-csi-secrets"];
/// The ends of names by which a Role is known that is for its account alone.
const TOKEN: &str = "-token";

const MEMBER: &str = include_str!("../../../deploy/member.yaml");
const PODS: &str = include_str!("../../../deploy/member-virtual-node.yaml");
const ATTACH: &str = include_str!("../../../deploy/member-attach.yaml");
const MOVES: &str = include_str!("../../../deploy/member-mover.yaml");
const VOLUME_STATS: &str = include_str!("../../../deploy/member-volume-stats.yaml");

/// What a member is for, besides volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is wanted or not, whatever the others are")]
pub struct Uses {
    /// Pods of the host run there, on its virtual node.
    pub pods: bool,
    /// Real nodes of the host use its volumes.
    pub attach: bool,
    /// Volumes are moved from and to it.
    pub moves: bool,
    /// The host is told how full volumes there are.
    pub volume_stats: bool,
}

impl Uses {
    pub const ALL: Self = Self { pods: true, attach: true, moves: true, volume_stats: true };

    /// What is needed in the member for one host, in the order in which it is made: each has accounts of its own, which an admission
    /// policy keeps from what is another's. Without a host, for whoever has the kubeconfig.
    pub fn of(self, host: Option<&str>) -> Result<Vec<Value>, String> {
        let objects = self.objects()?;
        Ok(match host {
            Some(host) => objects.into_iter().map(|object| own(object, host)).collect(),
            None => objects,
        })
    }

    fn objects(self) -> Result<Vec<Value>, String> {
        let mut objects = parse(MEMBER)?;
        for (wanted, text) in
            [(self.pods, PODS), (self.attach, ATTACH), (self.moves, MOVES), (self.volume_stats, VOLUME_STATS)]
        {
            if wanted {
                objects.append(&mut parse(text)?);
            }
        }
        Ok(objects)
    }
}

/// The name of a host's own account, or of what is for one alone.
pub fn own_name(name: &str, host: &str) -> String {
    match name.strip_suffix(TOKEN) {
        Some(account) => format!("{account}-host-{host}{TOKEN}"),
        None => format!("{name}-host-{host}"),
    }
}

/// Whether an object of a member is for one host and nobody else.
pub fn is_own(object: &Value) -> bool {
    match word(object, "/kind") {
        "ServiceAccount" | "ClusterRoleBinding" | "RoleBinding" | "Secret" | "Deployment" => true,
        "Role" => word(object, "/metadata/name").contains(TOKEN),
        _ => false,
    }
}

/// Whether kubeconfigs of this account are made.
pub fn has_kubeconfig(account: &Value) -> bool {
    !word(account, "/metadata/name").starts_with(STATS_ACCOUNT)
}

/// The object as one host has it: accounts, what gives rights to them, and what runs by one of them.
fn own(mut object: Value, host: &str) -> Value {
    let rename = |name: &mut Value| {
        if let Some(old) = name.as_str() {
            *name = json!(own_name(old, host));
        }
    };
    if is_own(&object) {
        rename(&mut object["metadata"]["name"]);
        object["metadata"]["labels"] = json!({HOST: host});
    }
    if word(&object, "/kind") == "Deployment" {
        reader::tell_of(&mut object, host);
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        rename(&mut subject["name"]);
    }
    if word(&object, "/roleRef/name").ends_with(TOKEN) {
        rename(&mut object["roleRef"]["name"]);
    }
    // Of the rules, only that of the account's own tokens says a name.
    for rule in object.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
        rule.get_mut("resourceNames").and_then(Value::as_array_mut).into_iter().flatten().for_each(rename);
    }
    object
}

/// The Secret with which all tokens end that were given to one host, or into files. It says which cluster has them.
pub fn tokens(host: Option<&str>, cluster: Option<&str>) -> Value {
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": format!("kosmos-csi-tokens-{}", host.unwrap_or("files")), "namespace": NAMESPACE},
    });
    if let Some(host) = host {
        secret["metadata"]["labels"] = json!({HOST: host});
    }
    if let Some(cluster) = cluster {
        secret["metadata"]["annotations"] = json!({OF_CLUSTER: cluster});
    }
    secret
}

/// Which other cluster has the tokens of this host: a former one, whose volumes it has taken over. Before that was written, there
/// was none but the host itself.
pub fn former_cluster<'a>(live: &'a Value, wanted: &Value) -> Option<&'a str> {
    let (of_host, of_cluster) =
        (live["metadata"]["labels"][HOST].as_str(), live["metadata"]["annotations"][OF_CLUSTER].as_str());
    let wanted = wanted["metadata"]["annotations"][OF_CLUSTER].as_str()?;
    of_cluster.or(of_host).filter(|of| *of != wanted)
}

fn parse(text: &str) -> Result<Vec<Value>, String> {
    serde_saphyr::from_multiple(text).map_err(|error| format!("an object of this program cannot be read: {error}"))
}

/// What is to be done about one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectStep {
    Make,
    /// It says all that it has to say.
    Leave,
    /// It is ours, and says something else.
    Update,
    /// Somebody else has made it, differently.
    Refuse,
}

pub fn step(live: Option<&Value>, wanted: &Value) -> ObjectStep {
    match live {
        None => ObjectStep::Make,
        Some(live) if covers(live, wanted) => ObjectStep::Leave,
        Some(live) if is_ours(live) => ObjectStep::Update,
        Some(_) => ObjectStep::Refuse,
    }
}

/// Whether this command has made it.
pub fn is_ours(live: &Value) -> bool {
    live["metadata"]["annotations"][MADE_BY] == ADDING
}

/// The version of the program that has made it, where that is a newer one than this: it knows what this one does not.
pub fn newer_maker(live: &Value) -> Option<&str> {
    let version = live["metadata"]["labels"][VERSION].as_str()?;
    (numbers(version) > numbers(PROGRAM)).then_some(version)
}

/// As versions are compared, but for what comes before a release.
fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect()
}

/// The object with the marks by which it is known as ours.
pub fn marked(object: &Value) -> Value {
    let mut marked = object.clone();
    marked["metadata"]["annotations"][MADE_BY] = json!(ADDING);
    marked["metadata"]["labels"][VERSION] = json!(PROGRAM);
    marked
}

/// Whether an object says all that another one says; it may say more.
fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| live.get(key).is_some_and(|live| covers(live, value)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| covers(live, wanted))
        }
        _ => live == wanted,
    }
}

/// How people call it.
pub fn title(object: &Value) -> String {
    let kind = word(object, "/kind");
    match (word(object, "/metadata/namespace"), word(object, "/metadata/name")) {
        ("", name) => format!("{kind} {name}"),
        (namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}

pub fn word<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_those_that_are_published() {
        let titles: Vec<String> = Uses::default().objects().unwrap().iter().map(title).collect();
        let bare = ["Namespace kosmos-csi", "ServiceAccount kosmos-csi/kosmos-csi", "ClusterRole kosmos-csi"];
        assert_eq!(titles[..3], bare);
        // The account has no right before it is held to its own.
        assert_eq!(
            titles[3..],
            [
                "ValidatingAdmissionPolicy kosmos-csi",
                "ValidatingAdmissionPolicyBinding kosmos-csi",
                "ValidatingAdmissionPolicy kosmos-csi-classes",
                "ValidatingAdmissionPolicyBinding kosmos-csi-classes",
                "ValidatingAdmissionPolicy kosmos-csi-attachments",
                "ValidatingAdmissionPolicyBinding kosmos-csi-attachments",
                "ValidatingAdmissionPolicy kosmos-csi-tokens",
                "ValidatingAdmissionPolicyBinding kosmos-csi-tokens",
                "ClusterRoleBinding kosmos-csi",
                "Role kosmos-csi/kosmos-csi-token",
                "RoleBinding kosmos-csi/kosmos-csi-token",
            ]
        );
        let more = Uses::ALL.objects().unwrap();
        for role in [
            "ClusterRole kosmos-csi-attach",
            "ClusterRole kosmos-csi-machines",
            "ClusterRole kosmos-csi-secrets",
            "ClusterRole kosmos-csi-virtual-node",
            "ClusterRole kosmos-csi-movers",
            "ClusterRole kosmos-csi-stats",
        ] {
            assert!(more.iter().any(|object| title(object) == role));
        }
        assert!(more.iter().all(|object| !word(object, "/apiVersion").is_empty() && !word(object, "/kind").is_empty()));
    }

    #[test]
    fn each_host_has_accounts_of_its_own_with_the_same_rights_and_nothing_else_of_its_own() {
        let (plain, own) = (Uses::ALL.objects().unwrap(), Uses::ALL.of(Some("h")).unwrap());
        for account in [ACCOUNT, PODS_ACCOUNT, STATS_ACCOUNT] {
            let (name, before) = (own_name(account, "h"), crate::rights::of(&plain, account));
            let mut after = crate::rights::of(&own, &name);
            assert_eq!(crate::rights::of(&own, account), []);
            for right in &mut after {
                right.name = right.name.replace("-host-h", "");
            }
            assert_eq!(after, before);
            assert!(own.iter().any(|object| title(object) == format!("ServiceAccount kosmos-csi/{name}")));
        }
        for (plain, own) in plain.iter().zip(&own) {
            assert_eq!(title(plain) != title(own), is_own(plain), "{}", title(own));
            assert_eq!(plain == own, !is_own(plain), "{}", title(own));
        }
    }

    #[test]
    fn tokens_are_those_of_a_former_cluster_where_another_one_is_the_host_now() {
        let wanted = tokens(Some("h"), Some("new"));
        for (label, cluster, former) in [
            (Some("h"), None, Some("h")),
            (Some("h"), Some("old"), Some("old")),
            (Some("h"), Some("new"), None),
            (None, None, None),
        ] {
            let live = json!({"metadata": {"labels": {HOST: label}, "annotations": {OF_CLUSTER: cluster}}});
            assert_eq!(former_cluster(&live, &wanted), former, "{live}");
            assert_eq!(former_cluster(&live, &tokens(None, None)), None);
        }
        let own = json!({"metadata": {"labels": {HOST: "h"}}});
        assert_eq!(former_cluster(&own, &tokens(Some("h"), Some("h"))), None, "a host that was never another one");
    }

    #[test]
    fn what_somebody_else_has_made_differently_is_refused() {
        let wanted = json!({"metadata": {"name": "a"}, "rules": [{"verbs": ["get", "list"]}]});
        let theirs =
            |verbs: Value| json!({"metadata": {"name": "a", "uid": "u"}, "rules": [{"verbs": verbs, "apiGroups": []}]});
        for (live, expected) in [
            (None, ObjectStep::Make),
            (Some(theirs(json!(["get", "list"]))), ObjectStep::Leave),
            (Some(theirs(json!(["get"]))), ObjectStep::Refuse),
            (Some(theirs(json!(["get", "list", "delete"]))), ObjectStep::Refuse),
            (Some(marked(&theirs(json!(["get"])))), ObjectStep::Update),
            (Some(marked(&theirs(json!(["get", "list"])))), ObjectStep::Leave),
        ] {
            assert_eq!(step(live.as_ref(), &wanted), expected, "{live:?}");
        }
    }

    #[test]
    fn newer_program_is_one_with_a_higher_version() {
        assert_eq!(newer_maker(&marked(&json!({"metadata": {"name": "a"}}))), None);
        for (version, is_newer) in
            [("0.0.9", false), ("99.0.0", true), ("99.0.0-rc.1", true), ("", false), ("x", false)]
        {
            let live = json!({"metadata": {"labels": {VERSION: version}}});
            assert_eq!(newer_maker(&live), is_newer.then_some(version), "{version:?}");
        }
        assert_eq!(newer_maker(&json!({"metadata": {}})), None, "of before that was written");
        assert!(numbers("0.2.0") < numbers("0.10.0"));
    }
}
