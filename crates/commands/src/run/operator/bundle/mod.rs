//! `support-bundle`: how everything stands, in one archive for who helps.

mod archive;
mod commands;
mod members;
mod objects;
mod pods;

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context;
use k8s_openapi::{ByteString, jiff::Timestamp};
use serde_json::json;

use super::{Report, connect, files::output, in_words, print::patiently};
use crate::args::operator::SupportBundle;
use cluster::Dial;
use host::{Host, pins};
use member::source::{Account, MemberDefinitions};
use operator::bundle::{Bundle, Finished, credentials};

pub(super) async fn bundle(flags: &SupportBundle, dial: &Dial) -> anyhow::Result<Report> {
    let now = Timestamp::now();
    let path = flags.output.clone().unwrap_or_else(|| file_of(now));
    let written = output(&path, async |file| write(flags, dial, now, &path, file).await);
    written.await.map(Report::well)
}

async fn write(
    flags: &SupportBundle,
    dial: &Dial,
    now: Timestamp,
    path: &Path,
    file: &mut File,
) -> anyhow::Result<String> {
    let host = connect::host(&flags.members.host, dial).await?;
    let bundle = collect(flags, &host, dial).await;
    let version = env!("CARGO_PKG_VERSION");
    let made = format!("kosmos-csi support-bundle, version {version}, {now:.0}, host {}", host.id);
    let finished = bundle.finish(&made);
    let packed = archive::packed(&finished.files, &folder_of(path), now.as_second());
    let packed = packed.context("the archive cannot be made")?;
    file.write_all(&packed).with_context(|| format!("write {}", path.display()))?;
    Ok(told(&finished, path, packed.len()))
}

async fn collect(flags: &SupportBundle, host: &Host, dial: &Dial) -> Bundle {
    let access = &flags.members;
    let named = connect::members(host, access).await;
    let for_pods = connect::members_as(host, access, Account::VirtualNode).await;
    let mut bundle = Bundle::new(secrets(flags, [&named, &for_pods]));
    for (what, read) in [("members", &named), ("members of the agent", &for_pods)] {
        if let Err(why) = read {
            bundle.lacks(what, &in_words(why));
        }
    }
    let named = named.unwrap_or_default();
    patiently("asking what the other commands say", commands::outputs(flags, &named, dial, &mut bundle)).await;
    let namespaces = [&host.namespace, &access.host.pods_namespace, &flags.node_namespace].map(String::as_str);
    let listing = objects::of_host(host, &namespaces, &mut bundle);
    let of_driver = patiently("listing the host's objects", listing).await;
    bundle.put("host/record.json", record(host).await.map_err(|error| error.to_string()));
    patiently("reading logs and metrics", pods::logs_and_metrics(host, flags.since, &of_driver, &mut bundle)).await;
    let asking = format!("asking {} members for their leaves", named.len());
    patiently(&asking, members::leaves(host, &named, dial, &mut bundle)).await;
    bundle
}

/// What the record of members says besides which cluster each of them is.
async fn record(host: &Host) -> domain::error::Result<String> {
    let (forgotten, adopted) = (pins::forgotten_members(host).await?, pins::adopted(host).await?);
    let said = json!({"host": host.id.0, "cluster": &*host.cluster, "forgotten": forgotten, "adopted": adopted});
    Ok(format!("{said:#}\n"))
}

/// What no text may tell: by what the members are asked, and by what whoever types this asks the host.
fn secrets(flags: &SupportBundle, of: [&anyhow::Result<MemberDefinitions>; 2]) -> Vec<String> {
    let members = of.into_iter().flatten().flat_map(|of| of.values()).map(|definition| definition.kubeconfig.clone());
    let own = own_kubeconfigs(flags).into_iter().filter_map(|path| std::fs::read_to_string(path).ok());
    let secrets = members.chain(own).flat_map(|kubeconfig| credentials(&kubeconfig));
    secrets.flat_map(|secret| [in_base64(&secret), in_json(&secret), secret]).collect()
}

/// Where kubectl would look.
fn own_kubeconfigs(flags: &SupportBundle) -> Vec<PathBuf> {
    if let Some(path) = &flags.members.host.user.kubeconfig {
        return vec![path.clone()];
    }
    let named = std::env::var_os("KUBECONFIG").map(|paths| std::env::split_paths(&paths).collect());
    named.unwrap_or_else(|| std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect())
}

/// As it is in what programs read.
fn in_json(secret: &str) -> String {
    json!(secret).to_string().trim_matches('"').to_owned()
}

/// As it is in Secrets.
fn in_base64(secret: &str) -> String {
    let encoded = serde_json::to_value(ByteString(secret.as_bytes().to_vec())).unwrap_or_default();
    encoded.as_str().unwrap_or_default().trim_end_matches('=').to_owned()
}

fn file_of(now: Timestamp) -> PathBuf {
    format!("kosmos-csi-support-{}.tar.gz", now.strftime("%Y%m%dT%H%M%SZ")).into()
}

/// What comes out of it when it is unpacked.
fn folder_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = [".tar.gz", ".tgz"].into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or_default();
    if stem.is_empty() { "kosmos-csi-support".to_owned() } else { stem.to_owned() }
}

fn told(bundle: &Finished, path: &Path, bytes: usize) -> String {
    let missing = bundle.missing();
    let missing = if missing.is_empty() { missing } else { format!("{missing}\n") };
    format!(
        "{missing}{}: {} files in {} KiB. They have names, addresses, events and logs, but no credentials; README.txt in the archive \
         describes them. Look through the files before you hand them on.\n",
        path.display(),
        bundle.files.len(),
        bytes.div_ceil(1024)
    )
}
