// rye:signed:2026-11-22T15:48:37Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:O7WTOKGTa13Kq31c9HJF2YgRy7PLvX4WKPhCKqkp3uTeSGFzTgevcs6_6rpBO1R3AXy35ZyIdjG68lbvLv1aBA:d9c159d0464212a5
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
