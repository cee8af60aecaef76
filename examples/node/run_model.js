"use strict";
// Run an ONNX model on the GPU, or on the CPU with the reason: npm install onnxruntime-node ortpacks, then
//
//   node run_model.js model.onnx

const { fork } = require("node:child_process");
const ortpacks = require("ortpacks");

/** A session's outputs for inputs of zeros; a length that the model leaves open is 1. */
async function outputs(model, provider) {
  const ort = require("onnxruntime-node");
  const session = await ort.InferenceSession.create(model, { executionProviders: [provider, "cpu"], logSeverityLevel: 4 });
  const zeros = ({ name, type, shape }) => {
    const lengths = shape.map((length) => (typeof length === "number" && length > 0 ? length : 1));
    const values = type === "int64" ? BigInt64Array : Float32Array;
    return [name, new ort.Tensor(type, new values(lengths.reduce((all, length) => all * length, 1)), lengths)];
  };
  return session.run(Object.fromEntries(session.inputMetadata.map(zeros)));
}

async function main(model) {
  const { providers, fallbackToCpu, reason } = ortpacks.info();
  if (fallbackToCpu) console.error(`Falling back to CPU: ${reason}`);
  for (const provider of providers) {
    try {
      const found = await outputs(model, provider);
      return console.log(`${provider}:`, Object.values(found).map((tensor) => tensor.dims));
    } catch (error) {
      if (provider === "cpu") throw error;
      console.error(`Falling back to CPU: ${provider}: ${error.message}`);
    }
  }
}

// The loader reads LD_LIBRARY_PATH when a process starts: sessions are opened in a process of their own.
if (process.send) {
  main(process.argv[2]).then(() => process.disconnect());
} else if (process.argv.length === 3) {
  const session = fork(__filename, process.argv.slice(2), { env: ortpacks.environment() });
  session.on("exit", (code) => (process.exitCode = code ?? 1));
} else {
  console.error("usage: node run_model.js MODEL.onnx");
  process.exitCode = 2;
}
