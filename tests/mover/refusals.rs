//! Where there is no copy, and both ends say why.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};

use crate::{
    ends::{End, Ground, join},
    tree::grow,
    trees::ground::{inside, is_thorough, mount},
};

/// More than an end takes to be sure that its storage hangs.
const SURE: Duration = Duration::from_mins(12);
const AGAIN: Duration = Duration::from_millis(20);
/// More than both ends take to say to one another that their rsyncs say no more.
const SAID: Duration = Duration::from_secs(2);

/// In a script that is called as rsync: how the shell is called, which is found first. It hands over sockets or pipes, and nothing else.
pub const FINDS_SHELL: &str = "for word; do case \"$word\" in --rsh=*) shell=\"${word#--rsh=}\" ;; esac; done";
pub const CALL: &str = "$shell receiver rsync --server -lHogDtpAXrxSe.iLsfxCIvu --delete --super . /";

/// With a folder in memory of so much room, that nobody else sees.
fn on_disk(name: &str, room: &str, test: impl AsyncFnOnce(&Path)) {
    inside(name, |ground| {
        let disk = ground.folder("disk");
        mount("tmpfs", room, Path::new("none"), &disk);
        Runtime::new().unwrap().block_on(test(&disk));
    });
}

#[tokio::test]
async fn volume_in_which_something_is_already_is_refused_and_left_as_it_is() {
    let ground = Ground::new();
    fs::create_dir(ground.path("copy/lost+found")).unwrap();
    fs::write(ground.path("copy/precious"), "data").unwrap();
    // By which one that was killed has found out how exactly times are kept.
    fs::write(ground.path("copy/.kosmos-csi-trial-a1b2c3"), "").unwrap();
    let refused = ground.receiver(&["--must-be-empty"]).ended().await;
    assert!(!refused.status.success());
    assert_eq!(refused.reason(), "NotEmpty");
    assert_eq!(refused.message(), "the destination must be a new volume, but has 1 entries");
    assert_eq!(fs::read_to_string(ground.path("copy/precious")).unwrap(), "data");
}

#[test]
fn destination_without_room_is_told_before_anything_is_written_to_it() {
    let name = "refusals::destination_without_room_is_told_before_anything_is_written_to_it";
    on_disk(name, "size=1M", async |copy| {
        let ground = Ground::new();
        grow(&ground.path("source"), 1);
        let (mut sender, mut receiver) = (ground.sender(), ground.receiver_into(copy, &["--must-be-empty"]));
        join(&mut sender, &mut receiver, || None).await;
        let (sent, taken) = (sender.ended().await, receiver.ended().await);
        assert_eq!((sent.reason(), taken.reason()), ("NoSpace", "NoSpace"), "{sent:?}\n{taken:?}");
        assert!(sent.message().ends_with("but the destination has room for 1048576"), "{}", sent.message());
        assert_eq!(fs::read_dir(copy).unwrap().count(), 0);
    });
}

/// As after a mover's node went down. Every later attempt would find a volume too full that is to be more than half full in the end.
#[test]
fn what_an_attempt_before_has_carried_is_room_for_the_next_one() {
    on_disk("refusals::what_an_attempt_before_has_carried_is_room_for_the_next_one", "size=3M", async |copy| {
        let ground = Ground::new();
        fs::write(ground.path("source/data"), vec![1; 2 << 20]).unwrap();
        fs::write(copy.join("data"), vec![1; 2 << 20]).unwrap();
        let (mut sender, mut receiver) = (ground.sender(), ground.receiver_into(copy, &[]));
        join(&mut sender, &mut receiver, || None).await;
        let (sent, taken) = (sender.ended().await, receiver.ended().await);
        assert!(sent.status.success() && taken.status.success(), "{sent:?}\n{taken:?}");
        assert_eq!(fs::read(copy.join("data")).unwrap(), vec![1; 2 << 20]);
    });
}

/// The room was there when it was asked for.
#[test]
fn destination_that_fills_up_meanwhile_is_told() {
    on_disk("refusals::destination_that_fills_up_meanwhile_is_told", "size=64M", async |disk| {
        let ground = Ground::new();
        grow(&ground.path("source"), 1);
        let copy = disk.join("copy");
        fs::create_dir(&copy).unwrap();
        let (mut sender, mut receiver) = (ground.sender(), ground.receiver_into(&copy, &[]));
        let mut lines = 0;
        join(&mut sender, &mut receiver, || {
            lines += 1;
            if lines == 2 {
                fs::write(disk.join("others"), vec![1; 63 << 20]).unwrap();
            }
            (lines == 1).then_some(100_000)
        })
        .await;
        let (sent, taken) = (sender.ended().await, receiver.ended().await);
        assert_eq!((sent.reason(), taken.reason()), ("NoSpace", "NoSpace"), "{sent:?}\n{taken:?}");
        assert!(!sent.status.success() && !taken.status.success());
    });
}

#[tokio::test]
async fn rsync_that_is_too_old_is_not_used() {
    let ground = Ground::new();
    let path = rsync_of(&ground, &["echo 'rsync  version 3.4.1  protocol version 32'"]);
    for (role, folder, keys) in [("send", "source", "sender"), ("receive", "copy", "receiver")] {
        let mut end = End::start(&[role], &ground.path(folder), &ground.path(keys), Some(Path::new(&path)));
        let refused = end.ended().await;
        assert_eq!(refused.reason(), "Misconfigured");
        assert_eq!(refused.message(), "rsync is too old: 3.4, and 3.5 is needed");
    }
}

#[tokio::test]
async fn keys_that_cannot_be_read_are_named() {
    let ground = Ground::new();
    fs::remove_file(ground.path("sender/ca.crt")).unwrap();
    let refused = ground.sender().ended().await;
    assert_eq!(refused.reason(), "Misconfigured");
    assert!(refused.message().contains("sender/ca.crt: no certificate or key in PEM"), "{}", refused.message());
}

/// What is found as rsync before any other, of these lines; a PATH with it.
pub fn rsync_of(ground: &Ground, lines: &[&str]) -> String {
    let programs = ground.path("programs");
    fs::create_dir(&programs).unwrap();
    let program = programs.join("rsync");
    fs::write(&program, ["#!/bin/sh", &lines.join("\n"), ""].join("\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", programs.display())
}

/// What makes a copy differ is not always rsync's: a server that lets everybody be nobody keeps no owners, and says that all is well.
#[tokio::test]
async fn copy_that_differs_after_a_second_pass_is_no_copy() {
    let ground = Ground::new();
    grow(&ground.path("source"), 1);
    let real = format!("{} \"$@\" || exit $?", which("rsync"));
    let gives_away = format!("case \"$1\" in --server) chown -h 7:7 \"{}\"/link;; esac", ground.path("copy").display());
    let path = rsync_of(&ground, &[&real, &gives_away]);
    let mut sender = ground.sender();
    let mut receiver = End::start(&["receive"], &ground.path("copy"), &ground.path("receiver"), Some(Path::new(&path)));
    join(&mut sender, &mut receiver, || None).await;
    let (sent, taken) = (sender.ended().await, receiver.ended().await);
    assert_eq!((sent.reason(), taken.reason()), ("CopyDiffers", "CopyDiffers"), "{sent:?}\n{taken:?}");
    assert!(sent.message().contains("\"link\" has owner 7, and had 0"), "{}", sent.message());
    assert_eq!(taken.log.matches("rsync copies").count(), 2, "once more with every byte: {}", taken.log);
}

/// After this line of its script, in which `CALL` calls its shell. As one for which there is no memory left.
async fn both_ends_end_where_rsync_dies_at_the_source(last: &str) {
    let ground = Ground::new();
    grow(&ground.path("source"), 1);
    let version = format!("case \"$1\" in --version) exec {} --version ;; esac", which("rsync"));
    let path = rsync_of(&ground, &[&version, FINDS_SHELL, &last.replace("CALL", CALL), "kill -9 $$"]);
    let mut sender = End::start(&["send"], &ground.path("source"), &ground.path("sender"), Some(Path::new(&path)));
    let mut receiver = ground.receiver(&[]);
    timeout(Duration::from_secs(30), join(&mut sender, &mut receiver, || None)).await.unwrap();
    let (sent, taken) = (sender.ended().await, receiver.ended().await);
    assert_eq!((sent.reason(), taken.reason()), ("CopyFailed", "CopyFailed"), "{sent:?}\n{taken:?}");
}

/// The receiver's is told by nothing but the end of what it hears.
#[tokio::test]
async fn rsync_that_dies_at_the_source_ends_the_one_at_the_copy() {
    both_ends_end_where_rsync_dies_at_the_source(": | CALL | cat > /dev/null").await;
}

/// Its shell calls when the sender has seen that already, and has its standard error as long as it waits for an answer.
#[tokio::test]
async fn rsync_that_dies_before_its_shell_calls_ends_both() {
    let seen = "while kill -0 $$ 2> /dev/null; do :; done";
    both_ends_end_where_rsync_dies_at_the_source(&format!("({seen}; exec CALL > /dev/null) &")).await;
}

/// Both ends, where the rsync of the copy does this and then hangs, as in a call to the kernel over a dead server.
fn hanging(ground: &Ground, first: &str) -> (End, End) {
    grow(&ground.path("source"), 1);
    let real = format!("exec {} \"$@\"", which("rsync"));
    let path = rsync_of(ground, &[&format!("case \"$1\" in --server) {first} sleep 3600 ;; *) {real} ;; esac")]);
    let receiver = End::start(&["receive"], &ground.path("copy"), &ground.path("receiver"), Some(Path::new(&path)));
    (ground.sender(), receiver)
}

async fn both_tell(mut sender: End, mut receiver: End) {
    timeout(SURE, join(&mut sender, &mut receiver, || None)).await.unwrap();
    for mut end in [sender, receiver] {
        let said = end.ended().await;
        assert_eq!(said.reason(), "StorageHangs", "{said:?}");
        assert!(said.message().starts_with("the storage of the copy has not answered for 6"), "{said:?}");
    }
}

/// It takes ten minutes to be sure, so it is played where there is time.
#[tokio::test]
async fn storage_that_hangs_under_an_rsync_is_told_by_both_ends_and_which_it_is() {
    if is_thorough() {
        let ground = Ground::new();
        let (sender, receiver) = hanging(&ground, "");
        both_tell(sender, receiver).await;
    }
}

/// Neither end listens while it waits for an rsync, and a line may be of use no more for many reasons.
#[tokio::test]
async fn storage_that_hangs_is_told_over_another_line_where_the_first_one_has_broken_meanwhile() {
    if !is_thorough() {
        return;
    }
    let ground = Ground::new();
    let begun = ground.path("begun");
    let (mut sender, mut receiver) =
        hanging(&ground, &format!("exec < /dev/null > /dev/null; mkdir {};", begun.display()));
    let first = join(&mut sender, &mut receiver, || None);
    let has_begun = async {
        while !begun.is_dir() {
            sleep(AGAIN).await;
        }
        sleep(SAID).await;
    };
    tokio::select! {
        () = first => panic!("one of them is over"),
        () = has_begun => {}
    }
    both_tell(sender, receiver).await;
}

pub fn which(name: &str) -> String {
    let path = std::env::var("PATH").unwrap();
    let mut found = path.split(':').map(|folder| format!("{folder}/{name}"));
    found.find(|program| Path::new(program).is_file()).unwrap()
}
