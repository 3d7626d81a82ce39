//! Kinds that definitions add are as good as built-in ones, from the moment they are established.

use serde_json::json;

use crate::person::Person;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: lamps, singular: lamp, kind: Lamp, shortNames: [la], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    additionalPrinterColumns:
    - {name: Watts, type: integer, jsonPath: .spec.watts}
    - {name: Lit, type: string, jsonPath: '.status.conditions[?(@.type=="Lit")].status'}
    - {name: Room, type: string, jsonPath: .spec.room, priority: 1}
  - name: v1beta1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

const LAMP: &str = "
apiVersion: example.org/v1
kind: Lamp
metadata: {name: desk}
spec: {watts: 40, room: study}
";

#[tokio::test]
async fn custom_kind_is_applied_shown_patched_and_removed() {
    let person = Person::new().await;
    let lamp = person.file("lamp.yaml", LAMP);
    let unknown = person.is_refused(&format!("apply -f {lamp}")).await;
    assert!(unknown.contains("no matches for kind \"Lamp\" in version \"example.org/v1\""), "{unknown}");
    person.does(&format!("apply -f {}", person.file("lamps.yaml", DEFINITION))).await;
    person.does("wait --for=condition=Established crd/lamps.example.org --timeout=15s").await;
    assert_eq!(person.does(&format!("apply -f {lamp}")).await.text, "lamp.example.org/desk created\n");
    assert_eq!(person.does(&format!("apply -f {lamp}")).await.text, "lamp.example.org/desk unchanged\n");
    person.file("lamp.yaml", &LAMP.replace("40", "60"));
    assert_eq!(person.does(&format!("apply -f {lamp}")).await.text, "lamp.example.org/desk configured\n");
    let status = r#"patch lamp desk --subresource=status --type=merge -p {"status":{"conditions":[{"type":"Lit","status":"True"}]}}"#;
    person.does(status).await;
    let rows = person.does("get la").await;
    assert_eq!(rows.lines(), ["NAME   WATTS   LIT", "desk   60      True"]);
    assert!(person.does("get lamps -o wide").await.text.contains("study"));
    assert!(person.does("get all").await.text.contains("lamp.example.org/desk"));
    let old = person.does("get lamps.v1beta1.example.org desk -o json").await.json();
    assert_eq!((&old["apiVersion"], &old["spec"]["watts"]), (&json!("example.org/v1beta1"), &json!(60)));
    let refused = person.is_refused(r#"patch lamp desk -p {"spec":{"watts":1}}"#).await;
    assert!(refused.contains("application/strategic-merge-patch+json is not supported by example.org/v1"), "{refused}");
    person.does(&format!("apply --server-side --force-conflicts -f {lamp}")).await;
    person.does("delete crd lamps.example.org").await;
    assert!(person.is_refused("get lamps").await.contains("the server"));
}
