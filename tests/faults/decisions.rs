//! What the driver decides is in its log: which member, why, and among which; and each step, for who wants to see it.

use std::{env, process::Command, time::Duration};

use simulate::text;
use tokio::time::sleep;
use tracing_subscriber::{EnvFilter, fmt};

use crate::{
    bench::Bench,
    caller::{Caller, Ending, Script},
    fixture, virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
/// Says to a test that it plays alone, in a process of its own.
const ALONE: &str = "KOSMOS_CSI_PLAYED_ALONE";

/// What a story logs. Who listens is the whole process's, and in that of all tests each has its own thread: so the test begins itself
/// once more, alone.
struct Log(String);

impl Log {
    /// None in the process that plays it.
    fn of_story(test: &str, filter: &str, story: impl Future<Output = ()>) -> Option<Self> {
        if env::var_os(ALONE).is_some() {
            fmt().with_env_filter(EnvFilter::new(filter)).with_ansi(false).init();
            virtual_time::run(1, story);
            return None;
        }
        let mut alone = Command::new(env::current_exe().unwrap());
        let test = format!("decisions::{test}");
        let played = alone.args(["--exact", &test, "--nocapture"]).env(ALONE, "yes").output().unwrap();
        let printed = String::from_utf8(played.stdout).unwrap();
        assert!(played.status.success(), "{printed}\n{}", String::from_utf8_lossy(&played.stderr));
        Some(Self(printed))
    }

    /// The lines with this word, from the word on.
    fn lines(&self, word: &str) -> Vec<&str> {
        self.0.lines().filter_map(|line| line.split_once(word)).map(|(_, rest)| rest.trim()).collect()
    }
}

#[test]
fn choice_of_a_member_and_each_step_of_a_volume_are_logged() {
    let test = "choice_of_a_member_and_each_step_of_a_volume_are_logged";
    let log = Log::of_story(test, "kosmos_csi=debug", async {
        let bench = Bench::serving(2, &fixture::steady(STEP)).await;
        let mut caller = Caller::new(&bench, Script { places: vec![1, 0], ..Script::new("data") });
        assert_eq!(caller.provision().await, Ending::Provisioned);
        caller.delete_claim();
        caller.reclaim().await;
    });
    let Some(log) = log else { return };
    let chosen = log.lines("the volume's member is chosen");
    assert_eq!(chosen.len(), 1, "{chosen:?}");
    let words = [
        r#"member="m1""#,
        r#"why="it is the first open member of the volume's topology that has room""#,
        r#"among="m0 (says nothing of its room), m1 (says nothing of its room)""#,
    ];
    assert!(words.iter().all(|word| chosen[0].contains(word)), "{}", chosen[0]);
    let steps = |word: &str| -> Vec<String> {
        let step =
            |line: &str| line.split_once("step=").map(|(_, step)| step.split([' ', '(']).next().unwrap().to_owned());
        let mut steps: Vec<String> = log.lines(word).into_iter().filter_map(step).collect();
        steps.dedup();
        steps
    };
    assert_eq!(steps("next step of CreateVolume"), ["Create", "Await", "Ready"]);
    assert_eq!(steps("next step of DeleteVolume"), ["DeleteClaim", "ReleaseClaim", "AwaitVolume", "Gone"]);
}

#[test]
fn user_whose_volume_goes_to_another_member_than_was_recorded_is_told_so_and_why() {
    let test = "user_whose_volume_goes_to_another_member_than_was_recorded_is_told_so_and_why";
    let log = Log::of_story(test, "kosmos_csi=info", async {
        let bench = Bench::serving(2, &fixture::tight(STEP)).await;
        fixture::fill(&bench, 0);
        sleep(STEP * 2).await;
        let caller = Caller::new(&bench, Script { places: vec![0, 1], ..Script::new("data") });
        let volume = caller.create().await.unwrap();
        assert!(volume.volume_id.starts_with("m1/"), "{}", volume.volume_id);
        let changed: Vec<String> = bench
            .host
            .list("events")
            .iter()
            .filter(|event| text(event, "/reason") == "MemberChanged")
            .map(|event| text(event, "/message").to_owned())
            .collect();
        let [message] = &changed[..] else { panic!("{changed:?}") };
        assert!(
            message.starts_with("the driver makes the volume in member m1 now, and not in m0: it is the first"),
            "{message}"
        );
    });
    let Some(log) = log else { return };
    let chosen = log.lines("the volume's member is chosen");
    assert_eq!(chosen.len(), 2, "{chosen:?}");
    assert!(chosen[1].contains("m0 (lacks room)"), "{}", chosen[1]);
    assert_eq!(log.lines("next step").len(), 0, "steps are for who asks for them");
}
