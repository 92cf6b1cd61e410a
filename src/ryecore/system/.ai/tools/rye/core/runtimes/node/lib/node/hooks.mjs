// rye:signed:2026-11-22T16:30:30Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:N5yCaptQ73mWg9XUWu3PxF_gUg_ciE03VOxdAn4ohSZpvFnkjyQFJsuCDi5J-1boq4PPX3tlJ7aQT-LRr2gYDA:23a2317a45110522
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
