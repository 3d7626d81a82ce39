//! VolumeAttributesClasses that go, or are recreated under their names with other parameters, in the host and in a member: who still
//! waits gets what is said now, and nobody is told of what he has not.

use std::{sync::Arc, time::Duration};

use csi::v1::{self, controller_server::Controller as _};
use serde_json::{Value, json};
use simulate::{
    faults::Action,
    storage::{Settings, Work},
    text,
};
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};

use crate::{
    bench::{Bench, SHOP, with_deadline},
    caller::{Caller, Ending, Script},
    fixture::{self, GOLD},
    late::patches,
    reclaim::{CLAIM, SETTLED, bench, ends_well, leaf, provisioned},
    shared::has_alias,
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_secs(2);
/// Longer than a caller waits.
const SLOW: Duration = Duration::from_secs(20);
pub const SILVER: &str = "silver";
/// Cannot be had.
const LEAD: &str = "lead";
const CLASSES: &str = "volumeattributesclasses.storage.k8s.io";
pub const CLASS: &str = "/spec/volumeAttributesClassName";
const IN_FORCE: &str = "/status/currentVolumeAttributesClassName";

fn make_class(bench: &Bench, name: &str, driver: &str, parameter: &str) {
    let class = json!({"metadata": {"name": name}, "driverName": driver, "parameters": {parameter: "1"}});
    bench.members[0].create(CLASSES, class).unwrap();
}

fn has_silver(bench: &Bench) {
    make_class(bench, SILVER, "storage.simulated", "iops");
}

/// By force: Kubernetes protects a class that claims name.
pub fn loses_silver(bench: &Bench) {
    let member = &bench.members[0];
    member.change(CLASSES, "", SILVER, |class| class["metadata"]["finalizers"] = json!([])).unwrap();
    member.delete(CLASSES, "", SILVER).unwrap();
}

/// A volume with the class gold, in a member that has silver as well.
pub async fn golden() -> (Arc<Bench>, Caller) {
    let bench = bench().await;
    has_silver(&bench);
    let caller = provisioned(&bench, Script::new(CLAIM)).await;
    modify(&bench, &caller, GOLD).await.unwrap();
    (bench, caller)
}

pub fn asks_for(bench: &Bench, field: &str) -> String {
    text(&leaf(bench, CLAIM).unwrap(), field).to_owned()
}

fn stands_for(class: &str) -> [(String, String); 1] {
    [("leafVolumeAttributesClass".to_owned(), class.to_owned())]
}

/// Of a class of the host that stands for this one.
pub async fn modify(bench: &Bench, caller: &Caller, class: &str) -> Result<(), Status> {
    let request = v1::ControllerModifyVolumeRequest {
        volume_id: caller.handle().unwrap().to_owned(),
        mutable_parameters: stands_for(class).into(),
        ..Default::default()
    };
    bench.call(|driver| async move { driver.controller_modify_volume(with_deadline(request)).await }).await.map(drop)
}

/// Likewise.
async fn create(bench: &Bench, caller: &Caller, class: &str) -> Result<(), Status> {
    let request = v1::CreateVolumeRequest { mutable_parameters: stands_for(class).into(), ..caller.request() };
    bench.create(request).await.map(drop)
}

/// Asks again as long as it is told to, or until it is told this.
async fn insists(words: &str, mut ask: impl AsyncFnMut() -> Result<(), Status>) -> Result<(), String> {
    let answered = timeout(SETTLED, async {
        loop {
            match ask().await {
                Ok(()) => return Ok(()),
                Err(status) if status.code() != Code::Aborted => return Err(status.to_string()),
                Err(status) if !words.is_empty() && status.message().contains(words) => return Err(words.to_owned()),
                Err(_) => sleep(SOON).await,
            }
        }
    });
    answered.await.unwrap()
}

/// A claim whose leaf waits for its volume, with the class gold.
async fn waiting() -> (Arc<Bench>, Caller) {
    let settings = Settings { resizing: Work::takes(STEP..=STEP), ..fixture::steady(SLOW) };
    let bench = Bench::serving(1, &settings).await;
    has_silver(&bench);
    let caller = Caller::new(&bench, Script::new(CLAIM));
    assert_eq!(create(&bench, &caller, GOLD).await.unwrap_err().code(), Code::Aborted);
    assert_eq!(asks_for(&bench, CLASS), GOLD);
    (bench, caller)
}

#[test]
fn claim_whose_class_is_recreated_while_it_waits_for_its_volume_gets_what_that_says_now() {
    virtual_time::run(1, async {
        let (bench, mut caller) = waiting().await;
        insists("", async || create(&bench, &caller, SILVER).await).await.unwrap();
        assert_eq!((asks_for(&bench, CLASS).as_str(), asks_for(&bench, IN_FORCE).as_str()), (SILVER, SILVER));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        sleep(SETTLED).await;
        ends_well(&bench, caller).await;
    });
}

#[test]
fn claim_whose_class_is_recreated_as_one_that_cannot_be_had_says_so_and_has_a_way_out() {
    virtual_time::run(1, async {
        let (bench, mut caller) = waiting().await;
        make_class(&bench, LEAD, "storage.simulated", "infeasible");
        let words = "cannot have VolumeAttributesClass \"lead\"";
        let told = insists(words, async || create(&bench, &caller, LEAD).await).await;
        assert_eq!(told, Err(words.to_owned()));
        insists("", async || create(&bench, &caller, GOLD).await).await.unwrap();
        assert_eq!((asks_for(&bench, CLASS).as_str(), asks_for(&bench, IN_FORCE).as_str()), (GOLD, GOLD));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        sleep(SETTLED).await;
        ends_well(&bench, caller).await;
    });
}

/// By a final answer its provisioner forgets it, and it stays in the member when its user deletes the claim. The host's class stands for one
/// that the member does not have.
#[test]
fn leaf_without_its_labels_is_not_forgotten_for_what_else_stands_in_its_way_and_says_what_to_put_back() {
    virtual_time::run(1, async {
        let (bench, mut caller) = waiting().await;
        let was = leaf(&bench, CLAIM).unwrap()["metadata"]["labels"].clone();
        let label = |labels: &Value| {
            let write = |leaf: &mut Value| leaf["metadata"]["labels"] = labels.clone();
            bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, write).unwrap();
        };
        label(&json!({}));
        sleep(SOON).await;
        for class in [LEAD, GOLD] {
            let told = create(&bench, &caller, class).await.unwrap_err();
            assert_eq!(told.code(), Code::Aborted, "{class}: {told}");
            let label = format!("kosmos.csi.io/volume={}", text(&was, "/kosmos.csi.io~1volume"));
            assert!(told.message().contains("put back") && told.message().contains(&label), "{class}: {told}");
        }
        label(&was);
        sleep(SOON).await;
        insists("", async || create(&bench, &caller, GOLD).await).await.unwrap();
        assert_eq!(caller.provision().await, Ending::Provisioned);
        sleep(SETTLED).await;
        ends_well(&bench, caller).await;
    });
}

/// By what it remembers of the claim, as one whose cache is old.
#[test]
fn provisioner_that_asks_again_does_not_bring_a_former_class_back() {
    virtual_time::run(1, async {
        let (bench, caller) = golden().await;
        modify(&bench, &caller, SILVER).await.unwrap();
        create(&bench, &caller, GOLD).await.unwrap();
        sleep(SOON).await;
        assert_eq!(asks_for(&bench, CLASS), SILVER);
        ends_well(&bench, caller).await;
    });
}

#[test]
fn volume_whose_class_is_recreated_while_it_waits_for_that_gets_what_it_says_now() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(SLOW)).await;
        has_silver(&bench);
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        assert_eq!(modify(&bench, &caller, GOLD).await.unwrap_err().code(), Code::Aborted);
        insists("", async || modify(&bench, &caller, SILVER).await).await.unwrap();
        assert_eq!((asks_for(&bench, CLASS).as_str(), asks_for(&bench, IN_FORCE).as_str()), (SILVER, SILVER));
        ends_well(&bench, caller).await;
    });
}

/// external-resizer holds on to a class of which it was told ABORTED, whatever its user names since.
#[test]
fn class_that_goes_from_a_member_while_a_leaf_waits_for_it_is_named_and_its_user_may_go_back() {
    virtual_time::run(1, async {
        let (bench, caller) = golden().await;
        bench.guard.set_fate(
            |_, at, asked| {
                if at > 0 && patches(asked, CLASS) { Action::Delay(SOON) } else { Action::Pass }
            },
        );
        let (asked, ()) = tokio::join!(modify(&bench, &caller, SILVER), async {
            sleep(SOON / 2).await;
            loses_silver(&bench);
        });
        assert_eq!((asked.unwrap_err().code(), asks_for(&bench, CLASS).as_str()), (Code::Aborted, SILVER));
        bench.guard.heal();
        let told = modify(&bench, &caller, SILVER).await.unwrap_err();
        assert!(
            told.code() == Code::FailedPrecondition && told.message().contains("has no VolumeAttributesClass"),
            "{told}"
        );
        make_class(&bench, SILVER, "other.example", "iops");
        let told = modify(&bench, &caller, SILVER).await.unwrap_err();
        assert!(told.code() == Code::FailedPrecondition && told.message().contains("is for driver"), "{told}");
        modify(&bench, &caller, GOLD).await.unwrap();
        assert_eq!((asks_for(&bench, CLASS).as_str(), asks_for(&bench, IN_FORCE).as_str()), (GOLD, GOLD));
        loses_silver(&bench);
        has_silver(&bench);
        modify(&bench, &caller, SILVER).await.unwrap();
        assert_eq!(asks_for(&bench, IN_FORCE), SILVER);
        ends_well(&bench, caller).await;
    });
}

/// As of a volume that was made while that name served. The host's class names the one that serves now.
#[test]
fn class_for_the_name_that_serves_is_meant_also_by_a_handle_with_another_name_of_the_member() {
    virtual_time::run(1, async {
        let (bench, caller) = golden().await;
        has_alias(&bench).await;
        let for_this = ("leafVolumeAttributesClass.m0".to_owned(), SILVER.to_owned());
        let [for_others] = stands_for(GOLD);
        let request = v1::ControllerModifyVolumeRequest {
            volume_id: caller.handle().unwrap().replacen("m0/", "alias/", 1),
            mutable_parameters: [for_this, for_others].into(),
            ..Default::default()
        };
        let modified =
            bench.call(|driver| async move { driver.controller_modify_volume(with_deadline(request)).await });
        modified.await.unwrap();
        assert_eq!(asks_for(&bench, CLASS), SILVER);
    });
}
