// rye:signed:2026-11-23T07:03:03Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:NdBg5e5S3F_kiA2PhPAxhhFQRlChc2bQBa57zzp7equwVyfqk8KKWlvA0COBBsdAo95mjC_TzVPAk4_CWR8kBg:dc9821d4799304d7
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
