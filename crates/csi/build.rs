//! Compiles the interface without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../../proto");
    let descriptors = protox::compile(["csi.proto", "pluginregistration.proto"], ["../../proto"])?;
    let interface = descriptors.file.iter().filter(|file| file.package() == "csi.v1");
    let services = interface.flat_map(|file| file.service.iter().map(move |service| (file, service)));
    let methods: Vec<String> = services
        .flat_map(|(file, service)| {
            let prefix = format!("/{}.{}", file.package(), service.name());
            service.method.iter().map(move |method| format!("{prefix}/{}", method.name()))
        })
        .collect();
    let list = format!("/// Every RPC of the interface, by its path.\npub const METHODS: &[&str] = &{methods:?};\n");
    std::fs::write(std::path::Path::new(&std::env::var("OUT_DIR")?).join("methods.rs"), list)?;
    tonic_prost_build::configure().generate_default_stubs(true).compile_fds(descriptors)?;
    Ok(())
}
