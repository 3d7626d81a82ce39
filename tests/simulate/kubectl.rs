//! The commands that people and scripts use every day do what they do with a real API server, and say so.

use serde_json::json;

use crate::person::Person;

const MAP: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: map, labels: {app: web}}
data: {key: value}
";

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: 'web:1', ports: [{containerPort: 80, protocol: TCP}], env: [{name: A, value: a}]}
";

const POD: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: now
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: web, image: web, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
";

fn holds(text: &str, wanted: &[&str]) {
    for words in wanted {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
}

#[tokio::test]
async fn apply_says_whether_it_created_changed_or_left_alone() {
    let person = Person::new().await;
    let files = person.file("files.yaml", &format!("{MAP}---{DEPLOYMENT}"));
    let apply = format!("apply -f {files}");
    assert_eq!(person.does(&apply).await.lines(), ["configmap/map created", "deployment.apps/web created"]);
    assert_eq!(person.does(&apply).await.lines(), ["configmap/map unchanged", "deployment.apps/web unchanged"]);
    person
        .file("files.yaml", &format!("{MAP}---{}", DEPLOYMENT.replace("web:1", "web:2").replace("name: A", "name: B")));
    let difference = person.tries(&format!("diff -f {files}")).await;
    holds(&difference.text, &["image: web:1", "image: web:2"]);
    assert_eq!(person.does(&apply).await.lines(), ["configmap/map unchanged", "deployment.apps/web configured"]);
    let container = person.does("get deployment web -o jsonpath={.spec.template.spec.containers[0]}").await.json();
    assert_eq!((&container["image"], &container["env"]), (&json!("web:2"), &json!([{"name": "B", "value": "a"}])));
    let refused = person.is_refused(&format!("create -f {files}")).await;
    holds(
        &refused,
        &["(AlreadyExists)", "configmaps \"map\" already exists", "deployments.apps \"web\" already exists"],
    );
}

#[tokio::test]
async fn server_side_apply_owns_fields_and_refuses_those_of_others() {
    let person = Person::new().await;
    let file = person.file("map.yaml", MAP);
    assert_eq!(person.does(&format!("apply --server-side -f {file}")).await.text, "configmap/map serverside-applied\n");
    person.does("patch configmap map --type=merge -p {\"data\":{\"key\":\"other\",\"more\":\"x\"}}").await;
    let conflict = person.is_refused(&format!("apply --server-side -f {file}")).await;
    holds(&conflict, &["Apply failed with 1 conflict: conflict with \"kubectl-patch\" using v1: .data.key"]);
    person.does(&format!("apply --server-side --force-conflicts -f {file}")).await;
    let data = person.does("get configmap map -o jsonpath={.data}").await.json();
    assert_eq!(data, json!({"key": "value", "more": "x"}));
    person.file("map.yaml", &MAP.replace("data: {key: value}", ""));
    person.does(&format!("apply --server-side -f {file}")).await;
    let map = person.does("get configmap map -o json --show-managed-fields").await.json();
    assert_eq!(map["data"], json!({"more": "x"}));
    holds(&map["metadata"]["managedFields"].to_string(), &["\"manager\":\"kubectl\"", "\"operation\":\"Apply\""]);
}

#[tokio::test]
async fn objects_are_shown_in_every_form() {
    let person = Person::with_life().await;
    person.does(&format!("apply -f {}", person.file("pod.yaml", POD))).await;
    person.does("wait --for=condition=Ready pod/web --timeout=15s").await;
    let pods = person.does("get pods").await;
    let [head, row] = pods.lines()[..] else { panic!("{pods:?}") };
    assert_eq!(head.split_whitespace().collect::<Vec<_>>(), ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(row.split_whitespace().take(4).collect::<Vec<_>>(), ["web", "1/1", "Running", "0"]);
    holds(
        &person.does("get pods -o wide").await.text,
        &["IP", "NODE", "NOMINATED NODE", "READINESS GATES", "simulated-n1"],
    );
    holds(
        &person.does("get pvc,pv,sc,nodes,csidrivers,namespaces").await.text,
        &[
            "persistentvolumeclaim/data",
            "1Gi        RWO",
            "default/data",
            "storageclass.storage.k8s.io/now",
            "Ready",
            "namespace/kube-system",
            "ATTACHREQUIRED",
        ],
    );
    holds(&person.does("get pods -A").await.text, &["NAMESPACE", "default"]);
    holds(&person.does("get all").await.text, &["pod/web"]);
    assert_eq!(person.does("get pods -l app=web -o name").await.text, "pod/web\n");
    assert_eq!(person.does("get pods -l app!=web -o name").await.text, "");
    assert_eq!(person.does("get pods --field-selector metadata.name=web -o name").await.text, "pod/web\n");
    assert_eq!(person.does("get pvc data -o jsonpath={.status.phase}").await.text, "Bound");
    holds(&person.does("get pvc data -o yaml").await.text, &["kind: PersistentVolumeClaim", "storageClassName: now"]);
    assert_eq!(person.does("get pods -o json").await.json()["items"][0]["kind"], json!("Pod"));
    let columns = person.does("get pods -o custom-columns=N:.metadata.name,I:.spec.containers[0].image").await;
    assert_eq!(columns.lines(), ["N     I", "web   web"]);
    holds(&person.does("get pods --chunk-size=1 --no-headers").await.text, &["web"]);
    holds(&person.does("get events").await.text, &["LAST SEEN", "pod/web"]);
    let missing = person.is_refused("get pod none").await;
    assert_eq!(missing, "Error from server (NotFound): pods \"none\" not found\n");
    let unknown = person.is_refused("get nothings").await;
    assert_eq!(unknown, "error: the server doesn't have a resource type \"nothings\"\n");
}

#[tokio::test]
async fn describe_tells_of_an_object_and_what_happened_to_it() {
    let person = Person::with_life().await;
    person.does(&format!("apply -f {}", person.file("files.yaml", &format!("{POD}---{DEPLOYMENT}")))).await;
    person.does("wait --for=condition=Ready pod/web --timeout=15s").await;
    holds(&person.does("describe pod web").await.text, &["ClaimName:", "simulated-n1", "Events:", "Scheduled"]);
    holds(&person.does("describe pvc data").await.text, &["Bound", "Used By:       web", "Access Modes:  RWO", "1Gi"]);
    holds(&person.does("describe pv").await.text, &["default/data", "Container Storage Interface", "VolumeHandle:"]);
    holds(&person.does("describe node simulated-n1").await.text, &["Conditions:", "Ready", "default", "web"]);
    holds(&person.does("describe deployment web").await.text, &["Selector:", "app=web", "web:1"]);
    holds(&person.does("describe namespace default").await.text, &["Active", "No resource quota."]);
    holds(&person.does("describe storageclass now").await.text, &["VolumeBindingMode:", "Immediate"]);
}

#[tokio::test]
async fn deletion_waits_for_who_holds_the_object() {
    let person = Person::with_life().await;
    let file = person.file("pod.yaml", POD);
    person.does(&format!("apply -f {file}")).await;
    person.does("wait --for=condition=Ready pod/web --timeout=15s").await;
    person.does("delete pvc data --wait=false").await;
    holds(&person.does("get pvc data").await.text, &["Terminating"]);
    let late = person.is_refused("wait --for=delete pvc/data --timeout=1s").await;
    holds(&late, &["timed out waiting for the condition on persistentvolumeclaims/data"]);
    assert_eq!(person.does("delete pod web").await.text, "pod \"web\" deleted from default namespace\n");
    person.does("wait --for=delete pvc/data --timeout=15s").await;
    person.does(&format!("delete -f {file} --ignore-not-found")).await;
    let map = person.file("map.yaml", MAP);
    person.does(&format!("create -f {map}")).await;
    assert_eq!(person.does(&format!("delete -f {map} --wait")).await.lines().len(), 1);
    person.does(&format!("create -f {map}")).await;
    person.does("delete configmaps --all").await;
    let gone = person.is_refused("delete configmap map").await;
    assert_eq!(gone, "Error from server (NotFound): configmaps \"map\" not found\n");
}

#[tokio::test]
async fn waiting_ends_with_the_condition() {
    let person = Person::with_life().await;
    person.does(&format!("apply -f {}", person.file("pod.yaml", POD))).await;
    person.does("wait --for=jsonpath={.status.phase}=Bound pvc/data --timeout=15s").await;
    person.does("wait --for=condition=Ready pod -l app=web --timeout=15s").await;
    person.does("wait --for=jsonpath={.status.phase}=Active namespace --all --timeout=15s").await;
    holds(&person.is_refused("wait --for=condition=Wrong pod/web --timeout=1s").await, &["timed out"]);
}

#[tokio::test]
async fn following_tells_every_change() {
    let person = Person::new().await;
    person.does(&format!("create -f {}", person.file("map.yaml", MAP))).await;
    let mut told = person.follows("get configmaps --watch --output-watch-events");
    let cells = |line: String| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    assert_eq!(cells(told.line().await), "EVENT NAME DATA");
    assert_eq!(cells(told.line().await), "ADDED map 1");
    person.does("patch configmap map --type=merge -p {\"data\":{\"more\":\"x\"}}").await;
    assert_eq!(cells(told.line().await), "MODIFIED map 2");
    person.does("delete configmap map").await;
    assert_eq!(cells(told.line().await), "DELETED map 2");
    let mut rows = person.follows("get configmaps --watch");
    person.does(&format!("create -f {}", person.file("map.yaml", MAP))).await;
    assert_eq!(cells(rows.line().await), "NAME DATA AGE");
    assert!(cells(rows.line().await).starts_with("map 1"));
}

#[tokio::test]
async fn objects_are_changed_in_every_way() {
    let person = Person::new().await;
    let file = person.file("files.yaml", &format!("{MAP}---{DEPLOYMENT}"));
    person.does(&format!("apply -f {file}")).await;
    assert_eq!(person.does("label configmap map tier=back").await.text, "configmap/map labeled\n");
    assert_eq!(person.does("label configmap map app-").await.text, "configmap/map unlabeled\n");
    assert_eq!(person.does("annotate configmap map who=me").await.text, "configmap/map annotated\n");
    let steps = "patch configmap map --type=json -p [{\"op\":\"test\",\"path\":\"/data/key\",\"value\":\"VALUE\"},{\"op\":\"add\",\"path\":\"/data/b\",\"value\":\"2\"}]";
    holds(&person.is_refused(&steps.replace("VALUE", "wrong")).await, &["The request is invalid"]);
    assert_eq!(person.does(&steps.replace("VALUE", "value")).await.text, "configmap/map patched\n");
    person.does("patch deployment web -p {\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"web\",\"env\":[{\"name\":\"B\",\"value\":\"b\"}]}]}}}}").await;
    let env = person.does("get deployment web -o jsonpath={.spec.template.spec.containers[0].env[*].name}").await.text;
    assert_eq!(env, "B A");
    let map = person.does("get configmap map -o json").await.json();
    assert_eq!(
        (&map["metadata"]["labels"], &map["data"]),
        (&json!({"tier": "back"}), &json!({"key": "value", "b": "2"}))
    );
    let edited = person.edits("edit configmap map", "sed -i s/value/edited/").await;
    assert_eq!((edited.done, edited.text.as_str()), (true, "configmap/map edited\n"), "{}", edited.complaint);
    let mut map = person.does("get configmap map -o json").await.json();
    assert_eq!(map["data"]["key"], json!("edited"));
    let replacement = person.file("map.json", &map.to_string());
    assert_eq!(person.does(&format!("replace -f {replacement}")).await.text, "configmap/map replaced\n");
    map["metadata"]["resourceVersion"] = json!("1");
    map["data"]["key"] = json!("late");
    let late = person.is_refused(&format!("replace -f {}", person.file("map.json", &map.to_string()))).await;
    holds(&late, &["(Conflict)", "the object has been modified; please apply your changes to the latest version"]);
    assert_eq!(person.does("set image deployment/web web=web:3").await.text, "deployment.apps/web image updated\n");
}

#[tokio::test]
async fn objects_are_made_by_name() {
    let person = Person::new().await;
    assert_eq!(person.does("create namespace team").await.text, "namespace/team created\n");
    for (line, made) in [
        ("configmap map --from-literal=key=value", "configmap/map"),
        ("secret generic pass --from-literal=key=value", "secret/pass"),
        ("serviceaccount robot", "serviceaccount/robot"),
        ("quota few --hard=pods=5,requests.storage=10Gi", "resourcequota/few"),
        ("service clusterip web --tcp=80:http", "service/web"),
        ("deployment web --image=web:1 --replicas=2 --port=80", "deployment.apps/web"),
    ] {
        assert_eq!(person.does(&format!("-n team create {line}")).await.text, format!("{made} created\n"));
    }
    assert_eq!(person.does("-n team get secret pass -o jsonpath={.data}").await.json(), json!({"key": "dmFsdWU="}));
    assert_eq!(person.does("-n team get quota few -o jsonpath={.spec.hard}").await.json()["pods"], json!("5"));
    let port = person.does("-n team get service web -o jsonpath={.spec.ports[0]}").await.json();
    assert_eq!((&port["port"], &port["targetPort"], &port["protocol"]), (&json!(80), &json!("http"), &json!("TCP")));
    let spec = person.does("-n team get deployment web -o jsonpath={.spec}").await.json();
    let container = &spec["template"]["spec"]["containers"][0];
    assert_eq!((&spec["replicas"], &container["image"]), (&json!(2), &json!("web:1")));
    assert_eq!(container["ports"][0]["containerPort"], json!(80));
}

#[tokio::test]
async fn deployments_are_scaled_and_their_rollout_is_awaited() {
    let person = Person::new().await;
    person.does(&format!("apply -f {}", person.file("web.yaml", DEPLOYMENT))).await;
    assert_eq!(person.does("scale deployment web --replicas=3").await.text, "deployment.apps/web scaled\n");
    assert_eq!(person.does("get deployment web -o jsonpath={.spec.replicas}").await.text, "3");
    assert_eq!(person.does("rollout restart deployment web").await.text, "deployment.apps/web restarted\n");
    let mut told = person.follows("rollout status deployment web --timeout=15s");
    assert!(told.line().await.starts_with("Waiting for deployment"));
    let done = |deployment: &mut serde_json::Value| {
        let generation = deployment["metadata"]["generation"].clone();
        let counts =
            json!({"observedGeneration": generation, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3});
        deployment["status"] = counts;
    };
    person.cluster.change("deployments.apps", "default", "web", done).unwrap();
    let mut last = told.line().await;
    while last.starts_with("Waiting") {
        last = told.line().await;
    }
    assert_eq!(last, "deployment \"web\" successfully rolled out");
}

#[tokio::test]
async fn dry_run_changes_nothing() {
    let person = Person::new().await;
    let file = person.file("map.yaml", MAP);
    assert_eq!(
        person.does(&format!("apply --dry-run=server -f {file}")).await.text,
        "configmap/map created (server dry run)\n"
    );
    assert_eq!(person.does("get configmaps -o name").await.text, "");
    person.does(&format!("create -f {file}")).await;
    person.does("delete configmap map --dry-run=server").await;
    person.does("label configmap map a=b --dry-run=server").await;
    assert_eq!(person.does("get configmap map -o jsonpath={.metadata.labels}").await.json(), json!({"app": "web"}));
}

#[tokio::test]
async fn node_is_drained_and_namespace_with_all_that_is_in_it_is_removed() {
    let person = Person::with_life().await;
    person.does(&format!("apply -f {}", person.file("pod.yaml", POD))).await;
    person.does("wait --for=condition=Ready pod/web --timeout=15s").await;
    holds(&person.does("drain simulated-n1 --force --timeout=15s").await.text, &["pod/web evicted", "drained"]);
    holds(&person.does("get node simulated-n1").await.text, &["Ready,SchedulingDisabled"]);
    person.does("uncordon simulated-n1").await;
    person.does("create namespace team").await;
    person.does("-n team create quota few --hard=configmaps=1").await;
    person.does("-n team create configmap one").await;
    let refused = person.is_refused("-n team create configmap two").await;
    holds(&refused, &["configmaps \"two\" is forbidden: exceeded quota: few, requested: configmaps=1"]);
    holds(&person.does("-n team describe quota few").await.text, &["configmaps  1     1"]);
    assert_eq!(person.does("delete namespace team").await.text, "namespace \"team\" deleted\n");
    assert_eq!(person.does("get configmaps -A -o name").await.text, "");
}

#[tokio::test]
async fn server_tells_what_it_is_and_has() {
    let person = Person::new().await;
    holds(&person.does("version").await.text, &["Server Version: v1.36"]);
    let kinds = person.does("api-resources --no-headers -o wide").await;
    let claim = kinds.lines().into_iter().find(|line| line.starts_with("persistentvolumeclaims")).unwrap().to_owned();
    let verbs = "create,delete,deletecollection,get,list,patch,update,watch";
    assert_eq!(
        claim.split_whitespace().skip(1).collect::<Vec<_>>(),
        ["pvc", "v1", "true", "PersistentVolumeClaim", verbs]
    );
    holds(&person.does("api-versions").await.text, &["storage.k8s.io/v1\n", "apps/v1\n", "v1\n"]);
    assert_eq!(person.does("get --raw /readyz").await.text, "ok");
    assert_eq!(person.does("get --raw /apis/apps").await.json()["kind"], json!("APIGroup"));
}
