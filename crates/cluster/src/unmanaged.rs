//! Objects as they are read where nobody who may write one of them is to decide whether the others can be read: without who has written
//! which field of them (`managedFields`).
//!
//! API servers take that from clients as well, with any time, and keep it. It is more than all the rest, and read by nobody.

use std::{borrow::Cow, fmt, ops::Deref};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value};

/// An object without that.
#[derive(Clone, Debug)]
pub struct Unmanaged<K>(K);

impl<K> Unmanaged<K> {
    pub fn into_object(self) -> K {
        self.0
    }
}

impl<K> Deref for Unmanaged<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K: Serialize> Serialize for Unmanaged<K> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Unmanaged<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = Fields::OfObject.deserialize(from)?;
        serde_json::from_value(read).map(Self).map_err(D::Error::custom)
    }
}

impl<K: Resource> Resource for Unmanaged<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// Whose fields are read.
#[derive(Clone, Copy)]
enum Fields {
    OfObject,
    OfMetadata,
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of a cluster")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(field) = map.next_key::<String>()? {
            let value = match (self, field.as_str()) {
                // It is decoded neither as what it should be nor as anything: it may be of any depth.
                (Self::OfMetadata, "managedFields") => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                (Self::OfObject, "metadata") => map.next_value_seed(Self::OfMetadata)?,
                _ => map.next_value()?,
            };
            read.insert(field, value);
        }
        Ok(Value::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{ResourceExt, api::ObjectList};
    use serde_json::{from_str, json};

    use super::*;

    #[test]
    fn object_can_be_read_whatever_it_says_of_who_has_written_it() {
        let deep = format!("{}1{}", r#"{"f:a":"#.repeat(1000), "}".repeat(1000));
        for written in [
            "null".to_owned(),
            "1".to_owned(),
            json!([{"time": "9999-12-31T23:59:59Z"}]).to_string(),
            format!(r#"[{{"fieldsV1": {deep}}}]"#),
        ] {
            let metadata = format!(r#"{{"name": "a", "managedFields": {written}, "labels": {{"b": "c"}}}}"#);
            let map = format!(r#"{{"metadata": {metadata}, "data": {{"managedFields": "d"}}}}"#);
            let list: ObjectList<Unmanaged<ConfigMap>> =
                from_str(&format!(r#"{{"metadata": {{}}, "items": [{map}]}}"#)).unwrap();
            let [map] = list.items.as_slice() else { panic!("{written}") };
            assert_eq!((map.name_any(), map.labels()["b"].as_str()), ("a".to_owned(), "c"), "{written}");
            assert_eq!(map.data.as_ref().unwrap()["managedFields"], "d", "elsewhere it is something else");
        }
    }

    #[test]
    fn object_without_metadata_is_read_and_what_is_none_is_not() {
        for text in ["{}", r#"{"metadata": null}"#] {
            let read: Unmanaged<ConfigMap> = from_str(text).unwrap();
            assert_eq!(read.into_object(), ConfigMap::default(), "{text}");
        }
        for text in ["1", r#"{"metadata": []}"#, r#"{"metadata": {"labels": 1}}"#] {
            assert!(from_str::<Unmanaged<ConfigMap>>(text).is_err(), "{text}");
        }
    }
}
