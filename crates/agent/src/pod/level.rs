//! Up to which Pod Security level pods are run in a member, and in which of its namespaces. Pure.
//!
//! The member's API server holds the agent's account to the same by deploy/member-virtual-node.yaml; here the user is told by the
//! name of the field, and members too old for such policies are covered as well.

use serde_json::Value;

use super::{
    super::{
        HOST, MANAGED_BY,
        object::{items, mark, text},
    },
    rejection::{Here, PodRejection},
};
use domain::volume::DRIVER;
use leaf::ownership::{HOSTS, names};
use member::policy::{BASELINE, PODS, PRIVILEGED};

/// On a namespace: the level that its API server holds all pods to.
pub(super) const ENFORCED: &str = "pod-security.kubernetes.io/enforce";
/// What `baseline` lets a container add.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Those of a pod's own namespaces alone.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];
const SELINUX_TYPES: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Why a pod is not run in a member that takes no more than `baseline`.
pub(super) fn refused_level(pod: &Value, here: Here<'_>) -> Option<PodRejection> {
    let field = above_baseline(pod).filter(|_| !here.privileged)?;
    let message = format!(
        "{field} asks for more than the Pod Security level {BASELINE}, the most that this host's pods may have in member {}: leave it out. \
         To allow more, the host's administrator sets the annotation {PODS}={PRIVILEGED} on the agent's Secret of the member or \
         on its Cluster, and the member's administrator sets that label on the namespace there",
        here.member
    );
    Some(PodRejection::new("AboveBaseline", message))
}

/// Why a pod is not run in a namespace that the member has.
pub(super) fn refused_namespace(pod: &Value, there: &Value, here: Here<'_>) -> Option<PodRejection> {
    let name = text(there, "/metadata/name");
    let label = |level| format!("kubectl label namespace {name} {PODS}={level}");
    let level = mark(there, "labels", PODS);
    let made_for_us = mark(there, "labels", MANAGED_BY) == DRIVER && mark(there, "labels", HOST) == here.host;
    if !made_for_us && ![BASELINE, PRIVILEGED].contains(&level) {
        let whose = match mark(there, "labels", HOST) {
            other if !other.is_empty() && other != here.host => format!("belongs to another host cluster ({other})"),
            _ => "was not made for this host".to_owned(),
        };
        let message = format!(
            "namespace {name} of member {} {whose}, and its labels do not allow pods of hosts. The member's administrator allows \
             them: {}",
            here.member,
            label(BASELINE)
        );
        return Some(PodRejection::new("NamespaceNotOpen", message));
    }
    if there["metadata"]["annotations"][HOSTS].as_str().is_some_and(|hosts| !names(hosts, here.host)) {
        let message = format!(
            "namespace {name} of member {} is open to other hosts only. The member's administrator opens it to this host by adding \
             the id {} to its annotation {HOSTS}",
            here.member, here.host
        );
        return Some(PodRejection::new("NamespaceNotOpen", message));
    }
    let field = above_baseline(pod).filter(|_| level != PRIVILEGED)?;
    let message = format!(
        "{field} asks for more than the Pod Security level {BASELINE}, the most that namespace {name} of member {} allows: leave it \
         out, or have the member's administrator allow more: {}",
        here.member,
        label(PRIVILEGED)
    );
    Some(PodRejection::new("AboveBaseline", message))
}

/// The first field by which a pod asks more of a node than `baseline` allows, tolerates every taint, or has a driver of the node do
/// what the pod says.
fn above_baseline(pod: &Value) -> Option<String> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let containers =
        lists.into_iter().flat_map(|list| items(pod, &format!("/spec/{list}")).map(move |one| (list, one)));
    let mut fields = containers.filter_map(|(list, container)| {
        Some(format!("spec.{list}[{}].{}", text(container, "/name"), of_container(container)?))
    });
    of_pod(pod).or_else(|| fields.next())
}

fn of_pod(pod: &Value) -> Option<String> {
    let spec = &pod["spec"];
    let named = |list: &'static str, is_meant: &dyn Fn(&Value) -> bool| {
        items(spec, list).find(|one| is_meant(one)).map(|one| text(one, "/name").to_owned())
    };
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().find(|field| spec[field] == true);
    let annotation = pod["metadata"]["annotations"].as_object().into_iter().flatten().find(|(key, value)| {
        let profile = value.as_str().unwrap_or_default();
        key.starts_with(APPARMOR) && !["", "runtime/default"].contains(&profile) && !profile.starts_with("localhost/")
    });
    let keyless = items(spec, "/tolerations").position(|one| text(one, "/key").is_empty());
    let sysctl = named("/securityContext/sysctls", &|one| !SYSCTLS.contains(&text(one, "/name")));
    let of_node = named("/volumes", &|volume| !volume["hostPath"].is_null());
    let by_driver = named("/volumes", &|volume| !volume["csi"].is_null());
    shared
        .map(|field| format!("spec.{field}"))
        .or_else(|| of_node.map(|name| format!("spec.volumes[{name}].hostPath")))
        .or_else(|| of_context(&spec["securityContext"]).map(|field| format!("spec.securityContext.{field}")))
        .or_else(|| sysctl.map(|name| format!("spec.securityContext.sysctls[{name}]")))
        .or_else(|| annotation.map(|(key, _)| format!("metadata.annotations[{key}]")))
        .or_else(|| {
            by_driver.map(|name| format!("spec.volumes[{name}].csi, by which a driver there does what the pod says,"))
        })
        .or_else(|| keyless.map(|at| format!("spec.tolerations[{at}], which has no key and tolerates every taint,")))
}

fn of_container(container: &Value) -> Option<String> {
    let context = &container["securityContext"];
    let added = items(context, "/capabilities/add").filter_map(Value::as_str).find(|name| !CAPABILITIES.contains(name));
    let port = items(container, "/ports").find_map(|port| port["hostPort"].as_u64().filter(|port| *port != 0));
    let whole = !["", "Default"].contains(&text(context, "/procMount"));
    let asks = ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle/postStart", "lifecycle/preStop"];
    let elsewhere = asks.into_iter().find_map(|ask| {
        let by = ["httpGet", "tcpSocket"];
        by.into_iter().find(|by| !text(container, &format!("/{ask}/{by}/host")).is_empty()).map(|by| (ask, by))
    });
    (context["privileged"] == true)
        .then(|| "securityContext.privileged".to_owned())
        .or_else(|| added.map(|name| format!("securityContext.capabilities.add[{name}]")))
        .or_else(|| of_context(context).map(|field| format!("securityContext.{field}")))
        .or_else(|| whole.then(|| "securityContext.procMount".to_owned()))
        .or_else(|| port.map(|port| format!("ports[].hostPort {port}")))
        .or_else(|| elsewhere.map(|(ask, by)| format!("{}.{by}.host", ask.replace('/', "."))))
}

/// What a pod's and a container's security context have in common.
fn of_context(context: &Value) -> Option<&'static str> {
    let selinux = &context["seLinuxOptions"];
    let named = ["user", "role"].into_iter().any(|field| !text(selinux, &format!("/{field}")).is_empty());
    let unconfined = |profile: &str| text(context, &format!("/{profile}/type")) == "Unconfined";
    [
        (context["windowsOptions"]["hostProcess"] == true, "windowsOptions.hostProcess"),
        (named || !SELINUX_TYPES.contains(&text(selinux, "/type")), "seLinuxOptions"),
        (unconfined("seccompProfile"), "seccompProfile"),
        (unconfined("appArmorProfile"), "appArmorProfile"),
    ]
    .into_iter()
    .find_map(|(asks, field)| asks.then_some(field))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The same that a member's policy is tried with.
    const ABOVE: &str = include_str!("../../../../tests/agent/above_baseline.json");
    const HERE: Here<'static> = Here { host: "h", member: "m", privileged: false };

    fn namespace(labels: &Value) -> Value {
        json!({"metadata": {"name": "shop", "labels": labels}})
    }

    #[test]
    fn what_is_above_baseline_is_refused_by_its_name_unless_host_and_member_allow_it() {
        let cases: Vec<Value> = serde_json::from_str(ABOVE).unwrap();
        let privileged = Here { privileged: true, ..HERE };
        for case in cases {
            let (pod, field) = (&case["pod"], case["field"].as_str().unwrap());
            let told = refused_level(pod, HERE).unwrap_or_else(|| panic!("{field} is not refused"));
            assert!(told.reason == "AboveBaseline" && told.message.starts_with(&format!("{field} ")), "{told:?}");
            assert_eq!(refused_level(pod, privileged), None, "{field}");
            let level = |level: &str| refused_namespace(pod, &namespace(&json!({PODS: level})), privileged);
            assert!(level(BASELINE).is_some_and(|told| told.message.starts_with(field)), "{field}");
            assert_eq!(level(PRIVILEGED), None, "{field}");
        }
    }

    #[test]
    fn process_of_the_node_itself_is_above_baseline() {
        let context = json!({"windowsOptions": {"hostProcess": true}});
        let pod = json!({"spec": {"os": {"name": "windows"}, "securityContext": context}});
        assert_eq!(above_baseline(&pod).as_deref(), Some("spec.securityContext.windowsOptions.hostProcess"));
    }

    #[test]
    fn what_baseline_allows_is_taken() {
        let container = json!({"name": "c", "ports": [{"containerPort": 80, "hostPort": 0}],
            "livenessProbe": {"httpGet": {"port": 80}}, "securityContext": {"privileged": false, "procMount": "Default",
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}, "seLinuxOptions": {"level": "s0"},
            "appArmorProfile": {"type": "RuntimeDefault"}}});
        let spec = json!({"hostNetwork": false, "containers": [container], "volumes": [{"name": "a", "emptyDir": {}}],
            "tolerations": [{"key": "kosmos.io/node", "operator": "Exists"},
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
            "securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}],
            "seccompProfile": {"type": "RuntimeDefault"}}});
        let annotations = json!({"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"});
        assert_eq!(above_baseline(&json!({"metadata": {"annotations": annotations}, "spec": spec})), None);
    }

    #[test]
    fn namespace_is_used_that_was_made_for_the_host_or_says_so() {
        let pod = json!({"spec": {}});
        let made_for = |host: &str| namespace(&json!({MANAGED_BY: DRIVER, HOST: host}));
        for (there, taken) in [
            (made_for("h"), true),
            (made_for("other"), false),
            (namespace(&Value::Null), false),
            (namespace(&json!({HOST: "h"})), false),
            (namespace(&json!({PODS: "baseline"})), true),
            (namespace(&json!({PODS: "privileged"})), true),
            (namespace(&json!({PODS: "restricted"})), false),
        ] {
            let refused = refused_namespace(&pod, &there, HERE);
            assert_eq!(refused.is_none(), taken, "{there}");
            let mut closed = there.clone();
            closed["metadata"]["annotations"] = json!({HOSTS: "other"});
            let told = refused_namespace(&pod, &closed, HERE).unwrap();
            assert_eq!((told.reason, told.message.contains("the id h to its annotation")), ("NamespaceNotOpen", taken));
            closed["metadata"]["annotations"] = json!({HOSTS: "other, h"});
            assert_eq!(refused_namespace(&pod, &closed, HERE).is_none(), taken);
            if let Some(refused) = refused {
                assert!(refused.message.contains("kubectl label namespace shop kosmos.csi.io/pods=baseline"));
            }
        }
    }
}
