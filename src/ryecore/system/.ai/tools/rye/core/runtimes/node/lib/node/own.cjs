// rye:signed:2026-11-28T17:20:55Z:2a1e356d6a2e07980f177fdf3d4382c20d2b9ab7f252b7514d40f21c5d6681a3:mD-dRXj9MCghm4a_cuVEyoUPEy-XrETNZVx5Ex8V_-kgBSXMOErpBlnLfRfxka2IcroL39yaWi62ke03L6CGDQ:a50d0ff255b90b74
// Which packages are a tool's own: those below its sealed copy, or below the folder linked there.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const { fileURLToPath } = require("node:url");

const isBelow = (place, folder) => place === folder || place.startsWith(folder + path.sep);
const own = (place, folders) => folders.some((folder) => isBelow(place, folder));

// The package's name at the start of what is imported; undefined where it is no package.
function packageOf(specifier) {
  if (/^(\.{0,2}\/|\.{1,2}$|[a-z][a-z0-9+.-]*:)/i.test(specifier)) return undefined;
  return specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
}

function isLinked(name, place, packages) {
  try {
    return packages && isBelow(place, fs.realpathSync(path.join(packages, name)));
  } catch {
    return false;
  }
}

// What an import led to, if the tool may have it. Else the error that Node gives for what isn't
// there, so that a package that is merely optional stays so.
function refuseAbove(specifier, parentURL, found, { folders, packages }) {
  const name = packageOf(specifier);
  if (!name || !parentURL?.startsWith("file:") || !found.url.startsWith("file:")) return found;
  const place = fileURLToPath(found.url);
  if (!own(fileURLToPath(parentURL), folders) || own(place, folders)) return found;
  if (isLinked(name, place, packages)) return found;
  const error = new Error(
    `Cannot find package '${specifier}' in the tool's own node_modules. The one at ${place} is not ` +
      "the tool's.",
  );
  throw Object.assign(error, { code: "ERR_MODULE_NOT_FOUND" });
}

module.exports = { isBelow, own, refuseAbove };
