//! What the driver decides is in its log: which member, why, and among which; and each step, for who wants to see it.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use simulate::text;
use tokio::time::sleep;
use tracing_subscriber::{EnvFilter, fmt};

use crate::{
    bench::{Bench, lock},
    caller::{Caller, Ending, Script},
    fixture, virtual_time,
};

const STEP: Duration = Duration::from_millis(100);

/// What is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The lines with this word, from the word on.
    fn of(&self, word: &str) -> Vec<String> {
        let text = String::from_utf8(lock(&self.0).clone()).unwrap();
        text.lines().filter_map(|line| line.split_once(word)).map(|(_, rest)| rest.trim().to_owned()).collect()
    }
}

fn logged<T>(filter: &str, story: impl Future<Output = T>) -> (Log, T) {
    let log = Log::default();
    let lines = fmt().with_env_filter(EnvFilter::new(filter)).with_ansi(false);
    let writer = log.clone();
    let told = tracing::subscriber::set_default(lines.with_writer(move || writer.clone()).finish());
    let ended = virtual_time::run(1, story);
    drop(told);
    (log, ended)
}

#[test]
fn choice_of_a_member_and_each_step_of_a_volume_are_logged() {
    let (log, ()) = logged("kosmos_csi=debug", async {
        let bench = Bench::serving(2, &fixture::steady(STEP)).await;
        let mut caller = Caller::new(&bench, Script { places: vec![1, 0], ..Script::new("data") });
        assert_eq!(caller.provision().await, Ending::Provisioned);
        caller.delete_claim();
        caller.reclaim().await;
    });
    let chosen = log.of("the volume's member is chosen");
    assert_eq!(chosen.len(), 1, "{chosen:?}");
    let words = [
        r#"member="m1""#,
        r#"why="it is the first of the volume's topology that is open and has room""#,
        r#"among="m0 (says nothing of its room), m1 (says nothing of its room)""#,
    ];
    assert!(words.iter().all(|word| chosen[0].contains(word)), "{}", chosen[0]);
    let steps = |word: &str| -> Vec<String> {
        let step =
            |line: &String| line.split_once("step=").map(|(_, step)| step.split([' ', '(']).next().unwrap().to_owned());
        let mut steps: Vec<String> = log.of(word).iter().filter_map(step).collect();
        steps.dedup();
        steps
    };
    assert_eq!(steps("next step of CreateVolume"), ["Create", "Await", "Ready"]);
    assert_eq!(steps("next step of DeleteVolume"), ["DeleteClaim", "ReleaseClaim", "AwaitVolume", "Gone"]);
}

#[test]
fn user_whose_volume_goes_to_another_member_than_was_recorded_is_told_so_and_why() {
    let (log, ()) = logged("kosmos_csi=info", async {
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
            message.starts_with("its volume goes to member m1, and not to m0 any more: it is the first"),
            "{message}"
        );
    });
    let chosen = log.of("the volume's member is chosen");
    assert_eq!(chosen.len(), 2, "{chosen:?}");
    assert!(chosen[1].contains("m0 (lacks room)"), "{}", chosen[1]);
    assert_eq!(log.of("next step").len(), 0, "steps are for who asks for them");
}
