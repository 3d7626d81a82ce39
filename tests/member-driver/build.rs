//! Compiles the interface without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../../proto");
    let descriptors = protox::compile(["csi.proto"], ["../../proto"])?;
    tonic_prost_build::configure().build_client(false).generate_default_stubs(true).compile_fds(descriptors)?;
    Ok(())
}
