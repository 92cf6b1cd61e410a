// rye:signed:2026-11-23T01:09:46Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:W-ArIcAH_Fspag41GtSIBSvEzcnVUcjjxteLTKx3LZbkCruYATpR7-tZmmoSVA35YEkCKXrrG1cYJbnvrUGzCw:0159613eef788f1a
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
