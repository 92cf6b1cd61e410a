// rye:signed:2026-11-22T15:04:05Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:PhQ7-XLUUs4YB4n7rX4DxQpFpewA1Bi3A8b_sIWb7SskTaREyiu2FJcrbHQL4sBrogsBTNaCxxNehZOiuJznDg:34aea05d4c7fcad3
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
