// rye:signed:2026-11-22T18:01:41Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:C4PulVxpFpYSfDRpgU_gOrwdv_XnRrZqpe-0FrParTFmpBKswt_COuGiCbt2jXc7sNjACU4TQyIw3n5lTuHyDw:01cb1e65a1e63935
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
