//! What a host's pod asks for at once, as containers of its consumer ask for it. A member's scheduler counts of a pod what it takes while it runs, or
//! while it begins where that is more, as an init container may take much and ends before the others come. A consumer has no init containers: members
//! let the driver make no pod with any. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use domain::volume::quantity::thousandths;

/// Taken only beside a processor or memory, by the same container.
const HUGE_PAGES: &str = "hugepages-";

/// By resource.
type Quantities = BTreeMap<String, Quantity>;

/// Thousandths, by resource.
type Amounts = BTreeMap<String, u128>;

/// Those of the containers, and then of the sidecars. What only the beginning takes, one of the containers asks for besides.
pub(super) fn of(pod: &PodSpec) -> Vec<ResourceRequirements> {
    let mut all: Vec<_> = pod.containers.iter().map(of_container).collect();
    let ordinary = all.len();
    // Each of the others begins beside the sidecars that are before it.
    let (mut sidecars, mut beginning) = (Amounts::new(), Amounts::new());
    for init in pod.init_containers.iter().flatten() {
        let needed = of_container(init);
        let mut now = sidecars.clone();
        add(&mut now, needed.requests.as_ref());
        if is_sidecar(init) {
            sidecars = now;
            all.push(needed);
        } else {
            most(&mut beginning, now);
        }
    }
    let mut running = Amounts::new();
    for one in &all {
        add(&mut running, one.requests.as_ref());
    }
    for (resource, amount) in beginning {
        let more = amount.saturating_sub(running.get(&resource).copied().unwrap_or_default());
        if more > 0 {
            raise(&mut all[..ordinary], &resource, more);
        }
    }
    all
}

/// Claims on devices belong to the host's own objects.
pub(super) fn schedulable(mut resources: ResourceRequirements) -> ResourceRequirements {
    resources.claims = None;
    resources
}

fn of_container(container: &Container) -> ResourceRequirements {
    container.resources.clone().map(schedulable).unwrap_or_default()
}

fn is_sidecar(init: &Container) -> bool {
    init.restart_policy.as_deref() == Some("Always")
}

fn add(to: &mut Amounts, more: Option<&Quantities>) {
    for (resource, quantity) in more.into_iter().flatten() {
        let sum = to.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(thousandths(&quantity.0).unwrap_or_default());
    }
}

fn most(of: &mut Amounts, other: Amounts) {
    for (resource, amount) in other {
        let now = of.entry(resource).or_default();
        *now = amount.max(*now);
    }
}

/// Who asks for most of it asks for more: no more than the init container does, and so within what a member allows one container.
fn raise(containers: &mut [ResourceRequirements], resource: &str, more: u128) {
    let Some(largest) = containers.iter_mut().max_by_key(|one| amount(one.requests.as_ref(), resource)) else { return };
    let before = amount(largest.requests.as_ref(), resource);
    if before.is_none() && resource.starts_with(HUGE_PAGES) {
        return;
    }
    let wanted = before.unwrap_or_default().saturating_add(more);
    let limit = amount(largest.limits.as_ref(), resource);
    // Of what a node does not have itself, as devices, Kubernetes takes no request without a limit.
    if limit.is_some_and(|limit| limit < wanted) || (limit.is_none() && resource.contains('/')) {
        largest.limits.get_or_insert_default().insert(resource.to_owned(), quantity(wanted));
    }
    largest.requests.get_or_insert_default().insert(resource.to_owned(), quantity(wanted));
}

fn amount(of: Option<&Quantities>, resource: &str) -> Option<u128> {
    thousandths(&of?.get(resource)?.0)
}

fn quantity(thousandths: u128) -> Quantity {
    let whole = thousandths.is_multiple_of(1000);
    Quantity(if whole { (thousandths / 1000).to_string() } else { format!("{thousandths}m") })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{Value, from_value, json, to_value};

    use super::*;

    fn asking(requests: &Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests}})
    }

    fn sidecar(requests: &Value) -> Value {
        let mut sidecar = asking(requests);
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    }

    fn asked(containers: &Value, init: &Value) -> Value {
        let spec = json!({"containers": containers, "initContainers": init});
        to_value(of(&from_value(spec).unwrap())).unwrap()
    }

    fn cpu_of_each(containers: &Value, init: &Value) -> Vec<String> {
        let asked = asked(containers, init);
        let cpu = |one: &Value| one["requests"]["cpu"].as_str().unwrap_or_default().to_owned();
        asked.as_array().unwrap().iter().map(cpu).collect()
    }

    #[test]
    fn consumer_asks_for_what_its_pod_takes_while_it_runs_or_begins() {
        let cpu = |amount: &str| json!({"cpu": amount});
        let (one, half) = (asking(&cpu("1")), asking(&cpu("500m")));
        let (four, beside) = (asking(&cpu("4")), sidecar(&cpu("1")));
        for (containers, init, expected) in [
            (json!([one, half]), json!([]), vec!["1", "500m"]),
            (json!([one, half]), json!([one]), vec!["1", "500m"]),
            (json!([half, one]), json!([four, one]), vec!["500m", "3500m"]),
            (json!([one, half]), json!([beside, four]), vec!["3500m", "500m", "1"]),
            (json!([one, half]), json!([four, beside]), vec!["2500m", "500m", "1"]),
            (json!([{"name": "c"}]), json!([four]), vec!["4"]),
            (json!([{"name": "c"}]), json!([]), vec![""]),
        ] {
            assert_eq!(cpu_of_each(&containers, &init), expected, "{containers} {init}");
        }
    }

    /// They may begin again, and are over before the others begin.
    #[test]
    fn init_container_with_another_restart_policy_is_no_sidecar() {
        let mut init = asking(&json!({"cpu": "1"}));
        init["restartPolicy"] = json!("Never");
        assert_eq!(cpu_of_each(&json!([asking(&json!({"cpu": "2"}))]), &json!([init])), ["2"]);
    }

    #[test]
    fn each_resource_is_counted_by_itself() {
        let containers = json!([asking(&json!({"cpu": "2", "memory": "1Gi"}))]);
        let init = json!([asking(&json!({"memory": "3Gi"})), asking(&json!({"cpu": "1", "memory": "2Gi"}))]);
        assert_eq!(asked(&containers, &init), json!([{"requests": {"cpu": "2", "memory": "3221225472"}}]));
    }

    /// A request above its limit is refused, and so is one for devices without a limit.
    #[test]
    fn limit_follows_the_request_that_needs_it() {
        let limited = |limit: &str| {
            let resources = json!({"requests": {"cpu": "1"}, "limits": {"cpu": limit}});
            let containers = json!([{"name": "c", "resources": resources}]);
            asked(&containers, &json!([asking(&json!({"cpu": "4"}))]))[0]["limits"]["cpu"].clone()
        };
        assert_eq!((limited("2"), limited("8")), (json!("4"), json!("8")));
        let gpu = json!({"example.com/gpu": "1"});
        let asked = asked(&json!([{"name": "c"}]), &json!([asking(&gpu)]));
        assert_eq!(asked, json!([{"requests": gpu, "limits": gpu}]));
    }

    #[test]
    fn huge_pages_are_asked_for_by_a_container_that_has_some() {
        let pages = |amount: &str| json!({"cpu": "1", "hugepages-2Mi": amount});
        let init = json!([asking(&pages("8Mi"))]);
        let asked = |containers: Value| asked(&containers, &init)[0]["requests"]["hugepages-2Mi"].clone();
        assert_eq!(asked(json!([asking(&pages("2Mi"))])), json!("8388608"));
        assert_eq!(asked(json!([{"name": "c"}])), Value::Null);
    }
}
