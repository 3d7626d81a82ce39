//! A member that does not come back while a volume moves from it: whoever administers the host says that it is gone for good, and the move ends with
//! the copy. What the member kept is known again once it joins after all.

use anyhow::{Result, ensure};
use domain::volume::moving::Phase;

use super::{
    ATTRIBUTES, CLAIM, MOVED, NAMESPACE, POD, PROGRAM, begin, big::reached, discard_all, kept, nothing_is_lost, object,
    other_than, running, said, stops, waits_for_pods, writer,
};
use crate::{
    clusters::{Cluster, Fleet, wait_for},
    install::release::{PATIENCE, join},
};

const NAME: &str = "from-the-gone";

pub async fn member_that_is_gone_for_good_ends_a_move(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    begin(fleet).await?;
    host.apply(&writer()).await?;
    let from = running(host, None).await?;
    let (member, to) = (fleet.member(&from), other_than(&from));
    wait_for("it writes", PATIENCE, || async { Ok((said(host).await? > 0).then_some(())) }).await?;
    let mut manual = object(NAME, CLAIM, to);
    manual["spec"]["cutover"] = "Manual".into();
    host.apply(&manual.to_string()).await?;
    waits_for_pods(host, NAME).await?;
    let (acknowledged, _) = stops(host).await?;
    reached(host, NAME, Phase::Ready).await?;
    member.stop_api_server().await?;
    let ended = ends(fleet, &from, to).await;
    member.start_api_server().await?;
    ended?;
    member.resume().await?;
    nothing_is_lost(host, acknowledged).await?;
    join(fleet, &from).await?;
    says(host, "SourceDeleted", &["Kept", "in a member that the host knows again"]).await?;
    let source = source_of(host).await?;
    ensure!(kept(member).await? == [source.clone()], "{from} keeps {:?}, and not {source}", kept(member).await?);
    host.kubectl(&["-n", NAMESPACE, "delete", "statefulset,pvc", "--all", "--timeout=90s"]).await?;
    discard_all(fleet).await?;
    host.kubectl(&["delete", "volumeattributesclass", ATTRIBUTES, "--ignore-not-found", "--timeout=90s"]).await?;
    host.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=90s"]).await.map(drop)
}

/// While nobody answers for the source.
async fn ends(fleet: &Fleet, from: &str, to: &str) -> Result<()> {
    let host = fleet.host();
    let (forget, source) = (format!("`kosmos-csi member forget {from} --force`"), source_of(host).await?);
    says(host, "Stalled", &["MemberUnreachable", &forget, "the move goes on with the copy"]).await?;
    let admin = format!("--kubeconfig={}", host.kubeconfig_inside().display());
    let mut named = String::new();
    for words in [["member", "remove"], ["member", "forget"]] {
        named = fleet.exec(PROGRAM, &[words[0], words[1], from, "--force", &admin]).await?;
    }
    ensure!(named.contains(&source), "what moves have there is not named: {named}");
    fleet.exec(PROGRAM, &["volume", "approve", &format!("{NAMESPACE}/{CLAIM}"), &admin]).await?;
    reached(host, NAME, Phase::Succeeded).await?;
    says(host, "SourceDeleted", &["MemberForgotten", &source]).await?;
    // It was sent to the member that is gone, whose node ends nothing any more.
    host.kubectl(&["-n", NAMESPACE, "delete", "pod", POD, "--force", "--grace-period=0", "--ignore-not-found"]).await?;
    running(host, Some(to)).await.map(drop)
}

/// The name of the leaf volume.
async fn source_of(host: &Cluster) -> Result<String> {
    host.kubectl(&["-n", NAMESPACE, "get", "volumemove", NAME, "-o", "jsonpath={.status.source.name}"]).await
}

/// A condition of the move, by its reason and what it says.
async fn says(host: &Cluster, condition: &str, parts: &[&str]) -> Result<()> {
    let of = format!("{{.status.conditions[?(@.type==\"{condition}\")]");
    let path = format!("jsonpath={of}.reason}} {of}.message}}");
    wait_for(&format!("{condition} says it"), MOVED, || async {
        let told = host.kubectl(&["-n", NAMESPACE, "get", "volumemove", NAME, "-o", &path]).await?;
        ensure!(parts.iter().all(|part| told.contains(part)), "{told}");
        Ok(Some(()))
    })
    .await
}
