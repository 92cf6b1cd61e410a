// rye:signed:2026-11-22T02:29:59Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:SHeadzhpXxa9kWn95n3LbbEmgFITSwJTQUV6m0W-uvThhlChcZlEYLMfOpEp9wJxn8VuEtyRWAB_Ld2Wj5ZyBw:ed5f52b2ced4ead9
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
