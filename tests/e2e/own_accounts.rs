//! Hosts that share a member have accounts of their own there, and each is held to what carries its own label.

use anyhow::{Result, ensure};
use kube::ResourceExt;
use operator::objects::{ACCOUNT, PODS_ACCOUNT, Uses, own_name, tokens};
use serde_json::{Value, json};

use crate::{
    clusters::wait_for,
    objects::Place,
    policies::{Account, but, consumer, copy, labels, opens_no_namespace, ours, path},
    pool::on_fleet,
    rig::{DRIVER_NAMESPACE, LATER, NOW, PATIENCE},
};

const MEMBER: &str = "cluster39";
/// Whose accounts are tried; `labels` is of this host.
const HOST: &str = "of-a-host";
/// Its accounts are called like those of the other one, with something before.
const ENDS_ALIKE: &str = "x-host-another";
const NAMESPACE: &str = "apart";
/// In seconds.
const MONTH: u32 = 30 * 24 * 3600;
/// Of the member's, and as each test says.
const CLASS: &str = "of-some-hosts";
/// Open to another host.
const CLOSED: &str = "apart-closed";
/// Made for hosts.
const OWN: &str = "apart-own";
const ANOTHERS: &str = "apart-anothers";

/// Who would tell how full this host's volumes are.
const READER: &str = "pods/kosmos-csi-stats-host-of-a-hostx7d2k";
/// Of movers, of all hosts.
const YARD: &str = "kosmos-csi-movers";

fn of_another() -> Value {
    let mut labels = labels();
    labels["kosmos.csi.io/host"] = json!("another");
    labels
}

fn anothers(object: Value) -> Value {
    but(object, &[("metadata.labels", of_another())])
}

/// The member with both accounts of the host, and with a leaf, its volume and a pod of another.
async fn shared(member: &Place<'_>) -> Result<String> {
    let uses = Uses::ALL;
    for host in [HOST, ENDS_ALIKE] {
        for object in uses.of(Some(host)).map_err(anyhow::Error::msg)? {
            member.cluster.apply(&object.to_string()).await?;
        }
    }
    member.cluster.apply(&tokens(Some(HOST), None).to_string()).await?;
    for (name, labels) in [(OWN, labels()), (ANOTHERS, of_another())] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        member.cluster.apply(&namespace.to_string()).await?;
    }
    let closed = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLOSED,
        "labels": {"kosmos.csi.io/pods": "privileged"}, "annotations": {"kosmos.csi.io/hosts": "another"}}});
    member.cluster.apply(&closed.to_string()).await?;
    member.claim("leaf", NOW).await?;
    let volume = member.bound("leaf").await?.name_any();
    for (name, to) in [("given", HOST), ("given-to-another", "another")] {
        member.claim(name, LATER).await?;
        let consent = format!("kosmos.csi.io/consent={to}");
        member.cluster.kubectl(&["annotate", "-n", NAMESPACE, "pvc", name, &consent]).await?;
    }
    let pod = anothers(copy(&json!({"metadata": {"name": "theirs", "namespace": NAMESPACE}})));
    member.cluster.apply(&pod.to_string()).await?;
    for object in ["pvc/leaf", &format!("pv/{volume}")] {
        for label in ["app.kubernetes.io/managed-by=kosmos.csi.io", "kosmos.csi.io/host=another"] {
            member.cluster.kubectl(&["label", "-n", NAMESPACE, object, label]).await?;
        }
    }
    Ok(volume)
}

async fn open_class_to(member: &Place<'_>, hosts: &str) -> Result<()> {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "nobody.example",
        "metadata": {"name": CLASS, "annotations": {"kosmos.csi.io/hosts": hosts}}});
    member.cluster.apply(&class.to_string()).await
}

async fn leave(member: &Place<'_>) -> Result<()> {
    let cluster = member.cluster;
    cluster.kubectl(&["delete", "namespace", NAMESPACE, OWN, ANOTHERS, CLOSED, YARD, "--wait=false"]).await?;
    cluster.kubectl(&["delete", "storageclass", CLASS, "--ignore-not-found"]).await?;
    cluster.kubectl(&["delete", "volumeattachment", ATTACHED[0], ATTACHED[1], "--ignore-not-found"]).await?;
    cluster.kubectl(&["delete", "persistentvolume", FREE[0], FREE[1], "--ignore-not-found"]).await?;
    let own = "clusterrolebinding,rolebinding,role,deployment,serviceaccount,secret";
    let of_hosts = format!("kosmos.csi.io/host in ({HOST}, {ENDS_ALIKE})");
    cluster.kubectl(&["delete", own, "-n", DRIVER_NAMESPACE, "-l", &of_hosts]).await?;
    let shared = ["clusterrole/kosmos-csi-attach", "clusterrole/kosmos-csi-machines", "clusterrole/kosmos-csi-secrets"];
    let delete = ["delete", "-n", DRIVER_NAMESPACE, "--ignore-not-found"];
    cluster.kubectl(&[&delete[..], &shared[..]].concat()).await.map(drop)
}

#[test]
fn account_of_one_host_in_a_member_writes_nothing_of_another_host() {
    on_fleet("own_accounts", async |rig| {
        let member = Place::open(rig.fleet.member(MEMBER), NAMESPACE).await?;
        let volume = shared(&member).await?;
        let tried = async {
            driver(&member, &volume).await?;
            attachments(&member, &volume).await?;
            called_alike(&member, &volume).await?;
            next_tokens(&member).await?;
            movers(&member).await?;
            agent(&member).await
        };
        let tried = tried.await;
        leave(&member).await?;
        tried
    });
}

async fn driver(member: &Place<'_>, volume: &str) -> Result<()> {
    let account = Account::of(member, DRIVER_NAMESPACE, &own_name(ACCOUNT, HOST)).await?;
    let (pods, claims) = (path(NAMESPACE, "pods"), path(NAMESPACE, "persistentvolumeclaims"));
    let leaf_path = format!("{claims}/leaf");
    let volume = format!("/api/v1/persistentvolumes/{volume}");
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let leaf = but(ours("PersistentVolumeClaim", "new"), &[("spec", spec)]);
    let label = json!({"metadata": {"labels": labels()}});
    let off = json!({"metadata": {"labels": {"kosmos.csi.io/host": null}}});
    wait_for("the policy is in force", PATIENCE, || async {
        account.is_refused(ACCOUNT, &[("DELETE", &leaf_path, Value::Null)]).await.map(Some)
    })
    .await?;
    let attempts = [
        ("POST", claims.clone(), anothers(leaf.clone())),
        ("PATCH", leaf_path.clone(), label.clone()),
        ("PATCH", leaf_path.clone(), off.clone()),
        ("PATCH", leaf_path.clone(), json!({"metadata": {"finalizers": null}})),
        ("PATCH", leaf_path.clone(), json!({"metadata": {"annotations": {"kosmos.csi.io/published": "n"}}})),
        ("PATCH", leaf_path.clone(), json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})),
        (
            "PATCH",
            format!("{claims}/given-to-another"),
            json!({"metadata": {"annotations": {"kosmos.csi.io/request": "r"}}}),
        ),
        ("DELETE", format!("{claims}/given-to-another"), Value::Null),
        ("PATCH", volume.clone(), label),
        ("PATCH", volume.clone(), off),
        ("PATCH", volume.clone(), json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}})),
        ("POST", pods.clone(), anothers(consumer())),
        ("POST", "/api/v1/namespaces".to_owned(), anothers(ours("Namespace", "apart-new"))),
    ];
    account.is_refused(ACCOUNT, &attempts).await?;
    opens_no_namespace(&account).await?;
    account.is_allowed("POST", &claims, &leaf).await?;
    for hosts in ["another", ""] {
        open_class_to(member, hosts).await?;
        let of_it = but(leaf.clone(), &[("spec.storageClassName", json!(CLASS))]);
        wait_for("the class is closed", PATIENCE, || async {
            account.is_refused("kosmos-csi-classes", &[("POST", &claims, of_it.clone())]).await.map(Some)
        })
        .await?;
        let by_annotation = json!({"volume.beta.kubernetes.io/storage-class": CLASS});
        let of_it = but(leaf.clone(), &[("metadata.annotations", by_annotation)]);
        account.is_refused("kosmos-csi-classes", &[("POST", &claims, of_it)]).await?;
        account.is_allowed("POST", &claims, &leaf).await?;
    }
    open_class_to(member, "another, of-a-host").await?;
    let of_it = but(leaf.clone(), &[("spec.storageClassName", json!(CLASS))]);
    wait_for("the class is open", PATIENCE, || async { account.is_allowed("POST", &claims, &of_it).await.map(Some) })
        .await?;
    let closed = path(CLOSED, "persistentvolumeclaims");
    account.is_refused(ACCOUNT, &[("POST", &closed, leaf.clone())]).await?;
    let note = json!({"metadata": {"annotations": {"kosmos.csi.io/request": "r"}}});
    account.is_allowed("PATCH", &format!("{claims}/given"), &note).await?;
    account.is_allowed("POST", &pods, &consumer()).await?;
    account.is_allowed("POST", "/api/v1/namespaces", &ours("Namespace", "apart-new")).await
}

/// For another host, and by the member's own controller.
const ATTACHED: [&str; 2] = ["apart-anothers", "apart-of-nobody"];

/// Volumes of the host, and of the member alone.
const FREE: [&str; 2] = ["apart-own", "apart-free"];

/// What a volume is attached by, and so what detaches it.
fn attachment(name: &str, labels: &Value, volume: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name, "labels": labels},
        "spec": {"attacher": "nobody.example", "nodeName": "nowhere", "source": {"persistentVolumeName": volume}}})
}

async fn attachments(member: &Place<'_>, volume: &str) -> Result<()> {
    let account = Account::of(member, DRIVER_NAMESPACE, &own_name(ACCOUNT, HOST)).await?;
    let [anothers, nobodys] = ATTACHED;
    let [own, free] = FREE;
    for there in [attachment(anothers, &of_another(), volume), attachment(nobodys, &json!({}), volume)] {
        member.cluster.apply(&there.to_string()).await?;
    }
    for (name, labels) in [(own, labels()), (free, json!({}))] {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "nobody.example", "volumeHandle": name}});
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels}, "spec": spec});
        member.cluster.apply(&volume.to_string()).await?;
    }
    let all = "/apis/storage.k8s.io/v1/volumeattachments";
    let at = |name: &str| format!("{all}/{name}");
    let note = json!({"metadata": {"annotations": {"a": "b"}}});
    let csi = json!({"csi": {"driver": "nobody.example", "volumeHandle": "x"}, "accessModes": ["ReadWriteOnce"]});
    let inline = but(attachment("new", &labels(), own), &[("spec.source", json!({"inlineVolumeSpec": csi}))]);
    let attempts = [
        ("POST", all.to_owned(), attachment("new", &json!({}), own)),
        ("POST", all.to_owned(), attachment("new", &of_another(), own)),
        ("POST", all.to_owned(), inline),
        ("PATCH", at(anothers), note.clone()),
        ("PATCH", at(anothers), json!({"metadata": {"labels": labels()}})),
        ("DELETE", at(anothers), Value::Null),
        ("PATCH", at(nobodys), note),
        ("PATCH", at(nobodys), json!({"metadata": {"labels": labels()}})),
        ("DELETE", at(nobodys), Value::Null),
    ];
    wait_for("the policy is in force", PATIENCE, || async { account.is_refused(ACCOUNT, &attempts).await.map(Some) })
        .await?;
    // As it would be attached where that host has it, to be detached there.
    let of_anothers = [("POST", all, attachment("new", &labels(), volume))];
    wait_for("the policy is in force", PATIENCE, || async {
        account.is_refused("kosmos-csi-attachments", &of_anothers).await.map(Some)
    })
    .await?;
    account.is_allowed("POST", all, &attachment("new", &labels(), own)).await?;
    account.is_allowed("POST", all, &attachment("new", &labels(), free)).await
}

/// Whose an account is, the whole of its name says.
async fn called_alike(member: &Place<'_>, volume: &str) -> Result<()> {
    let note = json!({"metadata": {"annotations": {"kosmos.csi.io/request": "r"}}});
    let leaf = path(NAMESPACE, "persistentvolumeclaims/leaf");
    let attempts = [
        ("PATCH", leaf.clone(), note.clone()),
        ("DELETE", leaf, Value::Null),
        ("PATCH", path(NAMESPACE, "persistentvolumeclaims/given-to-another"), note.clone()),
        ("PATCH", format!("/api/v1/persistentvolumes/{volume}"), note),
    ];
    is_kept_off(member, ACCOUNT, &attempts).await?;
    let attempts = [
        ("DELETE", path(NAMESPACE, "pods/theirs"), Value::Null),
        ("CONNECT", path(ANOTHERS, "pods/any/exec?command=id&stdout=true"), Value::Null),
        ("CONNECT", path(CLOSED, "pods/any/attach?stdout=true"), Value::Null),
        ("CONNECT", path(DRIVER_NAMESPACE, "pods/kosmos-csi-stats-host-anotherx7d2k/portforward"), Value::Null),
    ];
    is_kept_off(member, PODS_ACCOUNT, &attempts).await
}

async fn is_kept_off(member: &Place<'_>, by: &str, attempts: &[(&str, String, Value)]) -> Result<()> {
    let account = Account::of(member, DRIVER_NAMESPACE, &own_name(by, ENDS_ALIKE)).await?;
    wait_for("its rights are in force", PATIENCE, || async { account.is_refused(by, attempts).await.map(Some) }).await
}

/// Whoever got one token gets none that goes on after the Secret of that host.
async fn next_tokens(member: &Place<'_>) -> Result<()> {
    const POLICY: &str = "kosmos-csi-tokens";
    let secret = format!("{POLICY}-{HOST}");
    for name in [ACCOUNT, PODS_ACCOUNT] {
        let name = own_name(name, HOST);
        let account = Account::of(member, DRIVER_NAMESPACE, &name).await?;
        let asked = |bound: Value, seconds: u32| {
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
                "spec": {"audiences": [], "boundObjectRef": bound, "expirationSeconds": seconds}})
        };
        let to = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "name": name});
        let path = path(DRIVER_NAMESPACE, &format!("serviceaccounts/{name}/token"));
        let attempts = [
            ("POST", &path, asked(Value::Null, MONTH)),
            ("POST", &path, asked(to("Secret", "kosmos-csi-tokens-another"), MONTH)),
            ("POST", &path, asked(to("Pod", &secret), MONTH)),
            ("POST", &path, asked(to("Secret", &secret), 13 * MONTH)),
        ];
        wait_for("the policy is in force", PATIENCE, || async {
            account.is_refused(POLICY, &attempts).await.map(Some)
        })
        .await?;
        account.is_allowed("POST", &path, &asked(to("Secret", &secret), MONTH)).await?;
    }
    Ok(())
}

/// Of the host's leaf and of another's, while moves have them.
const LENT: [&str; 2] = ["1-of-a-host", "1-another"];

/// With a claim, and keys by a Secret.
fn mover(name: &str, claim: &str, keys: &str) -> Value {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}},
        {"name": "keys", "secret": {"secretName": keys}}]);
    let container = json!({"name": "mover", "image": "i", "securityContext": {"capabilities": {"add": ["FOWNER"]}}});
    let spec = json!({"automountServiceAccountToken": false, "containers": [container], "volumes": volumes});
    but(ours("Pod", name), &[("spec", spec)])
}

/// What is called like movers of another host would be taken for them, keys and all.
async fn movers(member: &Place<'_>) -> Result<()> {
    let account = Account::of(member, DRIVER_NAMESPACE, &own_name(ACCOUNT, HOST)).await?;
    let (pods, secrets) = (path(YARD, "pods"), path(YARD, "secrets"));
    let (own, theirs) = ("send-1-0-of-a-host", "send-1-0-another");
    let keys = |name: &str| ours("Secret", name);
    let mover = |name: &str| mover(name, LENT[0], name);
    let other = json!([{"name": "data", "configMap": {"name": "c"}}]);
    let attempts = [
        ("POST", pods.clone(), mover(theirs)),
        ("POST", pods.clone(), anothers(mover(theirs))),
        ("POST", pods.clone(), but(mover(own), &[("spec.automountServiceAccountToken", json!(true))])),
        ("POST", pods.clone(), but(mover(own), &[("spec.nodeName", json!("n"))])),
        ("POST", pods.clone(), but(mover(own), &[("spec.volumes", other)])),
        ("POST", path(NAMESPACE, "pods"), mover(own)),
        ("POST", secrets.clone(), keys(theirs)),
        ("POST", secrets.clone(), anothers(keys(theirs))),
        ("POST", secrets.clone(), but(keys(own), &[("metadata.labels", json!({}))])),
        ("CONNECT", path(YARD, &format!("pods/{theirs}/portforward")), Value::Null),
        ("POST", "/api/v1/namespaces".to_owned(), ours("Namespace", YARD)),
    ];
    account.is_refused(ACCOUNT, &attempts).await?;
    account.is_allowed("POST", &pods, &mover(own)).await?;
    account.is_allowed("POST", &secrets, &keys(own)).await?;
    what_moves(&account).await
}

/// A mover runs what its host says, as root: it gets no volume and no keys of another host.
async fn what_moves(account: &Account) -> Result<()> {
    let (pods, claims) = (path(YARD, "pods"), path(YARD, "persistentvolumeclaims"));
    let [own, theirs] = LENT;
    let name = "send-1-0-of-a-host";
    let usual = mover(name, own, name);
    let with = |field: &str, value: Value| {
        let container = but(usual["spec"]["containers"][0].clone(), &[(field, value)]);
        but(usual.clone(), &[("spec.containers", json!([container]))])
    };
    let both = json!([{"name": "data", "persistentVolumeClaim": {"claimName": own}},
        {"name": "other", "persistentVolumeClaim": {"claimName": theirs}}]);
    let key = json!({"secretKeyRef": {"name": "send-1-0-another", "key": "tls.key"}});
    let setting = json!({"configMapKeyRef": {"name": "c", "key": "k"}});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claim = |name: &str| but(ours("PersistentVolumeClaim", name), &[("spec", spec.clone())]);
    let of_theirs = json!({"kind": "PersistentVolumeClaim", "name": theirs});
    let consumer = but(consumer(), &[("spec.volumes", json!([both[1]]))]);
    let group = "snapshot.storage.k8s.io/v1";
    let source = json!({"source": {"persistentVolumeClaimName": theirs}});
    let groups = "groupsnapshot.storage.k8s.io/v1";
    let chosen = json!({"source": {"selector": {"matchLabels": {"kosmos.csi.io/host": "another"}}}});
    let photos = but(ours("VolumeGroupSnapshot", "photos"), &[("apiVersion", json!(groups)), ("spec", chosen)]);
    let photo = but(ours("VolumeSnapshot", "photo"), &[("apiVersion", json!(group)), ("spec", source)]);
    let attempts = [
        ("POST", pods.clone(), mover(name, theirs, name)),
        ("POST", pods.clone(), mover(name, "1", name)),
        ("POST", pods.clone(), but(usual.clone(), &[("spec.volumes", both)])),
        ("POST", pods.clone(), mover(name, own, "send-1-0-another")),
        ("POST", pods.clone(), with("env", json!([{"name": "KEY", "valueFrom": key}]))),
        ("POST", pods.clone(), with("env", json!([{"name": "A", "value": "b"}, {"name": "B", "valueFrom": setting}]))),
        ("POST", pods.clone(), with("envFrom", json!([{"secretRef": {"name": "send-1-0-another"}}]))),
        ("POST", pods.clone(), consumer),
        ("POST", claims.clone(), claim(theirs)),
        ("POST", claims.clone(), claim("1")),
        ("POST", claims.clone(), but(claim(own), &[("spec.dataSource", of_theirs.clone())])),
        ("POST", claims.clone(), but(claim(own), &[("spec.dataSourceRef", of_theirs)])),
        ("POST", format!("/apis/{group}/namespaces/{YARD}/volumesnapshots"), photo),
        ("POST", format!("/apis/{groups}/namespaces/{YARD}/volumegroupsnapshots"), photos),
    ];
    account.is_refused(ACCOUNT, &attempts).await?;
    for source in [
        json!({"value": "b"}),
        json!({"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
        json!({"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}),
    ] {
        let variable = but(source, &[("name", json!("A"))]);
        account.is_allowed("POST", &pods, &with("env", json!([variable]))).await?;
    }
    account.is_allowed("POST", &claims, &claim(own)).await
}

async fn agent(member: &Place<'_>) -> Result<()> {
    let account = Account::of(member, DRIVER_NAMESPACE, &own_name(PODS_ACCOUNT, HOST)).await?;
    let (pods, maps) = (path(NAMESPACE, "pods"), path(NAMESPACE, "configmaps"));
    wait_for("the policy is in force", PATIENCE, || async {
        account.is_refused(PODS_ACCOUNT, &[("DELETE", format!("{pods}/theirs"), Value::Null)]).await.map(Some)
    })
    .await?;
    // As one would be that was there before those of movers knew it.
    let host = format!("kosmos.csi.io/host={HOST}");
    for label in ["app.kubernetes.io/managed-by=kosmos.csi.io", &host, "kosmos.csi.io/pods=privileged"] {
        member.cluster.kubectl(&["label", "namespace", YARD, label]).await?;
    }
    let mut yard = ours("Namespace", YARD);
    yard["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = json!("baseline");
    let attempts = [
        ("POST", path(YARD, "pods"), copy(&json!({}))),
        ("CONNECT", path(YARD, "pods/any/exec?command=id&stdout=true"), Value::Null),
        ("POST", "/api/v1/namespaces".to_owned(), yard),
        ("POST", pods.clone(), anothers(copy(&json!({})))),
        ("POST", maps.clone(), anothers(ours("ConfigMap", "new"))),
        ("POST", path(ANOTHERS, "pods"), copy(&json!({}))),
        ("POST", path(ANOTHERS, "pods"), anothers(copy(&json!({})))),
        ("CONNECT", path(ANOTHERS, "pods/any/exec?command=id&stdout=true"), Value::Null),
        ("CONNECT", path(ANOTHERS, "pods/any/portforward"), Value::Null),
        ("POST", path(CLOSED, "pods"), copy(&json!({}))),
        ("CONNECT", path(CLOSED, "pods/any/attach?stdout=true"), Value::Null),
        ("CONNECT", path(DRIVER_NAMESPACE, "pods/kosmos-csi-stats-host-anotherx7d2k/portforward"), Value::Null),
        ("CONNECT", path(DRIVER_NAMESPACE, &format!("{READER}x7d2k/portforward")), Value::Null),
        ("CONNECT", path(DRIVER_NAMESPACE, "pods/kosmos-csi-stats-7d9f-x7d2k/portforward"), Value::Null),
        ("CONNECT", path(DRIVER_NAMESPACE, &format!("{READER}/exec?command=id&stdout=true")), Value::Null),
        ("CONNECT", path("kube-system", &format!("{READER}/portforward")), Value::Null),
    ];
    account.is_refused(PODS_ACCOUNT, &attempts).await?;
    let told = account.refusal("POST", &path(YARD, "pods"), &copy(&json!({}))).await?;
    ensure!(told.contains("namespace of movers") && !told.contains("kosmos.csi.io/pods=baseline"), "{told}");
    let told = account.refusal("POST", &path(DRIVER_NAMESPACE, "pods"), &copy(&json!({}))).await?;
    ensure!(told.contains("the hosts' accounts") && !told.contains("kosmos.csi.io/pods=baseline"), "{told}");
    account.is_allowed("POST", &pods, &copy(&json!({}))).await?;
    account.is_allowed("POST", &path(OWN, "pods"), &copy(&json!({}))).await?;
    account.finds_none("CONNECT", &path(DRIVER_NAMESPACE, &format!("{READER}/portforward"))).await
}
