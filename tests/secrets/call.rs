//! Every RPC there is, with good requests and with bad ones, and what came back, whole.

use std::path::Path;

use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, prost::Message};
use tonic::{
    Request, Response, Status,
    client::Grpc,
    transport::{Channel, Endpoint},
};

use super::{
    PATIENCE,
    bytes::Bytes,
    fill::{self, Story},
    methods,
};

/// Answers, each with where it comes from.
pub async fn everything(socket: &Path) -> Vec<(String, String)> {
    let interface = fill::interface();
    let channel = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap().connect_lazy();
    let mut told = Vec::new();
    let good = Story { volume: String::new(), name: "volume-1".to_owned(), empty: false, class: "now" };
    // The host has no such claim: without one, the volume is made all the same.
    let volume = create_without_claim(&interface, &channel, &good).await;
    let stories = [
        Story { volume: volume.clone(), ..good.clone() },
        good.clone(),
        Story { class: "missing", name: "volume-2".to_owned(), ..good.clone() },
        Story { volume: "m0/shop/none/0123456789abcdef".to_owned(), ..good.clone() },
        Story { volume: "../nonsense".to_owned(), name: "\u{7}".to_owned(), ..good.clone() },
        Story { empty: true, ..good.clone() },
    ];
    for story in &stories {
        for path in methods().filter(|path| !path.ends_with("/DeleteVolume")) {
            told.push(ask(&interface, &channel, path, story).await);
        }
    }
    for story in &stories {
        told.push(ask(&interface, &channel, "/csi.v1.Controller/DeleteVolume", story).await);
    }
    let answered = told.iter().filter(|(_, answer)| answer.contains("Response")).count();
    assert!(answered > methods().count() / 4, "hardly anything was answered: {told:#?}");
    told
}

/// The handle of a volume that was made.
async fn create_without_claim(interface: &DescriptorPool, channel: &Channel, story: &Story) -> String {
    let method = method(interface, "/csi.v1.Controller/CreateVolume");
    let mut request = fill::request(&method.input(), story);
    request.clear_field_by_name("volume_content_source");
    request.clear_field_by_name("mutable_parameters");
    let mut parameters = request.get_field_by_name("parameters").unwrap().into_owned();
    parameters.as_map_mut().unwrap().retain(|key, _| key.as_str() == Some("leafStorageClass"));
    request.set_field_by_name("parameters", parameters);
    let made = unary(channel, "/csi.v1.Controller/CreateVolume", &request).await.unwrap();
    let made = DynamicMessage::decode(method.output(), made.get_ref().as_slice()).unwrap();
    let volume = made.get_field_by_name("volume").unwrap();
    let id = volume.as_message().unwrap().get_field_by_name("volume_id").unwrap();
    id.as_str().unwrap().to_owned()
}

async fn ask(interface: &DescriptorPool, channel: &Channel, path: &str, story: &Story) -> (String, String) {
    let method = method(interface, path);
    let answer = match unary(channel, path, &fill::request(&method.input(), story)).await {
        Ok(answer) => format!("{:?} {}", answer.metadata(), fill::shown(method.output(), answer.get_ref())),
        Err(status) => format!("{status:?}"),
    };
    (format!("{path} {story:?}"), answer)
}

fn method(interface: &DescriptorPool, path: &str) -> MethodDescriptor {
    let (service, name) = path.trim_start_matches('/').split_once('/').unwrap();
    let service = interface.get_service_by_name(service).unwrap();
    service.methods().find(|method| method.name() == name).unwrap()
}

async fn unary(channel: &Channel, path: &str, message: &DynamicMessage) -> Result<Response<Vec<u8>>, Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let mut request = Request::new(message.encode_to_vec());
    request.set_timeout(PATIENCE / 10);
    client.unary(request, path.parse().unwrap(), Bytes).await
}
