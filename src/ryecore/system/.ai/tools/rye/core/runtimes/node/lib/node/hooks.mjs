// rye:signed:2026-11-28T17:20:55Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:VZ74aqToA7umXEPOgRr629OPYtCtvLRKe6jSz83PZPzdpnPt3NeluR31NhCDPA7f6l8wP8yFzOCmNxL2EB-fDQ:a50d0ff255b90b74
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
