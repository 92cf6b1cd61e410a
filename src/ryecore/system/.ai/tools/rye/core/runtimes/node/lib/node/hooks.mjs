// rye:signed:2026-11-23T00:47:25Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:MRt8yJCXusIJd2fc2BJPEqWTLsxQ_asA6gcLiCOgJ4mrte-J-7QupCfBpBh8ZVWBFz_WIHIvQv7HGThKw1FMAg:bf51294c330ae91b
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
