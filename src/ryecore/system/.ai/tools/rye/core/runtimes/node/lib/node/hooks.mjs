// rye:signed:2026-11-23T02:50:17Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:IswHOBKeeGjLmgfHfK4H4P8R8hmMPiIemWkCs9t7KP4yd_o69JN2uFpP6psaTsuOXK4E4fWbWXZq_uE3QrKABg:365fb507b56e536a
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
