//! The simulated API server against a real one: the same requests to both, the answers compared whole.
#![expect(clippy::needless_pass_by_value, reason = "steps are written down with the values they are about")]

mod compare;
mod exceptions;
mod normal;
mod run;
mod script;
mod step;

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use exceptions::{EXCEPTIONS, alike};
use run::{Answer, Runner};
use serde_json::{Value, json};
use simulate::Cluster;
use step::Step;

use crate::{
    clusters::{self, Fleet, Spec},
    pool::{Need, Turn},
};
use tokio::net::TcpListener;

/// `write` keeps the answers of both servers in the build's folder; `read` compares with the kept ones of the real one,
/// for who works on the simulated one.
const ANSWERS: &str = "ANSWERS";
const MOST_EXCEPTIONS: usize = 10;

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

async fn simulated(steps: &[Step]) -> Vec<Answer> {
    let cluster = Cluster::new("simulated", 1);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let mut config = kube::Config::new(address.parse().unwrap());
    config.default_retry = false;
    let client = kube::Client::try_from(config).unwrap();
    tokio::select! {
        () = simulate::serve(cluster, listener) => unreachable!("it serves until it is dropped"),
        answers = async { Runner::new(client, definitions()).run(steps).await.unwrap() } => answers,
    }
}

/// What is wrong, one text per step.
fn disagreements(steps: &[Step], real: &[Answer], simulated: &[Answer], used: &mut [usize]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, ((step, real), simulated)) in steps.iter().zip(real).zip(simulated).enumerate() {
        if let Err((real, simulated)) = alike(step, &real.0, &simulated.0, used) {
            let sent = shortened(step.body.as_deref().unwrap_or_default());
            let found = compare::differences(&real, &simulated).join("\n    ");
            wrong.push(format!("{} {number}: {} {} {sent}\n    {found}", step.topic, step.method, step.path));
        }
    }
    wrong
}

fn shortened(text: &str) -> String {
    text.chars().take(300).collect()
}

#[tokio::test]
async fn a_simulated_server_answers_as_a_real_one() {
    let _turn = Turn::take("differential", Need::Own).await;
    let steps = script::steps();
    let real = real(&steps).await;
    if env::var(ANSWERS).as_deref() == Ok("write") {
        write("real", &steps, &real);
    }
    let simulated = simulated(&steps).await;
    if env::var(ANSWERS).is_ok() {
        write("simulated", &steps, &simulated);
    }
    let mut used = [0; EXCEPTIONS.len()];
    let wrong = disagreements(&steps, &real, &simulated, &mut used);
    println!("{} requests, {} agreed, {} exceptions:", steps.len(), steps.len() - wrong.len(), EXCEPTIONS.len());
    for (exception, used) in EXCEPTIONS.iter().zip(used) {
        println!("  {} ({used} answers): {}", exception.what, exception.reason);
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(EXCEPTIONS.len() <= MOST_EXCEPTIONS && used.iter().all(|used| *used > 0), "an exception has become idle");
}
