//! What the chart renders, without a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use serde_json::{Value, json};

use super::helm::{CHART, checkout, helm, objects, render_manifests, rendered};

pub const EVERYTHING: [&str; 9] = [
    "namespace.create=true",
    "sidecars.snapshotter.enabled=true",
    "node.enabled=true,node.members[0].name=cluster38",
    "nodeSecrets.enabled=true",
    "moves.enabled=true",
    "serviceMonitor.enabled=true,prometheusRule.enabled=true",
    "virtualNode.replicas=1,virtualNode.kubelet.certificateSecret=kubelet,virtualNode.kubelet.serviceIP=10.96.0.50,virtualNode.hostAddress=https://10.0.0.1:6443",
    "storageClasses[0].name=fast,storageClasses[0].members={cluster38},storageClasses[0].default=true",
    "snapshotClasses[0].name=photos,imagePullSecrets={mine}",
];

/// As `Kind name`.
fn names(text: &str) -> BTreeSet<String> {
    let name = |object: &Value| {
        let word =
            |path| object.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("no {path}: {object:#}"));
        format!("{} {}", word("/kind"), word("/metadata/name"))
    };
    objects(text).unwrap().iter().map(name).collect()
}

#[test]
fn chart_has_no_flaw_that_helm_knows() {
    helm(&["lint", "--strict", CHART]).unwrap();
    let settings: Vec<&str> = EVERYTHING.iter().flat_map(|setting| ["--set", setting]).collect();
    helm(&[&["lint", "--strict", CHART], &settings[..]].concat()).unwrap();
}

#[test]
fn every_switch_brings_or_takes_what_it_says() {
    #[rustfmt::skip] // one switch, one line
    let switches: [(&str, &[&str], &[&str]); 36] = [
        ("image.tag=0.1.0", &["csi-provisioner", "csi-attacher", "csi-resizer", "--capacity-ownerref-level=2", "--capacity-threads=20", "localhost/kosmos-csi:0.1.0"],
            &["--strict-topology", "--immediate-topology", "csi-snapshotter", "--mover-image", "volumemoves", "kind: DaemonSet", "kind: Namespace\nmetadata:\n  name: kosmos-csi\n", "ServiceMonitor", "kosmos-csi-node"]),
        ("image.tag=0.1.0,image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000,sidecars.resizer.image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000", &["localhost/kosmos-csi:0.1.0@sha256:0000", "csi-resizer:v2.3.0@sha256:0000"], &["csi-attacher:v4.13.0@"]),
        ("sidecars.snapshotter.enabled=true", &["csi-snapshotter:", "volumegroupsnapshotcontents/status"], &[]),
        ("sidecars.resizer.enabled=false", &["csi-attacher"], &["csi-resizer", "persistentvolumeclaims/status"]),
        ("sidecars.attacher.enabled=false,csiDriver.attachRequired=false", &["attachRequired: false"], &["csi-attacher", "resources: [volumeattachments/status]"]),
        ("sidecars.provisioner.enabled=false,csiDriver.storageCapacity=false", &["storageCapacity: false"], &["csi-provisioner", "csistoragecapacities"]),
        ("csiDriver.storageCapacity=false", &["csi-provisioner"], &["--capacity-ownerref-level", "--capacity-threads", "csistoragecapacities"]),
        ("sidecars.provisioner.extraArgs={--worker-threads=7}", &["\"--worker-threads=7\""], &[]),
        ("controller.enabled=false", &["ServiceAccount\nmetadata:\n  name: kosmos-csi-controller", "kind: CSIDriver"], &["csi-provisioner", "name: kosmos-csi-sidecars"]),
        ("controller.replicas=3", &["replicas: 3"], &[]),
        ("virtualNode.enabled=false", &[], &["virtual-node", "kosmos-csi-pods"]),
        ("virtualNode.namespace=elsewhere", &["Namespace\nmetadata:\n  name: elsewhere\n", "--members-namespace=elsewhere", "system:serviceaccount:elsewhere:"], &["kosmos-csi-pods"]),
        ("virtualNode.nodeMode=node", &["--node-mode=node", "--kubelet-address", "name: extension-apiserver-authentication-reader"], &["--host-address", "tls.key", "--kubelet-client-ca"]),
        ("virtualNode.kubelet.enabled=false", &["virtual-node"], &["--kubelet-address", "kubelet-clients", "extension-apiserver", "port: 10250"]),
        ("virtualNode.kubelet.enabled=false,virtualNode.kubelet.certificateSecret=own", &["virtual-node"], &["secretName: own"]),
        ("virtualNode.kubelet.certificateSecret=own", &["--kubelet-address=$(POD_IP):10250", "secretName: own", "--kubelet-key=/kubelet/tls.key", "port: 10250"], &["--kubelet-client-ca", "kind: Service\n", "--kubelet-advertise-address"]),
        ("virtualNode.kubelet.nodePorts=0,virtualNode.kubelet.certificateSecret=own,virtualNode.kubelet.serviceIP=fd00::50", &["--kubelet-advertise-address=fd00::50", "clusterIP: \"fd00::50\"", "kind: Service\n", "targetPort: kubelet"], &[]),
        ("virtualNode.replicas=1,virtualNode.kubelet.nodePorts=2,virtualNode.kubelet.certificateSecret=own,virtualNode.kubelet.serviceIP=10.96.0.50", &["--kubelet-node-ports=2", "tokenreviews", "endPort: 10252", "name: node-2\n      port: 10252\n      targetPort: 10252"], &["node-3"]),
        ("virtualNode.kubelet.nodePorts=0", &["--kubelet-node-ports=0", "subjectaccessreviews"], &["tokenreviews", "endPort: 10250"]),
        ("virtualNode.kubelet.clientCaConfigMap=clients", &["name: clients", "--kubelet-client-ca=/kubelet-clients/ca.crt"], &["extension-apiserver", "secretName"]),
        ("virtualNode.hostAddress=https://10.0.0.1:6443", &["--host-address=https://10.0.0.1:6443"], &[]),
        ("node.enabled=true,node.members[0].name=cluster38,node.members[0].nodeSelector.zone=a",
            &["kosmos-csi-node-cluster38", "--member=cluster38", "zone: a", "enforce: privileged", "Bidirectional", "localhost/kosmos-csi-node:0.1.0"], &[]),
        ("node.enabled=true,node.members[0].name=a,node.members[0].leafDrivers={one.example,two.example},node.members[0].nfsServers={fd00::5},node.members[0].localFolders={/mnt/disks,/dev/mapper,/var/lib/kubelet/disks}",
            &["--leaf-driver=one.example\"", "--leaf-driver=two.example\"", "--nfs-server=fd00::5\"", "--local-folder=/mnt/disks\"", "--local-folder=/dev/mapper\"",
                "mountPath: \"/mnt/disks\"\n              mountPropagation: HostToContainer", "path: \"/mnt/disks\"\n            type: DirectoryOrCreate"], &["mountPath: \"/dev/mapper\"", "mountPath: \"/var/lib/kubelet/disks\""]),
        ("moves.enabled=true", &["--mover-image=localhost/kosmos-csi-mover:0.1.0", "kind: CustomResourceDefinition", "volumemoves/status"], &[]),
        ("nodeSecrets.enabled=true", &["name: kosmos-csi-secrets"], &[]),
        ("namespace.create=true", &["enforce: restricted", "resource-policy: keep"], &[]),
        ("podDisruptionBudget.enabled=false", &[], &["PodDisruptionBudget"]),
        ("networkPolicy.enabled=false", &[], &["NetworkPolicy"]),
        ("networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring", &["- from:\n        - namespaceSelector:\n            matchLabels:\n              name: monitoring\n      ports:\n        - port: 9808\n          endPort: 9812", "    - ports:\n        - port: 10250"], &["Egress"]),
        ("networkPolicy.kubeletFrom[0].ipBlock.cidr=10.0.0.0/24", &["- from:\n        - ipBlock:\n            cidr: 10.0.0.0/24\n      ports:\n        - port: 10250"], &["Egress"]),
        ("networkPolicy.egressTo[0].ipBlock.cidr=10.0.0.0/8", &["[Ingress, Egress]", "port: 53,", "port: 5353,", "- to:\n        - ipBlock:\n            cidr: 10.0.0.0/8"], &["- from:"]),
        ("serviceMonitor.enabled=true,serviceMonitor.labels.team=one", &["kind: ServiceMonitor", "team: one", "kind: Service\n"], &[]),
        ("storageClasses[0].name=fast,storageClasses[0].members={cluster38},storageClasses[0].parameters.leafStorageClass=ssd",
            &["name: fast", "- cluster38", "leafStorageClass: ssd", "WaitForFirstConsumer", "allowVolumeExpansion: true"], &["is-default-class"]),
        ("storageClasses[0].name=fast,storageClasses[0].default=true,storageClasses[0].allowVolumeExpansion=false", &["is-default-class: \"true\"", "allowVolumeExpansion: false"], &["allowedTopologies"]),
        ("snapshotClasses[0].name=photos,snapshotClasses[0].default=true", &["kind: VolumeSnapshotClass", "is-default-class"], &[]),
        ("listenAddress=[::]", &["--admin-address=[::]:9808"], &["0.0.0.0"]),
    ];
    bring_or_take(&switches);
}

/// What each brings, and what it takes.
fn bring_or_take(switches: &[(&str, &[&str], &[&str])]) {
    for (setting, there, absent) in switches {
        let text = rendered(&[setting]).unwrap();
        names(&text);
        for words in *there {
            assert!(text.contains(words), "{setting} does not bring {words:?}");
        }
        for words in *absent {
            assert!(!text.contains(words), "{setting} leaves {words:?}");
        }
    }
}

#[test]
fn images_come_from_where_they_are_said_to_and_pods_are_as_their_cluster_wants_them() {
    #[rustfmt::skip] // one switch, one line
    let switches: [(&str, &[&str], &[&str]); 16] = [
        ("tracing.endpoint=http://collector:4317,node.enabled=true,node.members[0].name=a", &["--log-format=text\n            - --otlp-endpoint=http://collector:4317\n"], &[]),
        ("logs.format=json,logs.level=debug", &["--log-format=json", "value: \"warn,kosmos_csi=debug,kube_client=off\""], &["--log-format=text"]),
        ("logs.level=warn\\,kosmos_csi=trace", &["value: \"warn,kosmos_csi=trace\""], &["kube_client=off"]),
        ("global.imageRegistry=mirror.example:5000/cache/", &["image: mirror.example:5000/cache/kosmos-csi:0.1.0", "image: mirror.example:5000/cache/sig-storage/csi-provisioner:"], &["localhost", "registry.k8s.io"]),
        ("global.imageRegistry=mirror.example,image.repository=team/kosmos-csi", &["image: mirror.example/team/kosmos-csi:0.1.0"], &["registry.k8s.io"]),
        ("global.imagePullSecrets[0].name=mirror,imagePullSecrets={mine}", &["imagePullSecrets:\n        - name: mine\n        - name: mirror\n"], &[]),
        ("imagePullSecrets=null,global.imagePullSecrets={mirror,mirror}", &["imagePullSecrets:\n        - name: mirror\n      securityContext"], &[]),
        ("logs.level=error", &["value: \"error,kosmos_csi=error,kube_client=off\""], &[]),
        ("logs.level=kosmos_csi::leaf", &["value: \"kosmos_csi::leaf\""], &["kube_client=off"]),
        ("podSecurityContext.runAsUser=null,podSecurityContext.runAsGroup=null,podSecurityContext.fsGroup=null", &["runAsNonRoot: true\n        seccompProfile:"], &["runAsUser", "runAsGroup", "fsGroup"]),
        ("podSecurityContext.fsGroup=1000", &["runAsUser: 65532\n", "fsGroup: 1000\n"], &[]),
        ("controller.podLabels.team=one,controller.podAnnotations.cost=two,controller.env[0].name=HTTPS_PROXY,controller.env[0].value=none", &["app.kubernetes.io/instance: kosmos-csi\n        team: one\n", "cost: two\n", "- name: HTTPS_PROXY\n              value: none\n"], &[]),
        ("virtualNode.podLabels.team=one,virtualNode.podAnnotations.cost=two,virtualNode.env[0].name=A", &["team: one\n      annotations:\n        cost: two\n    spec:", "- name: A\n"], &[]),
        ("node.enabled=true,node.members[0].name=a,node.podLabels.team=one,node.podAnnotations.cost=two,node.env[0].name=A", &["team: one\n      annotations:\n        cost: two\n    spec:", "- name: A\n"], &[]),
        ("controller.serviceAccount.annotations.one=a,virtualNode.serviceAccount.annotations.two=b,node.enabled=true,node.members[0].name=a,node.serviceAccount.annotations.three=c", &["\"0.1.0\"\n  annotations:\n    one: a\n", "\"0.1.0\"\n  annotations:\n    two: b\n", "\"0.1.0\"\n  annotations:\n    three: c\nautomount"], &[]),
        ("controller.topologySpreadConstraints[0].topologyKey=zone", &["topologySpreadConstraints:\n        - topologyKey: zone\n", "topologyKey: kubernetes.io/hostname"], &[]),
    ];
    bring_or_take(&switches);
}

/// The limit of memory of each sidecar, by its name.
fn memory_of_sidecars(setting: &str) -> BTreeMap<String, Value> {
    let objects = objects(&rendered(&["sidecars.snapshotter.enabled=true", setting]).unwrap()).unwrap();
    let is_meant =
        |object: &&Value| object["kind"] == "Deployment" && object["metadata"]["name"] == "kosmos-csi-controller";
    let deployment = objects.iter().find(is_meant).unwrap();
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let name = |container: &Value| Some(container["name"].as_str()?.strip_prefix("csi-")?.to_owned());
    let memory = |container: &Value| container["resources"]["limits"]["memory"].clone();
    containers.iter().filter_map(|container| Some((name(container)?, memory(container)))).collect()
}

#[test]
fn sidecars_have_room_for_as_many_volumes_as_are_expected() {
    let of = |memory: [Value; 4]| -> BTreeMap<String, Value> {
        ["attacher", "provisioner", "resizer", "snapshotter"].map(str::to_owned).into_iter().zip(memory).collect()
    };
    let same = |memory: Value| of([(); 4].map(|()| memory.clone()));
    // 64 MiB, and 16 KiB for each.
    for (volumes, memory) in [(1, "65Mi"), (64, "65Mi"), (65, "66Mi"), (100_000, "1627Mi")] {
        let setting = format!("sidecars.expectedVolumes={volumes}");
        assert_eq!(memory_of_sidecars(&setting), same(json!(memory)), "{volumes}");
    }
    assert_eq!(memory_of_sidecars("image.tag=0.1.0"), same(json!("1080Mi")));
    assert_eq!(memory_of_sidecars("sidecars.expectedVolumes=null"), same(Value::Null));
    let (own, usual) = (json!("2Gi"), json!("1080Mi"));
    let one = memory_of_sidecars("sidecars.resizer.resources.limits.memory=2Gi");
    assert_eq!(one, of([usual.clone(), usual.clone(), own, usual]));
}

#[test]
fn replica_that_is_not_ready_keeps_no_node_from_being_drained() {
    let objects = objects(&rendered(&["image.tag=0.1.0"]).unwrap()).unwrap();
    let budgets: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "PodDisruptionBudget").collect();
    assert_eq!(budgets.len(), 2);
    for budget in budgets {
        assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow", "{budget:#}");
    }
}

#[test]
fn each_sidecar_takes_the_place_of_one_that_is_gone_in_the_same_time() {
    let text = rendered(&["sidecars.snapshotter.enabled=true"]).unwrap();
    for flag in [
        "--leader-election-lease-duration=12s",
        "--leader-election-renew-deadline=10s",
        "--leader-election-retry-period=2s",
    ] {
        assert_eq!(text.matches(&format!("- {flag}\n")).count(), 4, "{flag}");
    }
}

#[test]
fn snapshotter_runs_where_the_host_serves_snapshots() {
    let with = |versions: &[&str]| {
        let flags: Vec<&str> = versions.iter().flat_map(|version| ["--api-versions", version]).collect();
        helm(&[&["template", "kosmos-csi", CHART], &flags[..]].concat()).unwrap().contains("csi-snapshotter")
    };
    assert!(with(&["snapshot.storage.k8s.io/v1", "groupsnapshot.storage.k8s.io/v1"]));
    assert!(!with(&["snapshot.storage.k8s.io/v1"]));
    assert!(!with(&[]));
}

#[test]
fn accounts_are_held_by_admission_policies_where_the_host_has_such() {
    let with = |version: &str| -> BTreeSet<String> {
        let flags = ["template", "kosmos-csi", CHART, "--set", "moves.enabled=true", "--kube-version", version];
        let all = names(&helm(&flags).unwrap());
        all.iter().filter_map(|name| name.strip_prefix("ValidatingAdmissionPolicy")).map(str::to_owned).collect()
    };
    let of = |name: &str| [format!(" {name}"), format!("Binding {name}")];
    let wanted = ["kosmos-csi-controller", "kosmos-csi-moves", "kosmos-csi-virtual-node"];
    assert_eq!(with("1.30.0"), wanted.into_iter().flat_map(of).collect::<BTreeSet<String>>());
    assert_eq!(with("1.29.0"), BTreeSet::new());
}

#[test]
fn slip_in_the_values_is_refused_by_its_name() {
    for (setting, words) in [
        ("controler.replicas=3", "controler"),
        ("controller.replicas=0", "controller/replicas"),
        ("controller.podLabels.team=1", "controller/podLabels/team"),
        ("controller.podLabels.app\\.kubernetes\\.io/component=x", "'app.kubernetes.io/component'"),
        ("controller.env[0].name=RUST_LOG", "controller/env/0/name"),
        ("controller.serviceAccount.name=mine", "controller/serviceAccount"),
        ("virtualNode.env[0].name=A,virtualNode.env[0].valu=x", "virtualNode/env/0"),
        ("global.imageRegistry=https://mirror.example", "global/imageRegistry"),
        ("podSecurityContext.user=1", "podSecurityContext"),
        ("global.imageRegistry=1", "global/imageRegistry"),
        ("logs.format=xml", "logs/format"),
        ("sidecars.snapshotter.enabled=maybe", "snapshotter/enabled"),
        ("sidecars.expectedVolumes=0", "sidecars/expectedVolumes"),
        ("virtualNode.nodeMode=both", "virtualNode/nodeMode"),
        ("virtualNode.hostAddress=10.0.0.1", "virtualNode/hostAddress"),
        ("virtualNode.kubelet.serviceIP=10.96.0.50", "serviceIP needs virtualNode.kubelet.certificateSecret"),
        (
            "virtualNode.kubelet.certificateSecret=own,virtualNode.kubelet.serviceIP=10.96.0.50",
            "set virtualNode.replicas to 1, or virtualNode.kubelet.nodePorts to 0",
        ),
        ("virtualNode.kubelet.serviceIP=kubelet.example.com", "kubelet/serviceIP"),
        ("virtualNode.namespace=kosmos-csi", "virtualNode.namespace is the release's"),
        ("sidecars.attacher.image.digest=latest", "attacher/image/digest"),
        ("networkPolicy.egressTo[0]=10.0.0.0/8", "networkPolicy/egressTo/0"),
        ("storageClasses[0].members={cluster38}", "storageClasses/0"),
        ("node.enabled=true", "node.enabled needs node.members"),
        ("logs.level=warning", "logs/level"),
        ("logs.level=hyper", "logs/level"),
        ("sidecars.attacher.enabled=false", "csiDriver.attachRequired needs sidecars.attacher.enabled"),
        (
            "sidecars.provisioner.extraArgs={--volume-name-uuid-length=8}",
            "sidecars.provisioner.extraArgs: leave --volume-name",
        ),
        (
            "sidecars.provisioner.extraArgs={--volume-name-prefix=vol}",
            "sidecars.provisioner.extraArgs: leave --volume-name",
        ),
        (
            "sidecars.provisioner.extraArgs={--extra-create-metadata=false}",
            "sidecars.provisioner.extraArgs: leave --extra",
        ),
        ("sidecars.provisioner.enabled=false", "csiDriver.storageCapacity needs sidecars.provisioner.enabled"),
    ] {
        let refusal = rendered(&[setting]).err().unwrap_or_else(|| panic!("{setting} is accepted"));
        assert!(format!("{refusal:#}").contains(words), "{setting}: {refusal:#}");
    }
}

/// Those who apply what is rendered again and again see no change where there is none, and no key in it.
#[test]
fn chart_renders_the_same_text_each_time_and_no_key() {
    for settings in [&["image.tag=0.1.0"][..], &EVERYTHING] {
        let text = rendered(settings).unwrap();
        assert_eq!(text, rendered(settings).unwrap());
        assert!(!text.contains("kind: Secret\n") && !text.contains("tls.key: "), "it makes a Secret");
    }
}

#[test]
fn manifests_are_what_the_chart_renders() {
    let folder = tempfile::tempdir().unwrap();
    render_manifests(folder.path()).unwrap();
    let mut count = 0;
    for part in ["", "manifests"] {
        for entry in fs::read_dir(folder.path().join(part)).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                continue;
            }
            let name = checkout().join("deploy").join(part).join(entry.file_name());
            let (fresh, kept) = (fs::read_to_string(entry.path()).unwrap(), fs::read_to_string(&name));
            assert!(kept.is_ok_and(|kept| kept == fresh), "{} is not the chart's: run make manifests", name.display());
            assert!(!names(&fresh).is_empty());
            count += 1;
        }
    }
    assert_eq!(count, 7);
}

/// What catalogues show of it, as they take it out of the packed chart.
#[test]
fn chart_says_of_itself_what_its_files_say() {
    let written = Command::new(checkout().join("deploy/chart/readme.sh")).output().unwrap();
    let written = String::from_utf8(written.stdout).unwrap();
    let shown = helm(&["show", "readme", CHART]).unwrap();
    assert_eq!(shown.trim(), written.trim(), "run make manifests");
    let values = objects(&fs::read_to_string(checkout().join(CHART).join("values.yaml")).unwrap()).unwrap().remove(0);
    for (value, inner) in values.as_object().unwrap() {
        let row = if inner.is_object() { format!("| `{value}.") } else { format!("| `{value}`") };
        assert!(written.contains(&row), "{value} has no row");
    }
    let chart = objects(&helm(&["show", "chart", CHART]).unwrap()).unwrap().remove(0);
    let told = |key: &str| chart["annotations"][format!("artifacthub.io/{key}")].as_str().unwrap();
    assert_eq!(told("license"), env!("CARGO_PKG_LICENSE"));
    let kinds = objects(told("crds")).unwrap().remove(0);
    let made = objects(&rendered(&["moves.enabled=true"]).unwrap()).unwrap();
    let made: Vec<&Value> = made.iter().filter(|object| object["kind"] == "CustomResourceDefinition").collect();
    assert_eq!((kinds.as_array().unwrap().len(), made.len()), (1, 1));
    let (kind, made) = (&kinds[0], made[0]);
    assert_eq!((&kind["name"], &kind["kind"]), (&made["metadata"]["name"], &made["spec"]["names"]["kind"]));
    assert_eq!(kind["version"], made["spec"]["versions"][0]["name"]);
}

#[test]
fn no_role_reads_secrets_of_the_whole_cluster() {
    let mut texts = vec![rendered(&EVERYTHING).unwrap()];
    for file in ["member.yaml", "member-attach.yaml", "member-mover.yaml", "member-volume-stats.yaml"] {
        texts.push(fs::read_to_string(checkout().join("deploy").join(file)).unwrap());
    }
    let objects: Vec<Value> = texts.iter().flat_map(|text| objects(text).unwrap()).collect();
    let everywhere = objects.iter().filter(|object| object["kind"] == "ClusterRoleBinding");
    let everywhere: Vec<&Value> = everywhere.map(|binding| &binding["roleRef"]["name"]).collect();
    assert!(everywhere.len() > 4, "{everywhere:?}");
    for role in objects.iter().filter(|object| !object["rules"].is_null()) {
        let (name, rules) = (&role["metadata"]["name"], role["rules"].to_string());
        assert!(!rules.contains("\"*\""), "{name}: {rules}");
        let is_bound = role["kind"] == "ClusterRole" && everywhere.contains(&name);
        assert!(!is_bound || !rules.contains("secrets"), "{name}: {rules}");
    }
}

/// Whoever may list the Secrets of a namespace has all credentials in it.
#[test]
fn each_namespace_with_credentials_is_read_by_one_account() {
    let objects = objects(&rendered(&EVERYTHING).unwrap()).unwrap();
    let word = |object: &Value, path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let reads = |role: &&Value| role["rules"].to_string().contains("\"secrets\"");
    let mut readers = BTreeSet::new();
    for role in of_kind("Role").filter(reads) {
        let (name, namespace) = (word(role, "/metadata/name"), word(role, "/metadata/namespace"));
        let binds = |binding: &&Value| {
            word(binding, "/roleRef/name") == name && word(binding, "/metadata/namespace") == namespace
        };
        for binding in of_kind("RoleBinding").filter(binds) {
            readers.insert(format!("{} in {namespace}", word(binding, "/subjects/0/name")));
        }
    }
    let wanted = [
        "kosmos-csi-controller in kosmos-csi",
        "kosmos-csi-controller in kosmos-csi-secrets",
        "kosmos-csi-virtual-node in kosmos-csi-pods",
    ];
    assert_eq!(readers.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
}

#[test]
fn each_component_has_an_account_of_its_own() {
    let objects = objects(&rendered(&EVERYTHING).unwrap()).unwrap();
    let of = |kinds: &[&str], path: &str| -> BTreeSet<String> {
        let chosen = objects.iter().filter(|object| kinds.iter().any(|kind| object["kind"] == *kind));
        chosen.map(|object| object.pointer(path).unwrap().as_str().unwrap().to_owned()).collect()
    };
    let mut used = of(&["Deployment", "DaemonSet"], "/spec/template/spec/serviceAccountName");
    used.extend(of(&["Pod"], "/spec/serviceAccountName"));
    assert_eq!(used.len(), 4);
    assert_eq!(used, of(&["ServiceAccount"], "/metadata/name"));
}

fn note<'a>(object: &'a Value, key: &str) -> &'a Value {
    &object["metadata"]["annotations"][key]
}

#[test]
fn what_helm_test_makes_goes_with_it_but_the_pod_with_the_log_and_reads_no_secret() {
    let objects = objects(&rendered(&EVERYTHING).unwrap()).unwrap();
    let (made, others): (Vec<&Value>, Vec<&Value>) =
        objects.iter().partition(|object| note(object, "helm.sh/hook") == "test");
    let kinds: BTreeSet<&str> = made.iter().filter_map(|object| object["kind"].as_str()).collect();
    let wanted = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Pod"];
    assert_eq!(kinds, BTreeSet::from(wanted));
    for object in &made {
        assert_eq!(object["metadata"]["name"], "kosmos-csi-test");
        let is_pod = object["kind"] == "Pod";
        let policy = if is_pod { "before-hook-creation" } else { "before-hook-creation,hook-succeeded" };
        assert_eq!(note(object, "helm.sh/hook-delete-policy"), policy, "Helm 3 reads a pod's log after that");
        assert!(!object["rules"].to_string().contains("secrets"), "{object:#}");
    }
    assert!(!others.iter().any(|object| object.to_string().contains("kosmos-csi-test")), "a release has some of it");
    let pod = &made.iter().find(|object| object["kind"] == "Pod").unwrap()["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["restartPolicy"], "Never");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert!(container["resources"]["limits"]["memory"].is_string(), "{container:#}");
    assert_eq!(container["args"][0], "verify");
    let bare = rendered(&["controller.enabled=false"]).unwrap();
    assert!(!bare.contains("helm.sh/hook:"), "nothing is there to be looked at");
}

#[test]
fn helm_test_looks_for_the_provisioner_that_the_release_has() {
    let capacity = "csiDriver.storageCapacity=false";
    let is_left_out = |values: &[&str]| rendered(values).unwrap().contains("- --without-provisioner\n");
    assert!(!is_left_out(&[capacity]));
    assert!(is_left_out(&[capacity, "sidecars.provisioner.enabled=false"]));
}
