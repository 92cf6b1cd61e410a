// rye:signed:2026-11-28T13:35:45Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:c7ZXBIbpwyOplIe00eruAU2kb6CdJoFUfsqXeHEZ2vmLbfTvj6w4H498CsMRMaKVhrTOC8iI97IdWMTCY-VtAA:6785ae38151bd2b9
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
