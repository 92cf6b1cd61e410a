// rye:signed:2026-11-22T07:48:48Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:u_Ytxzqct00MZ3GwKANbpEFfz1y_gR2uZVhVg8ka5ppX9gkYmgQwWftrtXXSjI0z-Qn0IcNOcQRDicW6sEssDQ:579955d980d16c72
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
