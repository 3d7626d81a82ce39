//! The simulated API server against a real one: the same requests to both, the answers compared whole.
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "../clusters/mod.rs"]
mod clusters;
#[allow(dead_code)]
mod compare;
mod normal;
mod run;
mod script;
mod step;

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use clusters::{Fleet, Spec};
use run::{Answer, Runner};
use serde_json::{Value, json};
use step::Step;

/// `write` keeps the answers of both servers in the build's folder; `read` compares with the kept ones of the real one,
/// for who works on the simulated one.
const ANSWERS: &str = "ANSWERS";

fn kept(side: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("differential-{side}.json"))
}

fn write(side: &str, steps: &[Step], answers: &[Answer]) {
    let lines = steps.iter().zip(answers).map(|(step, answer)| {
        json!({"topic": step.topic, "method": step.method, "path": step.path, "sent": step.body, "answer": answer.0})
    });
    fs::write(kept(side), serde_json::to_vec_pretty(&lines.collect::<Vec<_>>()).unwrap()).unwrap();
}

/// The definitions of snapshots as `<crd:name>`.
fn definitions() -> BTreeMap<String, String> {
    let files = clusters::tools::tools().unwrap().snapshot_crds().unwrap().into_iter();
    let read = |file: PathBuf| {
        let definition: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        (format!("crd:{}", definition["metadata"]["name"].as_str().unwrap()), definition.to_string())
    };
    files.map(read).collect()
}

async fn real(steps: &[Step]) -> Vec<Answer> {
    if env::var(ANSWERS).as_deref() == Ok("read") {
        let lines: Vec<Value> = serde_json::from_slice(&fs::read(kept("real")).unwrap()).unwrap();
        return lines.into_iter().map(|mut line| Answer(line["answer"].take())).collect();
    }
    let fleet = Fleet::start(Spec { members: 0, nodes: false }).await.unwrap();
    for controllers in ["kube-controller-manager", "kube-scheduler"] {
        fleet.host().stop(controllers).await.unwrap();
    }
    Runner::new(fleet.host().client().await.unwrap(), definitions()).run(steps).await.unwrap()
}

#[tokio::test]
async fn a_simulated_server_answers_as_a_real_one() {
    let steps = script::steps();
    let real = real(&steps).await;
    if env::var(ANSWERS).as_deref() == Ok("write") {
        write("real", &steps, &real);
    }
    println!("{} requests", steps.len());
}
