"use strict";
// The postinstall script of an npm package whose program runs ONNX models: brings the GPU libraries that fit the
// user's machine, and writes gpu-package-info.json beside itself. It never fails the installation of your package:
// where there is no GPU, network or Python, the program uses the CPU and the file says why.
//
// Put a release's ortpacks.pyz beside this file: it knows where that release is. ORTPACKS_INDEX names another one.

const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");

const CLIENT = process.env.ORTPACKS_CLIENT || path.join(__dirname, "ortpacks.pyz");
const INFO = path.join(process.env.ORTPACKS_INFO_DIR || __dirname, "gpu-package-info.json");
const PYTHONS = process.platform === "win32" ? ["py", "python"] : ["python3", "python"];

/** The answer of a command of the client, or { error } where there is none. */
function ask(...command) {
  for (const python of PYTHONS) {
    const stdio = ["ignore", "pipe", "inherit"];
    const done = spawnSync(python, [CLIENT, ...command, "--json"], { encoding: "utf8", stdio, windowsHide: true });
    if (done.error && done.error.code === "ENOENT") continue;
    if (done.error) return { error: { message: `${python}: ${done.error.message}` } };
    try {
      return JSON.parse(done.stdout);
    } catch {
      return { error: { message: `ortpacks ended with ${done.status ?? done.signal} and gave no answer` } };
    }
  }
  return { error: { message: "there is no Python 3.9 or newer on PATH" } };
}

/** What the program needs to know: the library to load, or why it is the CPU's. */
function bring() {
  const installed = ask("install", "--yes");
  if (installed.error) return { fallbackToCpu: true, reason: installed.error.message };
  const found = { gpuName: installed.device?.name ?? null, vramMB: installed.device?.memory_mib ?? null };
  if (!installed.installed) return { ...found, fallbackToCpu: true, reason: installed.summary };
  const { variables, error } = ask("env");
  if (error) return { ...found, fallbackToCpu: true, reason: error.message };
  const model = ask("recommend");
  return {
    ...found,
    package: installed.package.name,
    environment: variables, // LD_LIBRARY_PATH (on Windows PATH): a folder to put before the existing value
    recommendedModel: model.model ?? null,
    profile: model.profile ?? null,
    fallbackToCpu: installed.package.provider === "cpu",
    reason: installed.summary,
  };
}

try {
  const info = bring();
  fs.writeFileSync(INFO, `${JSON.stringify(info, null, 2)}\n`);
  console.log(info.fallbackToCpu ? `Models will run on the CPU: ${info.reason}` : info.reason);
} catch (error) {
  console.warn(`${INFO} was not written: ${error.message}. Without it models run on the CPU.`);
}
