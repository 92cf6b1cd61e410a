// rye:signed:2026-11-23T13:17:48Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:mobQDcSejpTq-OozTWeu3hRhwAUov1pefxZZWts8auhmkIpRvsk0uS1MtvGYof2E0L9m-UseTyIlmsZ_Tsd2Ag:a43bccb664db34f6
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
