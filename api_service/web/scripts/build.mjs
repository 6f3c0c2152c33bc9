// Builds what the pages load: scripts and styles from our sources and from packages, and whose they are.
// Writes ../built only when all of it is right: small enough, and licensed so that it may be passed on.
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { build } from "esbuild";

const SCRIPTS = fileURLToPath(new URL(".", import.meta.url));
const BUILT = join(SCRIPTS, "..", "built");
const ROOT = join(SCRIPTS, "..", "..", "..");
const LARGEST = 150_000; // bytes of all scripts, compressed as a server compresses them
const LICENCES = new Set(["0BSD", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"]);

/** The folders of the packages, relative to the root, of which something went into what was built. */
function packagesIn(metafile) {
  const taken = Object.values(metafile.outputs).flatMap((output) =>
    Object.entries(output.inputs).filter(([, part]) => part.bytesInOutput > 0).map(([path]) => path),
  );
  const folders = taken.map((path) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]);
  return [...new Set(folders.filter((folder) => folder !== undefined))].sort();
}

/** What is to be said of one package. Throws where it may not be passed on like this. */
async function licenceOf(folder) {
  const about = JSON.parse(await readFile(join(ROOT, folder, "package.json"), "utf8"));
  if (!LICENCES.has(about.license)) {
    throw new Error(`${about.name} is under ${about.license}, which is none of ${[...LICENCES].join(", ")}`);
  }
  const file = (await readdir(join(ROOT, folder))).find((name) => /^licen[cs]e/i.test(name));
  const text = file
    ? await readFile(join(ROOT, folder, file), "utf8")
    : `The package brings no licence text; it names this one, and ${about.homepage ?? about.repository?.url}.`;
  return `${about.name} ${about.version}: ${about.license}\n\n${text.trim()}\n`;
}

const result = await build({
  absWorkingDir: ROOT,
  entryPoints: ["site.js", "zone.js", "calendar.js", "job.js"].map((name) => join(SCRIPTS, name)),
  outdir: BUILT,
  bundle: true,
  charset: "utf8",
  conditions: ["module", "production"],
  format: "iife",
  legalComments: "none", // LICENSES.txt says it all, in full
  logLevel: "warning",
  metafile: true,
  minify: true,
  target: "es2022",
  write: false,
});

const licences = await Promise.all(packagesIn(result.metafile).map(licenceOf));
const sizes = result.outputFiles.map(({ path, contents }) => [relative(BUILT, path), gzipSync(contents).length]);
const scripts = sizes.filter(([name]) => name.endsWith(".js")).reduce((sum, [, size]) => sum + size, 0);
const told = sizes.map(([name, size]) => `${name} ${(size / 1000).toFixed(1)} kB`).join(", ");
console.log(`${told} compressed; scripts ${(scripts / 1000).toFixed(1)} of ${LARGEST / 1000} kB`);
if (scripts > LARGEST) {
  throw new Error(`The scripts are ${scripts} bytes compressed, and may be ${LARGEST}: leave something out`);
}

await rm(BUILT, { recursive: true, force: true });
await mkdir(BUILT, { recursive: true });
for (const { path, contents } of result.outputFiles) await writeFile(path, contents);
// Last: `make` takes its age for that of them all.
await writeFile(join(BUILT, "LICENSES.txt"), licences.join(`\n${"-".repeat(78)}\n\n`));
