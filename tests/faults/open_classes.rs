//! Who administers a member says which hosts may use its StorageClasses.

use std::time::Duration;

use csi::v1::{GetCapacityRequest, Topology, controller_server::Controller as _};
use serde_json::{Value, json};
use tokio::time::sleep;
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, with_deadline},
    caller::{Caller, Ending, Script},
    fixture::{self, NOW},
    virtual_time,
};

const CLASSES: &str = "storageclasses.storage.k8s.io";

fn open_to(bench: &Bench, hosts: &str) {
    let open = |class: &mut Value| class["metadata"]["annotations"] = json!({"kosmos.csi.io/hosts": hosts});
    bench.members[0].change(CLASSES, "", NOW, open).unwrap();
}

async fn room(bench: &Bench) -> i64 {
    let segments = [("topology.kosmos.csi.io/member".to_owned(), "m0".to_owned())].into();
    let request = GetCapacityRequest {
        parameters: [("leafStorageClass".to_owned(), NOW.to_owned())].into(),
        accessible_topology: Some(Topology { segments }),
        ..GetCapacityRequest::default()
    };
    let asked = bench.call(|driver| async move { driver.get_capacity(with_deadline(request)).await }).await;
    asked.unwrap().available_capacity
}

#[test]
fn class_that_is_not_open_to_this_host_has_no_room_and_makes_no_leaf_and_says_who_opens_it() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(Duration::from_millis(100))).await;
        let mut before = Caller::new(&bench, Script::new("before"));
        assert_eq!(before.provision().await, Ending::Provisioned);
        assert!(room(&bench).await > 0);
        let id = bench.host_id();
        let mut caller = Caller::new(&bench, Script::new("data"));
        for hosts in ["another", ""] {
            open_to(&bench, hosts);
            sleep(Duration::from_secs(1)).await;
            assert_eq!(room(&bench).await, 0, "{hosts:?}");
            let refused = caller.create().await.unwrap_err();
            assert!([Code::Aborted, Code::ResourceExhausted].contains(&refused.code()), "{refused}");
            let words = [r#"StorageClass "now" of member m0 is not open to this host"#, &id, "kosmos.csi.io/hosts"];
            assert!(words.iter().all(|word| refused.message().contains(word)), "{refused}");
            assert!(bench.members[0].get("persistentvolumeclaims", SHOP, "data").is_none());
        }
        before.delete_claim();
        before.reclaim().await;
        open_to(&bench, &format!("another, {id}"));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(caller.provision().await, Ending::Provisioned);
        assert!(room(&bench).await > 0);
    });
}
