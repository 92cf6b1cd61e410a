// rye:signed:2026-11-22T14:47:57Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:gpK0hGUryroXC64gQHVj13ceamjtZ9GKbvFe-H2V-oLIQZZ_Bwpk2Yx8usVhq9tKsd0ERfYhANOHu6VqQrtMDA:aa8e5bd2f65dca66
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
