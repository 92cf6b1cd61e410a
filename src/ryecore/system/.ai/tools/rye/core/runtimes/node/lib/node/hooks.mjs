// rye:signed:2026-11-22T01:49:29Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:Bq9vL0g_hM5jsTZO_RN7g70O3lhlBC2BPgnjaQg-FS1RISi15N3K-sNu6fWhX_6sfuq65l1FLEd52MfGiZItBg:3886248b17e84144
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
