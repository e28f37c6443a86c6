/* Writes charts.min.js and the licences of what is in it into the folder that is given; ../static/echarts by default. */
import {mkdirSync, readFileSync, writeFileSync} from "node:fs";
import {dirname, join, resolve} from "node:path";
import {fileURLToPath} from "node:url";
import {build} from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] || join(here, "../static/echarts"));
const package_ = name => join(here, "node_modules", name);
const version = name => JSON.parse(readFileSync(join(package_(name), "package.json"), "utf8")).version;

await build({
  absWorkingDir: here,
  entryPoints: ["charts.js"],
  outfile: join(out, "charts.min.js"),
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "echarts",
  target: "es2022",
  charset: "ascii",
  legalComments: "none", // the licences are beside the script
  define: {"process.env.NODE_ENV": '"production"'},
  banner: {
    js: `/* Apache ECharts ${version("echarts")} with zrender ${version("zrender")}, only what the pages draw: see LICENSE and NOTICE. */`,
  },
});

mkdirSync(out, {recursive: true});
const texts = [
  ["echarts/LICENSE", "LICENSE"],
  ["echarts/NOTICE", "NOTICE"],
  ["echarts/licenses/LICENSE-d3", "LICENSE-d3"],
  ["zrender/LICENSE", "LICENSE-zrender"],
  ["tslib/LICENSE.txt", "LICENSE-tslib"],
];
for (const [from, to] of texts)
  writeFileSync(join(out, to), readFileSync(package_(from), "utf8").replaceAll("\r\n", "\n").trimEnd() + "\n");
