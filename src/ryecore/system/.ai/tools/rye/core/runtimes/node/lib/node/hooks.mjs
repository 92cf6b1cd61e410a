// rye:signed:2026-11-22T18:27:38Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:EPgQUHEZ_WVFtGDbkgwDA4-upuVKn0wOjgHnFi1u_jHArdE8SYtUcRgBoGfEtYTnn9xvMwKnhvLUr1kW3o1EAg:85713489a27bc22b
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
