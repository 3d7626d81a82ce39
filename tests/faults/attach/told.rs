//! Without attaching: what a node is told of each kind of leaf volume, and which node gets none.

use serde_json::json;
use tonic::Code;

use super::{
    CSI_DRIVERS, LEAF_DRIVER, MEMBER_NODE, attach_is_required, backing, host_node, leaf_volume, make_of,
    nothing_is_wrong, publish, record, refused, unpublish, volume_with,
};
use crate::virtual_time;

#[test]
fn node_is_told_what_the_leaf_volume_is_made_of() {
    virtual_time::run(1, async {
        let (bench, caller) = volume_with(&[]).await;
        let name = leaf_volume(&bench, "data");
        let before = bench.guard.sent_for_work();
        let context = publish(&bench, &caller, "real/n2").await.unwrap();
        // In the host the CSINode; in the member the volume, its driver, the record.
        assert_eq!(bench.guard.sent_for_work() - before, 4, "{}", bench.guard.trace().join("\n"));
        assert_eq!((context["attachMode"].as_str(), context["volume"].as_str()), ("none", caller.handle().unwrap()));
        let told = backing(&context);
        assert_eq!(
            (&told["backing"]["kind"], &told["backing"]["driver"], &told["backing"]["handle"]),
            (&json!("csi"), &json!(LEAF_DRIVER), &json!(name))
        );
        assert_eq!(told["backing"]["groupPolicy"], "always");
        unpublish(&bench, caller.handle().unwrap(), "real/n2").await.unwrap();
        make_of(&bench, "data", |spec| {
            spec["csi"] = json!(null);
            spec["nfs"] = json!({"server": "10.0.0.1", "path": "/export", "readOnly": true});
            spec["mountOptions"] = json!(["hard"]);
        });
        let told = backing(&publish(&bench, &caller, "real/n2").await.unwrap());
        let nfs = json!({"kind": "nfs", "server": "10.0.0.1", "path": "/export"});
        assert_eq!(told, json!({"backing": nfs, "options": ["hard"], "readonly": true}));
        nothing_is_wrong(&bench);
    });
}

#[test]
fn folder_of_a_machine_is_told_to_that_machine_alone() {
    virtual_time::run(1, async {
        let (bench, caller) = volume_with(&[]).await;
        let on = |node: &str| {
            let hostname = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}})
        };
        make_of(&bench, "data", |spec| {
            spec["csi"] = json!(null);
            spec["local"] = json!({"path": "/mnt/disks/a"});
            spec["nodeAffinity"] = on("m0-n1");
        });
        let (code, message) = refused(publish(&bench, &caller, "real/n2").await);
        assert!(code == Code::FailedPrecondition && message.contains("does not name node n2"), "{code:?} {message}");
        assert_eq!(record(&bench, "data"), "", "who is refused is not recorded");
        let told = backing(&publish(&bench, &caller, "real/n1").await.unwrap());
        assert_eq!(told["backing"], json!({"kind": "local", "path": "/mnt/disks/a"}));
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        make_of(&bench, "data", |spec| {
            spec["local"] = json!(null);
            spec["hostPath"] = json!({"path": "/srv/a"});
            spec["nodeAffinity"] = json!(null);
        });
        let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
        assert!(code == Code::FailedPrecondition && message.contains("no nodeAffinity"), "{code:?} {message}");
        nothing_is_wrong(&bench);
    });
}

#[test]
fn node_that_is_not_proved_to_be_a_members_node_gets_nothing_of_that() {
    virtual_time::run(1, async {
        let (bench, caller) = volume_with(&[]).await;
        let affinity = json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]}});
        make_of(&bench, "data", |spec| {
            spec["csi"] = json!(null);
            spec["local"] = json!({"path": "/mnt/disks/a"});
            spec["nodeAffinity"] = affinity;
        });
        host_node(&bench, "stranger", &json!({}), "4237cccc");
        host_node(&bench, "liar", &json!({MEMBER_NODE: "n2"}), "4237cccc");
        host_node(&bench, "twin", &json!({MEMBER_NODE: "m0-n1"}), "4237aaaa");
        for (node, words) in [
            ("stranger", &["there is no node stranger", MEMBER_NODE][..]),
            ("liar", &["4237cccc", "4237bbbb"]),
            ("twin", &["n1", "twin", "both carry"]),
            ("n1", &["n1", "twin", "both carry"]),
        ] {
            let (code, message) = refused(publish(&bench, &caller, &format!("real/{node}")).await);
            let says = words.iter().all(|word| message.contains(word));
            assert!(code == Code::FailedPrecondition && says, "{node}: {code:?} {message}");
        }
        bench.host.delete("nodes", "", "twin").unwrap();
        publish(&bench, &caller, "real/n1").await.unwrap();
        nothing_is_wrong(&bench);
    });
}

#[test]
fn volume_that_a_real_node_cannot_use_is_refused_with_what_to_do() {
    virtual_time::run(1, async {
        let (bench, caller) = volume_with(&[]).await;
        let source = |spec: &serde_json::Value| spec["csi"].clone();
        let mut csi = json!(null);
        make_of(&bench, "data", |spec| csi = source(spec));
        for (field, object) in [("iscsi", json!({"iqn": "i", "lun": 0, "targetPortal": "t"})), ("rbd", json!({}))] {
            make_of(&bench, "data", |spec| {
                spec["csi"] = json!(null);
                spec[field] = object;
            });
            let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
            let says = message.contains(field) && message.contains("NFS");
            assert!(code == Code::FailedPrecondition && says, "{code:?} {message}");
            make_of(&bench, "data", |spec| spec[field] = json!(null));
        }
        make_of(&bench, "data", |spec| spec["csi"] = csi);
        attach_is_required(&bench.members[0]);
        let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
        assert!(code == Code::FailedPrecondition && message.contains("volume-attachment"), "{code:?} {message}");
        // Nobody knows what it wants.
        bench.members[0].delete(CSI_DRIVERS, "", LEAF_DRIVER).unwrap();
        publish(&bench, &caller, "real/n1").await.unwrap();
        nothing_is_wrong(&bench);
    });
}

#[test]
fn leaf_without_a_volume_is_waited_for() {
    virtual_time::run(1, async {
        let (bench, caller) = volume_with(&[("leafBinding", "deferred"), ("leafStorageClass", "later")]).await;
        let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
        assert!(code == Code::Aborted && message.contains("leafBinding"), "{code:?} {message}");
        publish(&bench, &caller, "virtual/m0").await.unwrap();
        nothing_is_wrong(&bench);
    });
}

#[test]
fn attach_mode_goes_with_the_volume_and_a_garbled_one_is_named() {
    virtual_time::run(1, async {
        let (bench, mut caller) = volume_with(&[("attachMode", "volume-attachment")]).await;
        assert_eq!(caller.context()["attachMode"], "volume-attachment");
        let plain = super::volume(&bench, "plain", &[("attachMode", "none")]).await;
        assert!(!plain.context().contains_key("attachMode"));
        caller.garble_context("attachMode", "by-hand");
        let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
        assert!(code == Code::InvalidArgument && message.contains("by-hand"), "{code:?} {message}");
    });
}
