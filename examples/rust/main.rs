// Run an ONNX model with the crate `ort` on the installed package, whose path the client prints:
//
//   eval "$(python3 ortpacks.pyz env)" && cargo run --release -- model.onnx
use ort::ep::{CPU, CUDA};
use ort::session::Session;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let library = std::env::var("ORT_DYLIB_PATH").expect("ORT_DYLIB_PATH: run ortpacks.pyz env");
    ort::init_from(library)?.commit();
    let model = std::env::args().nth(1).expect("usage: my-application MODEL.onnx");
    let session = Session::builder()?
        .with_execution_providers([CUDA::default().build(), CPU::default().build()])?
        .commit_from_file(model)?;
    println!("{} inputs, {} outputs", session.inputs().len(), session.outputs().len());
    // With ONNX Runtime before 1.23, ort 2.0.0-rc.13 crashes at exit where the session was dropped (pykeio/ort#614).
    std::mem::forget(session);
    Ok(())
}
