//! Objects of any kind as they are read, applied and removed by commands.

use anyhow::{Context, anyhow, bail};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use cluster::{unmanaged::Unmanaged, with_causes};
use operator::objects::{MANAGER, ObjectStep, is_ours, marked, newer_maker, step, title, word};

const POLICIES: &str = "admissionregistration.k8s.io/v1";

/// What an object comes to, for the table.
pub(super) struct Done {
    pub(super) title: String,
    pub(super) result: &'static str,
}

/// Of a list, at once.
const PAGE: u32 = 500;

pub(super) fn resource(version: &str, kind: &str) -> ApiResource {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

pub(super) fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let resource = resource(word(object, "/apiVersion"), word(object, "/kind"));
    match word(object, "/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// The policies among these objects, which clusters before Kubernetes 1.30 do not serve, and the others.
pub(super) async fn without_unserved(client: &Client, objects: Vec<Value>) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
    let listed = client.list_api_group_resources(POLICIES).await;
    let served = match cluster::read(listed, POLICIES).context("ask which admission the member has")? {
        Some(served) => served.resources.iter().any(|served| served.kind == "ValidatingAdmissionPolicy"),
        None => false,
    };
    Ok(objects.into_iter().partition(|object| served || word(object, "/apiVersion") != POLICIES))
}

/// The object as it is now; none where there is none.
pub(super) async fn read(client: &Client, object: &Value) -> anyhow::Result<Option<Value>> {
    let name = word(object, "/metadata/name");
    let found = cluster::read(api(client, object).get(name).await, name);
    let found = found.map_err(|error| anyhow!("get {}: {}", title(object), with_causes(&error)))?;
    found.map(|found| serde_json::to_value(found).context("an object cannot be read")).transpose()
}

/// Whether the cluster itself says that it has this kind.
pub(super) async fn serves(client: &Client, version: &str, kind: &str) -> anyhow::Result<bool> {
    let told = |error: kube::Error| anyhow!("ask which kinds are served: {}", with_causes(&error));
    let groups = client.list_api_groups().await.map_err(told)?.groups;
    if !groups.iter().flat_map(|group| &group.versions).any(|served| served.group_version == version) {
        return Ok(false);
    }
    let served = client.list_api_group_resources(version).await.map_err(told)?;
    Ok(served.resources.iter().any(|served| served.kind == kind))
}

/// Whether the cluster has no such kind, once it could not be listed: it knows no such path, and names no such kind. One alone may be
/// about to change.
pub(super) async fn lacks(client: &Client, version: &str, kind: &str) -> bool {
    let all = Api::<DynamicObject>::all_with(client.clone(), &resource(version, kind));
    let is_unknown = match all.list(&ListParams::default().limit(1)).await {
        Err(kube::Error::Api(status)) => status.code == 404 && !cluster::says_what_is_missing(&status),
        _ => false,
    };
    is_unknown && matches!(serves(client, version, kind).await, Ok(false))
}

/// All of a kind that are wanted, each with its kind; of the others no more than a page is held.
pub(super) async fn list(
    client: &Client,
    version: &str,
    kind: &str,
    is_wanted: impl Fn(&Value) -> bool,
) -> anyhow::Result<Vec<Value>> {
    let resource = resource(version, kind);
    let told = |error: kube::Error| anyhow!("list {}: {}", resource.plural, with_causes(&error));
    let api = Api::<Unmanaged<DynamicObject>>::all_with(client.clone(), &resource);
    let (mut all, mut wanted) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&wanted).await.map_err(told)?;
        for item in page.items {
            let mut item = serde_json::to_value(item).context("an object cannot be read")?;
            (item["apiVersion"], item["kind"]) = (json!(version), json!(kind));
            if is_wanted(&item) {
                all.push(item);
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Makes an object that was not there.
pub(super) async fn create(client: &Client, object: &Value) -> anyhow::Result<Value> {
    let typed: DynamicObject = serde_json::from_value(object.clone()).context("an object cannot be written")?;
    let made = api(client, object).create(&PostParams::default(), &typed).await;
    let made = made.map_err(|error| anyhow!("{}", with_causes(&error)))?;
    serde_json::to_value(made).context("an object cannot be read")
}

/// What is to be done about each of these, by one look.
pub(super) async fn steps(client: &Client, objects: &[Value]) -> anyhow::Result<Vec<ObjectStep>> {
    let mut steps = Vec::new();
    for object in objects {
        let live = read(client, object).await?;
        let step = step(live.as_ref(), object);
        if step == ObjectStep::Refuse {
            let remedy = if is_namespace(object) {
                "Give it the labels that it has in deploy/ (do not delete it: the claims in it would go too)"
            } else {
                "Make it as in deploy/, or delete it"
            };
            bail!(
                "{} is there already, and somebody else has made it differently: it is left untouched. {remedy}, and type \
                 this again",
                title(object)
            );
        }
        if step == ObjectStep::Update
            && let Some(version) = live.as_ref().and_then(newer_maker)
        {
            bail!(
                "{} is there already, and kosmos-csi {version} has made it, which is newer than this program ({}): it is left untouched, and \
                 nothing was written. Type this with that version or a newer one",
                title(object),
                env!("CARGO_PKG_VERSION")
            );
        }
        steps.push(step);
    }
    Ok(steps)
}

/// Makes or updates one object. Where somebody else has written a field of it since, the cluster refuses.
pub(super) async fn apply(client: &Client, object: &Value, step: ObjectStep) -> anyhow::Result<Done> {
    let title = title(object);
    let result = match step {
        ObjectStep::Make => "made",
        ObjectStep::Update => "updated",
        ObjectStep::Leave | ObjectStep::Refuse => return Ok(Done { title, result: "unchanged" }),
    };
    let apply = PatchParams::apply(MANAGER);
    let (api, name) = (api(client, object), word(object, "/metadata/name"));
    let applied = api.patch(name, &apply, &Patch::Apply(marked(object))).await;
    applied.map_err(|error| anyhow!("apply {title}: {}{}", with_causes(&error), remedy(object, &error)))?;
    Ok(Done { title, result })
}

/// Only a conflict is about what others have written: a right that is missing, or a lost connection, says nothing of them.
fn remedy(object: &Value, error: &kube::Error) -> &'static str {
    let is_conflict = matches!(error, kube::Error::Api(status) if status.code == 409);
    match (is_conflict, is_namespace(object)) {
        (false, _) => "",
        (true, false) => ". Somebody else has written these fields: undo that, or delete the object",
        (true, true) => {
            ". Somebody else has written these fields: undo that (do not delete it: the claims in it would go too)"
        }
    }
}

/// Leaves may be in it, also those that are just moved to another member.
fn is_namespace(object: &Value) -> bool {
    word(object, "/kind") == "Namespace"
}

/// Removes one object, if a command has made it, as it was just read.
pub(super) async fn remove(client: &Client, object: &Value) -> anyhow::Result<Done> {
    let title = title(object);
    let Some(live) = read(client, object).await? else { return Ok(Done { title, result: "was not there" }) };
    if !is_ours(&live) {
        return Ok(Done { title, result: "left: `member add` did not make it" });
    }
    delete(client, &live, object).await?;
    Ok(Done { title, result: "removed" })
}

/// Whoever has made it, as it was just read.
pub(super) async fn delete(client: &Client, live: &Value, object: &Value) -> anyhow::Result<()> {
    let seen = Preconditions { uid: Some(word(live, "/metadata/uid").to_owned()), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(seen), ..DeleteParams::default() };
    let deleted = api(client, object).delete(word(object, "/metadata/name"), &parameters).await;
    deleted.map(drop).map_err(|error| anyhow!("delete {}: {}", title(object), with_causes(&error)))
}
