use super::*;
use domain::volume::HostId;

#[tokio::test(start_paused = true)]
async fn all_members_together_have_the_budget_of_four() {
    let now = Instant::now();
    let taken = |budget: &mut Budget, now| (0..1000).filter(|_| budget.take(now)).count();
    for (mut budget, burst, refill) in [(budget_of_member(), 150, REFILL), (budget_of_all(), 600, REFILL / 4)] {
        assert_eq!(taken(&mut budget, now), burst);
        assert_eq!(taken(&mut budget, now + refill * 3), 3);
    }
}

/// As they come to be in the queue: claim `c-N` of volume `pvc-N`, and the pod `p-N` that this process has made for it.
fn queue(count: usize, now: Instant) -> (Queue, Vec<VolumeHash>) {
    let hash = |number: usize| VolumeHash::new(&HostId("h".to_owned()), &format!("pvc-{number}"));
    let row = |number: usize| {
        let mut row = ClaimRow::new(&<_>::default());
        row.uid = format!("c-{number}").into();
        Some((row, Consumer::Made(format!("p-{number}").into())))
    };
    let mut there: Vec<_> = (0..count).map(|number| (hash(number), row(number))).collect();
    there.sort_by_key(|(hash, _)| *hash);
    let mut queue = Queue::new();
    queue.see(there, now);
    (queue, (0..count).map(hash).collect())
}

fn word(about: &str, name: &str) -> MemberEvent {
    MemberEvent {
        about: about.to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
        warning: true,
        reason: "Failed".to_owned(),
        message: about.to_owned(),
        by: "x".to_owned(),
    }
}

fn heard(queue: &Queue) -> Vec<(VolumeHash, String)> {
    let heard = queue.waiting.iter().filter_map(|(hash, waiting)| Some((*hash, waiting.word.clone()?.text)));
    heard.collect()
}

#[tokio::test(start_paused = true)]
async fn word_reaches_who_waits_by_the_uid_of_its_claim_and_by_the_name_of_its_pod() {
    let (mut queue, hashes) = queue(4, Instant::now());
    queue.hear(word("c-1", "db"));
    queue.hear(word("p-2", &leaf::consumer::pod_name(hashes[2])));
    // Of another replica: it is read first.
    queue.hear(word("p-9", &leaf::consumer::pod_name(hashes[3])));
    queue.hear(word("c-9", "db"));
    let mut expected = [
        (hashes[1], "waits: Failed: c-1".to_owned()),
        (hashes[2], "waits for a pod that finds no node: Failed: p-2".to_owned()),
    ];
    expected.sort();
    assert_eq!(heard(&queue), expected);
    assert_eq!(queue.waiting[&hashes[3]].namesake.as_deref(), Some("p-9"));
}

#[tokio::test(start_paused = true)]
async fn claim_is_heard_of_under_the_uid_and_the_volume_that_it_has_now() {
    let now = Instant::now();
    let (mut queue, hashes) = queue(2, now);
    let mut recreated = ClaimRow::new(&<_>::default());
    recreated.uid = "c-0 again".into();
    queue.see(vec![(hashes[0], Some((recreated, Consumer::Unknown)))], now);
    assert_eq!(queue.of_claims, BTreeMap::from([("c-0 again".into(), hashes[0])]), "the other one waits no more");
    queue.hear(word("c-0", "db"));
    queue.hear(word("c-1", "db"));
    assert!(heard(&queue).is_empty());
    queue.see(vec![(hashes[0], None)], now);
    queue.hear(word("c-0 again", "db"));
    assert_eq!(heard(&queue), [(hashes[0], "waits: Failed: c-0 again".to_owned())]);
    let mut moved = ClaimRow::new(&<_>::default());
    moved.uid = "c-0 again".into();
    queue.see(vec![(hashes[1], Some((moved, Consumer::Unknown)))], now);
    assert_eq!(queue.of_claims, BTreeMap::from([("c-0 again".into(), hashes[1])]), "it has other labels");
}

#[test]
fn silence_is_told_soon_where_nobody_is_known_to_live_and_is_a_warning_later() {
    let (short, long) = (Duration::from_millis(1200), Duration::from_secs(11));
    assert_eq!(silence(Duration::from_millis(500), false), None);
    assert_eq!(silence(short, false).map(|(_, warning)| warning), Some(false));
    assert_eq!(silence(short, true), None);
    assert_eq!(silence(long, true).map(|(_, warning)| warning), Some(true));
}

/// More may wait than there is budget for in the time after which one is told again.
#[tokio::test(start_paused = true)]
async fn claim_that_was_told_nothing_yet_comes_before_those_that_are_told_again() {
    let now = Instant::now();
    let (mut queue, mut hashes) = queue(3, now);
    for number in 0..3 {
        queue.hear(word(&format!("c-{number}"), "db"));
    }
    hashes.sort();
    for _ in 0..3 {
        queue.see(hashes.iter().map(|hash| (*hash, None)).collect(), now);
    }
    let due = |queue: &Queue, now| queue.due(now).into_iter().map(|(hash, _)| hash).collect::<Vec<_>>();
    assert_eq!(due(&queue, now), hashes);
    let later = now + Duration::from_secs(2);
    for (hash, told) in [(hashes[0], later), (hashes[1], now)] {
        queue.waiting.get_mut(&hash).unwrap().was_told(told);
    }
    assert_eq!(due(&queue, later), [hashes[2]]);
    assert_eq!(due(&queue, later + Duration::from_mins(10)), [hashes[2], hashes[1], hashes[0]]);
}
