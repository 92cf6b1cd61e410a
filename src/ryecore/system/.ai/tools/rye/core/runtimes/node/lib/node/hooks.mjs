// rye:signed:2026-11-23T14:32:07Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:k4LH8QORp2b4XDUqhOvGUcrtNv5kTXwUAAw0xVGb8G4jYDwJJiQcCouH2SlDG3k5m-VBJ0egTWK7Dr0vcDH5DQ:c13b139b3074c336
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
