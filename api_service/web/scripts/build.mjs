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
const LARGEST = 150_000; // bytes of all scripts that pages load, compressed as a server compresses them
const OPENED = { "job_terminal.js": 110_000 }; // those that are loaded where somebody opens something
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

/** Pages allow no styles but those of files and of their nonce, so the terminal's emulator must set them by other means. */
const strictStyles = {
  name: "strict styles",
  setup({ onLoad }) {
    onLoad({ filter: /@xterm\/xterm\/lib\/xterm\.mjs$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      return { contents: STRICT.reduce((changed, [pattern, to, times]) => replaced(changed, pattern, to, times), text) };
    });
  },
};
// Each with how often it occurs, so that a new version does not pass unseen.
const STRICT = [
  [/(\w+(?:\.\w+)*)\.createElement\("style"\)/g, 'Object.assign($1.createElement("style"),{nonce:document.querySelector("script[nonce]").nonce})', 3],
  [/(\w)\.setAttribute\("style",`\$\{\1\.getAttribute\("style"\)\|\|""\}\$\{(\w)\};`\)/g, "$1.style.cssText+=$2", 1],
];

function replaced(text, pattern, to, times) {
  const found = text.match(pattern)?.length ?? 0;
  if (found !== times) throw new Error(`The terminal's emulator has ${found} of ${pattern}, and had ${times}`);
  return text.replace(pattern, to);
}

const result = await build({
  absWorkingDir: ROOT,
  entryPoints: ["site.js", "zone.js", "calendar.js", "job.js", "job_terminal.js"].map((name) => join(SCRIPTS, name)),
  outdir: BUILT,
  bundle: true,
  charset: "utf8",
  conditions: ["module", "production"],
  format: "iife",
  legalComments: "none", // LICENSES.txt says it all, in full
  logLevel: "warning",
  metafile: true,
  minify: true,
  plugins: [strictStyles],
  target: "es2022",
  write: false,
});

const licences = await Promise.all(packagesIn(result.metafile).map(licenceOf));
const sizes = result.outputFiles.map(({ path, contents }) => [relative(BUILT, path), gzipSync(contents).length]);
const scripts = sizes.filter(([name]) => name.endsWith(".js") && !(name in OPENED)).reduce((sum, [, size]) => sum + size, 0);
const told = sizes.map(([name, size]) => `${name} ${(size / 1000).toFixed(1)} kB`).join(", ");
console.log(`${told} compressed; scripts ${(scripts / 1000).toFixed(1)} of ${LARGEST / 1000} kB`);
if (scripts > LARGEST) {
  throw new Error(`The scripts are ${scripts} bytes compressed, and may be ${LARGEST}: leave something out`);
}
for (const [name, size] of sizes) {
  if (size > (OPENED[name] ?? LARGEST)) throw new Error(`${name} is ${size} bytes compressed, and may be ${OPENED[name]}`);
}

await rm(BUILT, { recursive: true, force: true });
await mkdir(BUILT, { recursive: true });
for (const { path, contents } of result.outputFiles) await writeFile(path, contents);
// Last: `make` takes its age for that of them all.
await writeFile(join(BUILT, "LICENSES.txt"), licences.join(`\n${"-".repeat(78)}\n\n`));
