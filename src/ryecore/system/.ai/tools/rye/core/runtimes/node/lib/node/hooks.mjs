// rye:signed:2026-11-23T01:00:34Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:TqZ_5e1FJT1dNSBxv2HqjxCT0p8Fp8Z3kgHHG-gG25uPXPk2ZlNIOQ1oyRVt84GKfNJmwpvTBFBIm5y-Dfy4DQ:1b1a8d0d13f6f224
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
