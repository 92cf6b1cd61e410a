// rye:signed:2026-11-22T01:13:17Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:4PGN0t7O7-vgFPuPhsLjycF9iNX_6UfRkPKMIDKIrvkG1KnN966aHa6ViI1AjBwjM3xdZMYugbVzfWpeVoyGBw:f419b6141ec2f6d0
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
