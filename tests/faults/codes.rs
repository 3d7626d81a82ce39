//! Every cell of the table in `docs/errors.md`: what each call answers when something stands in its way.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use simulate::{
    faults::{Action, Asked},
    text,
};
use tokio::time::sleep;
use tonic::Code;

use crate::{
    ask::{Target, Told, ask, cut_first},
    bench::{Bench, DRIVER_NAMESPACE, SHOP},
    caller::{Caller, Script},
    fixture,
    reclaim::{SETTLED, until},
    snapshotter, virtual_time,
};

const PAGE: &str = include_str!("../../docs/errors.md");
const STEP: Duration = Duration::from_millis(100);
/// Longer than a caller waits.
const SLOW: Duration = Duration::from_secs(20);
const FORGED: &str = "m0/shop/data/0123456789abcdef";

/// A cell: in this situation, this call answers with this code.
#[derive(Clone, Debug)]
struct Cell {
    situation: String,
    rpc: String,
    code: String,
}

/// The table whose first column is headed so.
fn table(page: &str, first: &str) -> Vec<Cell> {
    let row = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
    };
    let mut lines = page.lines().skip_while(|line| !line.starts_with(&format!("| {first} |"))).map(row);
    let head = lines.next().unwrap();
    let body = lines.skip(1).take_while(|row| row.len() == head.len());
    let cells = body.flat_map(|row| {
        let rpc = row[0].clone();
        let cells = head.iter().zip(row).skip(1);
        cells
            .map(|(situation, code)| Cell { situation: situation.clone(), rpc: rpc.clone(), code })
            .filter(|cell| !cell.code.is_empty())
            .collect::<Vec<_>>()
    });
    cells.collect()
}

/// As the page writes a code.
fn written(code: Code) -> String {
    let words: String = format!("{code:?}")
        .chars()
        .flat_map(|letter| letter.is_uppercase().then_some('_').into_iter().chain(Some(letter.to_ascii_uppercase())))
        .collect();
    words.trim_start_matches('_').to_owned()
}

#[test]
fn every_call_answers_as_the_page_says() {
    let cells = table(PAGE, "Call");
    assert!(cells.len() > 20, "the page has a table: {cells:?}");
    let wrong = virtual_time::each(virtual_time::THREADS, cells, |cell| {
        let (code, message) = virtual_time::run(1, seen(&cell));
        let says_something = code == Code::Ok || message.len() > 10;
        (written(code) != cell.code || !says_something)
            .then(|| format!("{}, {}: {} on the page, {code:?} seen: {message}", cell.rpc, cell.situation, cell.code))
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn seen(cell: &Cell) -> Told {
    let step = if cell.situation == "it takes long" { SLOW } else { STEP };
    let bench = Bench::new(1, 2, &fixture::tight(step)).await;
    let of_snapshots = cell.rpc.contains("Snapshot");
    if of_snapshots {
        snapshotter::have_kinds(&bench);
    }
    bench.start();
    bench.serves().await;
    sleep(STEP).await;
    let mut target = prepare(&bench).await;
    if of_snapshots {
        cut_first(&bench, &mut target).await;
    }
    arrange(&bench, &cell.situation, &mut target).await;
    if cell.rpc == "DeleteVolume" {
        release(&bench).await;
    }
    if cell.situation == "another is under way" {
        let (first, second) = tokio::join!(ask(&bench, &cell.rpc, &target), ask(&bench, &cell.rpc, &target));
        return if first.0 == Code::Ok { second } else { first };
    }
    ask(&bench, &cell.rpc, &target).await
}

/// Whoever asks for a removal has seen that the volume's claim has gone, and so has the driver.
async fn release(bench: &Bench) {
    bench.host.delete("persistentvolumeclaims", SHOP, "data").unwrap();
    let is_released =
        || bench.host.list("persistentvolumes").iter().all(|volume| text(volume, "/status/phase") == "Released");
    until(bench, SETTLED, "the host's volume is released", is_released).await;
    sleep(STEP).await;
}

/// A volume that is there, and a claim for one that is to be made.
pub async fn prepare(bench: &Arc<Bench>) -> Target {
    let mut caller = Caller::new(bench, Script { places: vec![0], ..Script::new("data") });
    caller.insist_on_creation().await;
    let more = Caller::new(bench, Script { places: vec![0], ..Script::new("more") });
    Target {
        member: bench.members[0].name().to_owned(),
        name: more.volume().to_owned(),
        claim: more.claim().to_owned(),
        class: fixture::NOW.to_owned(),
        volume: caller.handle().unwrap().to_owned(),
        ..Target::default()
    }
}

async fn arrange(bench: &Bench, situation: &str, target: &mut Target) {
    let member = &bench.members[0];
    let always = |action: Action| move |at: usize, _: &Asked| if at == 1 { action.clone() } else { Action::Pass };
    match situation {
        "all is well" | "it takes long" | "another is under way" => {}
        "a field is missing" => target.empty = true,
        "the id is none of ours" => {
            for id in [&mut target.volume, &mut target.snapshot, &mut target.group] {
                FORGED.clone_into(id);
            }
            target.parts.clear();
        }
        "the member is silent" => meet(bench, always(Action::Hang)).await,
        "the member is overloaded" => {
            meet(bench, always(Action::Answer { code: 503, reason: "ServiceUnavailable" })).await;
        }
        "the member denies it" => meet(bench, denied).await,
        "the host is silent" => {
            meet(bench, |at, _| if at == 0 { Action::Hang } else { Action::Pass }).await;
        }
        "the member has left" => {
            bench.host.delete("secrets", DRIVER_NAMESPACE, member.name()).unwrap();
            sleep(STEP * 10).await;
        }
        "the quota is used up" => {
            let hard = json!({"persistentvolumeclaims": "1", "requests.storage": "1Gi"});
            let quota = json!({"metadata": {"name": "q", "namespace": SHOP}, "spec": {"hard": hard}});
            member.create("resourcequotas", quota).unwrap();
            sleep(STEP * 10).await;
        }
        "somebody has the name" => {
            let leaf = json!({
                "metadata": {"name": target.claim, "namespace": SHOP, "labels": {"app.kubernetes.io/managed-by": "Helm"}},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            });
            member.create("persistentvolumeclaims", leaf).unwrap();
        }
        "the class is missing" => "missing".clone_into(&mut target.class),
        "the class is missing and a node is selected" => {
            "missing".clone_into(&mut target.class);
            let select = |claim: &mut serde_json::Value| {
                claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("kosmos-m0");
            };
            bench.host.change("persistentvolumeclaims", SHOP, &target.claim, select).unwrap();
        }
        "a move has it" => mark_as_moved(bench, target).await,
        "there is no room" => {
            // Beside the volume that is there.
            fixture::fill_beside(bench, 0, 1 << 30);
            sleep(STEP * 10).await;
        }
        other => panic!("the table names the situation {other:?}, and nobody knows how to bring it about"),
    }
}

async fn mark_as_moved(bench: &Bench, target: &mut Target) {
    let host_claim = bench.host.get("persistentvolumeclaims", SHOP, "data").unwrap();
    target.name = format!("pvc-{}", text(&host_claim, "/metadata/uid"));
    "data".clone_into(&mut target.claim);
    let mark = "shop/to-m1/01234567-89ab-cdef-0123-456789abcdef/source";
    let mark = |claim: &mut serde_json::Value| claim["metadata"]["annotations"]["kosmos.csi.io/move"] = json!(mark);
    bench.members[0].change("persistentvolumeclaims", SHOP, "data", mark).unwrap();
    sleep(STEP * 10).await;
}

/// What becomes of requests from now on.
async fn meet(bench: &Bench, fate: impl Fn(usize, &Asked) -> Action + Send + Sync + 'static) {
    bench.guard.set_fate(move |_, at, asked| fate(at, asked));
    sleep(STEP).await;
}

fn denied(at: usize, asked: &Asked) -> Action {
    if at == 1 && asked.verb.writes() { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
}

#[test]
fn table_is_read_as_it_is_written() {
    let page = "| Call | a | b |\n|---|---|---|\n| `X` | `OK` | |\n| `Y` | `ABORTED` | `NOT_FOUND` |\n\nmore";
    let cells: Vec<String> =
        table(page, "Call").iter().map(|cell| format!("{} {} {}", cell.rpc, cell.situation, cell.code)).collect();
    assert_eq!(cells, ["X a OK", "Y a ABORTED", "Y b NOT_FOUND"]);
    assert_eq!(written(Code::ResourceExhausted), "RESOURCE_EXHAUSTED");
}
