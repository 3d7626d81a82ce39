//! What becomes of the source of a move that has succeeded, where its user has said how long it is to be kept.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use simulate::{faults::Action, text};
use tokio::time::{sleep, timeout};

use super::{CLAIM, CLAIMS, DATA, MOVES, REMOVED, STEP, Story, VOLUMES, at_the_end};
use crate::{bench::SHOP, caller::Script, fixture::OTHER_HOST, reclaim::events, rolled_back::roll_back, virtual_time};

/// After which what is due was looked at, and the member has removed what it was told to.
const SETTLED: Duration = Duration::from_mins(5);

async fn moved(spec: &Value) -> Story {
    let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
    story.asks(1, spec);
    story.comes_to("Succeeded").await;
    story
}

/// By one more move, of this name.
async fn moves_on(story: &Story, name: &str, to: usize) {
    story.asks_as(name, to, &json!({}));
    while text(&story.bench.host.get(MOVES, SHOP, name).unwrap(), "/status/phase") != "Succeeded" {
        sleep(STEP).await;
    }
    assert_eq!(story.found(), Ok((to, DATA.to_owned())), "{name}: {}", story.trace());
}

/// The condition of the move, and its words.
fn told(story: &Story) -> (String, String) {
    let of = story.bench.host.get(MOVES, SHOP, "to").unwrap_or_default();
    let conditions = of["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let one = conditions.into_iter().find(|one| one["type"] == "SourceDeleted").unwrap_or_default();
    (text(&one, "/status").to_owned(), text(&one, "/message").to_owned())
}

/// From now on.
fn is_due(story: &Story) {
    story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["deleteSourceAfter"] = json!("0s")).unwrap();
}

fn in_source_member(story: &Story) -> usize {
    story.bench.members[0].list(VOLUMES).len()
}

/// The source is gone, the volume is where it was, and the move says so.
fn is_gone(story: &Story) {
    assert_eq!(in_source_member(story), 0, "{}\n{}", story.status(), story.trace());
    assert_eq!(story.found(), Ok((1, DATA.to_owned())));
    let (status, message) = told(story);
    assert!(status == "True" && message.contains("is gone, with its data"), "{status} {message}");
    assert_eq!(story.bench.guard.wrong(), [""; 0]);
}

#[test]
fn source_is_removed_when_its_time_has_passed_and_not_before() {
    virtual_time::run(1, async {
        let story = moved(&json!({"deleteSourceAfter": "1h"})).await;
        sleep(SETTLED).await;
        assert_eq!((story.kept(0), told(&story).0), (vec![DATA.to_owned()], String::new()));
        // The clock of the move is the machine's.
        let earlier = json!("2026-01-01T00:00:00Z");
        story.bench.host.change(MOVES, SHOP, "to", |of| of["status"]["completionTime"] = earlier.clone()).unwrap();
        sleep(SETTLED).await;
        is_gone(&story);
    });
}

/// By that of the driver's machine it would have.
#[test]
fn source_is_kept_until_its_time_has_passed_by_the_clock_of_the_hosts_api_server_too() {
    virtual_time::run(1, async {
        let story = moved(&json!({"deleteSourceAfter": "1h"})).await;
        let hours = Duration::from_hours(2);
        story.bench.host.faults().set_clock_back(hours);
        let earlier = json!((Timestamp::now() - hours).to_string());
        story.bench.host.change(MOVES, SHOP, "to", |of| of["status"]["completionTime"] = earlier.clone()).unwrap();
        sleep(SETTLED).await;
        let (status, message) = told(&story);
        assert_eq!(story.kept(0), [DATA], "{message}");
        assert!(status == "False" && message.contains("the clock of the host's API server"), "{status} {message}");
        story.bench.host.faults().set_clock_back(Duration::ZERO);
        sleep(hours).await;
        is_gone(&story);
    });
}

/// That of the driver's machine does not go on here, so it is hours behind: its time would have passed at once where another replica takes over,
/// or somebody sets that clock right.
#[test]
fn time_of_a_source_begins_by_the_clock_of_the_hosts_api_server_where_that_of_the_driver_is_behind() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        sleep(Duration::from_hours(3)).await;
        story.asks(1, &json!({"deleteSourceAfter": "1h"}));
        story.comes_to("Succeeded").await;
        let of = story.bench.host.get(MOVES, SHOP, "to").unwrap();
        let [asked, ended] = ["/metadata/creationTimestamp", "/status/completionTime"].map(|path| text(&of, path));
        assert!(ended.parse::<Timestamp>().unwrap() >= asked.parse::<Timestamp>().unwrap(), "{asked} {ended}");
    });
}

#[test]
fn source_is_removed_whoever_is_killed_between_two_writes() {
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        story.bench.guard.set_fate(|_, of, asked| {
            let gives_up = text(&asked.body, "/spec/persistentVolumeReclaimPolicy") == "Delete";
            if of == 1 && gives_up { Action::Hang } else { Action::Pass }
        });
        is_due(&story);
        sleep(STEP * 10).await;
        story.bench.guard.heal();
        story.bench.start();
        sleep(SETTLED).await;
        is_gone(&story);
    });
}

/// It may be said at any time, and whoever changes his mind before deletes the move.
#[test]
fn time_may_be_given_later_and_a_move_that_is_deleted_removes_nothing() {
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        sleep(SETTLED).await;
        assert_eq!(in_source_member(&story), 1);
        is_due(&story);
        sleep(SETTLED).await;
        assert_eq!(in_source_member(&story), 0, "{}\n{}", story.status(), story.trace());
    });
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        is_due(&story);
        story.bench.host.delete(MOVES, SHOP, "to").unwrap();
        sleep(SETTLED).await;
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
        assert_eq!(story.kept(0), [DATA]);
    });
}

/// What is wrong with the world, and what the move says of it. It is kept, and given up once that is mended.
async fn is_kept_while(disturb: impl FnOnce(&Story), mend: impl FnOnce(&Story), says: &str) {
    let story = moved(&json!({})).await;
    disturb(&story);
    is_due(&story);
    sleep(SETTLED).await;
    let (status, message) = told(&story);
    assert_eq!(in_source_member(&story), 1, "{message}\n{}", story.trace());
    assert!(status == "False" && message.contains(says), "{says}: {message}\n{}", story.trace());
    mend(&story);
    sleep(Duration::from_hours(2)).await;
    assert_eq!(in_source_member(&story), 0, "{}\n{}", story.status(), story.trace());
    assert_eq!(told(&story).0, "True");
}

/// Once it is due.
async fn is_kept_and_says(story: &Story, words: &str) {
    is_due(story);
    sleep(SETTLED).await;
    assert_eq!(story.kept(0), [DATA]);
    assert!(told(story).1.contains(words), "{:?}", told(story));
}

fn source(story: &Story) -> String {
    let of = story.bench.host.get(MOVES, SHOP, "to").unwrap();
    text(&of, "/status/source/name").to_owned()
}

fn change_source(story: &Story, change: impl Fn(&mut Value)) {
    story.bench.members[0].change(VOLUMES, "", &source(story), |volume| change(volume)).unwrap();
}

#[test]
fn source_is_kept_while_what_the_host_leads_to_is_not_seen() {
    virtual_time::run(1, async {
        let silent = |story: &Story| {
            story.bench.guard.set_fate(|_, of, _| match of {
                2 => Action::Hang,
                _ => Action::Pass,
            });
        };
        is_kept_while(silent, |story| story.bench.guard.heal(), "the source is kept: member m1: ").await;
    });
}

#[test]
fn source_that_is_somebody_elses_by_now_is_kept() {
    virtual_time::run(1, async {
        let label = |story: &Story, value: Value| {
            change_source(story, |volume| volume["metadata"]["labels"]["kosmos.csi.io/host"] = value.clone());
        };
        let taken = |story: &Story| label(story, json!(OTHER_HOST));
        let given_back = |story: &Story| label(story, json!(story.bench.host_id()));
        is_kept_while(taken, given_back, "it was kept for another host").await;
    });
}

#[test]
fn volume_that_has_the_name_of_a_source_that_is_gone_is_not_touched() {
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        let (member, name) = (&story.bench.members[0], source(&story));
        let mut stranger = (*member.get(VOLUMES, "", &name).unwrap()).clone();
        member.delete(VOLUMES, "", &name).unwrap();
        member.change(VOLUMES, "", &name, |volume| volume["metadata"]["finalizers"] = json!([])).ok();
        stranger["metadata"].as_object_mut().unwrap().remove("uid");
        stranger["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        while member.get(VOLUMES, "", &name).is_some() {
            sleep(STEP).await;
        }
        member.create(VOLUMES, stranger).unwrap();
        is_due(&story);
        sleep(SETTLED).await;
        assert_eq!(in_source_member(&story), 1, "{}", story.trace());
        assert!(told(&story).1.contains("was made again by somebody"), "{:?}", told(&story));
    });
}

/// Its data may lie there still.
#[test]
fn source_that_somebody_else_has_removed_is_not_said_to_be_deleted() {
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        let name = source(&story);
        story.bench.members[0].delete(VOLUMES, "", &name).unwrap();
        while story.bench.members[0].get(VOLUMES, "", &name).is_some() {
            sleep(STEP).await;
        }
        is_due(&story);
        sleep(SETTLED).await;
        assert!(
            told(&story).1.contains("who removed it, and whether with its data, is not on record"),
            "{:?}",
            told(&story)
        );
    });
}

/// Nobody can take that back, so nobody is told otherwise.
#[test]
fn source_that_is_being_deleted_is_said_to_be_whatever_its_user_says_then() {
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        let hold = |volume: &mut Value| volume["metadata"]["finalizers"] = json!(["example.com/slow"]);
        change_source(&story, hold);
        is_due(&story);
        sleep(SETTLED).await;
        assert!(told(&story).1.contains("the member removes it"), "{:?}", told(&story));
        let later = |of: &mut Value| of["spec"]["deleteSourceAfter"] = json!("999h");
        story.bench.host.change(MOVES, SHOP, "to", later).unwrap();
        change_source(&story, |volume| volume["metadata"]["finalizers"] = json!([]));
        sleep(Duration::from_hours(2)).await;
        is_gone(&story);
    });
}

/// Then the source is the one that is safe.
#[test]
fn source_is_kept_where_the_volume_that_the_host_leads_to_is_being_deleted() {
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        let leaf = story.bench.members[1].get(CLAIMS, SHOP, CLAIM).unwrap();
        story.bench.members[1].delete(VOLUMES, "", text(&leaf, "/spec/volumeName")).unwrap();
        is_kept_and_says(&story, "is not whole").await;
    });
}

/// Whoever may write claims in the other member could have made it so.
#[test]
fn source_is_kept_where_the_leaf_has_another_volume_than_the_one_that_was_given_out() {
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        let other = |volume: &mut Value| volume["spec"]["csi"]["volumeAttributes"]["leafVolume"] = json!("other");
        story.bench.host.change(VOLUMES, "", story.caller.volume(), other).unwrap();
        is_kept_and_says(&story, "is not whole").await;
    });
}

/// As somebody has it who makes the host's volumes from a backup of before the move, and leaves the move.
#[test]
fn source_is_kept_where_the_volume_of_the_host_leads_to_it_again() {
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        let of = story.bench.host.get(MOVES, SHOP, "to").unwrap();
        let leads_back = |volume: &mut Value| {
            volume["spec"]["csi"]["volumeHandle"] = of["status"]["from"]["handle"].clone();
            volume["spec"]["csi"]["volumeAttributes"]["leafVolume"] = of["status"]["source"]["name"].clone();
        };
        story.bench.host.change(VOLUMES, "", story.caller.volume(), leads_back).unwrap();
        is_kept_and_says(&story, "is not whole").await;
    });
}

#[test]
fn source_is_kept_where_the_claim_was_deleted_and_its_volume_is_there_still() {
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        story.caller.delete_claim();
        while story.bench.host.get(CLAIMS, SHOP, CLAIM).is_some() {
            sleep(STEP).await;
        }
        is_kept_and_says(&story, "is not the claim's any more").await;
    });
}

/// A volume that has no host volume any more may be all that is left of its data.
#[test]
fn source_is_kept_where_the_host_has_no_such_volume_any_more() {
    virtual_time::run(1, async {
        let mut story = moved(&json!({"deleteSourceAfter": "1h"})).await;
        let handle = text(&story.host_volume(), "/spec/csi/volumeHandle").to_owned();
        story.caller.stands_for(&handle);
        story.caller.delete_claim();
        assert!(timeout(REMOVED, story.caller.reclaim()).await.is_ok(), "{}", story.trace());
        is_kept_and_says(&story, "is not there any more").await;
    });
}

/// There and back: what the first has kept goes, and what is in use and what the second has kept stay.
#[test]
fn source_of_a_volume_that_has_moved_back_goes_and_the_one_in_use_stays() {
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        moves_on(&story, "back", 0).await;
        assert_eq!(in_source_member(&story), 2);
        is_due(&story);
        sleep(SETTLED).await;
        assert_eq!(in_source_member(&story), 1, "{}\n{}", story.status(), story.trace());
        assert_eq!(story.found(), Ok((0, DATA.to_owned())));
        assert_eq!(story.kept(1), [DATA]);
    });
}

/// The host leads to the same handle as after the first of them, and nobody but a move has made another volume there.
#[test]
fn source_of_a_volume_that_has_moved_back_and_there_again_goes_too() {
    virtual_time::run(1, async {
        let story = moved(&json!({})).await;
        moves_on(&story, "back", 0).await;
        moves_on(&story, "again", 1).await;
        assert_eq!(in_source_member(&story), 2);
        is_due(&story);
        sleep(SETTLED).await;
        assert_eq!(in_source_member(&story), 1, "{}\n{}", story.status(), story.trace());
        assert_eq!(story.found(), Ok((1, DATA.to_owned())));
        assert_eq!((story.kept(0), story.kept(1)), (vec![DATA.to_owned()], vec![DATA.to_owned()]));
    });
}

/// Its user looks at the move and at his claim, and not at what strays in members.
#[test]
fn source_that_is_a_leaf_again_as_its_member_was_restored_is_told_of_by_its_move_and_by_an_event() {
    for has_moved_back in [false, true] {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            let backup = story.bench.members[0].backup();
            story.asks(1, &json!({}));
            story.comes_to("Succeeded").await;
            if has_moved_back {
                moves_on(&story, "back", 0).await;
            }
            roll_back(&story.bench, &backup);
            sleep(SETTLED).await;
            let words = format!("claim {SHOP}/{CLAIM} of member m0 has volume {}", source(&story));
            let (status, message) = told(&story);
            assert!(status == "False" && message.contains(&words), "{status} {message}\n{}", story.trace());
            assert!(events(&story.bench).contains("SourceBack: "), "{}", events(&story.bench));
            is_due(&story);
            sleep(SETTLED).await;
            assert_eq!((in_source_member(&story), told(&story).1), (1, message), "{}", story.trace());
        });
    }
}
