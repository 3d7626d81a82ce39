//! Numbers, names and types of the fields of those messages that are read, a line each.

/// What a field holds. Names are those of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Bytes,
    Whole,
    Is,
    Message(&'static str),
    /// Of messages, or of texts where it names none.
    List(&'static str),
    /// From texts to something.
    Map(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub number: u64,
    pub name: &'static str,
    pub of: Type,
    /// Whether its zero is told from its absence.
    pub optional: bool,
}

/// `number name type`, with a text where there is no type; `?` marks what is optional.
#[rustfmt::skip]
const MESSAGES: &[(&str, &str)] = &[
    ("TypeMeta", "1 apiVersion, 2 kind"),
    ("ObjectMeta", "1 name, 2 generateName, 3 namespace, 5 uid, 6 resourceVersion, 7 generation whole, 8 creationTimestamp Time, 9 deletionTimestamp Time, 10 deletionGracePeriodSeconds whole?, 11 labels {text}, 12 annotations {text}, 13 ownerReferences [OwnerReference], 14 finalizers []"),
    ("OwnerReference", "1 kind, 3 name, 4 uid, 5 apiVersion, 6 controller is?, 7 blockOwnerDeletion is?"),
    ("Time", "1 seconds whole, 2 nanos whole"),
    ("Quantity", "1 string"),
    ("IntOrString", "1 type whole, 2 number whole, 3 text"),
    ("LabelSelector", "1 matchLabels {text}, 2 matchExpressions [LabelSelectorRequirement]"),
    ("LabelSelectorRequirement", "1 key, 2 operator, 3 values []"),
    ("DeleteOptions", "1 gracePeriodSeconds whole?, 2 preconditions Preconditions, 3 orphanDependents is?, 4 propagationPolicy, 5 dryRun []"),
    ("Preconditions", "1 uid, 2 resourceVersion"),
    ("Namespace", "1 metadata ObjectMeta, 2 spec NamespaceSpec"),
    ("NamespaceSpec", "1 finalizers []"),
    ("ConfigMap", "1 metadata ObjectMeta, 2 data {text}, 3 binaryData {bytes}, 4 immutable is?"),
    ("Secret", "1 metadata ObjectMeta, 2 data {bytes}, 3 type, 4 stringData {text}, 5 immutable is?"),
    ("ServiceAccount", "1 metadata ObjectMeta, 2 secrets [ObjectReference], 3 imagePullSecrets [LocalObjectReference], 4 automountServiceAccountToken is?"),
    ("ObjectReference", "1 kind, 2 namespace, 3 name, 4 uid, 5 apiVersion, 6 resourceVersion, 7 fieldPath"),
    ("LocalObjectReference", "1 name"),
    ("ResourceQuota", "1 metadata ObjectMeta, 2 spec ResourceQuotaSpec"),
    ("ResourceQuotaSpec", "1 hard {Quantity}, 2 scopes []"),
    ("Service", "1 metadata ObjectMeta, 2 spec ServiceSpec"),
    ("ServiceSpec", "1 ports [ServicePort], 2 selector {text}, 3 clusterIP, 4 type, 5 externalIPs [], 7 sessionAffinity, 10 externalName, 18 clusterIPs []"),
    ("ServicePort", "1 name, 2 protocol, 3 port whole, 4 targetPort IntOrString, 5 nodePort whole, 6 appProtocol?"),
    ("Deployment", "1 metadata ObjectMeta, 2 spec DeploymentSpec"),
    ("DeploymentSpec", "1 replicas whole?, 2 selector LabelSelector, 3 template PodTemplateSpec, 4 strategy DeploymentStrategy, 5 minReadySeconds whole, 6 revisionHistoryLimit whole?, 7 paused is, 9 progressDeadlineSeconds whole?"),
    ("DeploymentStrategy", "1 type, 2 rollingUpdate RollingUpdateDeployment"),
    ("RollingUpdateDeployment", "1 maxUnavailable IntOrString, 2 maxSurge IntOrString"),
    ("PodTemplateSpec", "1 metadata ObjectMeta, 2 spec PodSpec"),
    ("PodSpec", "2 containers [Container], 3 restartPolicy, 4 terminationGracePeriodSeconds whole?, 6 dnsPolicy, 7 nodeSelector {text}, 8 serviceAccountName, 9 serviceAccount, 10 nodeName, 15 imagePullSecrets [LocalObjectReference], 19 schedulerName, 20 initContainers [Container]"),
    ("Container", "1 name, 2 image, 3 command [], 4 args [], 5 workingDir, 6 ports [ContainerPort], 7 env [EnvVar], 8 resources ResourceRequirements, 13 terminationMessagePath, 14 imagePullPolicy, 20 terminationMessagePolicy"),
    ("ContainerPort", "1 name, 2 hostPort whole, 3 containerPort whole, 4 protocol, 5 hostIP"),
    ("EnvVar", "1 name, 2 value"),
    ("ResourceRequirements", "1 limits {Quantity}, 2 requests {Quantity}"),
    ("Eviction", "1 metadata ObjectMeta, 2 deleteOptions DeleteOptions"),
];

/// None of a message that is not read.
pub(super) fn fields(message: &str) -> Option<Vec<Field>> {
    let (_, line) = MESSAGES.iter().find(|(name, _)| *name == message)?;
    line.split(", ").map(field).collect()
}

fn field(told: &'static str) -> Option<Field> {
    let mut words = told.split(' ');
    let (number, name) = (words.next()?.parse().ok()?, words.next()?);
    let of_field = words.next().unwrap_or_default();
    let optional = name.ends_with('?') || of_field.ends_with('?');
    Some(Field { number, name: name.trim_end_matches('?'), of: of(of_field.trim_end_matches('?')), optional })
}

pub(super) fn of(told: &'static str) -> Type {
    let inside = |open, close| told.strip_prefix(open).and_then(|rest: &'static str| rest.strip_suffix(close));
    match told {
        "" | "text" => Type::Text,
        "bytes" => Type::Bytes,
        "whole" => Type::Whole,
        "is" => Type::Is,
        name => match (inside('[', ']'), inside('{', '}')) {
            (Some(item), _) => Type::List(item),
            (None, Some(value)) => Type::Map(value),
            (None, None) => Type::Message(name),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_that_is_named_is_told() {
        for (message, _) in MESSAGES {
            for field in fields(message).unwrap() {
                let (Type::Message(named) | Type::List(named) | Type::Map(named)) = field.of else { continue };
                let known = ["", "text", "bytes"].contains(&named) || fields(named).is_some();
                assert!(known, "{message}.{} is a {named}", field.name);
            }
        }
    }
}
