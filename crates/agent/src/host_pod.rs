//! What is kept of the host's pod on a virtual node: all of it, as text, and beside that what is asked of many at once. Pure.

use std::sync::Arc;

use serde_json::Value;

use super::{
    cache::Cached,
    object::{Place, is_over, text, unpacked},
};

#[derive(Debug)]
pub(super) struct HostPod {
    node: Box<str>,
    uid: Box<str>,
    is_over: bool,
    text: Box<str>,
}

impl HostPod {
    /// The node to which it is bound.
    pub(super) fn node(&self) -> Option<String> {
        Some((*self.node).to_owned()).filter(|node| !node.is_empty())
    }

    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

impl Cached for HostPod {
    fn pack(object: Value) -> Self {
        Self {
            node: text(&object, "/spec/nodeName").into(),
            uid: text(&object, "/metadata/uid").into(),
            is_over: is_over(&object),
            text: object.to_string().into(),
        }
    }

    fn read(kept: &Arc<Self>, _: &Place) -> Arc<Value> {
        unpacked(&kept.text)
    }

    fn weight(&self) -> usize {
        size_of::<Self>() + self.node.len() + self.uid.len() + self.text.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_is_kept_whole_in_little_more_than_its_text() {
        let env = json!([{"name": "A", "value": "b".repeat(500)}]);
        let spec = json!({"nodeName": "kosmos-m", "unheard": {"of": [1, 2.5, null]}, "containers": [{"name": "c", "env": env}]});
        for (phase, is_over) in [("Running", false), ("Succeeded", true), ("Failed", true)] {
            let whole = json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": {"phase": phase}});
            let kept = Arc::new(HostPod::pack(whole.clone()));
            assert_eq!(*HostPod::read(&kept, &Place::default()), whole);
            assert_eq!((kept.node().as_deref(), kept.uid(), kept.is_over()), (Some("kosmos-m"), "u", is_over));
            assert!(kept.weight() < whole.to_string().len() + 100, "{} bytes", kept.weight());
        }
        assert_eq!(HostPod::pack(json!({"spec": {}})).node(), None);
    }
}
