// rye:signed:2026-11-23T09:35:44Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:Ei5NtevwEq8w3y6Oi6FV3DV3ho2oG9LXIGWrdKgH8KjS-bVpwJ91OTEDbyh1e2ZmFpKqcBlrmLy2ArhRX4jICQ:3f3dd60b3ba10fd5
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
