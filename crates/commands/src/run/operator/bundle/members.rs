//! What the host's own account sees of its leaves in each member.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, stream};
use serde_json::json;

use super::objects::{Taken, take};
use crate::run::operator::connect;
use cluster::{Dial, with_causes};
use host::{Host, pins};
use leaf::{MemberClient, ownership};
use member::source::{MemberDefinition, MemberDefinitions};
use operator::bundle::{Bundle, CLASSES_OF_MEMBER, EVENTS, Kind, LEAF_CLAIMS, LEAF_VOLUMES, Ours};

const AT_ONCE: usize = 8;
/// For all of one: somebody may keep each of its answers from ending.
const PATIENCE: Duration = Duration::from_mins(5);

/// What a member has answered.
struct Answers {
    version: Result<String, String>,
    identity: String,
    lists: Vec<(&'static str, Taken)>,
}

pub(super) async fn leaves(host: &Host, named: &MemberDefinitions, dial: &Dial, bundle: &mut Bundle) {
    let pins = match pins::pins(host).await {
        Ok(pins) => pins,
        Err(error) => {
            return bundle.lacks("members", &format!("this command cannot read which cluster each member is: {error}"));
        }
    };
    let mut asking = stream::iter(named)
        .map(async |(name, definition)| {
            let asked = tokio::time::timeout(PATIENCE, asked(host, name, definition, &pins, dial)).await;
            (name, asked.unwrap_or_else(|_| Err("it did not answer in time".to_owned())))
        })
        .buffered(AT_ONCE);
    while let Some((name, answers)) = asking.next().await {
        match answers {
            Ok(answers) => answers.put(name, bundle),
            Err(why) => bundle.lacks(format!("members/{name}"), &why),
        }
    }
}

async fn asked(
    host: &Host,
    name: &str,
    definition: &MemberDefinition,
    pins: &BTreeMap<String, String>,
    dial: &Dial,
) -> Result<Answers, String> {
    let identity = connect::known(host, name, definition, pins, dial).await?.identity;
    let leaf = connect::bounded(host, name, definition, dial).await?;
    let version = leaf.client.apiserver_version().await;
    let version = version.map(|version| version.git_version).map_err(|error| with_causes(&error));
    let (labelled, mut ours) = (ownership::selector(&leaf.host), Ours::default());
    let mut lists = Vec::new();
    for kind in [&CLASSES_OF_MEMBER, &LEAF_VOLUMES] {
        let selector = if kind.plural == LEAF_VOLUMES.plural { labelled.as_str() } else { "" };
        lists.push((kind.plural, take(&leaf.client, kind, None, selector, &mut ours).await));
    }
    lists.push((LEAF_CLAIMS.plural, everywhere(&leaf, &LEAF_CLAIMS, &labelled, &mut ours).await));
    // Of what was taken before.
    lists.push((EVENTS.plural, everywhere(&leaf, &EVENTS, "", &mut ours).await));
    Ok(Answers { version, identity, lists })
}

/// Where this host's account may look.
async fn everywhere(leaf: &MemberClient, kind: &Kind, selector: &str, ours: &mut Ours) -> Taken {
    let mut all = Taken::default();
    for namespace in leaf.namespaces.each() {
        let mut some = take(&leaf.client, kind, namespace, selector, ours).await;
        all.objects.append(&mut some.objects);
        all.problem = all.problem.or(some.problem);
    }
    all
}

impl Answers {
    fn put(self, name: &str, bundle: &mut Bundle) {
        let version: String = self.version.unwrap_or_else(|why| why).chars().take(200).collect();
        bundle.add(
            format!("members/{name}/cluster.json"),
            &format!("{:#}\n", json!({"name": name, "cluster": self.identity, "version": version})),
        );
        for (plural, taken) in self.lists {
            bundle.add_objects(&format!("members/{name}/{plural}.json"), &taken.objects, taken.problem.as_deref());
        }
    }
}
