//! attachMode `virtual-machine`.

use std::sync::Arc;

use csi::v1::{self, controller_server::Controller as _};
use domain::volume::{HostId, VolumeHash};
use serde_json::json;
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::sleep;
use tonic::Code;

use super::{
    STEP, VIRTUAL_MACHINE,
    attachments::is_wanted_by_the_host,
    backing,
    double::Mood,
    host_node,
    machines::{Host, INSTANCES, Kind, OPERATED, PLUGGED, UUID, disks},
    nothing_is_wrong, publish, refused, unpublish,
};
use crate::{
    bench::{Bench, SHOP, with_deadline},
    caller::{Caller, Script},
    fixture, virtual_time,
};

const CLASS: &[(&str, &str)] = &[("attachMode", "virtual-machine"), ("leafNamespace", SHOP)];
const KINDS: [Kind; 4] =
    [Kind::Operator("v1alpha2"), Kind::Operator("v1alpha1"), Kind::KubeVirt(true), Kind::KubeVirt(false)];

fn machines(kind: Kind) -> &'static str {
    if matches!(kind, Kind::Operator(_)) { OPERATED } else { PLUGGED }
}

/// The host's node `vm-1` is the machine of that name, `worker` is by its label, and `liar` is not.
async fn plugged(kind: Kind) -> (Arc<Bench>, Caller, Host) {
    let bench = Bench::new(1, 2, &fixture::steady(STEP)).await;
    let host = Host::start(&bench.members[0], kind);
    host_node(&bench, "vm-1", &json!({}), UUID);
    host_node(&bench, "liar", &json!({}), "4237dddd");
    bench.start();
    bench.serves().await;
    sleep(STEP).await;
    let mut caller = Caller::new(&bench, Script { places: vec![0], parameters: CLASS, ..Script::new("data") });
    caller.insist_on_creation().await;
    sleep(STEP).await;
    (bench, caller, host)
}

fn disk_of(bench: &Bench, caller: &Caller) -> String {
    format!("v-{}", VolumeHash::new(&HostId(bench.host_id()), caller.volume()))
}

fn seen(bench: &Bench, kind: Kind) -> (Vec<String>, bool) {
    disks(&bench.members[0].get(machines(kind), SHOP, "vm-1").unwrap())
}

fn record(bench: &Bench, caller: &Caller) -> String {
    let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, &disk_of(bench, caller)).unwrap();
    leaf["metadata"]["annotations"]["kosmos.csi.io/published"].as_str().unwrap_or_default().to_owned()
}

/// All machines of the namespace are looked at, and people write those. Kubernetes takes times that hardly anybody else does.
#[test]
fn machine_that_was_written_at_a_time_nobody_reads_keeps_no_disk_from_another_one() {
    for kind in [Kind::Operator("v1alpha2"), Kind::KubeVirt(true)] {
        virtual_time::run(1, async {
            let (bench, caller, _host) = plugged(kind).await;
            let written = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "9999-12-31T23:59:59Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]);
            let metadata = json!({"name": "vm-2", "namespace": SHOP, "managedFields": written});
            bench.members[0].create(machines(kind), json!({"metadata": metadata, "spec": {}})).unwrap();
            let published = publish(&bench, &caller, "real/vm-1").await;
            assert!(published.is_ok(), "{kind:?} {published:?}:\n{}", bench.guard.trace().join("\n"));
        });
    }
}

#[test]
fn claim_becomes_a_disk_of_the_machine_and_is_taken_away_again() {
    for (kind, plugs, unplugs) in [
        // In the host CSINode and Node; in the member volume, machine, record, all machines, the change and a watch: which
        // kind it has was asked when the volume was made. Back: the machine, the change, a watch for each of two steps, the record; in
        // the host whether it wants it there.
        (Kind::Operator("v1alpha2"), 8, 6),
        (Kind::Operator("v1alpha1"), 8, 6),
        // The instance is read as well, and both again after a request that answers nothing, and after the watch.
        (Kind::KubeVirt(true), 13, 10),
        (Kind::KubeVirt(false), 11, 8),
    ] {
        virtual_time::run(1, async {
            let (bench, caller, _host) = plugged(kind).await;
            let disk = disk_of(&bench, &caller);
            let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, &disk).unwrap();
            let mode = if matches!(kind, Kind::KubeVirt(_)) { "Block" } else { "Filesystem" };
            assert_eq!(text(&leaf, "/spec/volumeMode"), mode, "{kind:?}");
            let before = bench.guard.sent_for_work();
            let context = publish(&bench, &caller, "real/vm-1").await.unwrap();
            let cost = bench.guard.sent_for_work() - before;
            assert!(cost == plugs, "{kind:?} {cost}:\n{}", bench.guard.trace().join("\n"));
            assert_eq!(seen(&bench, kind), (vec![disk.clone()], true), "{kind:?}");
            let names = backing(&context)["backing"]["names"].clone();
            let name = match kind {
                Kind::Operator(_) => "wwn-0x6000c29a98d05e384a43f0ef189aaf5a".to_owned(),
                Kind::KubeVirt(_) => format!("virtio-{}", &disk[2..18]),
            };
            assert!(names.as_array().unwrap().contains(&json!(name)), "{kind:?} {names}");
            assert!(record(&bench, &caller).contains(r#""attached":{"virtual-machine":"vm-1"}"#), "{kind:?}");
            assert_eq!(publish(&bench, &caller, "real/vm-1").await.unwrap(), context, "{kind:?}: the same again");
            let before = bench.guard.sent_for_work();
            unpublish(&bench, caller.handle().unwrap(), "real/vm-1").await.unwrap();
            let cost = bench.guard.sent_for_work() - before;
            assert!(cost == unplugs, "{kind:?} {cost}:\n{}", bench.guard.trace().join("\n"));
            assert_eq!(seen(&bench, kind), (vec![], true), "{kind:?}");
            if let Some(instance) = bench.members[0].get(INSTANCES, SHOP, "vm-1") {
                assert_eq!(instance["status"]["volumeStatus"], json!([]), "{kind:?}");
            }
            assert_eq!(record(&bench, &caller), "", "{kind:?}");
            unpublish(&bench, caller.handle().unwrap(), "real/vm-1").await.unwrap();
            nothing_is_wrong(&bench);
        });
    }
}

/// The member knows of the disk alone, and is done as soon as that is larger.
#[test]
fn filesystem_on_a_disk_of_a_machine_is_left_to_its_node_to_grow() {
    for kind in KINDS {
        virtual_time::run(1, async {
            let (bench, caller, _host) = plugged(kind).await;
            publish(&bench, &caller, "real/vm-1").await.unwrap();
            sleep(STEP).await;
            let request = v1::ControllerExpandVolumeRequest {
                volume_id: caller.handle().unwrap().to_owned(),
                capacity_range: Some(v1::CapacityRange { required_bytes: 2 << 30, limit_bytes: 0 }),
                ..Default::default()
            };
            let asked =
                bench.call(|driver| async move { driver.controller_expand_volume(with_deadline(request)).await });
            let grown = asked.await.unwrap();
            assert_eq!((grown.capacity_bytes, grown.node_expansion_required), (2_i64 << 30, true), "{kind:?}");
        });
    }
}

#[test]
fn trouble_of_the_machine_is_told_and_its_end_is_found_by_a_retry() {
    for kind in KINDS {
        virtual_time::run(1, async {
            let (bench, caller, host) = plugged(kind).await;
            host.is(Mood::Silent);
            assert_eq!(refused(publish(&bench, &caller, "real/vm-1").await).0, Code::Aborted, "{kind:?}");
            host.is(Mood::Failing);
            let word = if matches!(kind, Kind::Operator(_)) { "no free slot" } else { "no node for it" };
            let (code, message) = refused(publish(&bench, &caller, "real/vm-1").await);
            assert!(code == Code::Aborted && message.contains(word), "{kind:?} {code:?} {message}");
            host.is(Mood::Well);
            sleep(STEP * 10).await;
            publish(&bench, &caller, "real/vm-1").await.unwrap();
            host.is(Mood::Silent);
            assert_eq!(refused(unpublish(&bench, caller.handle().unwrap(), "real/vm-1").await).0, Code::Aborted);
            assert!(record(&bench, &caller).contains("vm-1"), "{kind:?}: the record goes last");
            // Wanted again while the one of before is on its way out.
            let better = async {
                sleep(STEP * 5).await;
                host.is(Mood::Well);
            };
            let (again, ()) = tokio::join!(publish(&bench, &caller, "real/vm-1"), better);
            again.unwrap();
            assert_eq!(seen(&bench, kind).0.len(), 1, "{kind:?}");
            nothing_is_wrong(&bench);
        });
    }
}

/// Another replica has taken the disk away meanwhile, and plugged it again for the next pod.
#[test]
fn call_that_waits_for_a_detachment_unplugs_no_disk_that_was_plugged_since() {
    for kind in KINDS {
        virtual_time::run(1, async {
            let (bench, caller, host) = plugged(kind).await;
            publish(&bench, &caller, "real/vm-1").await.unwrap();
            host.is(Mood::Silent);
            let (member, resource) = (bench.members[0].clone(), machines(kind));
            let before = member.get(resource, SHOP, "vm-1").unwrap();
            let meanwhile = async {
                while !seen(&bench, kind).0.is_empty() {
                    sleep(STEP).await;
                }
                sleep(STEP * 2).await;
                is_wanted_by_the_host(&bench, &caller, "vm-1");
                member.change(resource, SHOP, "vm-1", |machine| machine["spec"] = before["spec"].clone()).unwrap();
            };
            let asked = unpublish(&bench, caller.handle().unwrap(), "real/vm-1");
            let (answer, ()) = tokio::join!(asked, meanwhile);
            assert_eq!(refused(answer).0, Code::Aborted, "{kind:?}");
            sleep(STEP * 600).await;
            let there = (seen(&bench, kind).0.len(), record(&bench, &caller).contains("vm-1"));
            assert_eq!(there, (1, true), "{kind:?}: {}", bench.guard.trace().join("\n"));
        });
    }
}

#[test]
fn machine_that_is_not_proved_to_be_the_node_gets_no_disk() {
    for kind in [KINDS[0], KINDS[2]] {
        virtual_time::run(1, async {
            let (bench, caller, _host) = plugged(kind).await;
            host_node(&bench, "mislabelled", &json!({VIRTUAL_MACHINE: "vm-1"}), "4237dddd");
            for (node, words) in [
                ("liar", &["there is no virtual machine shop/liar", VIRTUAL_MACHINE][..]),
                ("mislabelled", &["4237dddd", UUID]),
            ] {
                let (code, message) = refused(publish(&bench, &caller, &format!("real/{node}")).await);
                let says = words.iter().all(|word| message.contains(word));
                assert!(code == Code::FailedPrecondition && says, "{kind:?} {node}: {code:?} {message}");
            }
            host_node(&bench, "twin", &json!({VIRTUAL_MACHINE: "vm-1"}), UUID);
            let (code, message) = refused(publish(&bench, &caller, "real/twin").await);
            assert!(code == Code::FailedPrecondition && message.contains("mislabelled"), "{code:?} {message}");
            bench.host.delete("nodes", "", "mislabelled").unwrap();
            assert_eq!((seen(&bench, kind), record(&bench, &caller)), ((vec![], true), String::new()));
            publish(&bench, &caller, "real/twin").await.unwrap();
            nothing_is_wrong(&bench);
        });
    }
}

/// A request to plug it arrived when nobody wanted it there any more.
#[test]
fn disk_that_another_machine_has_without_a_record_is_given_to_no_second_one() {
    for kind in KINDS {
        virtual_time::run(1, async {
            let (bench, caller, _host) = plugged(kind).await;
            let (member, resource) = (&bench.members[0], machines(kind));
            publish(&bench, &caller, "real/vm-1").await.unwrap();
            let mut other = (*member.get(resource, SHOP, "vm-1").unwrap()).clone();
            unpublish(&bench, caller.handle().unwrap(), "real/vm-1").await.unwrap();
            other["metadata"] = json!({"namespace": SHOP, "name": "vm-2"});
            member.create(resource, other).unwrap();
            let (code, message) = refused(publish(&bench, &caller, "real/vm-1").await);
            let says = message.contains("shop/vm-2") && message.contains("by no record of the driver");
            assert!(code == Code::FailedPrecondition && says, "{kind:?} {code:?} {message}");
            assert_eq!(seen(&bench, kind).0, Vec::<String>::new(), "{kind:?}");
            member.delete(resource, SHOP, "vm-2").unwrap();
            publish(&bench, &caller, "real/vm-1").await.unwrap();
            nothing_is_wrong(&bench);
        });
    }
}

#[test]
fn name_that_stands_for_another_claim_is_left_alone() {
    virtual_time::run(1, async {
        let (bench, caller, _host) = plugged(KINDS[0]).await;
        let other = json!({"name": disk_of(&bench, &caller), "persistentVolumeClaim": {"claimName": "other"}});
        bench.members[0]
            .change(OPERATED, SHOP, "vm-1", |machine| {
                machine["spec"]["volumes"].as_array_mut().unwrap().push(other.clone());
            })
            .unwrap();
        let (code, message) = refused(publish(&bench, &caller, "real/vm-1").await);
        assert!(code == Code::FailedPrecondition && message.contains("claim other"), "{code:?} {message}");
        unpublish(&bench, caller.handle().unwrap(), "real/vm-1").await.unwrap();
        let machine = bench.members[0].get(OPERATED, SHOP, "vm-1").unwrap();
        assert!(machine["spec"]["volumes"].as_array().unwrap().contains(&other));
        nothing_is_wrong(&bench);
    });
}

#[test]
fn disk_of_a_machine_that_is_gone_is_detached_and_of_a_claim_that_is_gone_too() {
    for kind in KINDS {
        virtual_time::run(1, async {
            let (bench, caller, _host) = plugged(kind).await;
            let handle = caller.handle().unwrap().to_owned();
            publish(&bench, &caller, "real/vm-1").await.unwrap();
            leaf_goes(&bench, &caller).await;
            unpublish(&bench, &handle, "real/liar").await.unwrap();
            assert_eq!(seen(&bench, kind).0.len(), 1, "{kind:?}: another node's");
            unpublish(&bench, &handle, "real/vm-1").await.unwrap();
            assert_eq!(seen(&bench, kind), (vec![], true), "{kind:?}");
        });
        virtual_time::run(1, async {
            let (bench, caller, _host) = plugged(kind).await;
            publish(&bench, &caller, "real/vm-1").await.unwrap();
            for resource in [machines(kind), INSTANCES] {
                let _ = bench.members[0].delete(resource, SHOP, "vm-1");
            }
            unpublish(&bench, caller.handle().unwrap(), "real/vm-1").await.unwrap();
            assert_eq!(record(&bench, &caller), "", "{kind:?}");
            let (code, message) = refused(publish(&bench, &caller, "real/vm-1").await);
            assert!(code == Code::FailedPrecondition && message.contains("shop/vm-1"), "{kind:?} {code:?} {message}");
            assert!(bench.members[0].get(machines(kind), SHOP, "vm-1").is_none(), "{kind:?}: never recreated");
            nothing_is_wrong(&bench);
        });
    }
}

/// With its volume, while the driver is not there.
async fn leaf_goes(bench: &Arc<Bench>, caller: &Caller) {
    bench.kill();
    let (member, claim) = (&bench.members[0], disk_of(bench, caller));
    let free = |claim: &mut serde_json::Value| claim["metadata"]["finalizers"] = json!([]);
    let kept = member.get("persistentvolumeclaims", SHOP, &claim).unwrap();
    let volume = text(&kept, "/spec/volumeName").to_owned();
    member.change("persistentvolumeclaims", SHOP, &claim, free).unwrap();
    member.delete("persistentvolumeclaims", SHOP, &claim).unwrap();
    member.change("persistentvolumes", "", &volume, free).unwrap();
    sleep(STEP * 5).await;
    bench.start();
    bench.serves().await;
    sleep(STEP).await;
}

/// Its account had the right to plug it.
#[test]
fn volume_without_a_leaf_claim_is_not_called_detached_while_the_member_does_not_show_its_machines() {
    for kind in KINDS {
        virtual_time::run(1, async {
            let (bench, caller, _host) = plugged(kind).await;
            publish(&bench, &caller, "real/vm-1").await.unwrap();
            leaf_goes(&bench, &caller).await;
            bench.guard.set_fate(move |_, at, asked| {
                let is_list = at == 1 && asked.verb == Verb::List && asked.resource == machines(kind);
                if is_list { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
            });
            let (code, message) = refused(unpublish(&bench, caller.handle().unwrap(), "real/vm-1").await);
            let says = message.contains("attachMode virtual-machine") && message.contains("member add --attach");
            assert!(code == Code::PermissionDenied && says, "{kind:?} {code:?} {message}");
            assert_eq!(seen(&bench, kind).0.len(), 1, "{kind:?}");
            bench.guard.heal();
            unpublish(&bench, caller.handle().unwrap(), "real/vm-1").await.unwrap();
            assert_eq!(seen(&bench, kind), (vec![], true), "{kind:?}");
        });
    }
}

#[test]
fn member_without_machines_is_named_and_nothing_is_left_there() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 2, &fixture::steady(STEP)).await;
        bench.start();
        bench.serves().await;
        sleep(STEP).await;
        let caller = Caller::new(&bench, Script { places: vec![0], parameters: CLASS, ..Script::new("data") });
        let (code, message) = refused(caller.create().await);
        let says = message.contains("vmoperator.vmware.com") && message.contains("kubevirt.io");
        assert!(code == Code::FailedPrecondition && says, "{code:?} {message}");
        assert!(bench.leaf_objects(caller.volume()).is_empty());
    });
}
