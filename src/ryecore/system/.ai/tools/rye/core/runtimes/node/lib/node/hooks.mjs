// rye:signed:2026-11-22T07:39:57Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:8oUPnBRA_ED1k3pxco_9HrmQ4uBxfp2nm0tSp3XX2QUGiVApkyxWb47cS2CeoQdySWNKNwwoEDKE3Z7HLlP4DA:27473b6bf90a4eca
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
