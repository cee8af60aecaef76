// The crate `ort` (2.x, feature "load-dynamic") on the installed package. Start it with the variables of the client:
//
//   eval "$(python3 ortpacks.pyz env)" && cargo run --release -- model.onnx
use ort::execution_providers::{CPUExecutionProvider, CUDAExecutionProvider};
use ort::session::Session;

fn main() -> ort::Result<()> {
    let library = std::env::var("ORT_DYLIB_PATH").expect("ORT_DYLIB_PATH: run ortpacks.pyz env");
    ort::init_from(library).commit()?;
    let model = std::env::args().nth(1).expect("usage: my-application MODEL.onnx");
    let session = Session::builder()?
        .with_execution_providers([CUDAExecutionProvider::default().build(), CPUExecutionProvider::default().build()])?
        .commit_from_file(model)?;
    println!("{} inputs, {} outputs", session.inputs.len(), session.outputs.len());
    Ok(())
}
