#!/usr/bin/env node
"use strict";
// `setup` installs what fits, `info` shows what it found; every other command is the client's own: npx ortpacks doctor

const ortpacks = require("./index.js");

const words = process.argv.slice(2);

function told(found) {
  console.log(found.fallbackToCpu ? `Models will run on the CPU: ${found.reason}` : found.reason);
  return found;
}

function run() {
  const done = ortpacks.client(words, { stdio: "inherit" });
  if (done) return done.status ?? 1;
  console.error(`ortpacks: ${ortpacks.NO_PYTHON}.`);
  return 4;
}

const skipped = process.env.ORTPACKS_POSTINSTALL === "skip";

// npm install fails where its postinstall does: `setup` throws nothing, and its failure is no exit code here.
if (words[0] === "postinstall" && skipped) console.log("ortpacks: skipped; npx ortpacks setup does it later");
else if (words[0] === "postinstall") told(ortpacks.setup());
else if (words[0] === "setup") process.exitCode = told(ortpacks.setup()).failed ? 1 : 0;
else if (words[0] === "info") console.log(JSON.stringify(ortpacks.info(), null, 2));
else process.exitCode = run();
