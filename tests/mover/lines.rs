//! What becomes of a copy when the line is not as it should be.

use std::{fs, path::Path, pin::pin, time::Duration};

use fastrand::Rng;
use tokio::{
    io::{AsyncReadExt, copy_bidirectional},
    time::{sleep, timeout},
};

use crate::{
    ends::{End, Ground, Lost, join, join_without_the_end},
    refusals::{CALL, FINDS_SHELL, rsync_of, which},
    tree::grow,
    trees::rsync::left_to_do,
};

/// Before it is looked again whether both have begun.
const AGAIN: Duration = Duration::from_millis(20);
/// In which a line is full that nobody reads.
const FULL: Duration = Duration::from_secs(1);
/// A member that is busy reaches its pod so much later than another one.
const LATE: Duration = Duration::from_secs(8);
/// More than a small tree takes.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn copy_is_one_and_both_ends_say_the_same_of_it() {
    let ground = Ground::new();
    grow(&ground.path("source"), 1);
    let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&["--must-be-empty"]));
    join(&mut sender, &mut receiver, || None).await;
    let (sent, taken) = (sender.ended().await, receiver.ended().await);
    assert!(sent.status.success() && taken.status.success(), "{sent:?}\n{taken:?}");
    assert_eq!(sent.result, taken.result);
    assert_eq!((&sent.result["copied"]["files"], &sent.result["copied"]["entries"]), (&40.into(), &47.into()));
    assert_eq!(left_to_do(&ground.path("source"), &ground.path("copy")), "");
}

#[tokio::test]
async fn copy_is_one_over_a_line_that_breaks_again_and_again() {
    for seed in 0..3 {
        let ground = Ground::new();
        grow(&ground.path("source"), seed);
        let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&["--must-be-empty"]));
        let mut chance = Rng::with_seed(seed);
        let mut broken = 0;
        join(&mut sender, &mut receiver, || {
            broken += 1;
            (broken < 12).then(|| chance.u64(1_000..3_000_000))
        })
        .await;
        let (sent, taken) = (sender.ended().await, receiver.ended().await);
        assert!(sent.status.success() && taken.status.success(), "{seed}: {sent:?}\n{taken:?}");
        assert_eq!(sent.result, taken.result, "{seed}");
        assert!(broken > 2, "{seed}: {broken} lines");
        assert_eq!(left_to_do(&ground.path("source"), &ground.path("copy")), "", "{seed}");
    }
}

/// Over a path that cuts each line after an hour, a file that takes longer would never arrive.
#[tokio::test]
async fn file_with_several_names_is_carried_on_from_where_the_line_broke() {
    const SIZE: u64 = 64 << 20;
    let ground = Ground::new();
    let mut content = vec![0; usize::try_from(SIZE).unwrap()];
    Rng::with_seed(1).fill(&mut content);
    fs::write(ground.path("source/large"), content).unwrap();
    fs::hard_link(ground.path("source/large"), ground.path("source/same")).unwrap();
    let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&["--must-be-empty"]));
    let mut lines = 0;
    join(&mut sender, &mut receiver, || {
        lines += 1;
        [SIZE / 8 * 7, SIZE / 2].get(lines - 1).copied()
    })
    .await;
    let (sent, taken) = (sender.ended().await, receiver.ended().await);
    assert!(sent.status.success() && taken.status.success(), "{sent:?}\n{taken:?}");
    assert_eq!(
        sent.log.matches("rsync copies").count(),
        2,
        "half of the file was not enough for the rest: {}",
        sent.log
    );
    assert_eq!(left_to_do(&ground.path("source"), &ground.path("copy")), "");
}

/// The source's member may have been restored from a backup since the attempt that has left them.
#[tokio::test]
async fn names_that_are_one_file_in_what_was_left_and_two_in_the_source_are_taken_apart() {
    let ground = Ground::new();
    for (name, content) in [("one", "first"), ("other", "second")] {
        fs::write(ground.path("source").join(name), content).unwrap();
    }
    fs::write(ground.path("copy/one"), "left").unwrap();
    fs::hard_link(ground.path("copy/one"), ground.path("copy/other")).unwrap();
    let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&[]));
    join(&mut sender, &mut receiver, || None).await;
    let (sent, taken) = (sender.ended().await, receiver.ended().await);
    assert!(sent.status.success() && taken.status.success(), "{sent:?}\n{taken:?}");
    assert_eq!(left_to_do(&ground.path("source"), &ground.path("copy")), "");
}

/// Whoever joins the ends makes a new line when the old one is of no use, which may not show at either end.
#[tokio::test]
async fn line_that_hangs_gives_way_to_the_next_one() {
    let ground = Ground::new();
    grow(&ground.path("source"), 2);
    let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&[]));
    let (mut from, mut to) = (sender.connect().await.unwrap(), receiver.connect().await.unwrap());
    let hangs = tokio::time::timeout(Duration::from_secs(1), tokio::io::copy(&mut from, &mut to));
    assert!(hangs.await.is_err(), "nothing comes back to the sender, so nothing goes on");
    join(&mut sender, &mut receiver, || None).await;
    assert!(sender.ended().await.status.success() && receiver.ended().await.status.success());
    drop((from, to));
    assert_eq!(left_to_do(&ground.path("source"), &ground.path("copy")), "");
}

/// The driver gives both members half a minute to reach their pods. Each end in its turn is the first.
#[tokio::test]
async fn end_that_is_reached_long_before_the_other_one_waits_for_it() {
    let is_copied_over_one_line = async |is_sender_first: bool| {
        let ground = Ground::new();
        grow(&ground.path("source"), 1);
        let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&["--must-be-empty"]));
        let first = if is_sender_first { &mut sender } else { &mut receiver };
        let mut reached = first.connect().await.unwrap();
        sleep(LATE).await;
        let second = if is_sender_first { &mut receiver } else { &mut sender };
        let mut later = second.connect().await.unwrap();
        let _ = copy_bidirectional(&mut reached, &mut later).await;
        timeout(SOON, async { (sender.ended().await, receiver.ended().await) }).await
    };
    let (one, other) = tokio::join!(is_copied_over_one_line(true), is_copied_over_one_line(false));
    for ended in [one, other] {
        let (sent, taken) = ended.expect("the first one has waited no longer");
        assert!(sent.status.success() && taken.status.success(), "{sent:?}\n{taken:?}");
    }
}

/// An rsync that waits for its disk, or for room on the line, reads nothing; and an end that waits for it does not listen.
#[tokio::test]
async fn line_that_hangs_gives_way_to_the_next_one_also_where_no_rsync_reads() {
    for at_the_copy in ["cat /dev/zero", "sleep 600"] {
        let ground = Ground::new();
        grow(&ground.path("source"), 2);
        let begun = ["copy-begun", "source-begun"].map(|name| ground.path(name));
        let [at_copy, at_source] = begun.each_ref().map(|mark| format!("mkdir {} 2> /dev/null", mark.display()));
        let real = format!("exec {} \"$@\"", which("rsync"));
        let path = rsync_of(
            &ground,
            &[
                &format!(
                    "case \"$1\" in --version) {real} ;; --server) {at_copy} && exec {at_the_copy}; {real} ;; esac"
                ),
                FINDS_SHELL,
                &format!("{at_source} && cat /dev/zero | {CALL} | sleep 600"),
                &real,
            ],
        );
        let end =
            |role, folder, keys| End::start(&[role], &ground.path(folder), &ground.path(keys), Some(Path::new(&path)));
        let (mut sender, mut receiver) = (end("send", "source", "sender"), end("receive", "copy", "receiver"));
        let (mut from, mut to) = (sender.connect().await.unwrap(), receiver.connect().await.unwrap());
        let mut hangs = pin!(copy_bidirectional(&mut from, &mut to));
        let all_have_begun = async {
            while !begun.iter().all(|mark| mark.is_dir()) {
                sleep(AGAIN).await;
            }
        };
        tokio::select! {
            ended = &mut hangs => panic!("{at_the_copy}: {ended:?}"),
            () = all_have_begun => {}
        }
        assert!(timeout(FULL, &mut hangs).await.is_err(), "{at_the_copy}: nobody reads");
        timeout(SOON, join(&mut sender, &mut receiver, || None)).await.unwrap();
        let (sent, taken) = (sender.ended().await, receiver.ended().await);
        assert!(sent.status.success() && taken.status.success(), "{at_the_copy}: {sent:?}\n{taken:?}");
        assert_eq!(left_to_do(&ground.path("source"), &ground.path("copy")), "", "{at_the_copy}");
    }
}

/// It may have taken hours.
#[tokio::test]
async fn comparison_whose_end_is_lost_with_its_line_is_not_made_again() {
    let ground = Ground::new();
    grow(&ground.path("source"), 1);
    let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&["--must-be-empty"]));
    join_without_the_end(&mut sender, &mut receiver, Lost::Judgement).await;
    join(&mut sender, &mut receiver, || None).await;
    let (sent, taken) = (sender.ended().await, receiver.ended().await);
    assert!(sent.status.success() && taken.status.success(), "{sent:?}\n{taken:?}");
    assert_eq!(sent.result, taken.result);
    for phase in ["rsync copies", "comparing source and copy"] {
        assert_eq!(taken.log.matches(phase).count(), 1, "{phase}: {}", taken.log);
    }
}

/// An end that is over cannot be asked again.
#[tokio::test]
async fn both_ends_agree_also_where_the_line_breaks_as_one_of_them_says_that_all_is_done() {
    for lost in [Lost::Agreement, Lost::Answer] {
        let ground = Ground::new();
        grow(&ground.path("source"), 1);
        let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&["--must-be-empty"]));
        join_without_the_end(&mut sender, &mut receiver, lost).await;
        join(&mut sender, &mut receiver, || None).await;
        let (sent, taken) = (sender.ended().await, receiver.ended().await);
        assert!(sent.status.success() && taken.status.success(), "{lost:?}: {sent:?}\n{taken:?}");
        assert_eq!(sent.result, taken.result, "{lost:?}");
    }
}

/// Also who has a certificate that was made in the same way.
#[tokio::test]
async fn end_that_has_other_keys_is_told_nothing() {
    let ground = Ground::new();
    grow(&ground.path("source"), 3);
    for folder in ["stranger", "nobody"] {
        fs::create_dir(ground.path(folder)).unwrap();
    }
    ground.make_keys("stranger", "nobody");
    let mut sender = ground.sender();
    let mut stranger = crate::ends::End::start(&["receive"], &ground.path("copy"), &ground.path("stranger"), None);
    for _ in 0..3 {
        let (mut from, mut to) = (sender.connect().await.unwrap(), stranger.connect().await.unwrap());
        drop(tokio::io::copy_bidirectional(&mut from, &mut to).await);
    }
    let mut plain = sender.connect().await.unwrap();
    let mut said = [0];
    // A client of TLS speaks first; to who is no server of it, it says no more.
    assert_eq!(plain.read(&mut said).await.unwrap(), 1);
    drop(plain);
    assert!(!sender.is_over() && !stranger.is_over());
    assert_eq!(fs::read_dir(ground.path("copy")).unwrap().count(), 0);
    let mut receiver = ground.receiver(&["--must-be-empty"]);
    join(&mut sender, &mut receiver, || None).await;
    let (sent, taken) = (sender.ended().await, receiver.ended().await);
    assert!(sent.status.success() && taken.status.success(), "{sent:?}\n{taken:?}");
    assert!(sent.log.contains("somebody connected who is not the other end"), "{}", sent.log);
}
