// rye:signed:2026-11-22T14:38:42Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:yUOmi1PukZov7iF4ZyghFDr2trTVUTKHUXQ4FrG94e9ee2HFASKB_eiYfBq69SBzp_K5j1Qe1CLudByWovcKBw:00876411c3356ad7
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
