// rye:signed:2026-11-23T06:14:33Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:m5QIjSPeZHmSqxBlzgAcc8fLR5WrJe968LoduKNH-C3kgKn89e3PDtgu92X_VvdutQGXlxltUeZWNnJU-SkABQ:0cc2fd26c5e4a23d
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
