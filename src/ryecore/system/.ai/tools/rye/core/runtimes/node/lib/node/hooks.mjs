// rye:signed:2026-11-28T13:22:49Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:I4cCfVR8xka5OduSm1Xhdr-ByBH7FMK3Hpx0z4BJvDEUdbFmlPXHUee3PYIBLY_D9dl3DfTKqMbB_uNWtewfBw:9b236661def0077c
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
