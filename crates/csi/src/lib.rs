//! The only code that knows gRPC: it translates requests into the domain's words, and outcomes into codes.
//!
//! Its page: `docs/design/nodes.md`.

mod by_handle;
pub mod client;
pub mod controller;
pub mod convert;
pub mod groups;
pub mod identity;
pub mod inflight;
pub mod layer;
#[cfg(target_os = "linux")]
pub mod node;
pub mod registration;
pub mod server;
pub mod status;

/// The interface, generated from `proto/csi.proto`.
#[expect(clippy::pedantic, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("csi.v1");
    include!(concat!(env!("OUT_DIR"), "/methods.rs"));

    impl From<controller_service_capability::rpc::Type> for ControllerServiceCapability {
        fn from(kind: controller_service_capability::rpc::Type) -> Self {
            let rpc = controller_service_capability::Rpc { r#type: kind.into() };
            Self { r#type: Some(controller_service_capability::Type::Rpc(rpc)) }
        }
    }

    impl From<node_service_capability::rpc::Type> for NodeServiceCapability {
        fn from(kind: node_service_capability::rpc::Type) -> Self {
            let rpc = node_service_capability::Rpc { r#type: kind.into() };
            Self { r#type: Some(node_service_capability::Type::Rpc(rpc)) }
        }
    }

    impl From<plugin_capability::volume_expansion::Type> for PluginCapability {
        fn from(kind: plugin_capability::volume_expansion::Type) -> Self {
            let expansion = plugin_capability::VolumeExpansion { r#type: kind.into() };
            Self { r#type: Some(plugin_capability::Type::VolumeExpansion(expansion)) }
        }
    }

    impl From<plugin_capability::service::Type> for PluginCapability {
        fn from(kind: plugin_capability::service::Type) -> Self {
            let service = plugin_capability::Service { r#type: kind.into() };
            Self { r#type: Some(plugin_capability::Type::Service(service)) }
        }
    }
}
