//! Tokens of a pod's account in the host, and members in which something is in the way of them.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;

use super::{NODE, SHOP, World, give_secrets, planted::allow_secrets, standing, story, until};

/// The pod `web`, which wants one.
fn run_with_token(world: &World) {
    let sources = json!([{"serviceAccountToken": {"path": "token"}}]);
    let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}],
        "volumes": [{"name": "t", "projected": {"sources": sources}}], "automountServiceAccountToken": false});
    world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
}

/// The Secret in the member that holds it.
fn holder(world: &World) -> Option<Value> {
    let mut secrets = world.member.list("secrets").into_iter();
    let found = secrets.find(|secret| text(secret, "/metadata/name").starts_with("kosmos-csi-token-"));
    found.map(|secret| Value::clone(&secret))
}

fn is_full(world: &World) -> bool {
    holder(world).is_some_and(|secret| !text(&secret, "/data/token-0").is_empty())
}

/// How often the host was asked for a token, since its faults were told to record.
fn asked(world: &World) -> usize {
    let log = world.host.faults().log();
    log.iter().filter(|asked| asked.resource == "serviceaccounts" && asked.subresource == "token").count()
}

async fn with_token() -> World {
    let world = standing(1).await;
    give_secrets(&world, "true");
    world.host.faults().record(true);
    run_with_token(&world);
    until("it runs", || world.phase("web") == "Running").await;
    assert!(is_full(&world) && asked(&world) == 1, "{:?}", holder(&world));
    world
}

#[test]
fn no_token_is_asked_for_that_the_member_has_no_place_for() {
    story(1, async {
        let world = standing(1).await;
        world.open_namespace(SHOP);
        allow_secrets(&world, "0");
        give_secrets(&world, "true");
        world.host.faults().record(true);
        run_with_token(&world);
        until("it says why it waits", || world.says("web", "QuotaExceeded", "a Secret in namespace shop")).await;
        sleep(Duration::from_mins(5)).await;
        assert_eq!(asked(&world), 0);
        allow_secrets(&world, "9");
        until("it runs", || world.phase("web") == "Running").await;
        assert!(is_full(&world) && asked(&world) == 1);
    });
}

/// Whoever may write Secrets there may do so.
#[test]
fn member_in_which_tokens_are_removed_or_said_to_be_due_has_the_host_asked_for_few() {
    for removes in [true, false] {
        story(1, async {
            let world = with_token().await;
            let name = text(&holder(&world).unwrap(), "/metadata/name").to_owned();
            for _ in 0..60 {
                let is_due =
                    |secret: &mut Value| secret["metadata"]["annotations"]["kosmos.csi.io/renew-at"] = json!("0");
                if removes {
                    world.member.delete("secrets", SHOP, &name).unwrap();
                } else {
                    world.member.change("secrets", SHOP, &name, is_due).unwrap();
                }
                sleep(Duration::from_secs(31)).await;
            }
            assert!((8..=12).contains(&asked(&world)), "{} in half an hour", asked(&world));
            sleep(Duration::from_mins(6)).await;
            assert!(is_full(&world), "it has one again");
        });
    }
}

/// Else the pod's token ends one day, and no other comes.
#[test]
fn token_that_is_said_to_be_renewed_after_its_end_is_renewed_at_once() {
    story(1, async {
        let world = with_token().await;
        let name = text(&holder(&world).unwrap(), "/metadata/name").to_owned();
        let later =
            |secret: &mut Value| secret["metadata"]["annotations"]["kosmos.csi.io/renew-at"] = json!("99999999999");
        world.member.change("secrets", SHOP, &name, later).unwrap();
        until("it is renewed", || asked(&world) == 2).await;
        let says = || text(&holder(&world).unwrap(), "/metadata/annotations/kosmos.csi.io~1renew-at").to_owned();
        until("it says when next", || says() != "99999999999").await;
    });
}

/// As that of a Job, which may stay for days.
#[test]
fn no_token_is_asked_for_of_a_pod_that_has_ended() {
    story(1, async {
        let world = with_token().await;
        let ends = |copy: &mut Value| copy["status"]["phase"] = json!("Succeeded");
        world.member.change("pods", SHOP, "web", ends).unwrap();
        until("its end is told", || world.phase("web") == "Succeeded").await;
        let name = text(&holder(&world).unwrap(), "/metadata/name").to_owned();
        let is_due = |secret: &mut Value| secret["metadata"]["annotations"]["kosmos.csi.io/renew-at"] = json!("0");
        world.member.change("secrets", SHOP, &name, is_due).unwrap();
        sleep(Duration::from_mins(5)).await;
        assert_eq!(asked(&world), 1);
    });
}
