// rye:signed:2026-11-28T17:20:55Z:6a53b866f9fa5539fe7dedc1131aadf893de80e710c7b601385127d4e3944152:L4TqNli88CUncgIE3aIW4249Oz4r-4VYnqt7G94opOpJBp4sOwWU5Zd4xsKwtyg_9XXbG6OXDYeTiKfJfvygBQ:a50d0ff255b90b74
// Runs in each Node process of a tool before anything else.
//
// Node looks for packages in `node_modules` of every folder above a module, and tsx for a
// tsconfig.json in every folder above the one it starts in. Above the tool's sealed copy, and above
// the folder that its packages are linked from, nobody vouches for what stands there.
"use strict";
const fs = require("node:fs");
const Module = require("node:module");
const os = require("node:os");
const path = require("node:path");
const { isMainThread } = require("node:worker_threads");
const { isBelow, own, refuseAbove } = require("./own.cjs");

const root = real(process.env.RYE_TOOL_ROOT);
if (root) {
  const tsconfig = path.join(root, "tsconfig.json");
  process.env.TSX_TSCONFIG_PATH ||= fs.existsSync(tsconfig) ? tsconfig : os.devNull;
  const main = real(process.argv[1]);
  if (isMainThread && main && isBelow(main, root)) refuseTypeScriptWithoutSupport(main);
  keepToOwnPackages(main);
}

function real(place) {
  try {
    return place && fs.realpathSync(place);
  } catch {
    return undefined; // there is nothing
  }
}

function refuseTypeScriptWithoutSupport(main) {
  const hasLoader =
    process.execArgv.length > 0 || /--(import|loader|experimental)/.test(process.env.NODE_OPTIONS);
  if (!/\.ts$/.test(main) || hasLoader || process.features.typescript) return;
  process.stderr.write(
    `The tool is TypeScript, which Node ${process.version} can't run by itself. Install tsx beside ` +
      "the tool's package.json (npm install tsx) and, if you trust the project, let its programs " +
      "run (rye trust-project). Or set RYE_NODE to a tsx elsewhere, or to Node 22.18 or newer.\n",
  );
  process.exit(1);
}

function keepToOwnPackages(main) {
  const packages = real(path.join(root, "node_modules"));
  const folders = packages ? [root, packages] : [root];
  const above = folders.flatMap((folder) => Module._nodeModulePaths(path.dirname(folder)));
  if (!above.some((folder) => !own(folder, folders) && fs.existsSync(folder))) return;

  const lookedIn = Module._nodeModulePaths;
  Module._nodeModulePaths = (from) =>
    own(from, folders) ? lookedIn(from).filter((folder) => own(folder, folders)) : lookedIn(from);

  const tool = { folders, packages };
  if (Module.registerHooks) {
    const resolve = (specifier, context, next) =>
      refuseAbove(specifier, context.parentURL, next(specifier, context), tool);
    Module.registerHooks({ resolve });
  } else if (isMainThread && main && isBelow(main, root)) {
    // Before 22.15, hooks for `import` live in a thread of their own, which runs this file too.
    const { pathToFileURL } = require("node:url");
    Module.register("./hooks.mjs", { parentURL: pathToFileURL(__filename), data: tool });
  }
}
