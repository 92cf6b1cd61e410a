// rye:signed:2026-11-22T14:20:31Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:E7usiWYpPH9FkNRZgh898mKjmN949TOG7inEnVjCSmTnTHuBrjkIMFLTMv2ChgACUZFbwjWpp5CcnVzSoyRFBg:9efc1bb77beeb2bf
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
