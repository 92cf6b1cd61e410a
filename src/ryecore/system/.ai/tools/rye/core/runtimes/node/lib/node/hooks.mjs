// rye:signed:2026-11-23T07:09:24Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:iyMvXZhUOTFIeAitMmBWYbbfYgGJKb_H3tdBGz8axfuoOn5owqSDpz0klUewQ1NrcTLsXrgbBj_DIAbVmLk1DQ:ad426c65d6cf697e
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
