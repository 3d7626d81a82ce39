//! What is wrong besides volumes and leaves: members, tokens, and the driver's own objects in the host.

use super::{
    compare::Finding,
    kubeconfig::{span, until},
};
use domain::volume::Parameters;
use member::token::Token;

/// A member as it was found.
#[derive(Clone, Debug, Default)]
pub struct SeenMember {
    pub name: String,
    /// Why it cannot be judged; none where it answers as the cluster that it always was.
    pub problem: Option<String>,
    /// By which other name its volumes were compared, where it is a second one.
    pub compared_as: Option<String>,
    /// Of the driver's account and of the agent's.
    pub tokens: Vec<Token>,
    /// Volumes that the host has there.
    pub volumes: usize,
    /// Somebody names it still.
    pub named: bool,
    /// What this host may use there; none where it could not be read.
    pub classes: Option<LeafClasses>,
}

/// The StorageClasses of a member that are open to the host.
#[derive(Clone, Debug, Default)]
pub struct LeafClasses {
    pub names: Vec<String>,
    pub has_default: bool,
}

/// A class of the host that has this driver's name.
#[derive(Clone, Debug)]
pub struct SeenClass {
    pub name: String,
    /// What they say, or why they are refused.
    pub parameters: Result<Parameters, String>,
}

impl SeenClass {
    /// What keeps any volume from being made by it. A member that could not be read may have what it takes.
    fn problem(&self, members: &[SeenMember]) -> Option<String> {
        let parameters = match &self.parameters {
            Ok(parameters) => parameters,
            Err(refused) => return Some(refused.clone()),
        };
        let may_be_used =
            |member: &&SeenMember| member.named && parameters.member.as_ref().is_none_or(|named| *named == member.name);
        let members: Vec<&SeenMember> = members.iter().filter(may_be_used).collect();
        let serves = |member: &&SeenMember| {
            let wanted = parameters.leaf_class.at(&member.name);
            member.classes.as_ref().is_none_or(|has| match wanted {
                Some(wanted) => has.names.contains(wanted),
                None => has.has_default,
            })
        };
        if members.is_empty() || members.iter().any(serves) {
            return None;
        }
        let missing = members.iter().map(|member| match parameters.leaf_class.at(&member.name) {
            Some(wanted) => format!("{} has no {wanted}", member.name),
            None => format!("{} has no default class", member.name),
        });
        let missing: Vec<String> = missing.take(TOLD).collect();
        Some(format!(
            "no member that this class may use has the StorageClass that it asks for ({}): make that StorageClass there, or make \
             this class again with another leafStorageClass",
            missing.join(", ")
        ))
    }
}

/// A claim of this driver's classes that has no volume yet.
#[derive(Clone, Debug, Default)]
pub struct WaitingClaim {
    /// Namespace and name.
    pub place: String,
    /// In seconds.
    pub age: i64,
    /// What was last said of it.
    pub warning: Option<String>,
}

/// The host without its volumes.
#[derive(Clone, Debug, Default)]
pub struct SeenHost {
    pub driver_object: bool,
    pub classes: Vec<SeenClass>,
    pub waiting: Vec<WaitingClaim>,
    /// Moves of volumes that do not go on, by namespace and name, and why.
    pub stalled: Vec<(String, String)>,
    /// Seconds since the lease was renewed; none where there is no lease.
    pub lease_age: Option<i64>,
}

/// Members that are named where all lack something.
const TOLD: usize = 5;
/// Most volumes are made within seconds.
const WAITS_LONG: i64 = 300;
/// Longer than a replica takes to take over.
pub(crate) const LEASE_LATE: i64 = 60;

pub fn judge(host: &SeenHost, members: &[SeenMember], now: i64) -> Vec<Finding> {
    let mut findings = judge_host(host, members);
    for member in members {
        findings.extend(judge_member(member, now));
    }
    findings
}

fn judge_host(host: &SeenHost, members: &[SeenMember]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut tell = |kind: &str, about: &str, message: String| findings.push(Finding::new(kind, about, message));
    if !host.driver_object {
        let message = "CSIDriver kosmos.csi.io is missing: install the chart, or apply deploy/host.yaml";
        tell("host", "csidriver", message.to_owned());
    }
    if host.classes.is_empty() {
        let message =
            "no StorageClass has the provisioner kosmos.csi.io: apply one like deploy/examples/storageclass.yaml";
        tell("host", "class", message.to_owned());
    }
    for class in &host.classes {
        if let Some(problem) = class.problem(members) {
            tell("class", &class.name, problem);
        }
    }
    for claim in host.waiting.iter().filter(|claim| claim.age > WAITS_LONG) {
        let why = claim.warning.as_deref().unwrap_or("no warning says why; look at its pod, if it has one");
        tell("claim", &claim.place, format!("waits for its volume for {}: {why}", span(claim.age)));
    }
    for (place, why) in &host.stalled {
        tell("move", place, format!("does not go on: {why}. `kosmos-csi volume status {place}` says what you can do"));
    }
    match host.lease_age {
        None => tell(
            "host",
            "lease",
            "no replica of the controller has ever held the lease kosmos-csi-leader: does one run, and may it write the lease?"
                .to_owned(),
        ),
        Some(age) if age > LEASE_LATE => tell(
            "host",
            "lease",
            format!("no controller has renewed the lease kosmos-csi-leader for {age} s: none runs, so nothing heals leaves"),
        ),
        Some(_) => {}
    }
    findings
}

fn judge_member(member: &SeenMember, now: i64) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !member.named {
        if member.volumes > 0 {
            let message = format!(
                "it has left, but the host has {} volumes there: give its kubeconfig back (`member add`). If the member is gone for good, \
                 forget it and its volumes (`member forget {} --force`)",
                member.volumes, member.name
            );
            findings.push(Finding::new("member", &member.name, message));
        }
        return findings;
    }
    if let Some(problem) = &member.problem {
        let compared = match &member.compared_as {
            Some(serving) => format!("its volumes were compared as those of {serving}"),
            None => "its volumes were not compared".to_owned(),
        };
        let message = format!("{problem}; {compared}");
        findings.push(Finding::new("member", &member.name, message));
    }
    let late = member.tokens.iter().filter(|token| token.is_late(now));
    if let Some(end) = late.map(|token| token.ends).min() {
        let left = until(end, now);
        let state = if end > now { format!("ends in {left}") } else { format!("has {left}") };
        let message =
            format!("its token {state}, and driver and agent have not renewed it: `member add {}` does", member.name);
        findings.push(Finding::new("token", &member.name, message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn names(host: &SeenHost, member: SeenMember) -> Vec<String> {
        judge(host, &[member], NOW).into_iter().map(|finding| finding.name).collect()
    }

    fn class(name: &str, parameters: &[(&str, &str)]) -> SeenClass {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        SeenClass {
            name: name.to_owned(),
            parameters: Parameters::parse(&parameters).map_err(|error| error.to_string()),
        }
    }

    fn well() -> SeenHost {
        let classes = vec![class("fast", &[])];
        SeenHost { driver_object: true, classes, lease_age: Some(5), ..SeenHost::default() }
    }

    /// Of somebody whom no service account knows, and good for so many days.
    fn token(days: i64) -> Token {
        let claims = json!({"exp": NOW + days * 24 * 3600, "sub": "jane"}).to_string();
        let claims = json!(ByteString(claims.into_bytes()));
        Token::read(&format!("e30.{}.signature", claims.as_str().unwrap().trim_end_matches('='))).unwrap()
    }

    fn member() -> SeenMember {
        SeenMember { name: "m".to_owned(), named: true, ..SeenMember::default() }
    }

    #[test]
    fn what_is_well_is_not_told_of() {
        let lasting = SeenMember { tokens: vec![token(40), token(50)], ..member() };
        assert_eq!(names(&well(), lasting), [""; 0]);
        let left = SeenMember { named: false, ..member() };
        assert_eq!(names(&well(), left), [""; 0], "it has left, and took nothing with it");
    }

    #[test]
    fn everything_that_is_missing_in_the_host_is_told() {
        let nothing = SeenHost::default();
        assert_eq!(names(&nothing, member()), ["host:csidriver", "host:class", "host:lease"]);
        let odd = vec![class("odd", &[("no-such-key", "x")])];
        let late = SeenHost { lease_age: Some(LEASE_LATE + 1), classes: odd, ..well() };
        assert_eq!(names(&late, member()), ["class:odd", "host:lease"]);
    }

    #[test]
    fn claim_that_waits_for_long_is_told_with_what_was_last_said_of_it() {
        let waiting = |age, warning: Option<&str>| WaitingClaim {
            place: "shop/db".to_owned(),
            age,
            warning: warning.map(str::to_owned),
        };
        let host = |claim| SeenHost { waiting: vec![claim], ..well() };
        assert_eq!(names(&host(waiting(WAITS_LONG, None)), member()), [""; 0], "it may be on its way");
        let findings = judge(&host(waiting(WAITS_LONG + 1, Some("no room"))), &[], NOW);
        assert_eq!((findings[0].name.as_str(), findings[0].message.contains("5m: no room")), ("claim:shop/db", true));
    }

    #[test]
    fn class_that_no_member_can_serve_is_told_with_what_each_lacks() {
        let has = |name: &str, names: &[&str], has_default| SeenMember {
            name: name.to_owned(),
            classes: Some(LeafClasses { names: names.iter().map(|&name| name.to_owned()).collect(), has_default }),
            ..member()
        };
        let members = [has("a", &["fast"], false), has("b", &["slow"], true)];
        let unread = [has("a", &[], false), SeenMember { name: "b".to_owned(), ..member() }];
        let gone = [has("a", &[], false), SeenMember { named: false, ..has("b", &["fast"], false) }];
        for (parameters, members, told) in [
            (&[("leafStorageClass", "fast")][..], &members, None),
            (&[], &members, None),
            (&[("leafStorageClass", "none")], &members, Some("a has no none, b has no none")),
            (&[("leafStorageClass", "none"), ("leafStorageClass.b", "slow")], &members, None),
            (&[("leafStorageClass", "slow"), ("member", "a")], &members, Some("a has no slow")),
            (&[("member", "a")], &members, Some("a has no default class")),
            (&[("member", "c")], &members, None),
            (&[("leafStorageClass", "fast")], &unread, None),
            (&[("leafStorageClass", "fast")], &gone, Some("a has no fast")),
        ] {
            let problem = class("x", parameters).problem(members);
            assert_eq!(problem.is_some(), told.is_some(), "{parameters:?}: {problem:?}");
            assert!(told.is_none_or(|told| problem.unwrap().contains(told)), "{parameters:?}");
        }
    }

    #[test]
    fn members_and_tokens_are_told_with_what_to_do() {
        let silent =
            SeenMember { problem: Some("no answer".to_owned()), tokens: vec![token(40), token(0)], ..member() };
        let findings = judge(&well(), &[silent], NOW);
        assert!(findings[0].message.contains("not compared"), "{findings:?}");
        assert!(findings[1].message.contains("has expired 0s ago") && findings[1].message.contains("member add m"));
        let left = SeenMember { named: false, volumes: 3, ..member() };
        let findings = judge(&well(), &[left], NOW);
        assert!(findings[0].name == "member:m" && findings[0].message.contains("3 volumes"), "{findings:?}");
    }
}
