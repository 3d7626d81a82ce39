//! How a fault begins, and how it ends.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{
    MEMBER,
    clock::is_felt,
    disk,
    fault::{CONTROLLER, FOUND, How, Link, Who},
    kept::writes_lines,
    load::{THERE, asks},
    versions::{before, begin_from, roll_back, upgrade},
    world::{SINCE, World},
};
use crate::{
    clusters::{Cluster, between::Count, wait_for},
    rig::{LATER, NOW, PATIENCE, RETURN},
};

/// What is lost to a backup has to be more than a cluster writes while it comes up: by then it would look like one that has lost nothing.
const WRITES: u64 = 400;
const VERSIONS: &str = "versions";
/// Where nothing is seen of a leaf any more, that is believed after a minute.
const LOST: Duration = Duration::from_mins(4);

impl World<'_> {
    /// What counts how often it has taken place.
    pub async fn begin(&self, how: How) -> Result<Vec<Count>> {
        match how {
            How::Request(rule) => return Ok(self.between()?.play(&[rule])),
            How::NewAuthority => self.between()?.replace_certificate()?,
            How::TokenEnds => self.way()?.end_token(self.rig, self.between()?).await?,
            How::Paused(who) => self.strike(who, Signal::SIGSTOP).await?,
            How::Killed(who) => self.strike(who, Signal::SIGKILL).await?,
            How::Dropped(link) => self.drop_packets("--insert", link).await?,
            How::Full(disk) => disk::fill(self.leaf.cluster, &self.rig.fleet, disk).await?,
            How::PowerOff => self.leaf.cluster.power_off().await?,
            How::HostPowerOff => self.host.cluster.power_off().await?,
            How::Clock(seconds) => self.set_clock(seconds).await?,
            How::Before => begin_from(self, Some(before()?)).await?,
            How::Upgraded => upgrade(self.host.cluster, self.rig.fleet.tools()).await?,
            How::Restored => Box::pin(self.restored()).await?,
            How::HostRestored => Box::pin(self.host_restored()).await?,
        }
        let once = Count::default();
        once.add();
        Ok(vec![once])
    }

    /// Since when nothing is wrong any more but what has to be found again. Whoever has ended is begun again, as a machine would do it.
    pub async fn end_of(&self, how: How) -> Result<Instant> {
        let mut over = Instant::now();
        match how {
            How::Request(_) => {
                let between = self.between()?;
                between.play(&[]);
                between.held_are_delivered().await;
                over = Instant::now();
            }
            How::NewAuthority | How::TokenEnds => self.way()?.give_credentials(self.rig, self.between()?).await?,
            How::Paused(who) => self.signal(who, Signal::SIGCONT).await?,
            How::Killed(Who::Ours(name)) if name != CONTROLLER => self.rig.driver.begin_again(name).await?,
            How::Dropped(link) => {
                let dropped = self.has_dropped(link).await;
                self.drop_packets("--delete", link).await?;
                dropped?;
            }
            How::Full(disk) => disk::empty(self.leaf.cluster, &self.rig.fleet, disk).await?,
            How::PowerOff => {
                self.leaf.cluster.power_on().await?;
                self.rig.storage_begins_again(MEMBER).await?;
            }
            How::HostPowerOff => {
                self.host.cluster.power_on().await?;
                self.real_node()?.node.lock().await.begin_again().await?;
            }
            How::Clock(_) => self.set_clock(0).await?,
            How::Before => begin_from(self, None).await?,
            How::Upgraded => roll_back(self.host.cluster).await?,
            How::Killed(_) | How::Restored | How::HostRestored => {}
        }
        for cluster in self.rig.fleet.clusters() {
            cluster.revive()?;
        }
        if let Some(pods) = &self.pods {
            pods.agent.lock().await.begin_again()?;
        }
        if let Some(real) = &self.real {
            real.node.lock().await.plugin_begins_again()?;
        }
        self.rig.driver.ensure(&self.rig.fleet).await?;
        Ok(over)
    }

    /// A signal is no fault where it meets nobody: who has ended already is sent none, and nothing is said of that.
    async fn strike(&self, who: Who, signal: Signal) -> Result<()> {
        let stat = PathBuf::from(format!("/proc/{}/stat", self.number_of(who).await?));
        let now = || fs::read_to_string(&stat).ok().as_deref().and_then(state);
        let before = now();
        ensure!(is_at_work(before), "{who:?} is not at work before it gets {signal}: {before:?}");
        self.signal(who, signal).await?;
        wait_for(&format!("{signal} meets {who:?}"), PATIENCE, || async {
            let is_met = if signal == Signal::SIGSTOP { now() == Some('T') } else { !is_at_work(now()) };
            Ok(is_met.then_some(()))
        })
        .await
    }

    /// As the machine counts.
    async fn number_of(&self, who: Who) -> Result<i32> {
        let fleet = &self.rig.fleet;
        match who {
            Who::Host(process) => fleet.host().pid(process),
            Who::Member(process) => fleet.member(MEMBER).pid(process),
            Who::Ours(process) => {
                let found = self.rig.driver.pids().await.into_iter().find(|(name, _)| name == process);
                found.map(|(_, number)| number).with_context(|| format!("the driver has no process {process}"))
            }
            Who::Agent => Ok(self.pods.as_ref().context("there is no agent")?.agent.lock().await.pid()),
            Who::NodePlugin => self.real_node()?.node.lock().await.plugin_pid().context("the node plugin does not run"),
        }
    }

    async fn signal(&self, who: Who, signal: Signal) -> Result<()> {
        let fleet = &self.rig.fleet;
        match who {
            Who::Host(process) => fleet.host().signal(process, signal),
            Who::Member(process) => fleet.member(MEMBER).signal(process, signal),
            Who::Ours(process) => self.rig.driver.signal(process, signal).await,
            Who::Agent => self.pods.as_ref().context("there is no agent")?.agent.lock().await.signal(signal),
            Who::NodePlugin => self.real_node()?.node.lock().await.signal_plugin(signal),
        }
    }

    async fn set_clock(&self, seconds: i64) -> Result<()> {
        self.clock.as_ref().context("there is no clock that can be set")?.set(seconds)?;
        is_felt(self.host.cluster, seconds).await
    }

    /// A rule of one direction is inserted or deleted.
    async fn drop_packets(&self, change: &str, link: Link) -> Result<()> {
        let (chain, end, port) = self.direction(link)?;
        let rule = ["--wait", change, chain, "--protocol", "tcp", end, &port, "--jump", "DROP"];
        self.iptables(link, &rule).await.map(drop)
    }

    /// Of a rule that no packet has met nothing is seen.
    async fn has_dropped(&self, link: Link) -> Result<()> {
        let (chain, ..) = self.direction(link)?;
        let rules = self.iptables(link, &["--wait", "--list-rules", chain, "--verbose"]).await?;
        ensure!(packets_dropped(&rules) > 0, "no packet was dropped by {rules}");
        Ok(())
    }

    /// The chain through which packets of a link come, and by which end and port they are known.
    fn direction(&self, link: Link) -> Result<(&'static str, &'static str, String)> {
        let (chain, end, port) = match link {
            Link::ToMember => ("INPUT", "--dport", self.between()?.port()),
            Link::FromMember => ("INPUT", "--sport", self.between()?.port()),
            Link::FromNode => ("OUTPUT", "--dport", self.leaf.cluster.api_port()),
            Link::ToNode => ("INPUT", "--sport", self.leaf.cluster.api_port()),
        };
        Ok((chain, end, port.to_string()))
    }

    async fn iptables(&self, link: Link, arguments: &[&str]) -> Result<String> {
        match link {
            Link::ToMember | Link::FromMember => self.rig.fleet.exec("iptables", arguments).await,
            Link::FromNode | Link::ToNode => self.leaf.cluster.node_exec("iptables", arguments).await,
        }
    }

    /// The member goes back behind the binding of a claim. Whoever watched it before and was not begun again, as its sidecars and its kubelet,
    /// hears nothing of it until it has come as far again; ours are to have noticed by then.
    async fn restored(&self) -> Result<()> {
        let member = self.leaf.cluster;
        backed_up(member).await?;
        self.host.claim(SINCE, &self.class(NOW)).await?;
        let volume = self.host.bound_within(SINCE, FOUND).await?.name_any();
        *self.since.lock().await = Some(volume);
        let last = writes_beyond(member, 0).await?;
        member.restore().await?;
        self.is_served(PATIENCE).await?;
        if let Some(pods) = &self.pods {
            pods.is_ready(RETURN).await?;
        }
        writes_beyond(member, last).await.map(drop)
    }

    /// The host goes back behind the binding of a claim that waited for its pod, which comes again. Its sidecars are begun again, as a restore
    /// demands; driver and agent have to notice.
    async fn host_restored(&self) -> Result<()> {
        let (host, cluster) = (&self.host, self.host.cluster);
        host.claim(SINCE, &self.class(LATER)).await?;
        backed_up(cluster).await?;
        host.tolerant_pod(SINCE, &[SINCE], None).await?;
        host.bound_within(SINCE, FOUND).await?;
        self.leaf.run(&format!("packer-of-{SINCE}"), &[SINCE], &writes_lines(SINCE)).await?;
        let last = writes_beyond(cluster, 0).await?;
        cluster.restore().await?;
        self.rig.driver.replace_sidecars().await?;
        self.is_served(PATIENCE).await?;
        asks(SINCE, THERE, async || host.tolerant_pod(SINCE, &[SINCE], None).await).await?;
        writes_beyond(cluster, last).await.map(drop)
    }

    /// The user of what came since the backup, where a member was restored.
    pub async fn lost_is_told(&self) -> Result<()> {
        let Some(volume) = self.since.lock().await.clone() else { return Ok(()) };
        wait_for("the volume says that its leaf is lost", LOST, || async {
            let about = format!("--field-selector=involvedObject.name={volume},reason=LeafLost");
            let get = ["get", "events", "--all-namespaces", &about, "--output=name"];
            let told = self.host.cluster.kubectl(&get).await?;
            Ok((!told.trim().is_empty()).then_some(()))
        })
        .await
    }
}

/// With much that was written since.
async fn backed_up(cluster: &Cluster) -> Result<()> {
    cluster.back_up().await?;
    cluster.resume().await?;
    let then = writes_beyond(cluster, 0).await?;
    writes_beyond(cluster, then + WRITES).await.map(drop)
}

/// Somebody writes until a cluster's versions are beyond this one. The last of them.
async fn writes_beyond(cluster: &Cluster, version: u64) -> Result<u64> {
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await?);
    let mut last = 0;
    loop {
        let data = json!({"last": last.to_string()});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": VERSIONS}, "data": data});
        let written = maps.patch(VERSIONS, &PatchParams::apply("test").force(), &Patch::Apply(map)).await?;
        last = written.resource_version().context("what is written has a version")?.parse()?;
        if last > version {
            return Ok(last);
        }
    }
}

/// The letter in `/proc/…/stat`. The name before it may hold anything.
fn state(stat: &str) -> Option<char> {
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Neither gone nor about to be, and not standing still.
fn is_at_work(state: Option<char>) -> bool {
    state.is_some_and(|state| !"TtZX".contains(state))
}

/// By all rules that drop, each of which says with `-c` how many packets and bytes that were.
fn packets_dropped(rules: &str) -> u64 {
    let drops = rules.lines().filter(|rule| rule.ends_with("-j DROP"));
    drops.filter_map(|rule| rule.split_once(" -c ")?.1.split(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stands_still_or_has_ended_is_not_at_work() {
        for (stat, at_work) in [
            ("7 (etcd) S 1 7", true),
            ("7 (a) R) D 1", true),
            ("7 (etcd) T 1", false),
            ("7 (etcd) Z 1", false),
            ("", false),
        ] {
            assert_eq!(is_at_work(state(stat)), at_work, "{stat}");
        }
    }

    #[test]
    fn packets_that_rules_have_dropped_are_counted_and_no_others() {
        let of_ours = "-A INPUT -p tcp -m tcp --dport 20143 -c 12 912 -j DROP\n";
        let of_others = "-P INPUT ACCEPT -c 70 5000\n-A INPUT -c 3 180 -j KUBE-FIREWALL\n";
        for (rules, packets) in [
            (format!("{of_others}{of_ours}"), 12),
            (of_ours.replace("-c 12 912", "-c 0 0"), 0),
            (of_others.to_owned(), 0),
        ] {
            assert_eq!(packets_dropped(&rules), packets, "{rules}");
        }
    }
}
