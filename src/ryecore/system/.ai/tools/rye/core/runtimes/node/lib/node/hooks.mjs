// rye:signed:2026-11-23T01:32:30Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:mjkoXz_0sx8qjOERdO1baeRMk83vJnuN1EXIv31VxKaIaIpljhyiSEuKgOk9z4MOVVOSwQrWF1Df5IqFgBLFCQ:a5199df06c86d42c
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
