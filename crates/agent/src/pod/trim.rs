//! What is kept of a pod with our labels in a member: what is gone by, and nothing else of what its owner has written; and of what is said of it, no
//! more than the host is told. A tenant of the host writes as much into his pods as he likes, and a member whose pods take more room than those of
//! one have is not looked after. Pure.

use serde_json::{Map, Value, json};

use super::{
    super::{
        MANAGED_BY,
        member_pod::{LONG, asked},
        object::{MUCH, items, mark, room, text},
    },
    bounds,
    given::{self, GIVEN},
    names::{Kind, named},
};
use domain::volume::DRIVER;
use leaf::ownership::OURS;

/// Ephemeral containers. A copy with more seems to lack one, and is read whole before anything follows from that.
const MOST_ADDED: usize = 200;

const METADATA: [&str; 6] =
    ["namespace", "name", "uid", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Of a stranger's pod less is kept anyway.
pub(crate) fn trim(pod: &mut Value) -> bool {
    if mark(pod, "labels", MANAGED_BY) == DRIVER {
        let is_long = room(pod) > MUCH;
        let status = bounds::kept(&pod["status"]);
        *pod = json!({"metadata": metadata(&pod["metadata"]), "spec": spec(pod), "status": status});
        if is_long {
            pod[LONG] = json!(true);
        }
    }
    true
}

fn metadata(all: &Value) -> Map<String, Value> {
    let known = METADATA.iter().filter_map(|field| Some(((*field).to_owned(), all.get(field)?.clone())));
    let ours = |kind: &str| {
        let marks = all[kind].as_object().into_iter().flatten();
        let ours = marks.filter(|(key, _)| key.starts_with(OURS) || *key == MANAGED_BY);
        (kind.to_owned(), ours.filter_map(|(key, value)| Some((key.clone(), kept(key, value)?))).collect::<Value>())
    };
    known.chain([ours("labels"), ours("annotations")]).collect()
}

/// What a copy was made of, it says of each label that its pod has.
fn kept(key: &str, value: &Value) -> Option<Value> {
    if key == GIVEN {
        return given::kept(value.as_str()?).map(Value::from);
    }
    Some(value.clone())
}

/// What it names, wherever it says so, it names as volumes; what all of it asks for, one container does.
fn spec(pod: &Value) -> Value {
    let all = &pod["spec"];
    let added = items(all, "/ephemeralContainers").take(MOST_ADDED).map(|one| json!({"name": one["name"]}));
    let added: Vec<Value> = added.collect();
    let claims = items(all, "/volumes").map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
    let claims = claims.filter(|claim| !claim.is_empty());
    let claims = claims.map(|claim| json!({"persistentVolumeClaim": {"claimName": claim}}));
    let things = named(all).into_keys().map(|(kind, name)| match kind {
        Kind::ConfigMap => json!({"configMap": {"name": name}}),
        Kind::Secret => json!({"secret": {"secretName": name}}),
    });
    let asked: Map<String, Value> =
        asked(pod).into_iter().map(|(resource, amount)| (resource, json!(format!("{amount}m")))).collect();
    json!({
        "nodeName": all["nodeName"],
        "terminationGracePeriodSeconds": all["terminationGracePeriodSeconds"],
        "containers": [{"resources": {"requests": asked}}],
        "ephemeralContainers": added,
        "volumes": claims.chain(things).collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use member::policy::PodNetworks;

    use super::{
        super::{
            super::{
                HOST,
                member_pod::{MOUNTS, MemberPod},
            },
            ephemeral,
            status::{Source, mirrored},
            step::COPY_OF,
        },
        *,
    };

    fn copy() -> Value {
        let (long, many) = ("x".repeat(1 << 20), 0..10_000);
        let env = json!([{"name": "A", "value": long}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}]);
        let odd: Map<String, Value> =
            many.clone().map(|number| (format!("example.com/{number}"), json!("1"))).collect();
        let (mut requests, from) = (json!({"cpu": "1"}), json!([{"configMapRef": {"name": "settings"}}]));
        requests.as_object_mut().unwrap().extend(odd);
        let container = json!({"name": "c", "image": "i", "args": [long], "env": env, "envFrom": from, "resources": {"requests": requests}});
        let sidecar =
            json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}, "limits": {}}});
        let labels: Map<String, Value> = many.map(|number| (format!("l{number}"), json!("1"))).collect();
        let mut metadata = json!({"namespace": "shop", "name": "web", "uid": "c", "generation": 2, "labels": labels,
            "annotations": {"long": long, COPY_OF: "u", MOUNTS: "{}"}});
        metadata["labels"][MANAGED_BY] = json!(DRIVER);
        metadata["labels"][HOST] = json!("h");
        let volumes =
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "leaf"}}, {"name": "tmp", "emptyDir": {}}]);
        let spec = json!({"nodeName": "n", "initContainers": [sidecar, {"name": "first"}], "containers": [container],
            "ephemeralContainers": [{"name": "debugger", "image": "d"}], "imagePullSecrets": [{"name": "pull"}],
            "terminationGracePeriodSeconds": 5, "hostAliases": [{"ip": "10.0.0.1", "hostnames": [long]}], "volumes": volumes});
        json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running", "podIP": "10.0.0.1"}})
    }

    #[test]
    fn of_a_copy_what_is_gone_by_is_kept_and_nothing_that_its_owner_writes_at_any_length() {
        let (whole, mut kept) = (copy(), copy());
        assert!(trim(&mut kept) && kept.to_string().len() < 6000, "{} bytes", kept.to_string().len());
        assert!(MemberPod::of(&kept).is_long(), "what there is of it is read again whole");
        let ours = json!({COPY_OF: "u", MOUNTS: "{}"});
        assert_eq!((&kept["metadata"]["annotations"], &kept["status"]), (&ours, &whole["status"]));
        assert_eq!(kept["metadata"]["labels"], json!({MANAGED_BY: DRIVER, HOST: "h"}));
        let names = |pod: &Value| named(&pod["spec"]).into_keys().collect::<Vec<_>>();
        assert_eq!(names(&kept), names(&whole));
        assert_eq!(kept["spec"]["volumes"][0], json!({"persistentVolumeClaim": {"claimName": "leaf"}}));
        assert_eq!(kept["spec"]["ephemeralContainers"], json!([{"name": "debugger"}]));
        let cpu = |pod: &Value| MemberPod::of(pod).asked().find(|(name, _)| *name == "cpu").map(|(_, amount)| amount);
        assert_eq!((cpu(&kept), cpu(&whole)), (Some(1250), Some(1250)));
        for field in ["/metadata/uid", "/metadata/generation", "/spec/nodeName", "/spec/terminationGracePeriodSeconds"]
        {
            assert_eq!(kept.pointer(field), whole.pointer(field), "{field}");
        }
    }

    /// As a tenant of the host may give it.
    #[test]
    fn copy_with_very_many_labels_and_containers_takes_little_room_and_what_is_changed_of_its_pod_is_seen() {
        let labels: Map<String, Value> = (0..5000).map(|number| (format!("l{number}"), json!("1"))).collect();
        let container = |number: u32| {
            let requests = json!({"cpu": "10m", (format!("example.com/{number}")): "1"});
            json!({"name": format!("c{number}"), "image": "i", "resources": {"requests": requests}})
        };
        let containers: Vec<Value> = (0..200).map(container).collect();
        let mut pod = json!({"metadata": {"uid": "u", "labels": labels}, "spec": {"containers": containers}});
        let mut copy = pod.clone();
        copy["metadata"]["labels"][MANAGED_BY] = json!(DRIVER);
        copy["metadata"]["annotations"] = json!({COPY_OF: "u", GIVEN: given::given(&pod)});
        assert!(trim(&mut copy) && copy.to_string().len() < 6000, "{} bytes", copy.to_string().len());
        assert!(!MemberPod::of(&copy).is_long());
        let cpu = MemberPod::of(&copy).asked().find(|(name, _)| *name == "cpu").map(|(_, amount)| amount);
        assert_eq!(cpu, Some(2000));
        assert!(!given::is_due(&pod, &copy));
        pod["metadata"]["labels"]["l7"] = json!("2");
        assert!(given::is_due(&pod, &copy));
    }

    /// A tenant of the host makes a pod of so many, and their kubelet says some hundred bytes of each.
    #[test]
    fn of_what_is_said_of_very_many_containers_no_more_is_kept_than_the_host_is_told() {
        let who = Source { member: "m", networks: &PodNetworks::Any };
        let mounts = json!([{"name": "v", "mountPath": "/x".repeat(100)}]);
        for (count, is_told) in [(2, true), (300, true), (3000, false)] {
            let names: Vec<String> = (0..count).map(|number| format!("container-of-a-long-name-{number}")).collect();
            let container = |name: &String| json!({"name": name, "image": "i:1"});
            let status = |name: &String| json!({"name": name, "ready": false, "image": "i:1", "volumeMounts": mounts});
            let ready = json!({"type": "Ready", "status": "False", "message": format!("unready: {}", names.join(" "))});
            let statuses: Value = names.iter().map(status).collect();
            let pod = json!({"metadata": {"uid": "u", "resourceVersion": "7"},
                "spec": {"containers": names.iter().map(container).collect::<Vec<Value>>()}, "status": {}});
            let whole = json!({"metadata": {"uid": "c", "labels": {MANAGED_BY: DRIVER}},
                "status": {"phase": "Running", "containerStatuses": statuses, "conditions": [ready]}});
            let mut kept = whole.clone();
            assert!(trim(&mut kept) && kept.to_string().len() < 80 << 10, "{} bytes", kept.to_string().len());
            let told = mirrored(&pod, &kept, who, "1");
            assert_eq!(told, mirrored(&pod, &whole, who, "1"), "it is told twice");
            let statuses = told.map(|told| items(&told, "/status/containerStatuses").count());
            assert_eq!(statuses, Some(if is_told { count } else { 0 }));
            assert_eq!(kept["status"] == whole["status"], count == 2, "a usual one is kept as it is");
            assert!(MemberPod::of(&kept).in_trouble());
        }
    }

    #[test]
    fn of_very_many_ephemeral_containers_some_are_kept_and_the_copy_is_read_whole_for_the_others() {
        for (count, is_read) in [(MOST_ADDED, false), (5000, true)] {
            let added = (0..count).map(|number| json!({"name": format!("debugger-{number}"), "image": "i"}));
            let spec = json!({"ephemeralContainers": added.collect::<Vec<Value>>()});
            let mut copy = json!({"metadata": {"labels": {MANAGED_BY: DRIVER}}, "spec": spec});
            let pod = copy.clone();
            assert!(trim(&mut copy) && copy.to_string().len() < 8000, "{} bytes", copy.to_string().len());
            assert_eq!(!ephemeral::missing(&pod, &copy).is_empty(), is_read, "{count}");
        }
    }

    #[test]
    fn pod_of_a_stranger_is_left_as_it_is() {
        let stranger =
            json!({"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}});
        let mut kept = stranger.clone();
        assert!(trim(&mut kept));
        assert_eq!(kept, stranger);
    }
}
