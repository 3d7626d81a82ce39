//! Pods for whose length their namespace has no room any more. One that has no copy gets none before there is; of one that has, all is read again
//! when it is looked at.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

use super::{
    super::{
        cache::{Cached, MOST_LONG},
        host_pod::HostPod,
        object::{self, Place, read},
    },
    Pods,
    rejection::PodRejection,
    step::PodStep,
};

/// All of a pod: as a watch has told it or, where that was cut, as it is now.
pub(super) async fn known(pods: &Pods<'_>, place: &Place) -> kube::Result<Option<Arc<Value>>> {
    match pods.view.pods.kept(place) {
        Some(kept) if kept.is_cut() => {
            let there = object::pods(&pods.host.client, &place.namespace);
            let pod = read(&there, &place.name).await?;
            if let Some(pod) = &pod
                && kept.length() <= pods.view.pods.room(&place.namespace)
            {
                pods.view.pods.refill(pod);
            }
            Ok(pod.map(Arc::new))
        }
        kept => Ok(kept.map(|kept| HostPod::read(&kept, place))),
    }
}

/// Has those looked at that run there, and for which there is room by now. They are whole from then on: what they name is brought up to date again.
pub(super) fn note_fitting(pods: &Pods<'_>) {
    let mut noted = HashMap::<String, usize>::new();
    for (place, kept) in pods.view.kept_pods_for(&pods.member.name) {
        let copy = pods.there.kept(&place);
        let runs = copy.is_some_and(|copy| copy.may_be_copy_of(&pods.host.id.0, kept.uid()));
        if !kept.is_cut() || kept.is_over() || !runs {
            continue;
        }
        let taken = noted.entry(place.namespace.clone()).or_default();
        if *taken + kept.length() <= pods.view.pods.room(&place.namespace) {
            *taken += kept.length();
            pods.news.pods.put(place);
        }
    }
}

/// Whether nobody knows what a pod names that runs in this namespace there: it is cut, and somebody has taken the labels off its copy.
pub(super) fn hides_names(pods: &Pods<'_>, namespace: &str) -> bool {
    let near = pods.view.kept_pods_for(&pods.member.name).into_iter();
    let mut cut = near.filter(|(at, kept)| at.namespace == namespace && kept.is_cut() && !kept.is_over());
    cut.any(|(at, kept)| {
        let copy = pods.there.kept(&at);
        copy.is_some_and(|copy| copy.is_disowned() && copy.says_copy_of() == Some(kept.uid()))
    })
}

/// Why a pod gets no copy, and what is kept of it. That is decided without reading it: its owner makes as many of these as he likes.
pub(super) fn refusal(pods: &Pods<'_>, place: &Place, there: Option<&Value>) -> Option<(Arc<Value>, PodRejection)> {
    let kept = pods.view.pods.kept(place).filter(|kept| kept.is_cut())?;
    let pod = HostPod::read(&kept, place);
    if kept.length() <= pods.view.pods.room(&place.namespace) || pods.decide(Some(&pod), there) != PodStep::Copy {
        return None;
    }
    let message = format!(
        "the pod's object has {} KiB, and the namespace's long pods on virtual nodes already take nearly all of the {} MiB that they may have \
         together: make them shorter, for example by ConfigMaps in place of long arguments, variables, labels and annotations, or run fewer of them",
        kept.length() >> 10,
        MOST_LONG >> 20
    );
    Some((pod, PodRejection::new("TooLong", message)))
}
