"use strict";
// Brings onnxruntime-node the package of its own version that fits this machine, with the client `ortpacks.pyz`.
//
// Nothing here throws because of a GPU, a network or a Python: without them models run on the CPU, and `reason` says why.

const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");

const HOST = "onnxruntime-node";
const CLIENT = process.env.ORTPACKS_CLIENT || path.join(__dirname, "ortpacks.pyz");
const RECORD = path.join(process.env.ORTPACKS_INFO_DIR || __dirname, "gpu-package-info.json");
const PYTHONS = ["python3", "python", ...[14, 13, 12, 11, 10, 9].map((minor) => `python3.${minor}`)];
const AGAIN = "run `npx ortpacks setup`";
const NO_PYTHON = `there is no Python 3.9 or newer on PATH. Install one (Debian, Ubuntu: apt-get install python3), then ${AGAIN}`;

// What onnxruntime-node has inside on other systems, where no package serves it.
const INSIDE = { win32: "dml", darwin: "coreml" };

// The library of a package carries its version in its symbols, so only a host of the same version can load it.
const otherVersion = (host, offered) =>
  `${HOST} is ${host} and the release's packages are ONNX Runtime ${offered}, which it cannot load. ` +
  `Install ${HOST}@${offered}, or name a release of ${host} in ORTPACKS_INDEX, then ${AGAIN}`;

/** The version of the application's onnxruntime-node; undefined where there is none. */
function hostVersion() {
  try {
    const paths = [__dirname, process.env.INIT_CWD || process.cwd()];
    return JSON.parse(fs.readFileSync(require.resolve(`${HOST}/package.json`, { paths }), "utf8")).version;
  } catch {
    return undefined;
  }
}

/** This process's environment, with the proxies and certificates that npm was told of and programs are not. */
function world() {
  const { npm_config_https_proxy: https, npm_config_proxy: http, npm_config_noproxy: none, npm_config_cafile: trusted } =
    process.env;
  const known = { https_proxy: https || http, http_proxy: http, no_proxy: none, SSL_CERT_FILE: trusted };
  const given = (name) => process.env[name] || process.env[name.toUpperCase()];
  const added = Object.entries(known).filter(([name, value]) => value && value !== "null" && !given(name));
  return { ...process.env, ...Object.fromEntries(added) };
}

/** A Python that can run the client; undefined where there is none. */
function python() {
  const check = ["-c", "import sys; sys.exit(sys.version_info < (3, 9))"];
  const names = process.platform === "win32" ? ["py", ...PYTHONS] : PYTHONS;
  return names.find((name) => spawnSync(name, check, { stdio: "ignore", windowsHide: true }).status === 0);
}

/** Runs the client and returns spawnSync's answer; undefined without a Python. */
function client(words, options) {
  const program = python();
  return program && spawnSync(program, [CLIENT, ...words], { env: world(), windowsHide: true, ...options });
}

/** The answer of a command of the client. Throws an Error with the reason where there is none. */
function ask(...command) {
  const done = client([...command, "--json"], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  if (!done) throw new Error(NO_PYTHON);
  let answer;
  try {
    answer = JSON.parse(done.stdout);
  } catch {
    throw new Error(`${CLIENT} ended with ${done.status ?? done.signal} and gave no answer. Install ortpacks again`);
  }
  if (answer.error) throw new Error(`${answer.error.message} When that is repaired, ${AGAIN}`);
  return answer;
}

/** What fits this machine and the version `host`, installed. Throws an Error with the reason why there is none. */
function bring(host) {
  const inside = INSIDE[process.platform];
  if (inside) return { providers: [inside, "cpu"], fallbackToCpu: false, reason: `${HOST} has ${inside} inside: no package is needed` };
  if (!host) throw new Error(`${HOST} is not installed. Run npm install ${HOST}, then ${AGAIN}`);
  if (process.env.npm_config_offline === "true") throw new Error(`npm is offline. With a network, ${AGAIN}`);
  const chosen = ask("select");
  const device = { gpuName: chosen.device?.name ?? null, vramMB: chosen.device?.memory_mib ?? null };
  const onCpu = { ...device, providers: ["cpu"], fallbackToCpu: true, reason: chosen.summary };
  if (!chosen.package || chosen.package.provider !== "cuda") return onCpu;
  const offered = chosen.package.onnxruntime;
  if (offered !== host) return { ...onCpu, failed: true, reason: otherVersion(host, offered) };
  const installed = ask("install", "--yes");
  const model = ask("recommend");
  return {
    ...device,
    package: installed.package.name,
    environment: ask("env").variables,
    recommendedModel: model.model ?? null,
    profile: model.profile ?? null,
    providers: ["cuda", "cpu"],
    fallbackToCpu: false,
    reason: installed.summary,
  };
}

const failure = (reason) => ({ providers: ["cpu"], fallbackToCpu: true, failed: true, reason });

/** Installs what fits, writes gpu-package-info.json, and returns what it holds. */
function setup() {
  const record = { host: hostVersion() ?? null };
  try {
    Object.assign(record, bring(record.host));
  } catch (error) {
    Object.assign(record, failure(error.message));
  }
  try {
    fs.writeFileSync(RECORD, `${JSON.stringify(record, null, 2)}\n`);
  } catch (error) {
    const why = `${RECORD} was not written: ${error.message}. Without it models run on the CPU`;
    Object.assign(record, failure(`${why}: name a folder in ORTPACKS_INFO_DIR, then ${AGAIN}`));
  }
  return record;
}

/** What `setup` found: `providers` for a session, `fallbackToCpu`, `reason`, `package`, `profile`, `environment`. */
function info() {
  let record;
  try {
    record = JSON.parse(fs.readFileSync(RECORD, "utf8"));
  } catch {
    return failure(`no package was installed (npm ran no script of ortpacks: --ignore-scripts, or not approved): ${AGAIN}`);
  }
  const host = hostVersion() ?? null;
  if (record.host !== host) return failure(`${HOST} was ${record.host} and is ${host} now: ${AGAIN}`);
  const library = record.environment?.ORT_DYLIB_PATH;
  if (library && !fs.existsSync(library)) return failure(`${library} is gone: ${AGAIN}`);
  return record;
}

/** The environment for a process that opens sessions: `base`, and the variables by which it finds the package. */
function environment(base = process.env) {
  const { LD_LIBRARY_PATH: folder, ...others } = info().environment ?? {};
  if (!folder) return { ...base };
  return { ...base, ...others, LD_LIBRARY_PATH: [folder, base.LD_LIBRARY_PATH].filter(Boolean).join(":") };
}

module.exports = { NO_PYTHON, client, environment, info, setup };
