// rye:signed:2026-11-22T14:49:37Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:OHtVULT0dp6WUwtqYHaMzk9M41t2dYxfIZiuPkCnI4B8XjvjibD_8J78nu-oBDBOtp9xx5nvgDhOcH9u2ZbYCw:1bfa7cf7c8f33158
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
