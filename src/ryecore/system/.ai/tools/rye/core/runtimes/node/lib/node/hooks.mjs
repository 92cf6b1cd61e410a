// rye:signed:2026-11-23T01:23:11Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:bMfCIIHS9vao42U7b47vP7riehK6XsyQlFNI4H78rzpE9-K1mckCpHtfYzIfpAeBW2vgVRuO8V4Tt944Mmn9AA:0b0180518c45e627
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
