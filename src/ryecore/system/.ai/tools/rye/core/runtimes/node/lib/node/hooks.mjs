// rye:signed:2026-11-22T18:32:50Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:JOi08GyWW3V2j2i5R_3zy5i_ClylzBx-iCQE_wjdp0sKewvawjj1K0yp_vvzqhKxvApLhX7dGUOWa_wrROouBw:05af8069d5b816d9
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
